"""All kinds of tables go in, and their columns come out as they were."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import millrace as mr


class Stream:
    """Any object with the Arrow PyCapsule stream interface."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)


class Batch:
    """Any object with the Arrow PyCapsule array interface."""

    def __init__(self, table: pa.Table) -> None:
        self._batch = pa.RecordBatch.from_pydict({n: table[n].combine_chunks() for n in table.column_names})

    def __arrow_c_array__(self, requested_schema: object = None) -> object:
        return self._batch.__arrow_c_array__(requested_schema)


KINDS: dict[str, Callable[[pa.Table], Any]] = {
    "table": lambda t: t,
    "record batch": lambda t: t.combine_chunks().to_batches()[0],
    "chunked table": lambda t: pa.concat_tables([t.slice(i, 1) for i in range(t.num_rows)]),
    "sliced table": lambda t: pa.concat_tables([t, t]).combine_chunks().slice(t.num_rows, t.num_rows),
    "pandas": lambda t: t.to_pandas(),
    "pandas with an index": lambda t: t.to_pandas().set_index(np.arange(100, 100 + t.num_rows)),
    "polars": pl.DataFrame,
    "polars chunks": lambda t: pl.concat([pl.DataFrame(t.slice(0, 1)), pl.DataFrame(t.slice(1))], rechunk=False),
    "capsule stream": Stream,
    "capsule array": Batch,
    "record batch reader": lambda t: t.to_reader(),
}
every_kind = pytest.mark.parametrize("kind", KINDS)
X = pa.table({"x": pa.array([3, 1, 2], pa.int64()), "v": [0.5, 1.5, 2.5]})


@every_kind
def test_a_window_join_takes_every_kind_of_table(kind: str) -> None:
    make = KINDS[kind]
    j = mr.WindowJoin(on="r.x = s.x", window="10 rows")
    j.push("r", make(X))
    found = j.push("s", make(X))
    assert isinstance(found, pa.Table)
    assert found.to_pydict() == {
        "r_seq": [0, 1, 2],
        "s_seq": [0, 1, 2],
        "r_x": [3, 1, 2],
        "r_v": [0.5, 1.5, 2.5],
        "s_x": [3, 1, 2],
        "s_v": [0.5, 1.5, 2.5],
    }
    assert j.push_both(make(X), make(X), [0, 1, 0, 1, 0, 1]).num_rows == 9


@every_kind
def test_a_join_of_tables_takes_every_kind_of_table(kind: str) -> None:
    found = mr.join(KINDS[kind](X), KINDS[kind](X), on="r.x < s.x")
    assert found["r_seq"].to_pylist() == [1, 1, 2]
    assert found["s_seq"].to_pylist() == [0, 2, 0]


def test_kinds_may_change_from_push_to_push() -> None:
    j = mr.WindowJoin(on="r.x = s.x", window="100 rows")
    for make in KINDS.values():
        j.push("r", make(X))
    assert j.push("s", X.slice(1, 1)).num_rows == len(KINDS)


@every_kind
def test_an_empty_batch_of_every_kind_is_taken(kind: str) -> None:
    if kind in ("record batch", "capsule array"):
        empty: Any = pa.RecordBatch.from_pydict({"x": pa.array([], pa.int64()), "v": pa.array([], pa.float64())})
        empty = empty if kind == "record batch" else Batch(pa.Table.from_batches([empty]))
    elif kind == "chunked table":
        empty = pa.table({n: pa.chunked_array([], t) for n, t in zip(X.column_names, X.schema.types, strict=True)})
    else:
        empty = KINDS[kind](X.slice(0, 0))
    j = mr.WindowJoin(on="r.x = s.x", window="10 rows")
    assert j.push("r", empty).num_rows == 0
    j.push("r", X)
    assert j.push("s", X).num_rows == 3


def test_pandas_nullable_and_missing_values() -> None:
    frame = pd.DataFrame({"x": pd.array([1, None, 3], dtype="Int64"), "f": [1.0, np.nan, 3.0]})
    j = mr.WindowJoin(on="r.x = s.x", window="10 rows")
    j.push("r", frame)
    assert j.push("s", frame)["s_seq"].to_pylist() == [0, 2]
    assert j.stats["null_keys"] == 2


