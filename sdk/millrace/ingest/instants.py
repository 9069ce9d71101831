"""Reads the `ts` argument of `advance`: an integer for integer times, otherwise any type of a point in time."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from millrace.host.base.errors import ArgumentError
from millrace.host.base.words import NS_PER_DAY, NS_PER_UNIT

Instant = tuple[int, Literal["int", "time"], bool]
"""Nanoseconds since 1970 (or the integer itself), which of the two, and whether it has a time zone."""


def parse_instant(given: Any) -> Instant:
    """An int, `datetime`, `date`, `numpy.datetime64`, `pandas.Timestamp` or Arrow timestamp scalar, exactly."""
    if isinstance(given, pa.Scalar):
        return _from_scalar(given)
    if isinstance(given, bool):
        raise _refusal(given)
    if isinstance(given, int | np.integer):
        return int(given), "int", False
    if isinstance(given, np.datetime64):
        unit, count = np.datetime_data(given.dtype)
        if np.isnat(given):
            raise _refusal(given)
        if unit in NS_PER_UNIT:
            return int(given.astype(np.int64)) * count * NS_PER_UNIT[unit], "time", False
        if unit in ("ps", "fs", "as", "generic"):
            raise ArgumentError(f"ts={given!r} has the unit {unit}; allowed are years to nanoseconds")
        return int(given.astype("datetime64[s]").astype(np.int64)) * NS_PER_UNIT["s"], "time", False
    if isinstance(given, datetime):
        return _from_datetime(given)
    if isinstance(given, date):
        return (given - date(1970, 1, 1)).days * NS_PER_DAY, "time", False
    raise _refusal(given)


def _from_datetime(given: datetime) -> Instant:
    if given != given:  # pandas.NaT
        raise _refusal(given)
    zoned = given.tzinfo is not None
    since = (given if zoned else given.replace(tzinfo=UTC)) - datetime(1970, 1, 1, tzinfo=UTC)
    micros = (since.days * 86_400 + since.seconds) * 10**6 + since.microseconds
    # pandas.Timestamp is a datetime with an extra nanosecond field.
    return micros * 1000 + int(getattr(given, "nanosecond", 0)), "time", zoned


def _from_scalar(given: pa.Scalar) -> Instant:
    if not given.is_valid:
        raise _refusal(given)
    if pa.types.is_integer(given.type):
        return given.as_py(), "int", False
    if pa.types.is_timestamp(given.type):
        return given.value * NS_PER_UNIT[given.type.unit], "time", given.type.tz is not None
    if pa.types.is_date(given.type):
        return given.value * (NS_PER_DAY if given.type == pa.date32() else NS_PER_UNIT["ms"]), "time", False
    raise _refusal(given)


def _refusal(given: Any) -> ArgumentError:
    return ArgumentError(
        f"ts={given!r} is not a point in time; allowed are an integer (for integer time columns), datetime, date, "
        f"numpy.datetime64, pandas.Timestamp and Arrow timestamp or date scalars"
    )
