"""The direct way of `mr.join`: the same rows as the oracle and as the other ways, and taken where it should be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import millrace as mr
from millrace import table_join
from millrace.host.join.direct import keyed_join
from millrace.host.join.direct.keyed_rows import PADDING_ROWS, KeyedRows
from millrace.host.runtime.team import Team
from millrace.join_parts import direct_join
from tests import oracle

INT64, UINT64 = np.iinfo(np.int64), np.iinfo(np.uint64)
Taken = list[bool]


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> Taken:
    """Small tables go the direct way too; whether each join since did."""
    ways: Taken = []
    original = direct_join.direct_blocks

    def spy(*given: Any, **more: Any) -> Any:
        found = original(*given, **more)
        ways.append(found is not None)
        return found

    monkeypatch.setattr(direct_join, "MIN_ROWS", 1)
    monkeypatch.setattr(table_join, "direct_blocks", spy)
    return ways


def same(r: pa.Table, s: pa.Table, on: str, **more: Any) -> pa.Table:
    """The result, which must be that of the nested loop."""
    found = mr.join(r, s, on, index="bisort", device="cpu", **more)
    wanted = mr.join(r, s, on, index="scan", device="cpu", **more)
    assert found.schema == wanted.schema
    assert found.combine_chunks().equals(wanted.combine_chunks())
    return found


ON = (
    *("r.x = s.x", "abs(r.x - s.x) <= 3", "r.x - s.x BETWEEN -5 AND 2"),
    *("r.x < s.x AND r.x + 4 > s.x", "2 * r.x = s.x + 1"),
)


@pytest.mark.parametrize("seed", range(12))
def test_drawn_tables_equal_the_oracle(seed: int, taken: Taken) -> None:
    rng = np.random.default_rng(seed)
    spread = int(rng.integers(50, 400))
    r, s = (pa.table({"x": rng.integers(-spread, spread, rng.integers(20, 150))}) for _ in range(2))
    for on in ON:
        found = mr.join(r, s, on, index="bisort", device="cpu", threads=1 + seed % 2)
        wanted = oracle.join(r.to_pylist(), s.to_pylist(), on)
        assert list(zip(*(found.column(name).to_pylist() for name in ("r_seq", "s_seq")), strict=True)) == wanted
    assert sum(taken) >= 3


def _integers(dtype: type, low: int, high: int) -> Callable[[np.random.Generator, int], pa.Array]:
    return lambda rng, n: pa.array(rng.integers(low, high, n, dtype, endpoint=True))


KEYS: dict[str, tuple[Callable[[np.random.Generator, int], pa.Array], str]] = {
    "int64": (_integers(np.int64, -900, 900), "abs(r.x - s.x) <= 1"),
    "int64 wide": (_integers(np.int64, -(1 << 50), 1 << 50), f"abs(r.x - s.x) <= {1 << 41}"),
    "int64 lowest": (_integers(np.int64, int(INT64.min), int(INT64.min) + 500), "abs(r.x - s.x) <= 2"),
    "int64 highest": (_integers(np.int64, int(INT64.max) - 500, int(INT64.max)), "abs(r.x - s.x) <= 2"),
    "uint64 lowest": (_integers(np.uint64, 0, 500), "r.x - s.x BETWEEN 0 AND 3"),
    "uint64 highest": (_integers(np.uint64, int(UINT64.max) - 500, int(UINT64.max)), "r.x - s.x BETWEEN -1 AND 2"),
    "int32": (_integers(np.int32, -(1 << 31), (1 << 31) - 1), f"abs(r.x - s.x) <= {1 << 22}"),
    "uint32": (_integers(np.uint32, 0, (1 << 32) - 1), f"abs(r.x - s.x) <= {1 << 22}"),
    "float32": (lambda rng, n: pa.array(rng.normal(0, 50, n).astype(np.float32)), "abs(r.x - s.x) <= 0.03"),
    "equality": (_integers(np.int64, -1500, 1500), "r.x = s.x"),
    "one value": (_integers(np.int64, -7, -7), "r.x = s.x"),
    "time": (
        lambda rng, n: pa.array(rng.integers(0, 10**9, n), pa.timestamp("us")),
        "r.x - s.x BETWEEN INTERVAL '0' SECOND AND INTERVAL '1' SECOND",
    ),
    "date": (lambda rng, n: pa.array(rng.integers(0, 999, n).astype(np.int32), pa.date32()), "r.x = s.x"),
}


@pytest.mark.parametrize("kind", KEYS)
@pytest.mark.parametrize("threads", [1, 2])
def test_keys_of_every_kind(kind: str, threads: int, taken: Taken) -> None:
    make, on = KEYS[kind]
    rng = np.random.default_rng([len(kind), threads])
    sizes = (30, 12) if kind == "one value" else (1500, 1100)
    r, s = (pa.table({"x": make(rng, n), "v": rng.random(n)}) for n in sizes)
    same(r, s, on, threads=threads)
    same(s, r, on, threads=threads, output="seqs")
    assert taken[0] or kind in ("one value", "float32")
    assert kind == "one value" or same(r, s, on).num_rows > 100


def test_ranges_of_two_columns_and_beyond_all_keys(taken: Taken) -> None:
    rng = np.random.default_rng(3)
    low = rng.integers(-2000, 2000, 3000)
    r = pa.table({"lo": low, "hi": low + rng.integers(-2, 3, 3000)})
    s = pa.table({"x": rng.integers(-1000, 1000, 1000), "v": np.arange(1000)})
    same(r, s, "s.x BETWEEN r.lo AND r.hi")
    assert all(taken[:1])


def test_payload_of_every_kind(taken: Taken) -> None:
    rng = np.random.default_rng(4)

    def table(n: int) -> pa.Table:
        return pa.table(
            {
                "v": rng.random(n),
                "x": rng.integers(0, 1000, n),
                "small": rng.integers(0, 9, n).astype(np.int16),
                "text": [f"t{i}" for i in range(n)],
                "nulls": pa.array(rng.integers(0, 9, n), mask=rng.random(n) < 0.2),
                "when": pa.array(rng.integers(0, 10**9, n), pa.timestamp("ns", "UTC")),
                **{f"more{i}": rng.integers(0, 99, n) for i in range(9)},
            }
        )

    same(table(900), table(800), "abs(r.x - s.x) <= 1")
    same(table(900).slice(100), table(800).slice(7), "abs(r.x - s.x) <= 1")
    assert taken == [True, False, True, False]


def test_a_part_with_more_pairs_than_room_is_done_again(taken: Taken, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keyed_join, "MIN_SPACE", 8)
    rng = np.random.default_rng(5)
    x = rng.integers(10_000, 20_000, 8000)
    for part in range(0, 8000, 500):  # the rows that are tried find nothing
        x[part : part + 64] = -1
    s = pa.table({"x": rng.integers(0, 20_000, 9000), "v": rng.random(9000)})
    same(pa.table({"x": x}), s, "abs(r.x - s.x) <= 3")
    assert taken[0]


def test_rows_with_very_many_partners_go_another_way(taken: Taken) -> None:
    rng = np.random.default_rng(6)
    x = np.concatenate([np.arange(40_000), np.full(1000, 777)])
    r = pa.table({"x": np.concatenate([rng.integers(1000, 40_000, 20_000), [777, 777]])})
    same(r, pa.table({"x": x, "v": rng.random(len(x))}), "abs(r.x - s.x) <= 1")
    assert not taken[0]


@pytest.mark.parametrize(
    ("x", "on"),
    [
        (np.array([0, INT64.max, INT64.min, 5] * 300), "abs(r.x - s.x) <= 1"),
        (np.concatenate([np.arange(3000) % 16, [1 << 40]]), "r.x = s.x"),
        (np.arange(1000), "r.x < s.x"),
        (np.arange(1000), "abs(r.x - s.x) <= 1 OR abs(r.x - s.x) BETWEEN 5 AND 6"),
        (np.arange(1000), "r.x = s.x AND r.v < s.v"),
        (np.arange(1000) / 7, "abs(r.x - s.x) <= 0.2"),
        (pa.array([1, None] * 500), "r.x = s.x"),
    ],
    ids=["wide", "uneven", "inequality", "two bands", "two terms", "doubles", "nulls"],
)
def test_what_it_does_not_suit_goes_another_way(x: Any, on: str, taken: Taken) -> None:
    table = pa.table({"x": x, "v": np.arange(len(x))})
    same(table.slice(0, 500), table, on)
    assert not taken[0]


@pytest.mark.parametrize("n", [1, 7, 5000])
@pytest.mark.parametrize("width", [1, 2, 4])
@pytest.mark.parametrize(
    ("low", "high", "dtype"),
    [(0, 0, np.uint64), (5, 1 << 45, np.uint64), ((1 << 64) - 99, (1 << 64) - 1, np.uint64), (0, 1 << 31, np.uint32)],
)
def test_keyed_rows_are_all_there_and_the_directory_finds_them(
    n: int, width: int, low: int, high: int, dtype: type
) -> None:
    rng, team = np.random.default_rng([n, width]), Team(2)
    words = rng.integers(low, high, n, dtype, endpoint=True)
    columns = [rng.integers(0, 1 << 60, n) for _ in range(width - 1)]
    flip = 1 << (8 * words.itemsize - 1)
    keyed = KeyedRows.of(words ^ words.dtype.type(flip), flip, columns, team)
    if keyed is None:
        assert low == high  # all in one group
        return
    assert len(keyed.rows) == (n + PADDING_ROWS) * width
    rows = keyed.rows[: n * width].reshape(n, width)
    entries = rows[:, 0].view(np.uint64)
    numbers = (entries & np.uint64((1 << keyed.number_bits) - 1)).astype(np.int64)
    assert sorted(numbers.tolist()) == list(range(n))
    assert ((entries >> np.uint64(keyed.number_bits)) + np.uint64(keyed.base) == words[numbers]).all()
    assert all((rows[:, 1 + c] == column[numbers]).all() for c, column in enumerate(columns))
    ranges = (entries >> np.uint64(keyed.shift)).astype(np.int64)
    assert (np.diff(ranges) >= 0).all()
    assert (keyed.directory[ranges] <= np.arange(n)).all()
    assert (keyed.directory[ranges + 1] > np.arange(n)).all()
