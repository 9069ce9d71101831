"""`mr.knn_join` against brute force: every metric, dimension, shape of data and argument, bit for bit."""

from __future__ import annotations

import random
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

import millrace as mr
from tests.knn_oracle import Search, knn_join
from tests.sdk.knn_cases import NAMES, SHAPES, as_arrow, found_rows, random_options, random_rows, small_intervals


def check(r: Any, s: Any, dims: int, coordinate: pa.DataType | None = None, **arguments: Any) -> pa.Table:
    """Compare with the oracle, payload included; return the result."""
    on = NAMES[:dims]
    by = arguments.get("by")
    names = () if by is None else tuple(by) if isinstance(by, list) else (by,)
    search = Search(
        (on, on),
        arguments["k"],
        arguments.get("metric", "euclidean"),
        arguments.get("within"),
        (names, names),
        arguments.get("how", "inner"),
    )
    r_table = as_arrow(r, dims, coordinate)
    s_table = None if s is None else as_arrow(s, dims, coordinate)
    r_rows = r_table.to_pylist()
    s_rows = r_rows if s_table is None else s_table.to_pylist()
    found = mr.knn_join(r_table, s_table, on=on, self_join=s is None, **arguments)
    expected = knn_join(r_rows, None if s is None else s_rows, search)
    assert found_rows(found) == expected
    assert found["r_n"].to_pylist() == [r_rows[one[1]]["n"] for one in expected]
    assert found["s_n"].to_pylist() == [None if one[4] is None else s_rows[one[4]]["n"] for one in expected]
    return found


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("seed", range(4))
def test_tables_of_every_shape(shape: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(f"{shape} {seed}")
    small_intervals(monkeypatch)
    options = random_options(rng)
    dims, k = rng.randrange(2, 9), rng.choice([1, 2, 7, 30, 100])
    r = random_rows(rng, rng.choice([1, 40]), dims, shape, bad=0.1)
    s = random_rows(rng, rng.choice([1, 20, 300]), dims, shape, bad=0.1)
    within = rng.choice([None, 0, 0.25, 2, 1e6])
    how, threads = rng.choice(["inner", "left"]), rng.choice([1, 2])
    found = check(r, s, dims, k=k, within=within, how=how, threads=threads, options=options)
    assert found.schema.names[:4] == ["r_seq", "rank", "s_seq", "distance"]
    assert found.schema.types[:4] == [pa.int64(), pa.int32(), pa.int64(), pa.float64()]


@pytest.mark.parametrize("seed", range(4))
def test_haversine(seed: int) -> None:
    rng = random.Random(seed)
    r, s = (random_rows(rng, n, 2, "sphere", bad=0.05) for n in (30, 200))
    found = check(r, s, 2, k=5, metric="haversine", within=rng.choice([None, 3e6]), options=random_options(rng))
    assert found.num_rows > 0


@pytest.mark.parametrize("by", ["team", "level", ["team", "level"]])
@pytest.mark.parametrize("self_join", [False, True])
def test_groups(by: Any, self_join: bool) -> None:
    rng = random.Random(repr(by))
    r, s = random_rows(rng, 60, 3, "uniform", bad=0.1), random_rows(rng, 200, 3, "grid", bad=0.1)
    found = check(r, None if self_join else s, 3, k=4, by=by, how="left", options={"partitions": 3})
    for name in [by] if isinstance(by, str) else by:
        pairs = zip(found[f"r_{name}"].to_pylist(), found[f"s_{name}"].to_pylist(), found["rank"], strict=True)
        assert all(a == b for a, b, rank in pairs if rank.is_valid)


def test_groups_in_columns_of_other_names_and_types() -> None:
    r = pa.table({"x": [0.0, 0.0], "y": [0.0, 0.0], "zone": pa.array([1, 2], pa.int8())})
    s = pa.table({"u": [1, 2, 3], "v": [0, 0, 0], "area": pa.array([2, 1, 1], pa.int64())})
    found = mr.knn_join(r, s, on=(("x", "y"), ("u", "v")), k=5, by=("zone", "area"))
    assert found_rows(found) == [(0, 0, 0, 0, 1, 2.0), (0, 0, 1, 0, 2, 3.0), (0, 1, 0, 0, 0, 1.0)]


@pytest.mark.parametrize("coordinate", [pa.float32(), pa.int16(), pa.int64(), pa.uint64()])
def test_coordinates_become_doubles(coordinate: pa.DataType) -> None:
    rng = random.Random(str(coordinate))
    whole_numbers = pa.types.is_integer(coordinate)
    top = 2**14 if coordinate == pa.int16() else 2**62 if whole_numbers else 1
    rows = [random_rows(rng, 50, 2, "uniform") for _ in range(2)]
    for one in (*rows[0], *rows[1]):
        one |= {name: int(one[name] * top) if whole_numbers else one[name] for name in NAMES[:2]}
    check(rows[0], rows[1], 2, coordinate, k=3)


@pytest.mark.parametrize("seed", range(3))
def test_a_row_is_not_its_own_neighbour(seed: int) -> None:
    rng = random.Random(seed)
    rows = random_rows(rng, 150, 2, rng.choice(["grid", "uniform", "equal"]), bad=0.1)
    found = check(rows, None, 2, k=rng.choice([1, 5, 200]), how="left", options=random_options(rng))
    assert all(r != s for r, s in zip(found["r_seq"].to_pylist(), found["s_seq"].to_pylist(), strict=True))


def test_a_large_table_in_many_blocks_and_levels() -> None:
    rng = random.Random(5)
    s = random_rows(rng, 9000, 2, "uniform")
    check(random_rows(rng, 40, 2, "uniform"), s, 2, k=12)
    check(random_rows(rng, 10, 2, "uniform"), s, 2, k=300)


def test_the_threads_and_the_output_do_not_change_the_rows() -> None:
    rng = random.Random(6)
    r, s = (as_arrow(random_rows(rng, n, 3, "grid"), 3) for n in (3000, 5000))
    one = mr.knn_join(r, s, on=NAMES[:3], k=3, threads=1)
    assert mr.knn_join(r, s, on=NAMES[:3], k=3, threads=3).equals(one)
    seqs = mr.knn_join(r, s, on=NAMES[:3], k=3, output="seqs")
    assert seqs.equals(one.select(["r_seq", "rank", "s_seq", "distance"]))


def test_empty_tables() -> None:
    empty, one = (as_arrow(random_rows(random.Random(0), n, 2, "grid"), 2) for n in (0, 1))
    assert mr.knn_join(empty, one, on=("a", "b"), k=1).num_rows == 0
    assert mr.knn_join(one, empty, on=("a", "b"), k=1).num_rows == 0
    left = mr.knn_join(one, empty, on=("a", "b"), k=1, how="left")
    assert left.drop_columns([n for n in left.column_names if n.startswith("r_")]).to_pylist() == [
        {"rank": None, "s_seq": None, "distance": None} | {f"s_{n}": None for n in one.column_names}
    ]


def test_frames_are_taken() -> None:
    frame = pd.DataFrame({"x": [0.0, 1.0], "y": [0.0, 0.0]})
    assert found_rows(mr.knn_join(frame, on=("x", "y"), k=1, self_join=True)) == [
        (0, 0, 0, 0, 1, 1.0),
        (0, 1, 0, 0, 0, 1.0),
    ]
