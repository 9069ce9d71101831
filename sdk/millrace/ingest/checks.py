"""Argument checks that several calls share."""

from __future__ import annotations

import math
import operator
import os
from pathlib import Path
from typing import Any

import numpy as np

from millrace.host.base.errors import ArgumentError

MAX_THREADS = 1 << 10


def choice(name: str, given: Any, allowed: tuple[Any, ...]) -> Any:
    """Check that `given` is one of the allowed values (text, None, True or False)."""
    if not (given is None or isinstance(given, str | bool)) or given not in allowed:
        raise ArgumentError(f"{name}={given!r} is unknown; allowed are {', '.join(repr(a) for a in allowed)}")
    return given


def integer_at_least(name: str, given: Any, minimum: int, maximum: int | None = None) -> int:
    """Check that `given` is an integer (Python's or NumPy's) of at least `minimum`, and at most `maximum`, if any."""
    try:
        number = None if isinstance(given, bool) else operator.index(given)
    except TypeError:
        number = None
    if number is None or number < minimum or (maximum is not None and number > maximum):
        most = "" if maximum is None else f" and at most {maximum}"
        raise ArgumentError(f"{name}={given!r}: must be a whole number of at least {minimum}{most}")
    return number


def thread_count(given: Any) -> int | None:
    """The `threads` argument; None is all cores."""
    return None if given is None else integer_at_least("threads", given, 1, MAX_THREADS)


def as_path(name: str, given: Any) -> Path:
    """The path of a file; the system's own checks come with its use."""
    try:
        text = os.fspath(given)
        path = Path(text.decode() if isinstance(text, bytes) else text)
    except (TypeError, ValueError) as error:
        raise ArgumentError(f"{name}={given!r:.80} is not a path: give a str or a pathlib.Path") from error
    if not str(given) or "\0" in str(path):
        raise ArgumentError(f"{name}={given!r:.80} is not a path of a file: it is empty or contains a null character")
    return path


def positive_number(name: str, given: Any) -> float:
    """Check that `given` is a finite number above 0."""
    number = isinstance(given, int | float | np.integer | np.floating) and not isinstance(given, bool)
    if not number or not 0 < given < math.inf:
        raise ArgumentError(f"{name}={given!r}: must be a finite number above 0")
    return float(given)
