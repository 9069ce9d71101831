"""The time units allowed in windows, lateness arguments and INTERVALs, each with its nanoseconds.

Only units of a fixed length are allowed. `m` is not: it could be a minute or a month.
"""

from __future__ import annotations

SECOND = 10**9
_UNITS = {
    "nanosecond": (1, "ns nano nanos"),
    "microsecond": (10**3, "us µs μs micro micros usec usecs"),
    "millisecond": (10**6, "ms milli millis msec msecs"),
    "second": (SECOND, "s sec secs"),
    "minute": (60 * SECOND, "min mins"),
    "hour": (3600 * SECOND, "h hr hrs"),
    "day": (86_400 * SECOND, "d"),
    "week": (7 * 86_400 * SECOND, "w"),
}

UNIT_NAMES = tuple(_UNITS)
"""The units' full names in the singular, the shortest unit first."""

NANOSECONDS = {word: ns for name, (ns, short) in _UNITS.items() for word in (name, f"{name}s", *short.split())}
"""The nanoseconds of every spelling, in lower case."""