def test_a_polars_frame_with_text_and_categories() -> None:
    frame = pl.DataFrame({"x": [1, 2], "t": ["a", "b"], "c": ["u", "v"]}).with_columns(pl.col("c").cast(pl.Categorical))
    j = mr.WindowJoin(on="r.x = s.x", window="10 rows")
    j.push("r", frame)
    j.push("r", frame)
    found = j.push("s", frame)
    assert found["r_t"].to_pylist() == ["a", "a", "b", "b"]
    assert found["s_c"].to_pylist() == ["u", "u", "v", "v"]


class Point(pa.ExtensionType):  # type: ignore[misc]
    """A made-up type on top of a struct."""

    def __init__(self) -> None:
        super().__init__(pa.struct([("a", pa.float64()), ("b", pa.float64())]), "millrace.tests.point")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type: pa.DataType, serialized: bytes) -> Point:
        return cls()


def points(*values: float) -> pa.Array:
    storage = pa.array([{"a": v, "b": -v} for v in values], Point().storage_type)
    return pa.ExtensionArray.from_storage(Point(), storage)


# A payload column of every kind: for batch i (two rows, different from batch to batch).
PAYLOADS: dict[str, Callable[[int], pa.Array]] = {
    "string": lambda i: pa.array([f"text {i}", None]),
    "large string": lambda i: pa.array([f"text {i}", None], pa.large_string()),
    "string view": lambda i: pa.array([f"a text too long to stand inline {i}", None], pa.string_view()),
    "binary": lambda i: pa.array([bytes([i]), b""]),
    "fixed binary": lambda i: pa.array([bytes([i, 0]), None], pa.binary(2)),
    "bool": lambda i: pa.array([i % 2 == 0, None]),
    "decimal": lambda i: pa.array([Decimal(i) / 4, None], pa.decimal128(10, 2)),
    "half": lambda i: pa.array(np.array([i, 1], np.float16)),
    "date": lambda i: pa.array([date(2024, 1, 1 + i), None]),
    "zoned timestamp": lambda i: pa.array([datetime(2024, 1, 1 + i), None], pa.timestamp("us", "Europe/Berlin")),
    "duration": lambda i: pa.array([i, None], pa.duration("s")),
    "dictionary": lambda i: pa.array([f"word {i}", "shared"]).dictionary_encode(),
    "dictionary with nulls": lambda i: pa.array([None, f"word {i}"]).dictionary_encode(),
    "list": lambda i: pa.array([[i, None], None], pa.list_(pa.int64())),
    "large list": lambda i: pa.array([[i], []], pa.large_list(pa.int64())),
    "fixed list": lambda i: pa.array([[i, i], None], pa.list_(pa.int64(), 2)),
    "struct": lambda i: pa.array([{"a": i, "b": [str(i)]}, None]),
    "map": lambda i: pa.array([[("k", i)], None], pa.map_(pa.string(), pa.int64())),
    "list of dictionary": lambda i: pa.ListArray.from_arrays([0, 1, 2], pa.array([f"w{i}", "x"]).dictionary_encode()),
    "struct of dictionary": lambda i: pa.StructArray.from_arrays([pa.array([f"w{i}", "x"]).dictionary_encode()], ["d"]),
    "extension": lambda i: points(float(i), 0.5),
    "null": lambda i: pa.nulls(2),
}
every_payload = pytest.mark.parametrize("name", PAYLOADS)


def batches(name: str, count: int) -> list[pa.Table]:
    return [pa.table({"x": [2 * i, 2 * i + 1], "p": PAYLOADS[name](i)}) for i in range(count)]


