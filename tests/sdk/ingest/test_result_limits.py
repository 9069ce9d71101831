"""Results, sources and indexes beyond memory are refused with the arithmetic before allocation; `mr.limits()`."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import millrace as mr
from millrace.host.base import memory
from millrace.host.hbtree import scan
from millrace.host.join import pair_memory
from millrace.host.join.panjoin import llat
from millrace.host.kernels import gathered_memory
from millrace.index_parts import regular_rows, results
from millrace.ingest import memory_limits
from millrace.join_parts import table_result
from tests.watchdog import WATCHDOG

SMALL = 4 << 20
ROWS = 2000
EQUAL = pa.table({"x": np.zeros(ROWS, np.int64)})
"""Joined with itself: 4 million pairs, of 16 bytes or more."""


@pytest.fixture
def little(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (pair_memory, results):
        monkeypatch.setattr(module, "free_bytes", lambda: SMALL)
        monkeypatch.setattr(module, "SMALL", 0)


@pytest.mark.usefixtures("little")
@pytest.mark.parametrize("index", ["auto", "bisort", "rap", "wib", "btree", "scan"])
def test_a_push_whose_pairs_do_not_fit_changes_nothing(index: Any) -> None:
    j = mr.WindowJoin("r.x = s.x", window="10000 rows", index=index, output="seqs", device="cpu")
    j.push("r", EQUAL)
    with pytest.raises(mr.ArgumentError, match=r"does not fit in memory: .* pairs of 16 bytes .*4\.0 MiB; push fewer"):
        j.push("s", EQUAL)
    assert j.stats.rows == {"r": ROWS, "s": 0}
    assert j.push("s", EQUAL.slice(0, 10)).num_rows == 10 * ROWS


@pytest.mark.usefixtures("little")
@pytest.mark.parametrize("index", ["auto", "bisort", "btree", "scan"])
@pytest.mark.parametrize("how", ["inner", "left"])
def test_a_join_of_tables_whose_pairs_do_not_fit_says_how_to_get_them(index: Any, how: Any) -> None:
    with pytest.raises(mr.ArgumentError, match=r"pairs of \d+ bytes are .* and there are 4\.0 MiB"):
        mr.join(EQUAL, EQUAL, on="r.x = s.x", index=index, how=how)
    counts = mr.join(EQUAL, EQUAL, on="r.x = s.x", index=index, how=how, output="count")
    assert counts["count"].to_pylist() == [ROWS] * ROWS
    first = next(iter(mr.join(EQUAL.slice(0, 50), EQUAL, on="r.x = s.x", index=index, how=how, batch_rows=1000)))
    assert first.num_rows == 1000


def test_payload_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    wide = EQUAL.slice(0, 300).append_column("y", pa.array([1.0] * 300))
    monkeypatch.setattr(pair_memory, "free_bytes", lambda: 3 << 20)
    monkeypatch.setattr(pair_memory, "SMALL", 0)
    assert mr.join(wide, wide, on="r.x = s.x", output="seqs", index="scan").num_rows == 300 * 300
    with pytest.raises(mr.ArgumentError, match=r"90,000 pairs of 48 bytes are 4\.1 MiB"):
        mr.join(wide, wide, on="r.x = s.x", index="scan")


LONG = pa.table({"x": np.zeros(300, np.int64), "t": ["a" * 1000] * 299 + [None], "u": [["b", "c"]] * 300})


@pytest.fixture
def little_for_values(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (gathered_memory, table_result):
        monkeypatch.setattr(module, "free_bytes", lambda: 64 << 20)
    monkeypatch.setattr(gathered_memory, "SMALL", 0)


@pytest.mark.usefixtures("little_for_values")
@pytest.mark.parametrize("index", ["auto", "bisort", "scan"])
def test_long_values_count(index: Any) -> None:
    """90,000 pairs of two texts of 1,000 characters."""
    with pytest.raises(mr.ArgumentError, match=r"the values of 90,000 rows take 8\d\.\d MiB, and there are 64\.0 MiB"):
        mr.join(LONG, LONG, on="r.x = s.x", index=index)
    assert mr.join(LONG, LONG, on="r.x = s.x", index=index, output="seqs").num_rows == 90_000
    assert sum(part.num_rows for part in mr.join(LONG, LONG, on="r.x = s.x", index=index, batch_rows=9000)) == 90_000
    j = mr.WindowJoin("r.x = s.x", window="10000 rows", index=index)
    j.push("r", LONG)
    with pytest.raises(mr.ArgumentError, match=r"the values of 90,000 rows take"):
        j.push("s", LONG)
    assert j.stats.rows == {"r": 300, "s": 0}
    assert j.push("s", LONG.slice(0, 10)).num_rows == 3000


@pytest.mark.usefixtures("little_for_values")
@pytest.mark.parametrize("layout", ["implicit", "regular"])
def test_long_values_of_an_index_count(layout: Any) -> None:
    values = pa.array(["a"] * 99 + ["b" * (1 << 20)])
    index = mr.OrderedIndex(np.arange(100), values, layout=layout)
    with pytest.raises(mr.ArgumentError, match=r"the values of 100 rows take 100\.0 MiB"):
        index.lookup(np.full(100, 99))
    assert len(index.lookup(np.full(10, 99))) == 10
    assert index.lookup(np.full(1000, 5)).to_pylist() == ["a"] * 1000


def test_values_of_every_kind_are_counted_at_least_roughly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gathered_memory, "SMALL", 0)
    rows = pa.array([1, None, 2, 1])
    for column in (pa.array([b"x", b"yy", None]), pa.array([[1], [2, 3], None]), pa.array([None] * 3, pa.string())):
        chunked = pa.chunked_array([column])
        monkeypatch.setattr(gathered_memory, "free_bytes", lambda: 1 << 30)
        gathered_memory.check_gathered(chunked, rows)
        monkeypatch.setattr(gathered_memory, "free_bytes", lambda: 0)
        with pytest.raises(mr.ArgumentError, match="the values of 4 rows"):
            gathered_memory.check_gathered(pa.table({"x": chunked}), rows)


@pytest.mark.parametrize("index", ["rap", "wib"])
def test_the_first_structure_of_a_window_refuses_with_the_arithmetic(
    index: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its ids were allocated before the pairs were counted."""
    asked: list[int] = []
    monkeypatch.setattr(llat, "check_fits", lambda pairs, in_parts: asked.append(pairs))
    assert mr.join(EQUAL, EQUAL, on="r.x = s.x", index=index, output="seqs").num_rows == ROWS**2
    assert asked == [ROWS**2]
    monkeypatch.setattr(llat, "_MAX_IDS", 1000)
    with pytest.raises(mr.ArgumentError, match=r"4,000,000 pairs; allowed are 1,000 a step: push fewer"):
        mr.join(EQUAL, EQUAL, on="r.x = s.x", index=index, output="seqs")


