"""Steps of `pim` by ranges: several threads give the pairs of one, in order, while merges happen all the time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import millrace as mr
from millrace.host.base.types import Array
from millrace.host.join.pimtree import index as pim_index
from millrace.host.join.pimtree import range_step
from millrace.host.join.pimtree.range_kernel import chunk_end
from millrace.host.runtime.intrinsics import address

ROWS = 24_000
"""Enough for helper threads to take part in each push."""
CASES: list[tuple[str, dict[str, Any], int, int]] = [
    ("int32", {"merge_ratio": 0.05, "task_rows": 1, "subindexes": 3}, 2, 1),
    ("int64", {"merge_ratio": 0.01, "task_rows": 8}, 2, 0),
    ("int64", {"merge_ratio": 1.0, "task_rows": 64}, 3, 5),
    ("int32", {}, 4, 2),
]


@pytest.fixture(autouse=True)
def _more_owners_than_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(range_step, "most_threads", lambda: 8)


def streams(kind: str, drift: int) -> tuple[pa.Table, pa.Table, Array]:
    """Two streams whose keys move by `drift` per tuple, and their order of arrival."""
    rng = np.random.default_rng([drift, ROWS])
    keys = [(rng.integers(0, 20_000, ROWS) + drift * np.arange(ROWS)).astype(kind) for _ in "rs"]
    return pa.table({"x": keys[0]}), pa.table({"x": keys[1]}), rng.permutation(np.repeat([0, 1], ROWS)).astype(np.uint8)


def run(kind: str, drift: int, window: str, **arguments: Any) -> tuple[list[pa.Table], mr.WindowJoin]:
    r, s, arrival = streams(kind, drift)
    join = mr.WindowJoin("abs(r.x - s.x) <= 2", window=window, **{"output": "seqs", **arguments})
    found, at = [], [0, 0]
    for part in np.array_split(arrival, 2):
        take = [int((part == side).sum()) for side in (0, 1)]
        if arguments.get("self_join"):
            found.append(join.push("r", r.slice(at[0], take[0])))
        else:
            found.append(join.push_both(r.slice(at[0], take[0]), s.slice(at[1], take[1]), part))
        at = [at[0] + take[0], at[1] + take[1]]
    return found, join


@pytest.mark.parametrize(("kind", "options", "threads", "drift"), CASES, ids=str)
@pytest.mark.parametrize("window", ["300 rows", "5000 rows"])
def test_threads_give_the_same_pairs_in_the_same_order(
    kind: str,
    options: dict[str, Any],
    threads: int,
    drift: int,
    window: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pim_index, "MIN_PARALLEL_ROWS", 1)
    wanted, _ = run(kind, drift, window, index="btree")
    found, join = run(kind, drift, window, index="pim", threads=threads, options=options)
    assert [one.num_rows for one in found] == [one.num_rows for one in wanted]
    assert all(one.equals(two) for one, two in zip(found, wanted, strict=True))
    assert join.stats["merges"] > 4


@pytest.mark.parametrize("arguments", [{"self_join": True}, {"output": "count"}], ids=str)
def test_threads_in_self_joins_and_counts(arguments: dict[str, Any]) -> None:
    wanted, _ = run("int64", 1, "2000 rows", index="btree", **arguments)
    found, _ = run("int64", 1, "2000 rows", index="pim", threads=2, **arguments)
    assert all(one.equals(two) for one, two in zip(found, wanted, strict=True))


def test_steps_on_one_thread_and_on_several_alternate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few tuples run on one thread; both kinds of steps work on the same trees."""
    monkeypatch.setattr(pim_index, "MIN_PARALLEL_ROWS", 100)
    rng = np.random.default_rng(7)
    joins = [mr.WindowJoin("r.x = s.x", window="700 rows", index="btree", output="seqs")]
    options = {"merge_ratio": 0.1}
    joins.append(mr.WindowJoin("r.x = s.x", window="700 rows", index="pim", output="seqs", threads=2, options=options))
    for size in rng.choice([1, 30, 90, 200, 1500], 60):
        r, s = (pa.table({"x": rng.integers(0, 300, size)}) for _ in "rs")
        arrival = rng.permutation(np.repeat([0, 1], size)).astype(np.uint8)
        wanted, found = (join.push_both(r, s, arrival) for join in joins)
        assert found.equals(wanted)


