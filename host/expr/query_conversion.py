"""Converts queries to the key type of an index, exactly: each query becomes the largest key value not above it (floor).

Queries for number keys are numbers, queries for time keys are times. `exact`: the query is itself a value of the key
type; a lookup can find only such queries. Range bounds may be inexact: over integer keys, a lower bound of 2.5 becomes
3, which is the word after that of 2, and an upper bound of 2.5 becomes 2. `below`: no key value is low enough. No value
is rounded to nearest: a lookup among double keys does not find an int64 that no double equals.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from millrace.host.base.errors import KeyTypeError
from millrace.host.base.types import Array, Mask
from millrace.host.base.words import KeyType, to_words, true_mask


@dataclass(frozen=True)
class FlooredQueries:
    """The words of the largest key values not above the queries (`below` is None if every query has one)."""

    words: Array
    exact: Mask
    below: Mask | None = None


def check_kinds(label: str, query: KeyType, key: KeyType) -> None:
    """Raise a `KeyTypeError` unless keys of type `key` can be queried with values of type `query`."""
    if (query.domain == "time") != (key.domain == "time"):
        kind = "dates and timestamps" if key.domain == "time" else "integers and floats"
        raise KeyTypeError(
            f"{label} has type {query.name}, the keys are {key.name}; they take {kind}: cast {label} first"
        )
    if query.zoned != key.zoned:
        zone = "a time zone" if key.zoned else "no time zone"
        raise KeyTypeError(
            f"{label} has type {query.name}, the keys are {key.name}, which have {zone}: cast {label} to that type"
        )


@np.errstate(all="ignore")
def floor_words(values: Array, query: KeyType, key: KeyType) -> FlooredQueries:
    """Convert `values` of type `query` (as returned by `words.native`) to words of type `key`."""
    if query.dtype == key.dtype and query.ns == key.ns:
        return FlooredQueries(to_words(values), true_mask(len(values)))
    if key.domain == "float":
        held, exact, below = _to_float(values, key.dtype)
    elif query.domain == "float":
        held, exact, below = _float_to_int(values, key.dtype)
    else:
        held, exact, below = _int_to_int(values, query.ns, key.ns, key.dtype)
    return FlooredQueries(to_words(held), exact, below if below.any() else None)


def _int_to_int(values: Array, unit: int, key_unit: int, dtype: np.dtype[Any]) -> tuple[Array, Mask, Mask]:
    """Convert integers in `unit` to integers in `key_unit`, where one unit divides the other."""
    exact = np.ones(len(values), np.bool_)
    if key_unit > unit:
        ratio = values.dtype.type(key_unit // unit)
        divided = values // ratio
        values, exact = divided, divided * ratio == values
    highest, lowest = np.iinfo(dtype).max, np.iinfo(dtype).min
    times = max(unit // key_unit, 1)
    # The range of query values that stays in the key type when multiplied; compared as Python integers, so exactly.
    info = np.iinfo(values.dtype)
    high, low = highest // times, -(-lowest // times)
    above = values > values.dtype.type(high) if high < info.max else np.zeros(len(values), np.bool_)
    below = values < values.dtype.type(low) if low > info.min else np.zeros(len(values), np.bool_)
    inside = ~(above | below)
    held = np.where(inside, values, 0).astype(dtype) * dtype.type(times)
    return np.where(above, dtype.type(highest), np.where(below, dtype.type(lowest), held)), exact & inside, below


def _float_to_int(values: Array, dtype: np.dtype[Any]) -> tuple[Array, Mask, Mask]:
    """Convert floats to the integers at or below them."""
    doubles = values.astype(np.float64)
    floors = np.floor(doubles)
    info = np.iinfo(dtype)
    # The first double beyond the maximum of the type: a power of two, so exact.
    above, below = floors >= float(int(info.max) + 1), floors < float(info.min)
    inside = ~(above | below)
    held = np.where(inside, floors, 0.0).astype(dtype)
    held = np.where(above, dtype.type(info.max), np.where(below, dtype.type(info.min), held))
    return held, inside & (floors == doubles), below


def _to_float(values: Array, dtype: np.dtype[Any]) -> tuple[Array, Mask, Mask]:
    """Convert integers, or floats of another width, to the floats not above them."""
    near = values.astype(dtype)
    if values.dtype.kind == "f":
        up = near.astype(np.float64) > values
        same = near.astype(np.float64) == values
    else:
        up, same = _compare(near.astype(np.float64), values)
    held = np.where(up, np.nextafter(near, dtype.type(-np.inf)), near)
    return held, same, np.zeros(len(values), np.bool_)


def _compare(doubles: Array, values: Array) -> tuple[Mask, Mask]:
    """Compare integral doubles with integers, exactly: masks of doubles above the integer, and equal to it."""
    info = np.iinfo(values.dtype)
    beyond = doubles >= float(int(info.max) + 1)
    back = np.where(beyond, 0.0, doubles).astype(values.dtype)
    return beyond | (back > values), ~beyond & (back == values)