@pytest.mark.usefixtures("little")
def test_ranges_and_neighbours_that_do_not_fit() -> None:
    for layout in ("implicit", "regular"):
        ix = mr.OrderedIndex(np.arange(1000), layout=layout)
        with pytest.raises(mr.ArgumentError, match=r"1,000,000 values of 8 bytes are 7\.6 MiB"):
            ix.range(np.zeros(1000, np.int64), np.full(1000, 10_000))
    points = pa.table({"a": np.arange(500.0), "b": np.zeros(500)})
    with pytest.raises(mr.ArgumentError, match="fewer neighbours"):
        mr.knn_join(points, points, on=("a", "b"), k=500, output="seqs")


def test_counting_ranges_ends_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """A million ranges over a million keys took a quarter of an hour to be refused."""
    index = mr.OrderedIndex(np.arange(1000), layout="regular")
    low = np.arange(5000) % 1000
    high = np.where(np.arange(5000) < 2500, low, 999)
    counted: list[int] = []

    def count(*arguments: Any) -> Any:
        counting: Any = scan.count_ranges
        counts = counting(*arguments, most=10_000)
        counted.append(int(counts.sum()))
        return counts

    wanted = index.range(low, high).to_pylist()
    assert wanted == [list(range(a, b + 1)) for a, b in zip(low.tolist(), high.tolist(), strict=True)]
    monkeypatch.setattr(regular_rows, "count_ranges", count)
    index.range(low[:2000], high[:2000])
    assert counted.pop() == 2000
    monkeypatch.setattr(results, "MAX_VALUES", 10_000)
    with pytest.raises(mr.ArgumentError, match=r"hold at least [\d,]+ values; allowed are 10,000 a call"):
        index.range(low, high)
    assert 10_000 < counted.pop() < len(low) * 500


