"""All kinds of tables go in, and their columns come out as they were."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import millrace as mr
from millrace.ingest import tables


class StreamInterface:
    """Any object with the Arrow PyCapsule stream interface."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)


class ArrayInterface:
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
    "capsule stream": StreamInterface,
    "capsule array": ArrayInterface,
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
        empty = empty if kind == "record batch" else ArrayInterface(pa.Table.from_batches([empty]))
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
# These come out in another type than they went in: Arrow cannot gather views, nor always put dictionaries together.
OTHER_TYPES: dict[str, pa.DataType] = {
    "string view": pa.large_string(),
    "list of dictionary": pa.list_(pa.string()),
    "struct of dictionary": pa.struct([("d", pa.string())]),
}


def batches(name: str, count: int) -> list[pa.Table]:
    return [pa.table({"x": [2 * i, 2 * i + 1], "p": PAYLOADS[name](i)}) for i in range(count)]


@every_payload
def test_payload_of_every_kind_comes_out_as_it_went_in(name: str) -> None:
    j = mr.WindowJoin(on="r.x = s.x", window="100 rows")
    pushed = batches(name, 6)
    for batch in pushed:
        j.push("r", batch)
    found = j.push("s", pa.table({"x": list(range(11, -1, -1))}))
    assert found.schema.field("r_p").type == OTHER_TYPES.get(name, pushed[0].schema.field("p").type)
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


class Wrapped(pa.ExtensionType):  # type: ignore[misc]
    """A made-up type on top of any other."""

    def __init__(self, storage: pa.DataType) -> None:
        super().__init__(storage, "millrace.tests.wrapped")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type: pa.DataType, serialized: bytes) -> Wrapped:
        return cls(storage_type)


def wrapped(storage: pa.Array) -> pa.Array:
    return pa.ExtensionArray.from_storage(Wrapped(storage.type), storage)


def tensors(i: int) -> pa.Array:
    storage = pa.array([[i, 1], [2, 3]], pa.list_(pa.int64(), 2))
    return pa.ExtensionArray.from_storage(pa.fixed_shape_tensor(pa.int64(), [2]), storage)


def runs(i: int) -> pa.Array:
    return pa.RunEndEncodedArray.from_arrays(pa.array([1, 2], pa.int32()), pa.array([i, 7]))


def views(i: int) -> pa.Array:
    return pa.array([f"a text too long to stand inline {i}", None], pa.string_view())


def words(i: int) -> pa.Array:
    return pa.array([f"word {i}", None]).dictionary_encode()


