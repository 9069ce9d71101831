"""`WindowJoin.tune`: output is the same before and after, the choice is reported, and a failure changes nothing."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import millrace as mr
from millrace.host.expr.plan import search_shape
from millrace.host.join.matcher import Matcher
from millrace.host.planner import tune
from millrace.host.planner.tune import TuneResult
from millrace.ingest.arguments import parse_condition
from millrace.join_parts import window_engine

BAND = "abs(r.x - s.x) <= 3"
QUICK = 0.001
Push = Callable[[mr.WindowJoin], pa.Table]


def keys(rng: np.random.Generator, rows: int) -> pa.Table:
    x = pa.array(rng.integers(0, 400, rows), mask=rng.random(rows) < 0.1)
    return pa.table({"x": x, "v": rng.integers(0, 9, rows)})


def in_turns(rng: np.random.Generator, batch: int) -> Iterator[Push]:
    while True:
        for side in ("r", "s"):
            table = keys(rng, batch)
            yield lambda join, side=side, table=table: join.push(side, table)  # type: ignore[misc]


def both(rng: np.random.Generator, batch: int) -> Iterator[Push]:
    while True:
        arrival = rng.integers(0, 2, batch)
        r, s = keys(rng, batch - int(arrival.sum())), keys(rng, int(arrival.sum()))
        yield lambda join, r=r, s=s, arrival=arrival: join.push_both(r, s, arrival)  # type: ignore[misc]


def one_stream(rng: np.random.Generator, batch: int) -> Iterator[Push]:
    while True:
        table = keys(rng, batch)
        yield lambda join, table=table: join.push("r", table)  # type: ignore[misc]


def timed(pushes: Callable[[np.random.Generator, int], Iterator[Push]]) -> Callable[..., Iterator[Push]]:
    """The same pushes, with times that rise and fall a little and an offset that grows from push to push."""

    def generate(rng: np.random.Generator, batch: int) -> Iterator[Push]:
        class Timed:
            def __init__(self, join: mr.WindowJoin, now: int) -> None:
                self._join, self._now = join, now

            def _with_times(self, table: pa.Table) -> pa.Table:
                ts = np.sort(np.random.default_rng(self._now).integers(0, 60, table.num_rows)) + self._now
                return table.append_column("ts", pa.array(ts))

            def push(self, side: str, table: pa.Table) -> pa.Table:
                return self._join.push(side, self._with_times(table))

        for number, push in enumerate(pushes(rng, batch)):
            yield lambda join, push=push, now=50 * number: push(Timed(join, now))  # type: ignore[misc]

    return generate


CASES: dict[str, tuple[dict[str, Any], Callable[..., Iterator[Push]]]] = {
    "in turns": ({"window": "900 rows"}, in_turns),
    "asymmetric": ({"window": ("300 rows", "900 rows")}, in_turns),
    "both": ({"window": "900 rows"}, both),
    "self-join": ({"window": "700 rows", "self_join": True}, one_stream),
    "time": ({"window": "500", "time": "ts", "lateness": "20"}, timed(in_turns)),
    "counts by time": ({"window": "400 rows", "time": "ts", "lateness": "20"}, timed(in_turns)),
    "timed self-join": ({"window": "300", "time": "ts", "self_join": True}, timed(one_stream)),
    "rechecked": ({"window": "900 rows", "on": f"{BAND} AND r.v < s.v"}, in_turns),
    "residual": ({"window": "200 rows", "on": "r.x * s.x <= 300"}, in_turns),
}


@pytest.mark.parametrize("output", ["pairs", "count"])
@pytest.mark.parametrize("case", CASES)
def test_the_output_is_that_of_a_fixed_index_before_and_after(case: str, output: str) -> None:
    given, pushes = CASES[case]
    arguments = {"on": BAND, "output": output, **given}
    plain, tuned = (mr.WindowJoin(**arguments, index=index) for index in ("scan", "auto"))
    rows = 0
    for number, push in enumerate(pushes(np.random.default_rng(5), 60)):
        expected = push(plain)
        assert push(tuned).equals(expected)
        rows += expected.num_rows
        if number in (20, 40):
            before = tuned.stats
            result = tuned.tune(QUICK)
            after = dict(tuned.stats)
            assert (after.pop("index"), after.pop("strategy")) == (result.index, result.reason)
            assert after == {name: before.get(name, 0) for name in after}, "counters of the replay do not count"
        if number == 60:
            break
    assert rows > 100
    assert plain.close().equals(tuned.close())
    assert plain.stats["pairs"] == tuned.stats["pairs"]


def full_join(**arguments: Any) -> mr.WindowJoin:
    join = mr.WindowJoin(**{"on": BAND, "window": "900 rows", **arguments})
    for _, push in zip(range(40), in_turns(np.random.default_rng(1), 60), strict=False):
        push(join)
    return join


def test_every_index_is_measured_and_the_fastest_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    speeds = {
        "bisort": 10.0,
        "rap": 40.4,
        "wib": 30.0,
        "pim": 5.0,
        "im": 4.0,
        "chain": 3.0,
        "btree": 20.0,
        "scan": 0.01,
    }
    monkeypatch.setattr(tune, "_speed", lambda stream, matcher, counting, seconds: speeds[matcher.index_name])
    join = full_join()
    result = join.tune()
    found = {"rap": 40, "wib": 30, "btree": 20, "bisort": 10, "pim": 5, "im": 4, "chain": 3, "scan": 1}
    assert result == TuneResult("rap", found, 60)
    assert list(result.tuples_per_second) == list(found)
    assert repr(result).startswith("TuneResult(index='rap', tuples_per_second={'rap': 40, ")
    assert join.stats["index"] == "rap"
    assert join.stats["strategy"].startswith(
        "rap for batches of 60 tuples: fastest in tune() (tuples per second: rap 40"
    )
    assert isinstance(result, mr.TuneResult)


def test_the_index_is_ready_and_its_building_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    join = full_join()
    join.tune(QUICK)
    counters = join.stats
    monkeypatch.setattr(Matcher, "_build", lambda *_: pytest.fail("the index was built in a push"))
    join.push("r", keys(np.random.default_rng(3), 10))
    assert join.stats["boundaries"] >= counters["boundaries"]


def test_a_large_window_is_scanned_only_if_it_was_before() -> None:
    asked = search_shape(parse_condition(BAND)), mr.device("cpu")
    assert "scan" in tune.candidates(*asked, "auto", tune.MAX_SCAN_ROWS)
    assert "scan" not in tune.candidates(*asked, "auto", tune.MAX_SCAN_ROWS + 1)
    assert "scan" in tune.candidates(*asked, "scan", tune.MAX_SCAN_ROWS + 1)
    assert "auto" not in tune.candidates(*asked, "auto", 1)


def test_an_index_that_is_too_slow_for_a_batch_is_judged_by_a_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    join = full_join()
    steps: list[int] = []

    def slow(windows: Any, bounds: Any, taken: Any, matcher: Any, counting: Any) -> float:
        steps.append(len(taken.order))
        return float(len(taken.order))  # one tuple per second

    monkeypatch.setattr(tune, "_step", slow)
    assert set(join.tune(0.5).tuples_per_second.values()) == {1}
    assert len(steps) == 2 * 8, "two for each index"


def test_a_replay_covers_the_time_and_warms_up_first(monkeypatch: pytest.MonkeyPatch) -> None:
    join = full_join(index="wib", window="100000 rows")
    monkeypatch.setattr(tune, "TRIAL_TUPLES", 7)
    sizes: list[int] = []

    def step(windows: Any, bounds: Any, taken: Any, *_: Any) -> float:
        sizes.append(len(taken.order))
        return 1 / 64

    monkeypatch.setattr(tune, "_step", step)
    monkeypatch.setattr(window_engine, "candidates", lambda *_: ["wib"])
    join.tune(0.25)
    assert sizes[:4] == [7, 7, 60, 60]
    assert len(sizes) == tune.WARM_UP_STEPS + 16


@pytest.mark.parametrize("seconds", [0, -1, float("inf"), float("nan"), "1", None, True])
def test_a_bad_time_is_an_argument_error(seconds: Any) -> None:
    with pytest.raises(mr.ArgumentError, match=r"seconds=.*must be a finite number above 0"):
        full_join().tune(seconds)


def test_an_empty_window_is_a_state_error_that_says_to_push_first() -> None:
    join = mr.WindowJoin(on=BAND, window="900 rows")
    with pytest.raises(mr.StateError, match=r"window of r and of s is empty: push rows first"):
        join.tune()
    rows = keys(np.random.default_rng(2), 5)
    join.push("r", rows)
    with pytest.raises(mr.StateError, match=r"window of s is empty: push rows first"):
        join.tune()
    join.push("s", rows)
    assert join.tune(QUICK).batch == 5
    join.close()
    with pytest.raises(mr.StateError, match="closed"):
        join.tune()


def test_a_restored_join_begins_with_its_argument_and_needs_a_push() -> None:
    join = full_join()
    join.tune(QUICK)
    delta = join.state()
    again = mr.WindowJoin.restore(delta.manifest, delta.added, on=BAND, window="900 rows")
    assert again.stats["index"] == "auto"
    with pytest.raises(mr.StateError, match="push a batch first"):
        again.tune()
    rows = keys(np.random.default_rng(2), 50)
    assert again.push("r", rows).equals(join.push("r", rows))
    assert again.tune(QUICK).index == again.stats["index"]


@pytest.mark.parametrize("failure", [mr.DeviceFault("a test"), KeyboardInterrupt()])
@pytest.mark.parametrize(("where", "name"), [(tune, "_speed"), (Matcher, "build_index")])
def test_a_failure_changes_nothing(
    where: object, name: str, failure: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    join, plain = full_join(), full_join(index="scan")
    before = join.stats

    def fail(*_: Any) -> None:
        raise failure

    with monkeypatch.context() as patched:
        patched.setattr(where, name, fail)
        with pytest.raises(type(failure)):
            join.tune(QUICK)
    after = join.stats
    assert after == dict(before) | {name: 0 for name in after if name not in before}
    rows = keys(np.random.default_rng(2), 50)
    assert join.push("s", rows).equals(plain.push("s", rows))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_keeps_the_choice() -> None:
    join = full_join()
    chosen = join.tune(QUICK).index
    child = os.fork()
    if not child:
        join.push("r", keys(np.random.default_rng(2), 50))
        os._exit(0 if join.stats["index"] == chosen else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