@pytest.mark.parametrize("threads", [2, 3])
@pytest.mark.parametrize("keys", ["one word", "two words", "the ends", "half of them one word"])
def test_words_that_cannot_be_shared_out_evenly(keys: str, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranges end where subindexes end: some threads may have no tuples to insert."""
    monkeypatch.setattr(pim_index, "MIN_PARALLEL_ROWS", 1)
    rng = np.random.default_rng(len(keys))
    ends = np.iinfo(np.int64)

    def words(count: int) -> Array:
        if keys == "half of them one word":
            return np.where(rng.random(count) < 0.5, 77, rng.integers(0, 10_000, count))
        return rng.choice({"one word": [5], "two words": [5, 6], "the ends": [ends.min, -1, 0, ends.max]}[keys], count)

    arguments: dict[str, Any] = {"window": "200 rows", "output": "seqs"}
    joins = [
        mr.WindowJoin("abs(r.x - s.x) <= 1", index="btree", **arguments),
        mr.WindowJoin("abs(r.x - s.x) <= 1", index="pim", threads=threads, **arguments),
    ]
    for size in (9_000, 1, 300, 0, 2_000):
        r, s = (pa.table({"x": words(size)}) for _ in "rs")
        arrival = rng.permutation(np.repeat([0, 1], size)).astype(np.uint8)
        wanted, found = (join.push_both(r, s, arrival) for join in joins)
        assert found.equals(wanted)
        assert found.num_rows > 0 or size == 0


def test_a_chunk_ends_where_a_side_has_no_room() -> None:
    rng = np.random.default_rng(3)
    for _ in range(200):
        order = (rng.random(rng.integers(1, 300)) < rng.random()).astype(np.uint8)
        first, rooms = int(rng.integers(0, len(order))), [int(rng.integers(0, 200)) for _ in range(2)]
        of_s, stop = chunk_end(address(order), first, len(order), *rooms)
        taken = order[first:stop]
        assert of_s == taken.sum() <= rooms[1]
        assert len(taken) - of_s <= rooms[0]
        if stop < len(order):
            full = rooms[order[stop]] == (of_s if order[stop] else len(taken) - of_s)
            assert full


CONDITIONS = [
    "r.x = s.x",
    "abs(r.x - s.x) <= 2",
    "r.x < s.x",
    "r.x = s.x or r.x = s.x + 3 or r.x = s.x + 9",
    "abs(r.x - s.x) <= 1 or abs(r.x - s.x - 10) <= 2",
    "abs(r.x - s.x) <= 3 and r.y > s.y",
]


def batch(rng: np.random.Generator, kind: str, time: int) -> pa.Table:
    """Few or many rows with nulls, NaN and the ends of the type among the keys, in order of time."""
    count = int(rng.choice([0, 1, 50, 400, 700]))
    keys = rng.integers(0, 100, count).astype(kind)
    ends = [np.nan, np.inf, -0.0] if kind == "float64" else [np.iinfo(kind).min, np.iinfo(kind).max, 0]
    keys = np.where(rng.random(count) < 0.2, np.array(ends, kind)[rng.integers(0, 3, count)], keys)
    nulls = rng.random(count) < rng.choice([0, 0.3, 1], p=[0.5, 0.4, 0.1])
    times = np.sort(rng.integers(time, time + 500, count))
    return pa.table({"x": pa.array(keys, mask=nulls), "y": rng.integers(0, 10, count), "t": times})


@pytest.mark.parametrize("seed", range(24))
def test_any_join_finds_the_same_rows(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Time and count windows, also unequal ones, several ranges, dead rows, self-joins, restored joins."""
    rng = np.random.default_rng(seed)
    kind, timed = ["int8", "int32", "uint64", "float64"][seed % 4], bool(rng.random() < 0.5)
    lengths = [str(rng.choice([1, 60, 300, 1500])) + ("" if timed else " rows") for _ in "rs"]
    arguments: dict[str, Any] = {
        "on": str(rng.choice(CONDITIONS)),
        "window": tuple(lengths),
        "time": "t" if timed else None,
        "self_join": bool(rng.random() < 0.2),
        "output": str(rng.choice(["seqs", "seqs", "count"])),
    }
    ratio, tasks, subindexes = float(rng.choice([1e-6, 0.02, 1])), int(rng.choice([1, 8, 64])), int(rng.choice([0, 5]))
    options = {"merge_ratio": ratio, "task_rows": tasks, "subindexes": subindexes}
    several: dict[str, Any] = {"index": "pim", "threads": int(rng.choice([2, 3, 8])), "options": options}
    if arguments["self_join"]:
        arguments["window"] = lengths[0]
    plain, join, stored = mr.WindowJoin(index="btree", **arguments), mr.WindowJoin(**several, **arguments), {}
    for step in range(6):
        monkeypatch.setattr(pim_index, "MIN_PARALLEL_ROWS", 1 if rng.random() < 0.75 else 1 << 40)
        for side in "r" if arguments["self_join"] else "rs":
            rows = batch(rng, kind, 500 * step)
            assert join.push(side, rows).equals(plain.push(side, rows))
        if rng.random() < 0.2:
            delta = join.state()
            stored.update(delta.added)
            join = mr.WindowJoin.restore(delta.manifest, stored, **several, **arguments)
