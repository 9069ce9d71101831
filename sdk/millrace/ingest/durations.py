"""Reads `window` and `lateness`: rows, lengths of time, or plain integers for integer time columns.

`"1000 rows"`, `"10 minutes"`, `"1000"`, a `timedelta`, or a pair of them for the two sides. Lengths are exact.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from fractions import Fraction
from typing import Any, Literal

from millrace.host.base.errors import ArgumentError
from millrace.predicate.time_units import NANOSECONDS, UNIT_NAMES

Measure = Literal["rows", "ns", "ticks"]
_TEXT = re.compile(r"\s*([+-]?\d{1,40}(?:\.\d{1,40})?)\s*([^\W\d]*)\s*")


@dataclass(frozen=True)
class Span:
    """A non-negative length: rows, nanoseconds, or ticks of an integer time column."""

    measure: Measure
    length: int

    def __str__(self) -> str:
        """In the notation of the argument."""
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


def _span(given: Any, label: str) -> Span:
    if isinstance(given, timedelta):
        micros = (given.days * 86_400 + given.seconds) * 10**6 + given.microseconds
        return _positive(Span("ns", micros * 1000), given, label)
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
    ns = amount * NANOSECONDS[word]
    if ns.denominator != 1:
        raise ArgumentError(f"{label}={given!r} is not a whole number of nanoseconds")
    return _positive(Span("ns", int(ns)), given, label)


def _positive(span: Span, given: Any, label: str) -> Span:
    if span.length < 0:
        raise ArgumentError(f"{label}={given!r} is negative; it must be 0 or more")
    return span


def _allowed(label: str) -> str:
    rows = "'1000 rows', " if label == "window" else ""
    units = ", ".join(f"{name}s" for name in UNIT_NAMES)
    return f"allowed are {rows}a length of time such as '10 minutes' (units: {units}), or '1000' for integer times"
