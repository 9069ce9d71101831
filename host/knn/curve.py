"""Orders points along a Hilbert curve, so that consecutive points are near each other.

Each coordinate becomes a level by its rank: a table of quantiles of a sample, with linear interpolation between them.
So outliers and clusters leave enough levels for every region. The levels, 32 bits over all dimensions, become the
position on the curve (Skilling's transformation), many points at once in SIMD registers. Groups come first in the
order, so that the points of a group are consecutive.
"""

from __future__ import annotations

from enum import auto
from typing import Any

import numpy as np

from millrace.host.base.types import Array, Longs
from millrace.host.kernels.word_sorter import sort_words
from millrace.host.knn.lanes import MAX_DIMENSIONS
from millrace.host.runtime.allocator import allocate, free
from millrace.host.runtime.intrinsics import load, load_as, stack_words, store_as
from millrace.host.runtime.jit import inline, share
from millrace.host.runtime.kernel_args import KernelArgs
from millrace.host.runtime.team import Team

CURVE_BITS = 32
"""Bits of a position on the curve."""
QUANTILES = 256
LEVEL_BITS = 16
"""Bits of a level: 8 for the quantile, 8 for the interpolation."""
SAMPLE = 4096
CHUNK = 512
"""Points that are transformed together."""
_CHUNK_WORDS = CHUNK // 2
_LEVEL_WORDS = MAX_DIMENSIONS * CHUNK // 2
_SLICE = 1 << 14
"""Points per part of a job, about."""


class _Args(KernelArgs):
    """The arguments of `_keys`."""

    N = auto()
    DIMS = auto()
    BITS = auto()  # of a level, in the key
    TABLE = auto()  # for each dimension: QUANTILES lower ends, then QUANTILES factors
    OUT = auto()
    COLUMN = auto()  # the first column of coordinates; the others follow


@inline
def _level(value: float, table: int) -> Any:
    """Return the level of a value: the quantile by binary search, then the interpolated part."""
    at = 0
    step = QUANTILES // 2
    while step > 0:
        at += step if value >= load_as(table, at + step, 0.0) else 0
        step >>= 1
    part = (value - load_as(table, at, 0.0)) * load_as(table, QUANTILES + at, 0.0)
    part = min(max(part, 0.0), 255.0)
    return np.uint32((at << 8) | np.int64(part))


@inline
def _to_curve(levels: int, count: int, dims: int, bits: int) -> None:
    """Skilling's transformation of levels, stored dimension by dimension, into the transposed position.

    Points are in the innermost loops and there are no branches, so that LLVM vectorises them.
    """
    for q in range(bits - 1, 0, -1):
        low = np.uint32((1 << q) - 1)
        for j in range(count):
            value = load_as(levels, j, np.uint32(0))
            store_as(levels, j, np.uint32(value ^ (low & _spread(value, q))))
        for i in range(1, dims):
            other = levels + 4 * CHUNK * i
            for j in range(count):
                first, value = load_as(levels, j, np.uint32(0)), load_as(other, j, np.uint32(0))
                is_set = _spread(value, q)
                swapped = (first ^ value) & low & ~is_set
                store_as(other, j, np.uint32(value ^ swapped))
                store_as(levels, j, np.uint32(first ^ swapped ^ (low & is_set)))
    for i in range(1, dims):
        before, own = levels + 4 * CHUNK * (i - 1), levels + 4 * CHUNK * i
        for j in range(count):
            store_as(own, j, np.uint32(load_as(own, j, np.uint32(0)) ^ load_as(before, j, np.uint32(0))))


@inline
def _spread(value: Any, bit: int) -> Any:
    """Return all ones if a bit is set, else 0."""
    return np.uint32(0) - ((value >> np.uint32(bit)) & np.uint32(1))


@inline
def _interleave(levels: int, count: int, dims: int, bits: int, fixes: int, out: int) -> None:
    """Write the positions on the curve: the Gray code's last correction, then the bits of all dimensions in turn."""
    last = levels + 4 * CHUNK * (dims - 1)
    for j in range(count):
        store_as(fixes, j, np.uint32(0))
        store_as(out, j, np.uint32(0))
    for q in range(bits - 1, 0, -1):
        low = np.uint32((1 << q) - 1)
        for j in range(count):
            fix = load_as(fixes, j, np.uint32(0)) ^ (low & _spread(load_as(last, j, np.uint32(0)), q))
            store_as(fixes, j, np.uint32(fix))
    for q in range(bits - 1, -1, -1):
        for i in range(dims):
            own = levels + 4 * CHUNK * i
            for j in range(count):
                value = load_as(own, j, np.uint32(0)) ^ load_as(fixes, j, np.uint32(0))
                bit = (value >> np.uint32(q)) & np.uint32(1)
                store_as(out, j, np.uint32((load_as(out, j, np.uint32(0)) << np.uint32(1)) | bit))


@share
def _keys(given: int, part: int, parts: int) -> None:
    n, dims, bits = load(given, _Args.N), load(given, _Args.DIMS), load(given, _Args.BITS)
    table, out = load(given, _Args.TABLE), load(given, _Args.OUT)
    levels, fixes = stack_words(_LEVEL_WORDS), stack_words(_CHUNK_WORDS)
    stop = n * (part + 1) // parts
    for at in range(n * part // parts, stop, CHUNK):
        count = min(CHUNK, stop - at)
        for i in range(dims):
            column, own = load(given, _Args.COLUMN + i), table + 16 * QUANTILES * i
            for j in range(count):
                level = _level(load_as(column, at + j, 0.0), own) >> np.uint32(LEVEL_BITS - bits)
                store_as(levels + 4 * CHUNK * i, j, np.uint32(level))
        _to_curve(levels, count, dims, bits)
        _interleave(levels, count, dims, bits, fixes, out + 4 * at)


class Curve:
    """The order of points along a curve whose resolution follows a sample of them."""

    def __init__(self, columns: list[Array]) -> None:
        """Take the quantiles from a sample of these points (at least one)."""
        self._dims = len(columns)
        self._table = np.zeros((self._dims, 2, QUANTILES))
        step = max(len(columns[0]) // SAMPLE, 1)
        for column, (lows, factors) in zip(columns, self._table, strict=True):
            sample = np.sort(column[::step])
            ends = np.empty(QUANTILES + 1)
            ends[:-1] = sample[np.arange(QUANTILES) * len(sample) // QUANTILES]
            ends[-1] = sample[-1]
            lows[:] = ends[:-1]
            with np.errstate(over="ignore", divide="ignore"):
                widths = np.diff(ends)
                factors[:] = np.where(widths > 0, 255.99 / widths, 0.0)
            factors[~np.isfinite(factors)] = 0.0

    def order(self, columns: list[Array], groups: Longs | None, team: Team) -> Array:
        """Return the row numbers (uint32) in the order of (group, position on the curve); ties keep their order."""
        n = len(columns[0])
        keys = allocate(n, np.uint32)
        bits = min(LEVEL_BITS, CURVE_BITS // self._dims)
        given = _Args.pack(*columns, N=n, DIMS=self._dims, BITS=bits, TABLE=self._table, OUT=keys)
        team.run(_keys, given, -(-n // _SLICE))
        words: Array = keys
        if groups is not None:
            ranks = np.unique(groups, return_inverse=True)[1].astype(np.uint64)
            words = (ranks << np.uint64(CURVE_BITS)) | keys
        _, order = sort_words(words, team)
        free(keys)
        return order