@every_payload
def test_payload_of_every_kind_comes_out_as_it_went_in(name: str) -> None:
    j = mr.WindowJoin(on="r.x = s.x", window="100 rows")
    pushed = batches(name, 6)
    for batch in pushed:
        j.push("r", batch)
    found = j.push("s", pa.table({"x": list(range(11, -1, -1))}))
    # A view of text may come out as plain text: Arrow cannot gather views.
    wanted_type = pushed[0].schema.field("p").type
    assert found.schema.field("r_p").type in (wanted_type, pa.large_string() if name == "string view" else wanted_type)
    wanted = [row["p"] for batch in pushed for row in batch.to_pylist()]
    assert found["r_p"].to_pylist() == wanted[::-1]


@every_payload
def test_payload_of_every_kind_waits_slides_and_is_stored(name: str) -> None:
    """Through waiting rows, an expiring window, state and restore, with columns that differ from batch to batch."""
    arguments: dict[str, Any] = {"on": "r.x = s.x", "window": "5", "time": ("x", "x")}
    j, runs = mr.WindowJoin(**arguments), dict[str, bytes]()
    for batch in batches(name, 4):
        j.push("r", batch)
    delta = j.state()
    runs |= delta.added
    k = mr.WindowJoin.restore(delta.manifest, runs, **arguments)
    probe = pa.table({"x": list(range(8))})
    wanted = [row["p"] for batch in batches(name, 4) for row in batch.to_pylist()]
    for join in (j, k):
        found = pa.concat_tables([join.push("s", probe), join.close()])
        assert found["r_p"].to_pylist() == wanted


def union(i: int) -> pa.Array:
    return pa.UnionArray.from_dense(
        pa.array([0, 1], pa.int8()), pa.array([0, 0], pa.int32()), [pa.array([i]), pa.array(["a"])]
    )


RARE: dict[str, Callable[[int], pa.Array]] = {
    "binary view": lambda i: pa.array([b"bytes too long to stand inline", bytes([i])], pa.binary_view()),
    "list view": lambda i: pa.array([[i], [1, 2]], pa.list_view(pa.int64())),
    "run ends": lambda i: pa.RunEndEncodedArray.from_arrays(pa.array([1, 2], pa.int32()), pa.array([i, 7])),
    "union": union,
    "list of string views": lambda i: pa.array(
        [[f"a text too long to stand inline {i}"], []], pa.list_(pa.string_view())
    ),
}


@pytest.mark.parametrize("name", RARE)
def test_a_rare_payload_comes_through_or_is_refused_at_the_door(name: str) -> None:
    """Never an error of Arrow's in the middle of a join, when pairs must be gathered or state written."""
    j = mr.WindowJoin(on="r.x = s.x", window="100 rows")
    pushed = [pa.table({"x": [2 * i, 2 * i + 1], "p": RARE[name](i)}) for i in range(3)]
    try:
        j.push("r", pushed[0])
    except mr.SchemaError as error:
        assert "p" in str(error)  # noqa: PT017 - either answer is right
        assert j.stats["rows"]["r"] == 0
        return
    for batch in pushed[1:]:
        j.push("r", batch)
    delta = j.state()
    k = mr.WindowJoin.restore(delta.manifest, delta.added, on="r.x = s.x", window="100 rows")
    wanted = [value for batch in pushed for value in batch["p"].to_pylist()]
    for join in (j, k):
        found = join.push("s", pa.table({"x": list(range(6))}))
        assert found["r_p"].to_pylist() == wanted


def test_metadata_and_nullability_do_not_count_as_a_change_of_schema() -> None:
    j = mr.WindowJoin(on="r.x = s.x", window="10 rows")
    j.push("r", X)
    j.push("r", X.replace_schema_metadata({"origin": "elsewhere"}))
    fields = [pa.field("x", pa.int64(), nullable=False, metadata={"a": "b"}), pa.field("v", pa.float64())]
    strict = pa.Table.from_arrays(X.columns, schema=pa.schema(fields))
    j.push("r", strict)
    assert j.push("s", strict).num_rows == 9
    first = mr.WindowJoin(on="r.x = s.x", window="10 rows")
    first.push("r", strict)
    first.push("r", X)
    assert first.push("s", X).num_rows == 6


