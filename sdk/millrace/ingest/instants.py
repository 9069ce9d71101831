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

_NS = {**NS_PER_UNIT, "m": 60 * 10**9, "h": 3600 * 10**9, "D": NS_PER_DAY, "W": 7 * NS_PER_DAY}
"""Nanoseconds of NumPy's units; years and months differ in length."""


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
        if unit in _NS:
            return int(given.astype(np.int64)) * count * _NS[unit], "time", False
        if unit not in ("Y", "M"):
            raise ArgumentError(f"ts={given!r} has the unit {unit}; allowed are years to nanoseconds")
        months = int(given.astype(np.int64)) * count * (12 if unit == "Y" else 1)
        if not 1 <= 1970 + months // 12 <= 9999:
            raise ArgumentError(f"ts={given!r} is in the year {1970 + months // 12}; allowed are 1 to 9999")
        return (date(1970 + months // 12, 1 + months % 12, 1) - date(1970, 1, 1)).days * NS_PER_DAY, "time", False
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
