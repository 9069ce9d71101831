"""`mr.KnnJoin` against brute force: windows, clocks, sources, self-joins, batches of any size, restored states."""

from __future__ import annotations

import os
import random
import warnings
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import millrace as mr
from millrace.host.knn.index import PointIndex
from tests.knn_oracle import Found, KnnJoin, Search
from tests.sdk.knn_cases import (
    NAMES,
    SHAPES,
    Rows,
    as_arrow,
    found_rows,
    random_options,
    random_rows,
    small_intervals,
)

Call = tuple[str, tuple[Any, ...]]


class Case:
    """A random join: its arguments, the oracle's, and the calls to make."""

    def __init__(self, seed: str, rows: int = 60) -> None:
        rng = random.Random(seed)
        self.dims, shape = rng.randrange(2, 5), rng.choice(SHAPES)
        self_join = rng.random() < 0.3
        kind = rng.choice(["arrival", "count by time", "time"])
        by = rng.choice([None, None, "team", ["team", "level"]])
        within, how = rng.choice([None, None, 0.5, 3]), rng.choice(["inner", "left"])
        k, window = rng.choice([1, 3, 10, 99]), rng.choice([1, 2, 7, 50])
        names = () if by is None else tuple(by) if isinstance(by, list) else (by,)
        search = Search((NAMES[: self.dims],) * 2, k, "euclidean", within, (names, names), how)
        self.arguments: dict[str, Any] = {
            "on": NAMES[: self.dims],
            "k": k,
            "within": within,
            "by": by,
            "how": how,
            "self_join": self_join,
            "threads": rng.choice([1, 2]),
            "options": random_options(rng),
            "window": f"{window}" if kind == "time" else f"{window} rows",
        }
        counts, sides = kind != "time", ["r"] if self_join else ["r", "s"]
        time, lateness, sources = None, 0, dict.fromkeys(sides, 1)
        if kind != "arrival":
            time, lateness = ("ts", "ts"), rng.choice([0, 0, 4])
            sources = {side: rng.choice([1, 1, 3]) for side in sides}
            self.arguments |= {"time": "ts", "lateness": lateness, "sources": sources}
        self.timed = time is not None
        self.oracle = KnnJoin(search, window, counts, time, lateness, sources, self_join)
        self.calls = list(self._calls(rng, rows, shape, sides, sources))

    def _calls(self, rng: random.Random, rows: int, shape: str, sides: Any, sources: Any) -> Iterator[Call]:
        now = 0
        while rows > 0:
            side = rng.choice(sides)
            source, count = rng.randrange(sources[side]), rng.choice([0, 1, 3, 20])
            batch = random_rows(rng, count, self.dims, shape, bad=0.1)
            for row in batch:
                now += rng.choice([0, 0, 1, 2])
                row["ts"] = None if rng.random() < 0.03 else now + rng.choice([0, 0, 0, -3])
            rows -= count
            yield "push", (side, batch, source)
            if self.timed and rng.random() < 0.2:
                yield rng.choice([("flush", ()), ("advance", (side, now + rng.choice([0, 1, 5]), source))])

    def table(self, batch: Rows) -> pa.Table:
        return as_arrow(batch, self.dims, time=pa.int64())


def call(case: Case, j: mr.KnnJoin, name: str, given: tuple[Any, ...]) -> tuple[list[Found], list[Found]]:
    """Make a call on both; return the two results."""
    if name == "push":
        side, batch, source = given
        found = j.push(side, case.table(batch), source)
        expected = case.oracle.push(side, batch, source)
    else:
        found, expected = getattr(j, name)(*given), getattr(case.oracle, name)(*given)
    return found_rows(found), expected


def check_stats(case: Case, j: mr.KnnJoin) -> None:
    for name, value in case.oracle.stats.items():
        assert j.stats[name] == value, name
    assert j.stats["rows"] == case.oracle.rows
    assert (j.stats["pending"], j.stats["held"]) == (case.oracle.pending, case.oracle.held)


