"""Interrupts calls at every point where Python runs signal handlers, and at random moments.

`raise_at(point, call)` raises in one such point of a call. CPython 3.11 to 3.13 check for signals when a function of
Python begins, after a call of C, and at a jump backward; nowhere else. So a sweep over all points of a call is complete
for what Python code can see, and repeatable, unlike a timer. `TimedInterrupts` raises at random moments, also in waits
inside C and in the clean-up after another interrupt. Python itself drops what is raised in a callback of the garbage
collector or of a weak reference, or in `__del__`: `dropped_interrupts` says so and keeps pytest from failing for it.
"""

from __future__ import annotations

import dis
import faulthandler
import random
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any, TypeVar

T = TypeVar("T")
Location = tuple[CodeType, int]
WATCHDOG = 600.0
"""Seconds after which a hang ends the process with all stacks."""


class Interrupt(BaseException):
    """What a signal handler of the tests raises."""


@contextmanager
def dropped_interrupts(kind: type[BaseException]) -> Iterator[list[BaseException]]:
    """Collect the interrupts that Python drops because they came in a callback; other errors go where they went."""
    dropped: list[BaseException] = []
    before = sys.unraisablehook

    def hook(what: sys.UnraisableHookArgs) -> None:
        if isinstance(what.exc_value, kind):
            dropped.append(what.exc_value)
        else:
            before(what)

    sys.unraisablehook = hook
    try:
        yield dropped
    finally:
        sys.unraisablehook = before


class _Points:
    """Counts the points of a call, and raises in one of them."""

    def __init__(self, raise_in: Location | int | None = None) -> None:
        self.locations: dict[Location, None] = {}
        self._raise_in = raise_in
        self._returned = False

    def trace(self, frame: FrameType, event: str, arg: Any) -> Any:
        """The trace function of new frames."""
        if event != "call":
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        self._returned = False
        self._point(frame.f_code, -1)
        after, before = _after_calls(frame.f_code), -1

        def inside(frame: FrameType, event: str, arg: Any) -> Any:
            nonlocal before
            if event == "opcode":
                at = frame.f_lasti
                if at < before or (at in after and not self._returned):
                    self._point(frame.f_code, at)
                before, self._returned = at, False
            elif event == "return":
                self._returned = True
            return inside

        return inside

    def _point(self, code: CodeType, at: int) -> None:
        known = len(self.locations)
        self.locations[code, at] = None
        if (code, at) == self._raise_in or (known == self._raise_in and len(self.locations) > known):
            raise Interrupt


_CALLS = {"CALL", "CALL_FUNCTION_EX", "CALL_KW"}
_known: dict[CodeType, frozenset[int]] = {}


def _after_calls(code: CodeType) -> frozenset[int]:
    """The offsets behind calls, except where the call is in a `try` or `with` that its successor has left."""
    if code not in _known:
        handlers: list[tuple[int, int, int]] = [
            (one.start, one.end, one.target)
            for one in dis._parse_exception_table(code)  # type: ignore[attr-defined]
        ]

        def handler(at: int) -> int:
            return next((target for start, end, target in handlers if start <= at < end), -1)

        found, call = [], -1
        for one in dis.get_instructions(code):
            if call >= 0 and handler(call) == handler(one.offset):
                found.append(one.offset)
            call = one.offset if one.opname in _CALLS else -1
        _known[code] = frozenset(found)
    return _known[code]


def _traced(points: _Points, call: Callable[[], T]) -> T:
    with dropped_interrupts(Interrupt):
        sys.settrace(points.trace)
        try:
            return call()
        finally:
            sys.settrace(None)


def points_of(call: Callable[[], T], seen: set[Location]) -> tuple[T, list[Location]]:
    """Run a call; return its result and its points, without those in `seen`, to which they are added."""
    points = _Points()
    result = _traced(points, call)
    found = [one for one in list(points.locations)[1:] if one not in seen]  # without the beginning of `call` itself
    seen.update(found)
    return result, found


def raise_at(point: Location, call: Callable[[], T]) -> T:
    """Run a call; raise `Interrupt` when it first comes to a point, if it does."""
    return _traced(_Points(point), call)


def raise_at_number(number: int, call: Callable[[], T]) -> T:
    """Run a call; raise `Interrupt` when it comes to its n-th place in the code, if it has as many."""
    return _traced(_Points(number + 1), call)


class TimedInterrupts:
    """A timer whose handler raises, only while a call is at work."""

    def __init__(self, seed: int, longest: float) -> None:
        """`longest`: the most seconds until the first interrupt of a call."""
        self._random, self._longest, self._armed = random.Random(seed), longest, False
        self.count = 0

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._armed:
            if self._random.random() < 0.7:  # otherwise another one follows soon, in the clean-up
                self._armed = False
            else:
                signal.setitimer(signal.ITIMER_REAL, self._random.uniform(1e-6, 1e-4))
            raise Interrupt

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Handle the timer's signal; a hang ends the process."""
        before = signal.signal(signal.SIGALRM, self._handle)
        faulthandler.dump_traceback_later(WATCHDOG, exit=True)
        try:
            with dropped_interrupts(Interrupt):
                yield
        finally:
            self._armed = False
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
            faulthandler.cancel_dump_traceback_later()

    def run(self, call: Callable[[], T], recover: Callable[[], T | None]) -> T:
        """Call until a call returns, or is found complete by `recover` after an interrupt; return its result."""
        while True:
            try:
                result = None
                signal.setitimer(signal.ITIMER_REAL, self._random.uniform(1e-6, self._longest))
                self._armed = True
                result = call()
                self._armed = False
                return result
            except Interrupt:
                self._armed = False
                self.count += 1
                if result is not None:
                    return result
                result = recover()
                if result is not None:
                    return result
