"""Small steps of PanJoin: one compiled call gives what the general path gives, for all shapes of batches."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pytest

import millrace as mr
from millrace.host.join.panjoin import index as panjoin
from millrace.host.join.panjoin.insertion_buffer import BUFFER
from millrace.host.join.panjoin.small_step import MAX_TUPLES, SmallSteps
from millrace.join_parts.short_push import ShortPush

CONDITIONS = {
    "band": "abs(r.x - s.x) <= 3",
    "equal": "r.x = s.x",
    "one-sided": "r.x <= s.x AND r.x > 40",
    "own range": "s.x BETWEEN r.x - r.y AND r.x + r.y",
    "two bands": "abs(r.x - s.x) <= 1 OR s.x - r.x BETWEEN 10 AND 12",
    "rechecked": "abs(r.x - s.x) <= 3 AND r.y <> s.y",
}
SIZES = [1, 2, 3, 7, 8, 9, 31, 32, 33, 200, 300, MAX_TUPLES, MAX_TUPLES + 1, 1500, 1, 1, 5]


def batch(rng: np.random.Generator, rows: int, word: Any, nulls: bool = True) -> pa.Table:
    x = pa.array(rng.integers(0, 400, rows).astype(word), mask=rng.random(rows) < 0.1 if nulls else None)
    return pa.table({"x": x, "y": rng.integers(0, 5, rows).astype(word)})


def results(on: str, batches: list[tuple[str, pa.Table]], **arguments: Any) -> list[pa.Table]:
    with mr.WindowJoin(on=on, index="bisort", **arguments) as join:
        return [join.push(side, rows) for side, rows in batches]


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each call of a small step found the result."""
    found: list[bool] = []
    step = SmallSteps.step

    def counted(self: SmallSteps, *arguments: Any) -> Any:
        result = step(self, *arguments)
        found.append(result is not None)
        return result

    plain_step = SmallSteps.plain_step

    def counted_plain(self: SmallSteps, *arguments: Any) -> Any:
        found.append(True)
        return plain_step(self, *arguments)

    monkeypatch.setattr(SmallSteps, "step", counted)
    monkeypatch.setattr(SmallSteps, "plain_step", counted_plain)
    return found


@pytest.mark.parametrize("output", ["pairs", "count"])
@pytest.mark.parametrize("word", [np.int64, np.int32, np.float64])
@pytest.mark.parametrize("on", CONDITIONS.values(), ids=CONDITIONS)
def test_small_steps_give_what_large_ones_give(
    on: str, word: Any, output: Literal["pairs", "count"], used: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(11)
    batches = [("rs"[rng.integers(0, 2)], batch(rng, rows, word)) for rows in SIZES * 3]
    window = "700 rows"
    small = results(on, batches, window=window, output=output)
    # The range of a sum of 32-bit columns is one of 64-bit words: both sides' keys differ in width.
    assert any(used) == (on != CONDITIONS["own range"] or word is not np.int32)
    monkeypatch.setattr(panjoin, "MAX_TUPLES", 0)
    monkeypatch.setattr(ShortPush, "bind", lambda *_: None)
    large = results(on, batches, window=window, output=output)
    for number, (ours, theirs) in enumerate(zip(small, large, strict=True)):
        assert ours.equals(theirs), f"batch {number} of {len(batches[number][1])} rows differs"


def test_a_tuple_with_many_partners_gets_them_in_order(used: list[bool]) -> None:
    """More than the kernel sorts, and more than there is room for at first."""
    rng = np.random.default_rng(3)
    keys = rng.permutation(5_000)
    with mr.WindowJoin("abs(r.x - s.x) <= 1000", window="5000 rows", index="bisort", output="seqs") as join:
        for part in np.split(keys, 50):
            join.push("s", pa.table({"x": part}))
        found = join.push("r", pa.table({"x": [2_500, 10]}))
    expected = [np.flatnonzero(np.abs(keys - key) <= 1000) for key in (2_500, 10)]
    assert used[-1]
    assert found.column("s_seq").to_pylist() == np.concatenate(expected).tolist()
    assert found.column("r_seq").to_pylist() == np.repeat([0, 1], [len(one) for one in expected]).tolist()


def test_single_rows_over_many_subwindows_match_the_nested_loop(used: list[bool]) -> None:
    """The insertion buffer fills and empties, subwindows begin and expire."""
    rng = np.random.default_rng(5)
    joins = [mr.WindowJoin("abs(r.x - s.x) <= 2", window="3000 rows", index=i) for i in ("bisort", "scan")]
    for number in range(60):
        side, rows = "rs"[number % 2], pa.table({"x": rng.integers(0, 9_000, BUFFER // 3)})
        ours, theirs = (join.push(side, rows) for join in joins)
        assert ours.equals(theirs), f"batch {number}"
    assert all(used[2:])
    for number in range(40):
        side, rows = "rs"[number % 2], pa.table({"x": rng.integers(0, 9_000, 1)})
        ours, theirs = (join.push(side, rows) for join in joins)
        assert ours.equals(theirs), f"row {number}"


def test_probes_of_small_steps_are_counted() -> None:
    with mr.WindowJoin("r.x = s.x", window="9000 rows", index="bisort", device="cpu") as join:
        join.push("r", pa.table({"x": np.arange(4_000)}))
        join.push("s", pa.table({"x": np.arange(4_000)}))
        before = join.stats["bisort_prober_rows"]
        join.push("r", pa.table({"x": [1, 2, 3]}))
        assert join.stats["bisort_prober_rows"] == before + 3