def test_too_many_sources_are_refused_with_the_arithmetic() -> None:
    for join in (mr.WindowJoin, mr.KnnJoin):
        arguments: dict[str, Any] = {"window": "5 rows", "time": "ts", "sources": {"r": 10**9}}
        arguments |= {"on": "r.x = s.x"} if join is mr.WindowJoin else {"on": ("x", "y"), "k": 1}
        with pytest.raises(mr.ArgumentError, match=r"1,000,000,00\d sources of 400 bytes are 372\.5 GiB.*1,048,576"):
            join(**arguments)
    mr.WindowJoin("r.x = s.x", window="5 rows", time="ts", sources={"r": 1000, "s": 7})


def test_the_limits_are_those_of_the_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = mr.limits()
    assert limits.memory == memory.memory()
    with pytest.raises(mr.ArgumentError):
        mr.WindowJoin("r.x = s.x", window=f"{limits.window_rows + 1} rows")
    mr.WindowJoin("r.x = s.x", window=f"{limits.window_rows} rows")
    assert limits.sources == memory_limits.max_sources()
    with pytest.raises(mr.PredicateError, match=str(limits.condition_characters)):
        mr.WindowJoin("r.x = s.x" + " " * limits.condition_characters, window="5 rows")
    text = repr(limits)
    for line in ("Limits of this process:", "window_rows", "25 bytes a row", f"{limits.result_pairs:,}"):
        assert line in text
    assert "<table>" in limits._repr_html_()
    assert limits.arithmetic().keys() == vars(limits).keys()


def test_joins_work_in_atexit() -> None:
    program = """
import atexit, millrace as mr, numpy as np, pyarrow as pa
rows = pa.table({"x": np.arange(5000), "y": np.arange(5000.0)})
def late():
    print(mr.join(rows, rows, on="abs(r.x - s.x) <= 1").num_rows)
    print(mr.knn_join(rows, rows, on=("x", "y"), k=2, options={"partitions": 2}).num_rows)
    print(len(mr.OrderedIndex(rows["x"]).lookup(rows["x"])))
atexit.register(late)
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=WATCHDOG, check=False)
    assert run.stdout.split() == ["14998", "10000", "5000"], run.stderr


def test_calls_in_del_at_the_very_end_work_or_say_why_not() -> None:
    """Modules cannot be loaded any more, and threads never start: a critical section in another thread would hang."""
    program = """
import millrace as mr, pyarrow as pa
class Late:
    def __init__(self):
        self.mr, self.error, self.rows = mr, mr.StateError, pa.table({"x": range(5000)})
        self.index = mr.OrderedIndex(self.rows["x"], layout="regular")
        self.index.update(delete=self.rows["x"][:1])
        self.device = mr.device
    def __del__(self):
        self.index.update(delete=self.rows["x"][1:2])
        print(len(self.index))
        for call in (lambda: self.mr.knn_join, lambda: self.device("cpu")):
            try:
                call()
            except self.error as error:
                print(error)
late = Late()
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=600, check=False)
    lines = run.stdout.splitlines()
    assert ["interpreter has ended" in line for line in lines] == [False, True, True], run.stdout + run.stderr
    assert lines[0] == "4998"