LISTS = pa.list_(pa.large_string())
# What goes in, and the type it comes out in.
RARE: dict[str, tuple[Callable[[int], pa.Array], pa.DataType]] = {
    "binary view": (lambda i: pa.array([b"too long to stand inline", bytes([i])], pa.binary_view()), pa.large_binary()),
    "list view": (lambda i: pa.array([[i], [1, 2]], pa.list_view(pa.int64())), pa.list_(pa.int64())),
    "large list view": (lambda i: pa.array([[i], None], pa.large_list_view(pa.int64())), pa.large_list(pa.int64())),
    "scattered list view": (lambda i: pa.ListViewArray.from_arrays([1, 0], [1, 2], views(i)), LISTS),
    "run ends": (runs, pa.int64()),
    "run ends of lists": (
        lambda i: pa.RunEndEncodedArray.from_arrays(pa.array([1, 2], pa.int32()), pa.array([[i], None])),
        pa.list_(pa.int64()),
    ),
    "list of string views": (lambda i: pa.ListArray.from_arrays([0, 2, 2], views(i)), LISTS),
    "list of run ends": (lambda i: pa.ListArray.from_arrays([0, 1, 2], runs(i)), pa.list_(pa.int64())),
    "fixed list of string views": (
        lambda i: pa.FixedSizeListArray.from_arrays(views(i), 1),
        pa.list_(pa.large_string(), 1),
    ),
    "map to string views": (
        lambda i: pa.MapArray.from_arrays([0, 1, 2], pa.array(["k", "l"], pa.string_view()), views(i)),
        pa.map_(pa.large_string(), pa.large_string()),
    ),
    "map to dictionary": (
        lambda i: pa.MapArray.from_arrays([0, 1, 2], pa.array(["k", "l"]), words(i)),
        pa.map_(pa.string(), pa.string()),
    ),
    "dictionary of string views": (
        lambda i: pa.DictionaryArray.from_arrays(pa.array([0, None], pa.int8()), views(i)),
        pa.dictionary(pa.int32(), pa.large_string()),
    ),
    "dictionary of lists": (
        lambda i: pa.DictionaryArray.from_arrays(pa.array([1, 0], pa.uint8()), pa.array([[i], None])),
        pa.list_(pa.int64()),
    ),
    "struct of all": (
        lambda i: pa.StructArray.from_arrays([views(i), words(i), runs(i), pa.nulls(2)], list("vdrn")),
        pa.struct([("v", pa.large_string()), ("d", pa.string()), ("r", pa.int64()), ("n", pa.null())]),
    ),
    "extension of string views": (lambda i: wrapped(views(i)), pa.large_string()),
    "extension of dictionary": (lambda i: wrapped(words(i)), pa.dictionary(pa.int32(), pa.string())),
    "list of nulls": (lambda i: pa.array([[None], []]), pa.list_(pa.null())),
    "struct of uuid dictionary": (
        lambda i: pa.StructArray.from_arrays(
            [pa.DictionaryArray.from_arrays([0, 0], pa.array([bytes([i] * 16)], pa.uuid()))], ["u"]
        ),
        pa.struct([("u", pa.binary(16))]),
    ),
    "uuid": (lambda i: pa.array([bytes([i] * 16), None], pa.uuid()), pa.uuid()),
    "tensor": (tensors, pa.fixed_shape_tensor(pa.int64(), [2])),
    "list of tensors": (
        lambda i: pa.ListArray.from_arrays([0, 1, 2], tensors(i)),
        pa.list_(pa.list_(pa.int64(), 2)),
    ),
}


@pytest.mark.parametrize("name", RARE)
@pytest.mark.parametrize("kind", ["table", "chunked table", "sliced table", "capsule stream"])
def test_a_rare_payload_comes_through_in_a_type_that_can_be_gathered(name: str, kind: str) -> None:
    make, out_type = RARE[name]
    j = mr.WindowJoin(on="r.x = s.x", window="100 rows")
    pushed = [pa.table({"x": [2 * i, 2 * i + 1], "p": make(i)}) for i in range(3)]
    if kind == "sliced table":
        pushed = [t.slice(i % 2, 1) for i, t in enumerate(pushed)]
    for batch in pushed:
        j.push("r", batch if kind == "sliced table" else KINDS[kind](batch))
    delta = j.state()
    k = mr.WindowJoin.restore(delta.manifest, delta.added, on="r.x = s.x", window="100 rows")
    wanted = [value for batch in pushed for value in batch["p"].to_pylist()]
    for join in (j, k):
        found = join.push("s", pa.table({"x": list(range(6))}))
        assert found.schema.field("r_p").type == out_type
        if "of uuid" not in name and "of tensors" not in name:  # these are no longer UUIDs and tensors
            assert found["r_p"].to_pylist() == wanted


