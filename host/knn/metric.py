"""Metrics: what a row's coordinates are as a point, and which distance follows from a squared one.

`euclidean`: the coordinates themselves. `haversine`: longitude and latitude in degrees become a unit vector, once; the
squared chord between two of them grows with the distance on the sphere, so the search is the same in three dimensions.
Functions of the C library are called one value at a time: their results do not depend on the processor's SIMD.
"""

from __future__ import annotations

import math
from typing import Any, Literal, get_args

import numpy as np

from millrace.host.base.types import Array, Mask
from millrace.host.runtime.jit import inline, kernel

Metric = Literal["euclidean", "haversine"]
METRICS: tuple[Metric, ...] = get_args(Metric)
RADIUS = 6_371_008.8
"""The radius of the sphere, in metres."""
MAX_LATITUDE = 90.0
_RADIANS = math.pi / 180
_LARGEST_BITS = 0x7FF0000000000000
"""The bits of infinity: non-negative doubles sort as their bits do."""


def point_dimensions(metric: Metric, coordinates: int) -> int:
    """Return the dimensions in which points are searched."""
    return 3 if metric == "haversine" else coordinates


def usable_points(metric: Metric, columns: list[Array]) -> Mask:
    """Return which rows are points: all coordinates are finite, and a latitude is at most 90 degrees."""
    usable = np.isfinite(columns[0])
    for column in columns[1:]:
        usable &= np.isfinite(column)
    if metric == "haversine":
        usable &= np.abs(columns[1]) <= MAX_LATITUDE
    return usable


def to_points(metric: Metric, columns: list[Array]) -> list[Array]:
    """Return the points in columns of doubles; those of rows that are not usable mean nothing."""
    if metric == "euclidean":
        return columns
    found = np.empty((3, len(columns[0])))
    _unit_vectors(columns[0], columns[1], found)
    return list(found)


@kernel
def _unit_vectors(longitudes: Any, latitudes: Any, out: Any) -> None:
    for i in range(longitudes.shape[0]):
        a, b = longitudes[i] * _RADIANS, latitudes[i] * _RADIANS
        out[0, i] = math.cos(b) * math.cos(a)
        out[1, i] = math.cos(b) * math.sin(a)
        out[2, i] = math.sin(b)


@inline
def distance_of(square: float, on_sphere: bool) -> float:
    """Return the distance that follows from a squared distance or a squared chord."""
    root = math.sqrt(square)
    return 2 * RADIUS * math.asin(min(1.0, root / 2)) if on_sphere else root


@kernel
def _distance(square: float, on_sphere: bool) -> float:
    return distance_of(square, on_sphere)


def square_limit(metric: Metric, within: float | None) -> float:
    """Return the largest squared distance whose distance is at most `within`, by bisection over all doubles."""
    if within is None:
        return math.inf
    low, high = 0, _LARGEST_BITS
    while low < high:
        middle = (low + high + 1) // 2
        square = float(np.int64(middle).view(np.float64))
        low, high = (middle, high) if _distance(square, metric == "haversine") <= within else (low, middle - 1)
    return float(np.int64(low).view(np.float64))
