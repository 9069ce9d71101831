"""A signal handler that raises, at any moment of any call: the call did nothing, or `recover` returns its result.

Sweeps raise at every point of the code that a call reaches; the timer raises at random moments, also twice in a row.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.signals.interrupts import Interrupt, Location, TimedInterrupts, points_of, raise_at
from tests.signals.subjects import NAMES, Subject, same

INTERRUPTS, LONG_INTERRUPTS = 25, 1000
"""Per subject: 500 and 20,000 together."""
SWEPT, LONG_SWEPT = 25, 10_000
"""The most points that a sweep tries."""
QUIET_CALLS = 15
"""A sweep ends after so many calls without a new point."""
_seen: set[Location] = set()
"""Points that an earlier sweep of this process has tried."""
every_subject = pytest.mark.parametrize("subject", NAMES.values(), ids=NAMES.keys())


def checked(subject: Subject, hit: Any, found: Any, wanted: Any, kind: str, where: object) -> Any:
    """Compare two results; return the operator to go on with."""
    assert same(found, wanted), f"{subject.name}: {kind} differs after an interrupt at {where}"
    return subject.after(hit, found)


@pytest.fixture
def handled() -> Iterator[None]:
    """The program handles a signal: then a live join leaves all steps to its worker, which is not interrupted."""
    before = signal.signal(signal.SIGUSR2, lambda number, frame: None)
    yield
    signal.signal(signal.SIGUSR2, before)


def swept(subject: Subject, most: int) -> int:
    """Raise at up to `most` points that no sweep has tried; return how many there were."""
    subject.stored.clear()
    hit, spared = subject.make(), subject.make()
    waiting: dict[str, list[Location]] = {}
    rng, tried, quiet = np.random.default_rng(len(subject.name)), 0, 0
    for kind, call in subject.steps(np.random.default_rng(7)):
        wanted = call(spared)
        points, where = waiting.setdefault(kind, []), None
        if points:
            quiet, tried, where = 0, tried + 1, points.pop(int(rng.integers(len(points))))
            try:
                found = raise_at(where, lambda: call(hit))  # noqa: B023 - called at once
            except Interrupt:
                found = subject.recover(hit)
                found = call(hit) if found is None else found
        else:
            found, new = points_of(lambda: call(hit), _seen)  # noqa: B023 - called at once
            quiet, waiting[kind] = quiet + 1, new
        hit = checked(subject, hit, found, wanted, kind, where)
        if tried >= most or (quiet > QUIET_CALLS and not any(waiting.values())):
            break
    return tried


@pytest.mark.usefixtures("handled")
@every_subject
def test_an_interrupt_at_points_of_the_code(subject: Subject) -> None:
    assert swept(subject, SWEPT) > 0


@pytest.mark.long
@pytest.mark.usefixtures("handled")
@every_subject
def test_an_interrupt_at_every_point_of_the_code(subject: Subject) -> None:
    swept(subject, LONG_SWEPT)


def interrupted(subject: Subject, count: int, seed: int) -> int:
    """Call until so many interrupts have come."""
    subject.stored.clear()
    hit, spared = subject.make(), subject.make()
    timer = TimedInterrupts(seed, 2e-3)
    with timer.installed():
        for kind, call in subject.steps(np.random.default_rng(seed)):
            wanted = call(spared)
            found = timer.run(lambda: call(hit), lambda: subject.recover(hit))  # noqa: B023 - called at once
            hit = checked(subject, hit, found, wanted, kind, f"{timer.count} (timer, seed {seed})")
            if timer.count >= count:
                break
    return timer.count


@every_subject
def test_interrupts_at_random_moments(subject: Subject) -> None:
    assert interrupted(subject, INTERRUPTS, seed=1) >= INTERRUPTS


@pytest.mark.long
@every_subject
def test_many_interrupts_at_random_moments(subject: Subject) -> None:
    assert interrupted(subject, LONG_INTERRUPTS, seed=2) >= LONG_INTERRUPTS
