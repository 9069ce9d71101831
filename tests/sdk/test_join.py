"""`mr.join`: two tables, every `how`, every output, in the order of row numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import millrace as mr
from millrace.ingest.choices import IndexName
from tests import oracle

INDEXES: list[IndexName] = ["scan", "btree", "pim"]
every_index = pytest.mark.parametrize("index", INDEXES)
R = pa.table({"x": pa.array([5, None, 1, 7], pa.int64()), "name": ["a", "b", "c", "d"]})
S = pa.table({"x": pa.array([7, 5, 6, None], pa.int64()), "note": ["p", "q", "u", "v"]})


@every_index
def test_inner_gives_all_pairs_by_r_then_s(index: Any) -> None:
    found = mr.join(R, S, on="r.x <= s.x", index=index)
    assert found.schema == pa.schema(
        [
            ("r_seq", pa.int64()),
            ("s_seq", pa.int64()),
            ("r_x", pa.int64()),
            ("r_name", pa.string()),
            ("s_x", pa.int64()),
            ("s_note", pa.string()),
        ]
    )
    assert found.select(["r_seq", "s_seq", "r_name", "s_note"]).to_pylist() == [
        {"r_seq": r, "s_seq": s, "r_name": "abcd"[r], "s_note": "pquv"[s]}
        for r, s in [(0, 0), (0, 1), (0, 2), (2, 0), (2, 1), (2, 2), (3, 0)]
    ]


@every_index
def test_left_keeps_unmatched_rows_of_r_in_order_null_keys_too(index: Any) -> None:
    found = mr.join(R, S, on="r.x = s.x", how="left", index=index)
    assert found.to_pydict() == {
        "r_seq": [0, 1, 2, 3],
        "s_seq": [1, None, None, 0],
        "r_x": [5, None, 1, 7],
        "r_name": ["a", "b", "c", "d"],
        "s_x": [5, None, None, 7],
        "s_note": ["q", None, None, "p"],
    }


@every_index
def test_semi_and_anti_part_the_rows_of_r(index: Any) -> None:
    semi = mr.join(R, S, on="r.x <= s.x", how="semi", index=index)
    anti = mr.join(R, S, on="r.x <= s.x", how="anti", index=index)
    assert semi.to_pydict() == {"r_seq": [0, 2, 3], "r_x": [5, 1, 7], "r_name": ["a", "c", "d"]}
    assert anti.to_pydict() == {"r_seq": [1], "r_x": [None], "r_name": ["b"]}


def test_output_seqs_leaves_the_payload_out_of_every_how() -> None:
    assert mr.join(R, S, on="r.x = s.x", output="seqs").to_pydict() == {"r_seq": [0, 3], "s_seq": [1, 0]}
    left = mr.join(R, S, on="r.x = s.x", output="seqs", how="left")
    assert left.to_pydict() == {"r_seq": [0, 1, 2, 3], "s_seq": [1, None, None, 0]}
    assert mr.join(R, S, on="r.x = s.x", output="seqs", how="semi").to_pydict() == {"r_seq": [0, 3]}
    assert mr.join(R, S, on="r.x = s.x", output="seqs", how="anti").to_pydict() == {"r_seq": [1, 2]}


@every_index
def test_output_count_gives_how_many_rows_each_r_meets(index: Any) -> None:
    found = mr.join(R, S, on="r.x <= s.x", output="count", index=index)
    assert found.schema == pa.schema([("r_seq", pa.int64()), ("count", pa.int64())])
    assert found.to_pydict() == {"r_seq": [0, 1, 2, 3], "count": [3, 0, 3, 1]}


@every_index
@pytest.mark.parametrize(
    "on",
    [
        "r.x = s.x",
        "abs(r.x - s.x) <= 2",
        "abs(r.x - s.x) <= 1 OR abs(r.x - s.x - 5) <= 1",
        "r.x < s.x",
        "r.x < s.x AND r.y > s.y",
        "r.x <> s.x",
        "r.x < s.x AND r.y > 3 AND s.y < 7",
        "r.x + r.y = s.x + s.y",
    ],
)
def test_every_how_agrees_with_the_oracle(index: Any, on: str) -> None:
    rng = np.random.default_rng(11)
    tables, rows = {}, {}
    for side, count in (("r", 60), ("s", 45)):
        columns = {n: [None if rng.random() < 0.1 else int(v) for v in rng.integers(0, 12, count)] for n in "xy"}
        tables[side] = pa.table({n: pa.array(c, pa.int64()) for n, c in columns.items()})
        rows[side] = [{n: columns[n][i] for n in columns} for i in range(count)]
    for how in ("inner", "left", "semi", "anti"):
        wanted = oracle.join(rows["r"], rows["s"], on, how)
        found = mr.join(tables["r"], tables["s"], on=on, how=how, index=index, output="seqs")
        if how in ("semi", "anti"):
            assert found["r_seq"].to_pylist() == [r for r, _ in wanted]
        else:
            assert list(zip(found["r_seq"].to_pylist(), found["s_seq"].to_pylist(), strict=True)) == wanted


@pytest.mark.parametrize("on", ["r.x * s.x > 20", "abs(r.x - s.x) > 3"])
def test_a_condition_that_nothing_can_search_is_checked_pair_by_pair(on: str) -> None:
    r, s = pa.table({"x": [1, 5, 9]}), pa.table({"x": [2, 6, 4]})
    rows = [[{"x": x} for x in t["x"].to_pylist()] for t in (r, s)]
    found = mr.join(r, s, on=on, output="seqs")
    assert list(zip(*found.to_pydict().values(), strict=True)) == oracle.join(rows[0], rows[1], on)


EMPTY = S.schema.empty_table()
NO_CHUNKS = pa.table({"x": pa.chunked_array([], pa.int64()), "note": pa.chunked_array([], pa.string())})


@pytest.mark.parametrize("empty", [EMPTY, NO_CHUNKS], ids=["empty chunk", "no chunks"])
@every_index
def test_an_empty_table_joins_like_any_other(index: Any, empty: pa.Table) -> None:
    assert mr.join(R, empty, on="r.x = s.x", index=index).num_rows == 0
    left = mr.join(R, empty, on="r.x = s.x", how="left", index=index)
    assert left["r_seq"].to_pylist() == [0, 1, 2, 3]
    assert left["s_note"].to_pylist() == [None] * 4
    assert mr.join(R, empty, on="r.x = s.x", how="anti", index=index).num_rows == 4
    assert mr.join(R, empty, on="r.x = s.x", how="semi", index=index).num_rows == 0
    assert mr.join(R, empty, on="r.x = s.x", output="count", index=index)["count"].to_pylist() == [0] * 4
    for how in ("inner", "left", "semi", "anti"):
        found = mr.join(empty, R, on="r.x = s.x", how=how, index=index)
        assert found.num_rows == 0
        assert found.column_names[0] == "r_seq"
    assert mr.join(empty, empty, on="r.x = s.x", index=index).num_rows == 0


@pytest.mark.parametrize("how", ["inner", "left", "semi", "anti"])
def test_threads_and_chunks_do_not_change_the_result(how: Any) -> None:
    rng = np.random.default_rng(8)
    r = pa.table({"x": rng.integers(0, 300, 2000)})
    s = pa.table({"x": rng.integers(0, 300, 1500)})
    pieces = pa.concat_tables([r.slice(at, 333) for at in range(0, 2000, 333)])
    wanted = mr.join(r, s, on="abs(r.x - s.x) <= 1", how=how, index="btree")
    assert wanted.num_rows > 0 or how == "anti"
    for index in INDEXES:
        for threads in (1, 2, 5):
            found = mr.join(pieces, s, on="abs(r.x - s.x) <= 1", how=how, index=index, threads=threads)
            assert found.combine_chunks().equals(wanted.combine_chunks())


def test_the_example_of_the_contract() -> None:
    r = pa.table({"power": [5, 9], "cool": [3, 1]})
    s = pa.table({"power": [7, 8], "cool": [2, 4]})
    found = mr.join(r, s, on="r.power < s.power AND r.cool > s.cool")
    assert found["r_seq"].to_pylist() == [0]
    assert found["s_seq"].to_pylist() == [0]


def test_payload_of_every_kind_comes_through_with_nulls_where_s_is_missing() -> None:
    s = pa.table(
        {
            "x": [1],
            "category": pa.array(["a"]).dictionary_encode(),
            "list": [[1, 2]],
            "struct": [{"k": 1}],
            "flag": [True],
            "nothing": pa.nulls(1),
        }
    )
    found = mr.join(pa.table({"x": [1, 2]}), s, on="r.x = s.x", how="left")
    rows: list[dict[str, Any]] = found.to_pylist()
    assert [rows[0][f"s_{n}"] for n in s.column_names] == [1, "a", [1, 2], {"k": 1}, True, None]
    assert all(rows[1][f"s_{n}"] is None for n in s.column_names)
    assert found.schema.field("s_category").type == s.schema.field("category").type


@pytest.mark.parametrize("how", ["inner", "left", "semi", "anti"])
@pytest.mark.parametrize("output", ["pairs", "count"])
@pytest.mark.parametrize("least", [1, 1 << 16])
def test_blocks_do_not_change_the_result(how: str, output: str, least: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(4)
    r, s = (pa.table({"x": rng.integers(0, 4000, n), "v": rng.random(n)}) for n in (5000, 3000))
    arguments: dict[str, Any] = {"on": "abs(r.x - s.x) <= 1", "how": how, "output": output, "index": "bisort"}
    wanted = mr.join(r, s, **arguments)
    monkeypatch.setattr("millrace.host.join.matcher.STATIC_STEP_ROWS", 700)
    monkeypatch.setattr("millrace.table_join.MIN_CHUNK_ROWS", least)
    found = mr.join(r, s, **arguments)
    assert (found.column(0).num_chunks > 1) == (least == 1)
    assert found.equals(wanted)
