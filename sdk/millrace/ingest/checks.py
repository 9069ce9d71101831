"""Small checks of arguments that several calls share."""

from __future__ import annotations

import operator
from typing import Any

from millrace.host.base.errors import ArgumentError


def choice(name: str, given: Any, allowed: tuple[Any, ...]) -> Any:
    """One of a few values (text, None, True or False)."""
    if not (given is None or isinstance(given, str | bool)) or given not in allowed:
        raise ArgumentError(f"{name}={given!r} is unknown; allowed are {', '.join(repr(a) for a in allowed)}")
    return given


def whole(name: str, given: Any, least: int) -> int:
    """A whole number of at least `least`, Python's or NumPy's."""
    try:
        number = None if isinstance(given, bool) else operator.index(given)
    except TypeError:
        number = None
    if number is None or number < least:
        raise ArgumentError(f"{name}={given!r}: must be a whole number of at least {least}")
    return number