def test_a_table_without_columns_lacks_the_condition_s_column() -> None:
    for empty in (pa.table({}), pd.DataFrame(), pl.DataFrame()):
        j = mr.WindowJoin(on="r.x = s.x", window="10 rows")
        with pytest.raises(mr.SchemaError, match=r"r\.x"):
            j.push("r", empty)
        with pytest.raises(mr.SchemaError, match=r"s\.x"):
            mr.join(X, empty, on="r.x = s.x")


def test_a_key_column_alone_is_payload_too() -> None:
    j = mr.WindowJoin(on="r.x = s.x", window="10 rows")
    j.push("r", X.select(["x"]))
    assert j.push("s", X.select(["x"])).column_names == ["r_seq", "s_seq", "r_x", "s_x"]


@pytest.mark.parametrize(
    "given",
    [{"x": [1]}, [1, 2], 5, None, "table", np.array([1]), pa.array([1]), pd.Series([1]), X.schema],
    ids=lambda g: type(g).__name__,
)
def test_what_is_not_a_table_is_refused_with_what_is(given: Any) -> None:
    j = mr.WindowJoin(on="r.x = s.x", window="10 rows")
    with pytest.raises((mr.ArgumentError, mr.SchemaError)) as caught:
        j.push("r", given)
    message = str(caught.value)
    assert "'r'" in message
    assert type(given).__name__ in message or "Arrow" in message
    assert j.push("r", X).num_rows == 0
    assert j.push("s", X).num_rows == 3


def test_pandas_columns_that_arrow_cannot_hold_are_a_schema_error() -> None:
    j = mr.WindowJoin(on="r.x = s.x", window="10 rows")
    with pytest.raises(mr.SchemaError, match="Arrow"):
        j.push("r", pd.DataFrame({"x": [1, 2], "p": [object(), 3]}))


@pytest.mark.parametrize(
    "data_type",
    [
        *(getattr(pa, f"{sign}int{bits}")() for sign in ("", "u") for bits in (8, 16, 32, 64)),
        pa.float32(),
        pa.float64(),
    ],
    ids=str,
)
def test_every_number_type_is_a_key(data_type: pa.DataType) -> None:
    table = pa.table({"x": pa.array([1, 2, 3], data_type)})
    assert mr.join(table, table, on="r.x = s.x").num_rows == 3
    assert mr.join(table, table, on="abs(r.x - s.x) <= 1", index="scan").num_rows == 7


@pytest.mark.parametrize(
    "data_type",
    [pa.date32(), pa.date64(), *(pa.timestamp(u) for u in ("s", "ms", "us", "ns")), pa.timestamp("us", "UTC")],
    ids=str,
)
def test_every_time_type_is_a_key(data_type: pa.DataType) -> None:
    table = pa.table({"t": pa.array([date(2024, 1, 1), date(2024, 1, 2), date(2024, 1, 5)]).cast(data_type)})
    assert mr.join(table, table, on="r.t = s.t").num_rows == 3
    assert mr.join(table, table, on="abs(r.t - s.t) <= INTERVAL '1' DAY", index="scan").num_rows == 5


@pytest.mark.parametrize("name", ["x y", "select", "ä", "X", "r", "1st", 'quo"te'])
def test_column_names_need_not_be_plain_words(name: str) -> None:
    table = pa.table({name: [1, 2]})
    quoted = name.replace('"', '""')
    found = mr.join(table, table, on=f'r."{quoted}" = s."{quoted}"')
    assert found.column_names == ["r_seq", "s_seq", f"r_{name}", f"s_{name}"]
    assert found.num_rows == 2


def test_what_was_pushed_may_be_changed_afterwards() -> None:
    values = np.arange(5)
    j = mr.WindowJoin(on="r.x = s.x", window="10 rows")
    j.push("r", pd.DataFrame({"x": values.copy()}))
    frame = pd.DataFrame({"x": values})
    j.push("s", frame.iloc[:0])
    frame.loc[:, "x"] = 99
    assert j.push("s", pd.DataFrame({"x": np.arange(5)}))["r_x"].to_pylist() == [0, 1, 2, 3, 4]
