"""`index="auto"`: the choice follows the recent steps, is reported with its reason, and never changes the output."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pytest

import millrace as mr
from millrace.host.join.contract import Matches
from millrace.host.planner import auto, calibration
from millrace.host.planner.rule import RecentSteps, Rule


def counted(*counts: int, positions: bool = False) -> Matches:
    return Matches(np.array(counts, np.int64), np.zeros(sum(counts), np.int64) if positions else None)


def test_the_mean_batch_begins_with_the_first_and_forgets_a_large_one_soon() -> None:
    recent = RecentSteps()
    recent.add_batch(65_536)
    assert recent.batch == pytest.approx(65_536)
    recent.add_batch(1)
    assert recent.batch == pytest.approx(256)
    for _ in range(12):
        recent.add_batch(16)
    assert 15 < recent.batch < 30


def test_the_fan_out_of_single_tuples_is_a_mean_over_many() -> None:
    recent = RecentSteps()
    for count in (0, 40) * 2000:
        recent.add_partners(counted(count, positions=True))
    assert recent.fan_out == pytest.approx(20, rel=0.1)
    recent.add_partners(counted())
    assert recent.fan_out == pytest.approx(20, rel=0.1)


def test_the_fan_out_of_a_large_step_is_known_at_once() -> None:
    pairs, counts = RecentSteps(), RecentSteps()
    pairs.add_partners(counted(*[7] * 100_000, positions=True))
    assert pairs.fan_out == pytest.approx(7, rel=0.02)
    counts.add_partners(counted(*[7] * 100_000))
    assert counts.fan_out == pytest.approx(3.5), "of counts a sample is read, as much as the mean covers"


@pytest.mark.parametrize("output", ["seqs", "count"])
def test_the_choice_is_made_anew_at_each_subwindow_and_reported(output: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration, "rule", lambda threads: Rule(tiny_batch=0, small_batch=1000))
    rng = np.random.default_rng(1)
    joins = [
        mr.WindowJoin(on="abs(r.x - s.x) <= 2", window="9000 rows", index=index, output=output)
        for index in ("auto", "scan")
    ]
    chosen = []
    for batch in (*[3_000] * 8, *[50] * 300, *[3_000] * 12):
        keys = pa.array(rng.integers(0, 5_000, batch), mask=rng.random(batch) < 0.1)
        for side in ("r", "s"):
            ours, theirs = (join.push(side, pa.table({"x": keys})) for join in joins)
            assert ours.equals(theirs)
        chosen.append(joins[0].stats["strategy"].split()[0])
    assert [a for a, b in zip(chosen, [None, *chosen], strict=False) if a != b] == ["bisort", "wib", "bisort"]
    assert joins[0].stats["index"] == "auto"
    assert "tuples with" in joins[0].stats["strategy"]


@pytest.mark.parametrize("output", ["seqs", "count"])
def test_small_pushes_after_a_large_one_soon_get_another_structure(
    output: Literal["seqs", "count"], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calibration, "rule", lambda threads: Rule(tiny_batch=0))
    rng = np.random.default_rng(3)
    joins = [
        mr.WindowJoin(on="abs(r.x - s.x) <= 2", window="20000 rows", index=index, output=output)
        for index in ("auto", "scan")
    ]
    chosen = []
    for number, rows in enumerate([20_000] * 2 + [60] * 40 + [9000] * 6 + [60] * 40):
        keys = pa.array(rng.integers(0, 50_000, rows), mask=rng.random(rows) < 0.1)
        ours, theirs = (join.push("rs"[number % 2], pa.table({"x": keys})) for join in joins)
        assert ours.equals(theirs)
        chosen.append(joins[0].stats["strategy"].partition(" ")[0])
    assert chosen[2] == "bisort", "the large pushes count"
    assert chosen[2 * auto.YOUNG_STEPS + 2] == "wib"
    assert "bisort" in chosen[42:48]


def test_only_the_first_small_steps_of_a_subwindow_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration, "rule", lambda threads: Rule(tiny_batch=0))
    join = mr.WindowJoin(on="abs(r.x - s.x) <= 2", window="20000 rows", index="auto")
    rng = np.random.default_rng(3)

    def kept_after(side: str, rows: int) -> dict[str, int]:
        join.push(side, pa.table({"x": rng.integers(0, 50_000, rows)}))
        index = join._engine.matcher._index  # type: ignore[union-attr]
        assert isinstance(index, auto.AutoIndex)
        return {side: len(steps) for side, steps in index._young.items()}

    join.push("r", pa.table({"x": [1]}))
    assert kept_after("s", auto.YOUNG_TUPLES + 1) == {}, "r was loaded before both sides were known"
    assert kept_after("r", 10_000) == {}
    assert [kept_after("r", 10) for _ in range(auto.YOUNG_STEPS + 1)][-2:] == [{}, {}]


def test_many_partners_get_bisort_whatever_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration, "rule", lambda threads: Rule(tiny_batch=0, max_partners=5_000))
    join = mr.WindowJoin(on="r.x = s.x", window="5000 rows", index="auto", output="count")
    rows = pa.table({"x": np.zeros(100, np.int64)})
    for number in range(260):
        join.push("r" if number % 2 else "s", rows)
        if number == 3:
            assert join.stats["strategy"].startswith("wib for ")
    assert join.stats["strategy"].startswith("bisort for ")


def test_static_tables_get_bisort_whatever_was_calibrated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auto, "structure_for", lambda *_: pytest.fail("the rule for streams was used"))
    rng = np.random.default_rng(7)
    r, s = (pa.table({"x": rng.integers(0, 900, 500)}) for _ in "rs")
    joined = [mr.join(r, s, on="abs(r.x - s.x) <= 2", index=index) for index in ("auto", "scan")]
    assert joined[0].equals(joined[1])


def test_a_restored_join_goes_on_with_bisort_until_it_has_seen_batches() -> None:
    arguments: dict[str, Any] = {"on": "abs(r.x - s.x) <= 2", "window": "5000 rows", "index": "auto"}
    join = mr.WindowJoin(**arguments)
    rng = np.random.default_rng(9)
    tables = [pa.table({"x": rng.integers(0, 900, 700)}) for _ in range(4)]
    for side, table in zip("rsr", tables, strict=False):
        join.push(side, table)
    assert join.stats["strategy"].startswith("wib for ")
    delta = join.state()
    again = mr.WindowJoin.restore(delta.manifest, delta.added, **arguments)
    assert again.stats["strategy"] == join.stats["strategy"]
    assert again.push("s", tables[3]).equals(join.push("s", tables[3]))
    assert again.stats["strategy"].startswith("bisort for a window that is loaded")