REFUSED: dict[str, Callable[[], pa.Array]] = {
    "union": lambda: union(1),
    "list of unions": lambda: pa.ListArray.from_arrays([0, 1, 2], union(1)),
    "fixed list of unions": lambda: pa.FixedSizeListArray.from_arrays(union(1), 1),
    "struct of unions": lambda: pa.StructArray.from_arrays([union(1)], ["u"]),
    "map to unions": lambda: pa.MapArray.from_arrays([0, 1, 2], pa.array(["k", "l"]), union(1)),
    "extension of unions": lambda: wrapped(union(1)),
    "extension of an extension": lambda: wrapped(wrapped(pa.array([1, 2]))),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_payload_that_cannot_be_gathered_is_refused_on_input(name: str) -> None:
    """Never an error of Arrow's in the middle of a join, when pairs must be gathered or state written."""
    j = mr.WindowJoin(on="r.x = s.x", window="10 rows")
    bad = pa.table({"x": [1, 2], "odd one": REFUSED[name]()})
    with pytest.raises(mr.SchemaError) as caught:
        j.push("r", bad)
    for part in ("odd one", str(bad.schema.field("odd one").type), "drop", "cast"):
        assert part in str(caught.value)
    with pytest.raises(mr.SchemaError, match="odd one"):
        mr.WindowJoin(on="r.x = s.x", window="10 rows", schemas={"r": bad.schema})
    assert j.stats["rows"]["r"] == 0
    j.push("r", X)
    assert j.push("s", X).num_rows == 3


def test_an_array_column_of_polars() -> None:
    frame = pl.DataFrame({"x": [1, 2], "p": [["a", "b"], None]}, schema={"x": pl.Int64, "p": pl.Array(pl.String, 2)})
    found = mr.join(frame, frame, on="r.x = s.x")
    assert found["s_p"].to_pylist() == [["a", "b"], None]


def test_python_objects_of_polars_are_refused() -> None:
    """Polars would give Arrow their addresses as values."""
    frame = pl.DataFrame({"x": [1, 2], "odd": pl.Series([object(), object()], dtype=pl.Object)})
    j = mr.WindowJoin(on="r.x = s.x", window="10 rows")
    calls: tuple[Callable[[], Any], ...] = (
        lambda: mr.join(frame, frame, on="r.x = s.x"),
        lambda: j.push("r", frame),
        lambda: mr.OrderedIndex([1, 2], frame["odd"]),
        lambda: mr.OrderedIndex(frame["odd"]),
    )
    for call in calls:
        with pytest.raises(mr.SchemaError, match="Python objects"):
            call()
    assert mr.join(frame.drop("odd"), frame.drop("odd"), on="r.x = s.x").num_rows == 2


def test_dictionaries_with_more_words_together_than_their_codes_can_count() -> None:
    """Every batch has 100 words of its own, in codes of 8 bits."""
    j, wanted = mr.WindowJoin(on="r.x = s.x", window="1000 rows"), list[str]()
    for i in range(5):
        own = [f"word {i} {n}" for n in range(100)]
        coded = pa.array(own).dictionary_encode().cast(pa.dictionary(pa.int8(), pa.string()))
        nested = pa.ListArray.from_arrays(np.arange(101, dtype=np.int32), coded)
        batch = {"x": range(100 * i, 100 * i + 100), "d": coded, "s": pa.StructArray.from_arrays([coded], ["d"])}
        j.push("r", pa.table({**batch, "l": nested}))
        wanted += own
    delta = j.state()
    k = mr.WindowJoin.restore(delta.manifest, delta.added, on="r.x = s.x", window="1000 rows")
    for join in (j, k):
        found = join.push("s", pa.table({"x": range(500)}))
        assert found["r_d"].to_pylist() == wanted
        assert found["r_s"].to_pylist() == [{"d": w} for w in wanted]
        assert found["r_l"].to_pylist() == [[w] for w in wanted]


def test_a_dictionary_without_words() -> None:
    empty = pa.DictionaryArray.from_arrays(pa.array([None, None], pa.int8()), pa.array([], pa.string()))
    found = mr.join(pa.table({"x": [1, 2], "d": empty}), X, on="r.x = s.x")
    assert found["r_d"].to_pylist() == [None, None]


@pytest.mark.parametrize(
    "column", [pa.array([1]), pa.array(["a"]).dictionary_encode(), views(0)[:1]], ids=lambda c: str(c.type)
)
def test_a_table_with_thousands_of_columns_goes_through(column: pa.Array) -> None:
    names = [f"c{i}" for i in range(5000)]
    wide = pa.Table.from_arrays([pa.array([1]), *[column] * len(names)], ["x", *names])
    j = mr.WindowJoin(on="r.x = s.x", window="10 rows")
    j.push("r", wide)
    j.push("r", wide)
    found = j.push("s", pa.table({"x": [1]}))
    assert found.num_columns == 2 + 1 + 5000 + 1
    assert found["r_c4999"].to_pylist() == [column[0].as_py()] * 2


def test_a_table_that_needs_no_change_is_passed_on_and_types_are_tried_once() -> None:
    tables._checked_type.cache_clear()
    wide = pa.table({f"c{i}": pa.array([i], pa.int64()) for i in range(50)})
    assert tables.as_table(wide, "r") is wide
    assert tables.as_table(wide, "r") is wide
    assert tables._checked_type.cache_info().misses == 1


def test_doubled_names_are_named_once_each() -> None:
    doubled = pa.Table.from_arrays([pa.array([1])] * 5, ["x", "b", "a", "b", "a"])
    with pytest.raises(mr.SchemaError, match="named a, b:"):
        mr.join(doubled, X, on="r.x = s.x")


def strictly(nullable: bool) -> list[pa.Field]:
    """Nested types, whose inner fields are nullable or not."""
    inner = pa.field("a", pa.int64(), nullable=nullable)
    struct = pa.struct([inner])
    types = {
        "struct": struct,
        "list": pa.list_(inner),
        "large": pa.large_list(inner),
        "fixed": pa.list_(inner, 1),
        "map": pa.map_(pa.string(), pa.field("value", struct, nullable=nullable)),
        "deep": pa.list_(pa.field("item", pa.struct([pa.field("b", pa.list_(inner), nullable=nullable)]))),
    }
    return [pa.field("x", pa.int64()), *(pa.field(n, t) for n, t in types.items())]


@pytest.mark.parametrize("first", [True, False])
def test_nullability_at_depth_is_not_a_change_of_schema(first: bool) -> None:
    row = {"struct": {"a": 1}, "list": [1], "large": [2], "fixed": [3], "map": [("k", {"a": 4})], "deep": [{"b": [5]}]}
    j = mr.WindowJoin(on="r.x = s.x", window="10 rows")
    for x, nullable in enumerate((first, not first, first)):
        j.push("r", pa.Table.from_pylist([{"x": x, **row}], pa.schema(strictly(nullable))))
    found = j.push("s", pa.table({"x": [0, 1, 2]}))
    for name, value in row.items():
        assert found[f"r_{name}"].to_pylist() == [value] * 3
        assert found.schema.field(f"r_{name}").type == pa.schema(strictly(True)).field(name).type


def test_an_extension_over_fields_that_are_not_null_keeps_its_type() -> None:
    storage = pa.struct([pa.field("a", pa.int64(), nullable=False)])
    held = tables.plain_type(Wrapped(storage))
    assert held == Wrapped(storage)
    assert isinstance(held, Wrapped)


@pytest.mark.parametrize(
    "column", [pa.array(["a"], pa.large_string()), pa.nulls(1), pa.array([1])], ids=lambda c: str(c.type)
)
def test_a_changed_type_is_refused_with_what_to_do(column: pa.Array) -> None:
    j = mr.WindowJoin(on="r.x = s.x", window="10 rows")
    j.push("r", pa.table({"x": [1], "p": ["a"]}))
    with pytest.raises(mr.SchemaError) as caught:
        j.push("r", pa.table({"x": [1], "p": column}))
    for part in (f"p is {column.type}, was string", "cast the column", "schemas={'r': ...}"):
        assert part in str(caught.value)
    with pytest.raises(mr.SchemaError, match="p is missing") as caught:
        j.push("r", pa.table({"x": [1]}))
    assert "cast" not in str(caught.value)


class Broken:
    """A table whose own code fails."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        raise self._error


@pytest.mark.parametrize("error", [RuntimeError("lost"), KeyError("lost"), OSError("lost"), ValueError("lost")])
def test_a_table_whose_own_code_fails_is_a_schema_error(error: Exception) -> None:
    j = mr.WindowJoin(on="r.x = s.x", window="10 rows")
    with pytest.raises(mr.SchemaError, match="lost") as caught:
        j.push("r", Broken(error))
    assert caught.value.__cause__ is error
    assert j.push("r", X).num_rows == 0


def test_a_reader_that_fails_midway_is_a_schema_error() -> None:
    def parts() -> Iterator[pa.RecordBatch]:
        yield X.to_batches()[0]
        raise RuntimeError("lost")

    with pytest.raises(mr.SchemaError, match="lost"):
        mr.join(pa.RecordBatchReader.from_batches(X.schema, parts()), X, on="r.x = s.x")


def test_an_interrupt_is_not_swallowed_on_input() -> None:
    with pytest.raises(KeyboardInterrupt):
        mr.join(Broken(KeyboardInterrupt()), X, on="r.x = s.x")


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
