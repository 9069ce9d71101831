"""Queries of one key type asked of keys of another, exactly: for each query the largest key value not above it.

Numbers may ask numbers and times may ask times. `exact` says where the query is itself a value of the key's type: only
those can be found by a lookup. The bounds of a range need not be: a lower bound of 2.5 over integers is 3, which is the
word after that of 2; an upper one is 2. `below` says where no key value is low enough. Nothing is rounded to nearest
anywhere: an int64 that no double equals is not found among doubles.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from millrace.host.base.errors import KeyTypeError
from millrace.host.base.types import Array, Mask
from millrace.host.base.words import KeyType, every, to_words


@dataclass(frozen=True)
class Floor:
    """The words of the largest key values not above some queries (nothing is `below` where that mask is missing)."""

    words: Array
    exact: Mask
    below: Mask | None = None


def check_kinds(label: str, asked: KeyType, key: KeyType) -> None:
    """Raise a `KeyTypeError` unless values of the one type can be asked of keys of the other."""
    if (asked.domain == "time") != (key.domain == "time"):
        kind = "dates and timestamps" if key.domain == "time" else "integers and floats"
        raise KeyTypeError(
            f"{label} has type {asked.name}, the keys are {key.name}; they take {kind}: cast {label} first"
        )
    if asked.zoned != key.zoned:
        zone = "a time zone" if key.zoned else "no time zone"
        raise KeyTypeError(
            f"{label} has type {asked.name}, the keys are {key.name}, which have {zone}: cast {label} to that type"
        )


@np.errstate(all="ignore")
def floor_words(values: Array, asked: KeyType, key: KeyType) -> Floor:
    """`values` of type `asked` (as `words.native` gives them) as words of type `key`."""
    if asked.dtype == key.dtype and asked.ns == key.ns:
        return Floor(to_words(values), every(len(values)))
    if key.domain == "float":
        held, exact, below = _to_float(values, key.dtype)
    elif asked.domain == "float":
        held, exact, below = _float_to_int(values, key.dtype)
    else:
        held, exact, below = _int_to_int(values, asked.ns, key.ns, key.dtype)
    return Floor(to_words(held), exact, below if below.any() else None)


def _int_to_int(values: Array, unit: int, key_unit: int, dtype: np.dtype[Any]) -> tuple[Array, Mask, Mask]:
    """Integers counted in `unit`, to integers counted in `key_unit`: one divides the other."""
    exact = np.ones(len(values), np.bool_)
    if key_unit > unit:
        ratio = values.dtype.type(key_unit // unit)
        divided = values // ratio
        values, exact = divided, divided * ratio == values
    most, least = np.iinfo(dtype).max, np.iinfo(dtype).min
    times = max(unit // key_unit, 1)
    # The range of the query type that stays in the key's when multiplied; compared as Python integers, so exactly.
    info = np.iinfo(values.dtype)
    high, low = most // times, -(-least // times)
    above = values > values.dtype.type(high) if high < info.max else np.zeros(len(values), np.bool_)
    below = values < values.dtype.type(low) if low > info.min else np.zeros(len(values), np.bool_)
    inside = ~(above | below)
    held = np.where(inside, values, 0).astype(dtype) * dtype.type(times)
    return np.where(above, dtype.type(most), np.where(below, dtype.type(least), held)), exact & inside, below


def _float_to_int(values: Array, dtype: np.dtype[Any]) -> tuple[Array, Mask, Mask]:
    """Floats to the whole numbers below them."""
    doubles = values.astype(np.float64)
    whole = np.floor(doubles)
    info = np.iinfo(dtype)
    # The first double beyond the type's end: a power of two, so exact.
    above, below = whole >= float(int(info.max) + 1), whole < float(info.min)
    inside = ~(above | below)
    held = np.where(inside, whole, 0.0).astype(dtype)
    held = np.where(above, dtype.type(info.max), np.where(below, dtype.type(info.min), held))
    return held, inside & (whole == doubles), below


def _to_float(values: Array, dtype: np.dtype[Any]) -> tuple[Array, Mask, Mask]:
    """Integers, or floats of another width, to the floats not above them."""
    near = values.astype(dtype)
    if values.dtype.kind == "f":
        up = near.astype(np.float64) > values
        same = near.astype(np.float64) == values
    else:
        up, same = _compare(near.astype(np.float64), values)
    held = np.where(up, np.nextafter(near, dtype.type(-np.inf)), near)
    return held, same, np.zeros(len(values), np.bool_)


def _compare(doubles: Array, values: Array) -> tuple[Mask, Mask]:
    """Whether whole doubles are above integers, and whether they are equal, exactly."""
    info = np.iinfo(values.dtype)
    beyond = doubles >= float(int(info.max) + 1)
    back = np.where(beyond, 0.0, doubles).astype(values.dtype)
    return beyond | (back > values), ~beyond & (back == values)
