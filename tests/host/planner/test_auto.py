"""`index="auto"`: the choice follows the costs, says why, and never changes an answer."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import millrace as mr
from millrace.host.join.panjoin.subwindow import RangeProbes
from millrace.host.planner import auto, calibration, replay
from millrace.host.planner.auto import Seen, Strategy
from millrace.host.planner.calibration import Costs
from millrace.host.planner.replay import Recording, rehearse
from millrace.host.runtime.team import Team

CHEAP_CALLS, CHEAP_TUPLES = Costs(10, 50, 10, 50, 5), Costs(10_000, 5, 10_000, 5, 5)


def strategy_of(**costs: Costs) -> Strategy:
    return Strategy(costs)


def test_small_batches_pay_for_calls_and_large_ones_for_tuples() -> None:
    chooser = strategy_of(bisort=CHEAP_TUPLES, rap=CHEAP_CALLS, wib=Costs(11, 51, 11, 51, 5))
    assert chooser.choose(Seen(batch=1), 4096, None)[0] == "rap"
    assert chooser.choose(Seen(batch=65_536), 4096, None)[0] == "bisort"


def test_keys_that_wander_are_not_for_rap() -> None:
    chooser = strategy_of(bisort=CHEAP_TUPLES, rap=CHEAP_CALLS, wib=Costs(11, 51, 11, 51, 5))
    name, why = chooser.choose(Seen(batch=1, drift=0.9), 4096, None)
    assert name == "wib"
    assert "90%" in why


def test_many_partners_are_for_bisort_where_only_counts_are_wanted() -> None:
    chooser = strategy_of(bisort=Costs(10, 90, 10, 90, 5), rap=CHEAP_CALLS, wib=CHEAP_CALLS)
    assert chooser.choose(Seen(batch=100, partners=1), 4096, None)[0] != "bisort"
    chooser.counting = True
    assert chooser.choose(Seen(batch=100, partners=1000), 4096, None)[0] == "bisort"


def test_a_structure_is_changed_only_for_a_clear_gain_and_by_what_was_measured() -> None:
    chooser = strategy_of(bisort=Costs(10, 50, 10, 50, 5), rap=Costs(10, 48, 10, 48, 5), wib=Costs(10, 45, 10, 45, 5))
    seen = Seen(batch=100)
    assert chooser.choose(seen, 4096, None)[0] == "bisort", "the first by BI-Sort unless others are far ahead"
    assert chooser.choose(seen, 4096, "rap")[0] == "wib"
    assert chooser.choose(seen, 4096, "bisort")[0] == "wib"
    chooser.costs["wib"] = Costs(10, 47, 10, 47, 5)
    assert chooser.choose(seen, 4096, "rap")[0] == "rap"
    chooser.took[chooser.way(seen, 4096)] = {"bisort": 300.0, "rap": 100.0, "wib": 200.0}
    name, why = chooser.choose(seen, 4096, "bisort")
    assert name == "rap"
    assert "measured ns a tuple: rap 100, wib 200, bisort 300" in why
    assert "expected" in chooser.choose(seen, 1 << 20, "bisort")[1], "another way of use"


def test_ways_of_use_that_differ_a_little_are_alike() -> None:
    chooser = strategy_of(bisort=CHEAP_CALLS, rap=CHEAP_CALLS, wib=CHEAP_CALLS)
    took = {"bisort": 300.0, "rap": 100.0, "wib": 200.0}
    chooser.took[chooser.way(Seen(1000, 1000, 1.0), 4096)] = took
    alike = [Seen(1000, 1000, 0.97), Seen(1000, 1000, 1.03), Seen(724, 725, 1.0), Seen(600, 1900, 3.0)]
    assert all(chooser.measured(chooser.way(seen, 4096)) is took for seen in alike)
    others = [Seen(499, 1000, 1.0), Seen(1000, 2001, 1.0), Seen(1000, 1000, 8.0), Seen(1000, 1000, 1.0, drift=0.5)]
    assert all(chooser.measured(chooser.way(seen, 4096)) is None for seen in others)
    chooser.counting = True
    assert chooser.measured(chooser.way(alike[0], 4096)) is None


def test_a_side_of_small_steps_is_seen_beside_one_of_large_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    batches = []

    def note(_: Strategy, seen: Seen, capacity: int, present: str | None) -> tuple[str, str]:
        batches.append(seen.batch)
        return "bisort", "bisort for a test"

    monkeypatch.setattr(Strategy, "choose", note)
    rng = np.random.default_rng(4)
    join = mr.WindowJoin(on="abs(r.x - s.x) <= 2", window="10000 rows", index="auto", output="count")
    for _ in range(40):
        for side, rows in (("r", auto.SMALL), ("s", 300)):
            join.push(side, pa.table({"x": rng.integers(0, 50_000, rows)}))
    assert {round(batch) for batch in batches} == {auto.SMALL, 300}


def test_partners_of_single_tuples_are_seen_over_many() -> None:
    seen = Seen(partners=1.0)
    seen.ask(1, 100.0)
    assert seen.partners < 1.1
    seen.ask(1000, 100.0)
    assert seen.partners > 20


def questions(words: np.ndarray) -> RangeProbes:
    probe_tuple = np.arange(len(words), dtype=np.uint32)
    return RangeProbes(np.sort(words), np.sort(words) + np.uint64(2), probe_tuple, True, probe_tuple)


def recorded(batches: list[np.ndarray]) -> Recording:
    recording = Recording(np.dtype(np.uint64))
    for words in batches:
        recording.put(words)
        recording.ask(len(words), questions(words))
    return recording


def test_a_recording_is_bounded_and_every_batch_that_is_clocked_has_its_own_questions() -> None:
    batches = [np.full(1 << 12, number, np.uint64) for number in range(200)]
    recording = recorded(batches)
    assert recording.tuples == replay.MOST_TUPLES
    assert recording.full
    clocked = replay.PARTS * replay.PART_TUPLES >> 12
    assert [int(asked.low[0]) for _, asked in recording.asked] == list(range(128 - clocked, 128))
    assert (recording.batch, recording.asking) == (1 << 12, 1 << 12)


@pytest.mark.parametrize("step", [1, -1])
def test_where_keys_wander_older_subwindows_of_a_rehearsal_hold_earlier_keys(step: int) -> None:
    words = np.uint64(1 << 40) + (step * np.arange(10_000)).astype(np.uint64)
    batches = np.split(words, 10)
    held = replay._held(batches, 2, wanders=True)
    expected = np.concatenate([words - np.uint64(step * rows % 2**64) for rows in (20_000, 10_000)])
    assert np.array_equal(np.concatenate(held[:2]), expected)
    assert np.array_equal(held[2], words[5_000:8_000])
    assert np.array_equal(np.concatenate(replay._held(batches, 2, wanders=False)[:2]), np.tile(words, 2))


@pytest.mark.parametrize("size", [5, 700])
@pytest.mark.parametrize("wanders", [False, True])
def test_all_that_are_able_are_rehearsed(wanders: bool, size: int) -> None:
    rng = np.random.default_rng(3)
    recording = recorded([rng.integers(0, 1 << 20, size, np.uint64) for _ in range(12)])
    costs, spent = rehearse(recording, Team(2), want=True, wanders=wanders)
    assert set(costs) == {"bisort", "wib"} | (set() if wanders else {"rap"})
    assert min(costs.values()) > 0
    assert spent > 0


@pytest.mark.parametrize("output", ["seqs", "count"])
def test_the_stream_is_rehearsed_once_for_each_way_of_use(output: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rehearsed: list[tuple[int, int, bool]] = []

    def note(recording: Recording, team: Team, want: bool, wanders: bool) -> tuple[dict[str, float], int]:
        rehearsed.append((recording.tuples, round(recording.batch), want))
        return rehearse(recording, team, want, wanders)[0], 0

    monkeypatch.setattr(auto, "rehearse", note)
    rng = np.random.default_rng(2)
    joins = [
        mr.WindowJoin(on="abs(r.x - s.x) <= 2", window="9000 rows", index=index, output=output)
        for index in ("auto", "scan")
    ]
    for batch in (*[1_000] * 30, *[100] * 100):
        keys = pa.array(rng.integers(0, 5_000, batch), mask=rng.random(batch) < 0.1)
        for side in ("r", "s"):
            ours, theirs = (join.push(side, pa.table({"x": keys})) for join in joins)
            assert ours.equals(theirs)
    assert "measured ns a tuple: " in joins[0].stats["strategy"]
    assert {want for _, _, want in rehearsed} == {output == "seqs"}
    assert {batch // 500 for _, batch, _ in rehearsed} == {0, 1}, "batches of 900 and of 90 live tuples"


def test_the_choice_is_made_anew_at_a_subwindow_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def costs(threads: int) -> dict[str, Costs]:
        return {"bisort": CHEAP_TUPLES, "rap": Costs(11, 51, 11, 51, 5), "wib": CHEAP_CALLS}

    monkeypatch.setattr(calibration, "costs", costs)
    monkeypatch.setattr(auto.AutoIndex, "_rehearse", lambda *_: None)
    rng = np.random.default_rng(1)
    joins = [mr.WindowJoin(on="abs(r.x - s.x) <= 2", window="9000 rows", index=index) for index in ("auto", "scan")]
    chosen = []
    for batch in (*[3_000] * 8, *[50] * 200, *[3_000] * 12):
        rows = pa.table({"x": rng.integers(0, 5_000, batch)})
        for side in ("r", "s"):
            ours, theirs = (join.push(side, rows) for join in joins)
            assert ours.equals(theirs)
        chosen.append(joins[0].stats["strategy"].split()[0])
    assert joins[0].stats["index"] == "auto"
    assert set(chosen) == {"bisort", "wib"}
    assert "partners a tuple; expected ns a tuple: " in joins[0].stats["strategy"]


def test_constants_are_measured_once_and_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration, "cache_dir", lambda: tmp_path / "kernels")
    assert calibration.costs(1) == calibration.DEFAULTS
    told: list[str] = []
    measured = calibration.calibrate(1, lambda what, share: told.append(what))
    assert set(measured) == {"bisort", "rap", "wib"}
    assert all(value > 0 for costs in measured.values() for value in vars(costs).values())
    assert calibration.costs(1) == measured
    assert told[-1] == "calibrated"
    assert calibration.costs(2) == calibration.DEFAULTS


@pytest.mark.parametrize("content", ["", "{", "[]", '{"bisort": {}}', json.dumps({"bisort": vars(CHEAP_CALLS)})])
def test_a_spoilt_file_of_constants_is_as_none(content: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration, "cache_dir", lambda: tmp_path / "kernels")
    calibration._path(1).write_text(content)
    assert calibration.costs(1) == calibration.DEFAULTS


def test_whole_tables_get_bisort_whatever_was_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auto.Strategy, "choose", lambda *_: pytest.fail("costs of streams were asked"))
    rng = np.random.default_rng(7)
    r, s = (pa.table({"x": rng.integers(0, 900, 500)}) for _ in "rs")
    joined = [mr.join(r, s, on="abs(r.x - s.x) <= 2", index=index) for index in ("auto", "scan")]
    assert joined[0].equals(joined[1])
