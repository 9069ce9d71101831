"""Reads `window` and `lateness`: rows, lengths of time, or plain integers for integer time columns.

`"1000 rows"`, `"10 minutes"`, `"1 hour 30 minutes"`, `"1000"`, a `timedelta` (Python's, pandas', NumPy's or Arrow's),
or a pair of them for the two sides. Lengths are exact.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from fractions import Fraction
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from millrace.host.base.errors import ArgumentError
from millrace.host.base.words import NS_PER_UNIT
from millrace.predicate.time_units import NANOSECONDS, SECOND, UNIT_NAMES

Measure = Literal["rows", "ns", "ticks"]
_TEXT = re.compile(r"\s*([+-]?\d{1,40}(?:\.\d{1,40})?)\s*([^\W\d]*)\s*")
_SEVERAL = re.compile(r"(?:\s*\d{1,40}(?:\.\d{1,40})?\s*[^\W\d]+\s*,?){2,8}")
"""Several amounts, each with its unit: `1 hour 30 minutes`."""
_NUMPY_NS = {"W": 7 * 86_400 * SECOND, "D": 86_400 * SECOND, "h": 3600 * SECOND, "m": 60 * SECOND, **NS_PER_UNIT}


@dataclass(frozen=True)
class Span:
    """A non-negative length: rows, nanoseconds, or ticks of an integer time column."""

    measure: Measure
    length: int

    def __str__(self) -> str:
        """As people write it: `1 hour 30 minutes`."""
        return duration_text(self.length) if self.measure == "ns" else self.exact

    @property
    def exact(self) -> str:
        """In the smallest unit; states store this text, so it must not change."""
        return f"{self.length}{'' if self.measure == 'ticks' else ' ' + self.measure}"


@dataclass(frozen=True)
class WindowSpec:
    """r's window and s's: rows to hold, or how long after r (`r`) and before r (`s`) the time of s may be."""

    r: Span
    s: Span

    @property
    def counts(self) -> bool:
        """Whether it is a count window."""
        return self.r.measure == "rows"


def parse_window(given: Any) -> WindowSpec:
    """The `window` argument."""
    if isinstance(given, tuple | list):
        if len(given) != 2:
            raise ArgumentError(f"window has {len(given)} parts; allowed are one for both sides, or a pair (r's, s's)")
        r, s = (_span(part, "window") for part in given)
    else:
        r = s = _span(given, "window")
    if r.measure != s.measure:
        raise ArgumentError(f"window mixes {r} and {s}: both parts must be rows, or both a length of time")
    if r.measure == "rows" and min(r.length, s.length) < 1:
        raise ArgumentError(f"window={given!r}: a count window holds at least 1 row")
    return WindowSpec(r, s)


def parse_lateness(given: Any) -> Span:
    """The `lateness` argument; 0 is no lateness in any measure."""
    if isinstance(given, int) and not isinstance(given, bool):
        return _positive(Span("ticks", given), given, "lateness")
    span = _span(given, "lateness")
    if span.measure == "rows":
        raise ArgumentError(f"lateness={given!r}: lateness is a length of time, not rows; write e.g. '30 seconds'")
    return span


def duration_text(ns: int) -> str:
    """A length of time in the largest whole units, from days down."""
    parts = []
    for name in reversed(UNIT_NAMES[:-1]):
        count, ns = divmod(ns, NANOSECONDS[name])
        if count:
            parts.append(f"{count} {name}{'' if count == 1 else 's'}")
    return " ".join(parts) or "0 seconds"


def _span(given: Any, label: str) -> Span:
    ns = _nanoseconds(given)
    if ns is not None:
        return _positive(Span("ns", ns), given, label)
    if isinstance(given, str) and _SEVERAL.fullmatch(given):
        parts = [_span(part[0].rstrip(" ,"), label) for part in re.finditer(r"\d[\d.]*\s*[^\W\d]+", given)]
        if any(part.measure == "rows" for part in parts):
            raise ArgumentError(f"{label}={given!r}: rows cannot be added to other amounts; {_allowed(label)}")
        return Span("ns", sum(part.length for part in parts))
    match = _TEXT.fullmatch(given) if isinstance(given, str) else None
    if match is None:
        raise ArgumentError(f"{label}={given!r} cannot be read; {_allowed(label)}")
    amount, word = Fraction(match[1]), match[2].lower()
    if word == "" or word in ("row", "rows"):
        if amount.denominator != 1:
            raise ArgumentError(f"{label}={given!r}: must be a whole number")
        return _positive(Span("rows" if word else "ticks", int(amount)), given, label)
    if word not in NANOSECONDS:
        raise ArgumentError(f"{label}={given!r}: unknown unit {match[2]!r}; {_allowed(label)}")
    exact = amount * NANOSECONDS[word]
    if exact.denominator != 1:
        raise ArgumentError(f"{label}={given!r} is not a whole number of nanoseconds")
    return _positive(Span("ns", int(exact)), given, label)


def _nanoseconds(given: Any) -> int | None:
    """The nanoseconds of a `timedelta` (pandas' too), a `numpy.timedelta64` or an Arrow duration; None for others."""
    if isinstance(given, timedelta):
        micros = (given.days * 86_400 + given.seconds) * 10**6 + given.microseconds
        return micros * 1000 + int(getattr(given, "nanoseconds", 0))
    if isinstance(given, np.timedelta64) and not np.isnat(given):
        unit, count = np.datetime_data(given.dtype)
        return int(given.astype(np.int64)) * count * _NUMPY_NS[unit] if unit in _NUMPY_NS else None
    if isinstance(given, pa.DurationScalar) and given.is_valid:
        return int(given.value) * NS_PER_UNIT[given.type.unit]
    return None


def _positive(span: Span, given: Any, label: str) -> Span:
    if span.length < 0:
        raise ArgumentError(f"{label}={given!r} is negative; it must be 0 or more")
    return span


def _allowed(label: str) -> str:
    rows = "'1000 rows', " if label == "window" else ""
    units = ", ".join(f"{name}s" for name in UNIT_NAMES)
    return (
        f"allowed are {rows}a length of time such as '10 minutes', '1 hour 30 minutes' (units: {units}) or a "
        f"timedelta, or '1000' for integer times"
    )
