"""The table engine of `spo` equals a nested loop: every way to count and to find, ties, rows that cannot match."""

from __future__ import annotations

from itertools import product
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

import millrace as mr
from millrace.host.join import pair_memory
from millrace.host.join.spo import table

OPERATORS = {"<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal}
TERMS = [*OPERATORS, "band"]
SIZES = {
    "one row": (1, 1, 2),
    "ties": (150, 130, 4),
    "few matches": (400, 300, 5000),
    "few queries, so that counts are scanned": (3, 3000, 1000),
    "many matches, in two blocks of rows": (30, 66_000, 1000),
}
"""Rows of r, rows of s, number of values."""
Longs = npt.NDArray[np.int64]


def text(column: str, term: str, width: int) -> str:
    return f"abs(r.{column} - s.{column}) <= {width}" if term == "band" else f"r.{column} {term} s.{column}"


def holds(term: str, r: Longs, s: Longs, width: int) -> npt.NDArray[np.bool_]:
    found: npt.NDArray[np.bool_]
    found = np.abs(r[:, None] - s) <= width if term == "band" else OPERATORS[term](r[:, None], s)
    return found


@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES)
@pytest.mark.parametrize("threads", [1, 2])
def test_pairs_and_counts_equal_a_nested_loop(size: tuple[int, int, int], threads: int) -> None:
    n, m, values = size
    rng, width = np.random.default_rng(values), max(values // 16, 1)
    r, s = ({name: rng.integers(-values // 2, values // 2, rows) for name in "ab"} for rows in (n, m))
    for first, second in product(TERMS, repeat=2):
        on = f"{text('a', first, width)} AND {text('b', second, width)}"
        found = holds(first, r["a"], s["a"], width) & holds(second, r["b"], s["b"], width)
        r_seq, s_seq = np.nonzero(found)
        pairs = mr.join(pa.table(r), pa.table(s), on, index="spo", output="seqs", threads=threads)
        assert np.array_equal(pairs["r_seq"].to_numpy(), r_seq), on
        assert np.array_equal(pairs["s_seq"].to_numpy(), s_seq), on
        counts = mr.join(pa.table(r), pa.table(s), on, index="spo", output="count", threads=threads)
        assert np.array_equal(counts["count"].to_numpy(), found.sum(axis=1)), on


@pytest.mark.parametrize("on", ["r.a < s.a AND r.b >= s.b", "abs(r.a - s.a) <= 3 AND abs(r.b - s.b) <= 2"])
def test_rows_with_a_null_key_match_nothing(on: str) -> None:
    rng = np.random.default_rng(7)

    def column(rows: int) -> pa.Array:
        values = rng.integers(0, 20, rows).astype(float)
        values[rng.random(rows) < 0.1] = np.nan
        return pa.array(values, mask=rng.random(rows) < 0.2)

    r, s = (pa.table({"a": column(rows), "b": column(rows)}) for rows in (300, 500))
    expected = mr.join(r, s, on, index="scan")
    assert expected.num_rows
    assert mr.join(r, s, on, index="spo").equals(expected)
    indexes: tuple[Literal["spo", "scan"], ...] = ("spo", "scan")
    anti = [mr.join(r, s, on, index=index, how="anti", output="seqs") for index in indexes]
    assert anti[0].equals(anti[1])


def test_a_range_below_the_least_value_is_empty() -> None:
    r = pa.table({"a": pa.array([0, 1, 2, 3], pa.uint32()), "b": [0, 0, 0, 0]})
    s = pa.table({"a": pa.array([0, 0, 1], pa.uint32()), "b": [1, 1, 1]})
    counts = mr.join(r, s, "r.a > s.a + 1.5 AND r.b < s.b", index="spo", output="count")
    assert counts["count"].to_pylist() == [0, 0, 2, 3]


def test_rows_are_found_in_every_way(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    r, s = (pa.table({name: rng.integers(0, 1 << 40, 5000) for name in "ab"}) for _ in range(2))
    on = "r.a < s.a AND r.b > s.b"
    few = mr.join(r, s, on, index="spo", output="seqs")
    monkeypatch.setattr(table, "MIN_CHOSEN", 0)
    assert mr.join(r, s, on, index="spo", output="seqs").equals(few)
    monkeypatch.setattr(table, "BLOCK_COST", 0)
    assert mr.join(r, s, on, index="spo", output="seqs").equals(few)


def test_a_result_larger_than_memory_is_refused_with_the_arithmetic(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pair_memory, "free_bytes", lambda: 100 << 20)
    r = s = pa.table({"a": np.zeros(4000, np.int64), "b": np.zeros(4000, np.int64)})
    on = "r.a <= s.a AND r.b >= s.b"
    with pytest.raises(mr.ArgumentError, match=r"16,000,000 pairs of 16 bytes are 244\.1 MiB, .* are 100\.0 MiB"):
        mr.join(r, s, on, index="spo", output="seqs")
    assert mr.join(r, s, on, index="spo", output="count")["count"].to_pylist() == [4000] * 4000
    parts = mr.join(r, s, on, index="spo", output="seqs", batch_rows=4_000_000)
    assert [part.num_rows for part in parts] == [4_000_000] * 4


@pytest.mark.parametrize("first", ["r.a >= s.a + 1", "r.a <= s.a - 1"])
@pytest.mark.parametrize("second", ["r.b > s.b", "r.b < s.b"])
def test_no_value_is_beyond_the_least_and_the_largest(first: str, second: str) -> None:
    """The range beyond the least or largest word is empty: a row there has no partner, not those of the next word."""
    ends = np.array([-(2**31), -(2**31) + 1, 2**31 - 2, 2**31 - 1])
    a, b = (one.ravel() for one in np.meshgrid(ends, ends))
    rows = pa.table({"a": a.astype(np.int32), "b": b.astype(np.int32)})
    found = OPERATORS[">" if ">" in first else "<"](a[:, None], a) & OPERATORS[second[4]](b[:, None], b)
    counts = mr.join(rows, rows, f"{first} AND {second}", index="spo", output="count")
    assert np.array_equal(counts["count"].to_numpy(), found.sum(axis=1))