@pytest.mark.parametrize("seed", range(40))
def test_streams(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(f"stream {seed}")
    small_intervals(monkeypatch)
    j = mr.KnnJoin(**case.arguments)
    for name, given in case.calls:
        found, expected = call(case, j, name, given)
        assert found == expected
        check_stats(case, j)
    assert found_rows(j.close()) == case.oracle.flush()


@pytest.mark.parametrize("seed", range(12))
def test_a_restored_join_goes_on(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(f"restored {seed}")
    small_intervals(monkeypatch)
    j = mr.KnnJoin(**case.arguments)
    runs: dict[str, bytes] = {}
    for number, (name, given) in enumerate(case.calls):
        if number % 3 == 2:
            delta = j.state()
            runs = {n: data for n, data in {**runs, **delta.added}.items() if n not in delta.removed}
            before = j.stats
            j = mr.KnnJoin.restore(delta.manifest, runs, **{**case.arguments, "threads": 1})
            assert j.stats.to_dict() == before.to_dict()
        found, expected = call(case, j, name, given)
        assert found == expected
    assert found_rows(j.close()) == case.oracle.flush()


@pytest.mark.parametrize("window", [1, 100, 3000, 9000])
@pytest.mark.parametrize("self_join", [False, True])
def test_batches_of_any_size_give_the_same_rows(window: int, self_join: bool) -> None:
    """Many s rows between r rows of one step: runs, merged runs, expired points, and points in no run."""
    rng = random.Random(window)
    rows = as_arrow(random_rows(rng, 16000, 2, "uniform", bad=0.01), 2)
    arguments: dict[str, Any] = {"on": ("a", "b"), "k": 3, "window": f"{window} rows", "self_join": self_join}
    results = []
    for size in (16000, 3700, 5000):
        j = mr.KnnJoin(**arguments, output="seqs")
        parts = []
        for first in range(0, rows.num_rows, size):
            batch = rows.slice(first, size)
            if not self_join:
                j.push("s", batch)
                batch = rows.slice(first, size).slice(0, 500)
            parts.append(j.push("r", batch))
        results.append(pa.concat_tables(parts))
        builds = j.stats["builds"]
    if self_join:
        assert all(results[0].equals(other) for other in results[1:])
        assert (builds > 0) == (window > 2048)
    _check_some(results[-1], rows, window, self_join)


def _check_some(found: pa.Table, rows: pa.Table, window: int, self_join: bool) -> None:
    """Compare some r rows with brute force."""
    search = Search((("a", "b"), ("a", "b")), 3)
    points = rows.to_pylist()
    by_row: dict[int, list[tuple[int, int, float]]] = {}
    for _, r_seq, _, _, s_seq, distance in found_rows(found):
        assert s_seq is not None
        assert distance is not None
        by_row.setdefault(r_seq, []).append((0, s_seq, distance))
    for r_seq in (0, 3, 499, 777, 1499):
        number, end = (r_seq, r_seq) if self_join else (5000 * (r_seq // 500) + r_seq % 500, 5000 * (r_seq // 500 + 1))
        candidates = [(0, i, points[i]) for i in range(max(end - window, 0), end)]
        assert by_row.get(r_seq, []) == search.neighbours(points[number], candidates)


def test_s_comes_before_r_at_equal_times() -> None:
    j = mr.KnnJoin(on=("x", "y"), k=5, window="0", time="ts", output="seqs")
    at = {"x": [0.0], "y": [0.0]}
    assert j.push("r", pa.table({**at, "ts": [3]})).num_rows == 0
    assert j.push("s", pa.table({**at, "ts": [3]})).num_rows == 0  # another s row of time 3 may come
    assert j.stats["pending"] == 1
    assert found_rows(j.advance("s", 4)) == [(0, 0, 0, 0, 0, 0.0)]


def test_finer_times_and_haversine_in_a_stream() -> None:
    j = mr.KnnJoin(on=("lon", "lat"), k=1, window="2 seconds", time="ts", metric="haversine", within=1e6)
    s = {"lon": [2.35, 13.4, 0.0], "lat": [48.86, 52.52, 91.0], "ts": pa.array([1, 2, 2], pa.timestamp("s"))}
    j.push("s", pa.table(s))
    r = {"lon": [4.9], "lat": [52.37], "ts": pa.array([2500], pa.timestamp("ms"))}
    j.push("r", pa.table(r))
    found = j.close()
    assert found["s_seq"].to_pylist() == [0]
    assert abs(found["distance"][0].as_py() - 430_000) < 2_000
    assert j.stats["null_keys"] == 1


def test_left_before_s_is_known() -> None:
    j = mr.KnnJoin(on=("x", "y"), k=1, window="5 rows", how="left")
    row = pa.table({"x": [1.0], "y": [2.0]})
    assert j.push("r", row).to_pylist() == [
        {"r_seq": 0, "rank": None, "s_seq": None, "distance": None, "r_x": 1.0, "r_y": 2.0}
    ]
    j.push("s", row)
    assert j.push("r", row)["s_seq"].to_pylist() == [0]


def test_run_and_with() -> None:
    row = pa.table({"x": [1.0], "y": [2.0], "ts": [1]})
    arguments: dict[str, Any] = {"on": ("x", "y"), "k": 1, "window": "5", "time": "ts", "output": "seqs"}
    with mr.KnnJoin(**arguments) as j:
        assert [t.num_rows for t in j.run([("s", row), ("r", row)])] == [1]
    with pytest.raises(mr.StateError, match="closed"):
        j.push("r", row)
    with warnings.catch_warnings(record=True) as caught, mr.KnnJoin(**arguments) as left:
        warnings.simplefilter("always")
        left.push("s", row)
    assert [w.category for w in caught] == [ResourceWarning]


@pytest.mark.parametrize("partitions", [1, 4])
def test_a_search_that_fails_is_undone(partitions: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = as_arrow(random_rows(random.Random(3), 6000, 2, "uniform"), 2)
    options = {"partitions": partitions}
    j, spared = (mr.KnnJoin(on=("a", "b"), k=2, window="5000 rows", self_join=True, options=options) for _ in range(2))
    for one in (j, spared):
        one.push("r", rows)
    with monkeypatch.context() as patched:
        patched.setattr(PointIndex, "query", _interrupted)
        with pytest.raises(KeyboardInterrupt):
            j.push("r", rows)
    assert j.stats.to_dict() == spared.stats.to_dict()
    assert j.push("r", rows).equals(spared.push("r", rows))


def _interrupted(*_: Any) -> Any:
    raise KeyboardInterrupt


@pytest.mark.parametrize("partitions", [1, 4])
def test_a_forked_child_goes_on(partitions: int) -> None:
    rows = as_arrow(random_rows(random.Random(4), 5000, 2, "uniform"), 2)
    j = mr.KnnJoin(on=("a", "b"), k=2, window="4000 rows", output="seqs", options={"partitions": partitions})
    j.push("s", rows)
    j.push("r", rows)
    read, write = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # newer Pythons warn of threads when a process forks
        child = os.fork()
    if child == 0:
        status = 1
        try:
            j.push("s", rows)
            os.write(write, str(sum(j.push("r", rows)["s_seq"].to_pylist())).encode())
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    j.push("s", rows)
    assert int(os.read(read, 100)) == sum(j.push("r", rows)["s_seq"].to_pylist())
    os.close(read)
    os.close(write)


def test_stats_count_what_partitions_do() -> None:
    rows = as_arrow(random_rows(random.Random(5), 3000, 2, "uniform"), 2)
    j = mr.KnnJoin(on=("a", "b"), k=3, window="2000 rows", options={"partitions": 4, "map": "quadtree"})
    assert j.stats["home"] == 0
    j.push("s", rows)
    j.push("r", rows)
    assert j.stats["home"] == 3000
    assert 0 < j.stats["neighbour"] < 900
    assert (j.stats["moved"], j.stats["maps"]) == (0, 1)
    assert {"partitions": 4, "map": "quadtree", "replace": "instant"}.items() <= j.explain().to_dict()["plan"].items()
