"""A signal handler that raises, at any moment of any call: the call did nothing, or `recover` returns its result.

Sweeps raise at every point of the code that a call reaches; the timer raises at random moments, also twice in a row.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import millrace as mr
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


SHORT_WAY = {
    *("WindowJoin._push_few", "WindowJoin._match_few", "WindowEngine.push_few", "ShortPush.read", "ShortPush.tuples"),
    *("ShortPush.append", "Matcher.match_few", "PanJoinIndex.step_few", "SmallSteps.plain_step"),
}


@pytest.mark.parametrize("index", ["auto", "bisort"])
def test_an_interrupt_at_every_point_of_the_short_way(index: Any) -> None:
    """The indexes that have the short way of a push (`short_push.py`): with few partners, and with many."""
    hit, spared = (mr.WindowJoin("abs(r.x - s.x) <= 1", window="300 rows", index=index) for _ in range(2))
    rng = np.random.default_rng(5)

    def table(many: bool) -> pa.Table:
        return pa.table({"x": np.full(3, 7) if many else rng.integers(0, 2000, 3)})

    for join in (hit, spared):
        for number in range(24):
            join.push("rs"[number % 2], pa.table({"x": np.r_[np.full(100, 7), np.arange(150) * 13][number::24]}))
    for many in (False, True):
        tables = {side: table(many) for side in "rs"}
        found, points = points_of(lambda: hit.push("r", tables["r"]), set())  # noqa: B023 - called at once
        assert found.equals(spared.push("r", tables["r"]))
        assert {code.co_qualname for code, _ in points} >= SHORT_WAY
        left = set(points)
        for number, point in enumerate(4 * points):  # a drop of the index, or an eviction, may hide a point
            if point not in left:
                continue
            side = "rs"[number % 2]
            assert hit.push(side, tables[side]).equals(spared.push(side, tables[side]))  # makes a dropped index again
            batch = table(many)
            wanted = spared.push(side, batch)
            try:
                found = raise_at(point, lambda: hit.push(side, batch))  # noqa: B023 - called at once
            except Interrupt:
                left.remove(point)
                found = hit.recover()
                found = hit.push(side, batch) if found is None else found
            assert found.equals(wanted), point
        assert not SHORT_WAY & {code.co_qualname for code, _ in left}
    assert hit.stats["rows"] == spared.stats["rows"]
    assert hit.stats["pairs"] == spared.stats["pairs"]
