"""Bad input: each a typed error that says what was given, what is allowed and what to do, and no state is changed.

Every bad call to a join is made on one of two equal joins; afterwards both must go on with identical output.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import millrace as mr
from tests.sdk.join_cases import COUNT, STAMPS, TIME, check_message, feed, goes_on_alike, meaning, rows, unharmed

# --- arguments ---


def refused(kind: type[mr.MillraceError], *parts: str, **changed: Any) -> None:
    with pytest.raises(kind) as caught:
        mr.WindowJoin(**{**COUNT, **changed})
    check_message(caught.value, parts)


@pytest.mark.parametrize(
    ("window", "parts"),
    [
        ("-5 rows", ("-5 rows", "negative")),
        ("-1 second", ("-1 second", "negative")),
        ("-3", ("-3", "negative")),
        ("0 rows", ("0 rows", "at least 1")),
        (("5 rows", "0 rows"), ("0 rows", "at least 1")),
        ("ten rows", ("ten rows", "'1000 rows'", "'10 minutes'")),
        ("", ("''", "'1000 rows'")),
        ("rows", ("'rows'", "'1000 rows'")),
        ("5 fortnights", ("fortnights", "weeks")),
        ("5 months", ("months", "weeks")),
        ("1.5 rows", ("1.5 rows", "whole")),
        ("5 rows 3", ("5 rows 3",)),
        (None, ("None", "'1000 rows'")),
        (5, ("5", "'1000 rows'")),
        (("5 rows",), ("pair",)),
        (("5 rows", "5 rows", "5 rows"), ("pair",)),
        (("5 rows", "5 seconds"), ("rows", "time")),
        ("0.3 nanoseconds", ("0.3 nanoseconds", "whole")),
    ],
    ids=str,
)
def test_a_bad_window_is_refused(window: Any, parts: tuple[str, ...]) -> None:
    refused(mr.ArgumentError, "window", *parts, window=window, time="ts")


@pytest.mark.parametrize("window", ["5 minutes", "5", "0"])
def test_a_time_window_needs_a_time_column(window: str) -> None:
    refused(mr.ArgumentError, repr(window), "time=", window=window)


@pytest.mark.parametrize("lateness", ["-1 second", -1, "5 rows", "soon", None, 2.5, True])
def test_a_bad_lateness_is_refused(lateness: Any) -> None:
    refused(mr.ArgumentError, "lateness", repr(lateness), time="ts", lateness=lateness)


def test_lateness_without_time_is_refused() -> None:
    refused(mr.ArgumentError, "lateness", "time=", lateness="5 seconds")


def test_several_sources_without_time_are_refused() -> None:
    refused(mr.ArgumentError, "sources", "time=", sources={"r": 2})


@pytest.mark.parametrize("sources", [5, {"q": 2}, {"r": 0}, {"r": -1}, {"r": "2"}, {"r": True}, {"r": 1.0}, ["r"]])
def test_bad_sources_are_refused(sources: Any) -> None:
    refused(mr.ArgumentError, "sources", time="ts", sources=sources)


def test_a_self_join_has_no_second_side() -> None:
    refused(mr.ArgumentError, "sources", "r", time="ts", self_join=True, sources={"r": 1, "s": 2})
    refused(mr.ArgumentError, "schemas", "r", self_join=True, schemas={"s": rows(0).schema})
    refused(mr.ArgumentError, "time", "self-join", self_join=True, time=("a", "b"))


@pytest.mark.parametrize("time", [5, ("ts",), ("a", "b", "c"), (1, 2), {"r": "ts"}])
def test_a_bad_time_is_refused(time: Any) -> None:
    refused(mr.ArgumentError, "time", repr(time), "pair", time=time)


@pytest.mark.parametrize(
    ("name", "value", "parts"),
    [
        ("output", "rows", ("'rows'", "'pairs'", "'seqs'", "'count'")),
        ("output", None, ("None", "'pairs'")),
        ("fallback", "gpu", ("'gpu'", "'cpu'", "None")),
        ("fallback", True, ("True", "'cpu'")),
        ("threads", 0, ("0", "at least 1")),
        ("threads", -1, ("-1", "at least 1")),
        ("threads", 1.5, ("1.5", "whole")),
        ("threads", "2", ("'2'", "whole")),
        ("threads", True, ("True", "whole")),
        ("max_pending", 0, ("0", "at least 1")),
        ("max_pending", None, ("None", "whole")),
        ("self_join", "yes", ("'yes'", "True")),
        ("index", "hash", ("'hash'", "'auto'", "'btree'", "'scan'")),
        ("index", None, ("None", "'auto'")),
        ("device", "gpu", ("'gpu'", "auto", "cpu", "opencl")),
        ("device", None, ("None", "cpu")),
        ("schemas", 5, ("5", "mapping")),
        ("schemas", {"q": pa.schema([])}, ("mapping", "r", "s")),
        ("schemas", {"r": 5}, ("schemas['r']",)),
        ("on", 5, ("str",)),
        ("on", None, ("str",)),
    ],
    ids=str,
)
def test_a_bad_argument_is_refused_with_those_allowed(name: str, value: Any, parts: tuple[str, ...]) -> None:
    refused(mr.ArgumentError, name, *parts, **{name: value})


@pytest.mark.parametrize(
    ("name", "value", "parts"),
    [
        ("how", "outer", ("'outer'", "'inner'", "'left'", "'semi'", "'anti'")),
        ("how", None, ("None", "'inner'")),
        ("output", "all", ("'all'", "'pairs'")),
        ("index", "hash", ("'hash'", "'scan'")),
        ("device", "gpu", ("'gpu'", "cpu")),
        ("threads", 0, ("at least 1",)),
        ("fallback", "gpu", ("'cpu'",)),
    ],
    ids=str,
)
def test_a_bad_argument_of_join_is_refused_with_those_allowed(name: str, value: Any, parts: tuple[str, ...]) -> None:
    with pytest.raises(mr.ArgumentError) as caught:
        mr.join(rows(0), rows(0), **{"on": "r.x = s.x", name: value})
    check_message(caught.value, (name, *parts))


def test_an_argument_error_is_a_value_error_and_every_error_a_millrace_error() -> None:
    assert issubclass(mr.ArgumentError, ValueError)
    kinds = [
        mr.PredicateError,
        mr.KeyTypeError,
        mr.SchemaError,
        mr.ArgumentError,
        mr.DeviceUnavailable,
        mr.DeviceFault,
        mr.BitstreamError,
        mr.StateError,
    ]
    assert all(issubclass(kind, mr.MillraceError) for kind in kinds)


def test_an_unknown_argument_is_refused() -> None:
    with pytest.raises(TypeError, match="windows"):
        mr.WindowJoin(on="r.x = s.x", windows="5 rows")  # type: ignore[call-arg]


@pytest.mark.parametrize("on", ["r.x * s.x > 5", "abs(r.x - s.x) > 5", "r.x + s.x * r.x = 5"])
def test_an_index_that_cannot_serve_the_condition_names_those_that_can(on: str) -> None:
    refused(mr.ArgumentError, "'btree'", "scan", on=on, index="btree")
    with pytest.raises(mr.ArgumentError, match=r"'btree'.*scan"):
        mr.join(rows(0), rows(0), on=on, index="btree")


@pytest.mark.parametrize("index", ["scan", "btree", "pim", "auto"])
def test_a_device_that_cannot_run_the_index_lists_what_can(index: Any) -> None:
    refused(mr.DeviceUnavailable, "'null'", "cpu", index=index, device="null")
    with pytest.raises(mr.DeviceUnavailable, match=r"'null'.*cpu"):
        mr.join(rows(0), rows(0), on="r.x = s.x", index=index, device="null")


def test_an_unavailable_device_says_why() -> None:
    for info in mr.devices():
        if not info.available:
            refused(mr.DeviceUnavailable, info.name, info.detail, device=info.name)


def test_a_window_and_a_lateness_of_different_kinds_are_refused() -> None:
    refused(mr.ArgumentError, "window", "lateness", window="5 seconds", time="ts", lateness=3)
    refused(mr.ArgumentError, "window", "lateness", window="5", time="ts", lateness="3 seconds")


# --- columns and types ---


@pytest.mark.parametrize("side", ["r", "s"])
def test_an_unknown_column_is_named_with_those_there_are(side: str) -> None:
    arguments = {**COUNT, "on": f"r.x = s.x AND {side}.nope > 3"}
    j = mr.WindowJoin(**arguments)
    with pytest.raises(mr.SchemaError) as caught:
        j.push(side, rows(0))
    check_message(caught.value, (f"{side}.nope", f"{side}.ts", f"{side}.x", f"{side}.text"))
    with pytest.raises(mr.SchemaError, match=rf"{side}\.nope"):
        mr.join(rows(0), rows(0), on=arguments["on"])
    with pytest.raises(mr.SchemaError, match=rf"{side}\.nope"):
        mr.WindowJoin(**arguments, schemas={side: rows(0).schema})


def test_an_unknown_time_column_is_named_with_those_there_are() -> None:
    j = mr.WindowJoin(**{**TIME, "time": "when"})
    with pytest.raises(mr.SchemaError) as caught:
        j.push("r", rows(0))
    check_message(caught.value, ("when", "ts", "x", "text"))


def test_a_first_batch_with_the_wrong_columns_does_not_fix_the_schema() -> None:
    unharmed(COUNT, lambda j: j.push("r", pa.table({"y": [1]})), mr.SchemaError, "x")


UNORDERED: dict[str, pa.Array] = {
    "string": pa.array(["a", "b"]),
    "large_string": pa.array(["a", "b"], pa.large_string()),
    "binary": pa.array([b"a", b"b"]),
    "fixed_size_binary": pa.array([b"a", b"b"], pa.binary(1)),
    "bool": pa.array([True, False]),
    "decimal128": pa.array([Decimal("1.5"), Decimal("2.5")]),
    "string in a dictionary": pa.array(["a", "b"]).dictionary_encode(),
}
UNSUPPORTED: dict[str, pa.Array] = {
    "list": pa.array([[1], [2]]),
    "struct": pa.array([{"a": 1}, {"a": 2}]),
    "map": pa.array([[("a", 1)], []], pa.map_(pa.string(), pa.int64())),
    "duration": pa.array([1, 2], pa.duration("s")),
    "time64": pa.array([1, 2], pa.time64("us")),
    "null": pa.nulls(2),
}


@pytest.mark.parametrize("name", [*UNORDERED, *UNSUPPORTED])
@pytest.mark.parametrize("side", ["r", "s"])
@pytest.mark.parametrize("on", ["r.x < s.x", "r.x - s.x = 0", "abs(r.x) = s.x", "-r.x = -s.x", "r.x BETWEEN s.x AND 5"])
def test_a_type_without_an_order_is_named_with_those_that_can(on: str, name: str, side: str) -> None:
    bad = pa.table({"x": {**UNORDERED, **UNSUPPORTED}[name]})
    if name in UNORDERED and (on, side) == ("abs(r.x) = s.x", "s"):
        return  # this is a comparison of text with a number
    parts = (f"{side}.x", name.split()[0], "int64", "float64", "timestamp", "cast")
    j = mr.WindowJoin(on=on, window="5 rows")
    with pytest.raises(mr.KeyTypeError) as caught:
        j.push(side, bad)
    check_message(caught.value, parts)
    assert j.push(side, pa.table({"x": [1]})).num_rows == 0
    tables = {"r": rows(0), "s": rows(0), side: bad}
    with pytest.raises(mr.KeyTypeError) as caught:
        mr.join(tables["r"], tables["s"], on=on)
    check_message(caught.value, parts)


@pytest.mark.parametrize("name", UNSUPPORTED)
@pytest.mark.parametrize("side", ["r", "s"])
def test_a_type_that_cannot_be_a_key_is_named_with_those_that_can(name: str, side: str) -> None:
    bad = pa.table({"x": UNSUPPORTED[name]})
    parts = (f"{side}.x", name.split()[0], "int64", "float64", "timestamp", "strings", "decimals", "cast")
    j = mr.WindowJoin(on="r.x = s.x", window="5 rows")
    with pytest.raises(mr.KeyTypeError) as caught:
        j.push(side, bad)
    check_message(caught.value, parts)
    assert j.push(side, pa.table({"x": [1]})).num_rows == 0
    tables = {"r": rows(0), "s": rows(0), side: bad}
    with pytest.raises(mr.KeyTypeError) as caught:
        mr.join(tables["r"], tables["s"], on="r.x = s.x")
    check_message(caught.value, parts)


@pytest.mark.parametrize(
    "column",
    [pa.array([1.0]), pa.array(["2024-01-01"]), pa.array([1], pa.duration("s")), pa.array([True])],
    ids=lambda c: str(c.type),
)
def test_a_time_column_must_be_a_time_or_an_integer(column: pa.Array) -> None:
    j = mr.WindowJoin(**TIME)
    with pytest.raises(mr.SchemaError) as caught:
        j.push("s", pa.table({"ts": column, "x": [1]}))
    check_message(caught.value, ("s.ts", str(column.type), "timestamps", "integers"))
    feed(j, 0)


def test_a_window_of_another_kind_than_the_time_column_is_refused() -> None:
    unharmed(TIME, lambda j: j.push("q", None), mr.ArgumentError, "q")
    j = mr.WindowJoin(**TIME)
    with pytest.raises(mr.SchemaError) as caught:
        j.push("r", rows(0, unit="s"))
    check_message(caught.value, ("window", "'4'", "r.ts", "seconds"))
    k = mr.WindowJoin(**STAMPS)
    with pytest.raises(mr.SchemaError) as caught:
        k.push("s", rows(0))
    check_message(caught.value, ("window", "'4 seconds'", "s.ts", "integer"))


@pytest.mark.parametrize(
    ("first", "second", "parts"),
    [
        (rows(0, unit="s"), rows(0, unit="s", tz="UTC"), ("s.ts", "time zone")),
        (rows(0, unit="s", tz="UTC"), rows(0, unit="s"), ("s.ts", "time zone")),
    ],
    ids=["naive, zoned", "zoned, naive"],
)
def test_zoned_and_naive_time_columns_are_refused(first: pa.Table, second: pa.Table, parts: tuple[str, ...]) -> None:
    j = mr.WindowJoin(**STAMPS)
    j.push("r", first)
    before = meaning(j)
    with pytest.raises(mr.SchemaError) as caught:
        j.push("s", second)
    check_message(caught.value, parts)
    assert meaning(j) == before
    assert j.push("s", first).num_rows + j.close().num_rows > 0


def test_an_integer_and_a_timestamp_as_time_columns_are_refused() -> None:
    j = mr.WindowJoin(on="r.x = s.x", window="5 rows", time="ts")
    j.push("r", rows(0))
    with pytest.raises(mr.SchemaError) as caught:
        j.push("s", rows(0, unit="s"))
    check_message(caught.value, ("s.ts", "integers"))


def test_a_time_that_does_not_fit_64_bits_in_the_finest_unit_is_refused() -> None:
    far = pa.table({"ts": pa.array([2**40]).view(pa.timestamp("s")), "x": [1], "text": ["a"]})
    j = mr.WindowJoin(**STAMPS)
    j.push("r", rows(0, unit="ns"))
    with pytest.raises(mr.SchemaError, match=r"s\.ts.*64 bits"):
        j.push("s", far)
    # The other way round: rows that wait or are held no longer fit once a finer column or instant comes.
    finer_calls: list[Callable[[mr.WindowJoin], Any]] = [
        lambda k: k.push("s", rows(0, unit="ns")),
        lambda k: k.advance("s", np.datetime64(1, "ns")),
    ]
    for finer in finer_calls:
        k = mr.WindowJoin(**STAMPS)
        k.push("r", far)
        before = meaning(k)
        with pytest.raises((mr.SchemaError, mr.ArgumentError), match="64 bits"):
            finer(k)
        assert meaning(k) == before
        k.push("s", far)
        assert k.close().num_rows + k.stats["pairs"] > 0


# --- mixed key types ---


def matches(on: str, r: pa.Array, s: pa.Array) -> list[tuple[int, int]]:
    tables = [pa.table({"x": c}) for c in (r, s)]
    found = [mr.join(tables[0], tables[1], on=on, index=index, output="seqs") for index in ("scan", "btree")]
    assert found[0].equals(found[1])
    flipped = mr.join(tables[1], tables[0], on=_flipped(on), output="seqs")
    pairs = list(zip(*found[0].to_pydict().values(), strict=True))
    assert sorted((r, s) for s, r in zip(*flipped.to_pydict().values(), strict=True)) == pairs
    return pairs


def _flipped(on: str) -> str:
    return on.replace("r.", "q.").replace("s.", "r.").replace("q.", "s.")


def test_int32_and_float64_compare_as_exact_numbers() -> None:
    ints, floats = pa.array([1, 2, 3], pa.int32()), pa.array([1.0, 2.5, np.nextafter(3.0, 4.0)])
    assert matches("r.x = s.x", ints, floats) == [(0, 0)]
    assert matches("r.x < s.x", ints, floats) == [(0, 1), (0, 2), (1, 1), (1, 2), (2, 2)]


def test_int64_and_float64_compare_exactly_beyond_two_to_the_53() -> None:
    ints = pa.array([2**53, 2**53 + 1, 2**63 - 1, -(2**63)], pa.int64())
    floats = pa.array([2.0**53, 2.0**53 + 2, 2.0**63, -(2.0**63), np.inf])
    assert matches("r.x = s.x", ints, floats) == [(0, 0), (3, 3)]
    assert matches("r.x >= s.x", ints, floats) == [(0, 0), (0, 3), (1, 0), (1, 3), (2, 0), (2, 1), (2, 3), (3, 3)]


def test_int64_and_uint64_compare_exactly() -> None:
    signed = pa.array([-1, 0, 2**63 - 1], pa.int64())
    unsigned = pa.array([0, 2**63 - 1, 2**63, 2**64 - 1], pa.uint64())
    assert matches("r.x = s.x", signed, unsigned) == [(1, 0), (2, 1)]
    assert matches("r.x < s.x", signed, unsigned) == [
        *((0, k) for k in range(4)),
        *((1, k) for k in (1, 2, 3)),
        *((2, k) for k in (2, 3)),
    ]
    assert matches("abs(r.x - s.x) <= 1", signed, unsigned) == [(0, 0), (1, 0), (2, 1), (2, 2)]


def test_float32_is_widened_and_not_rounded() -> None:
    single, double = pa.array([0.1], pa.float32()), pa.array([0.1, float(np.float32(0.1))])
    assert matches("r.x = s.x", single, double) == [(0, 1)]


def test_timestamps_of_different_units_compare_as_instants() -> None:
    seconds = pa.array([1, 2], pa.int64()).view(pa.timestamp("s"))
    nanos = pa.array([10**9, 10**9 + 1, 2 * 10**9], pa.int64()).view(pa.timestamp("ns"))
    assert matches("r.x = s.x", seconds, nanos) == [(0, 0), (1, 2)]
    assert matches("r.x < s.x", seconds, nanos) == [(0, 1), (0, 2)]
    days = pa.array([date(1970, 1, 1)])
    assert matches("r.x - s.x <= INTERVAL '1' SECOND", seconds, days.cast(pa.timestamp("ms"))) == [(0, 0)]


@pytest.mark.parametrize(
    ("r", "s", "parts"),
    [
        (pa.timestamp("s"), pa.timestamp("s", "UTC"), ("with a time zone", "without a time zone")),
        (pa.timestamp("s"), pa.int64(), ("timestamp", "number")),
        (pa.float64(), pa.date32(), ("timestamp", "number")),
    ],
    ids=str,
)
def test_what_cannot_be_compared_is_refused_with_its_position(
    r: pa.DataType, s: pa.DataType, parts: tuple[str, ...]
) -> None:
    tables = [pa.table({"x": pa.nulls(1, t)}) for t in (r, s)]
    with pytest.raises(mr.PredicateError) as caught:
        mr.join(tables[0], tables[1], on="r.x = s.x")
    check_message(caught.value, (*parts, "r.x = s.x", "^"))
    j = mr.WindowJoin(on="r.x = s.x", window="5 rows")
    j.push("r", tables[0])
    with pytest.raises(mr.PredicateError):
        j.push("s", tables[1])
    j.push("s", tables[0])
    assert j.stats["rows"] == {"r": 1, "s": 1}


# --- a schema that changed, clashes ---


CHANGED: dict[str, tuple[pa.Table, tuple[str, ...]]] = {
    "missing": (rows(0).drop_columns(["text"]), ("text", "missing")),
    "new": (rows(0).append_column("extra", pa.nulls(5)), ("extra", "new")),
    "other type": (rows(0).set_column(1, "x", pa.array([1] * 5, pa.int32())), ("x", "int32", "int64")),
    "other payload type": (rows(0).set_column(2, "text", pa.array([1] * 5)), ("text", "int64", "string")),
    "other order": (rows(0).select(["x", "ts", "text"]), ("order",)),
    "renamed": (rows(0).rename_columns(["ts", "x", "words"]), ("words", "text")),
}


@pytest.mark.parametrize("name", CHANGED)
@pytest.mark.parametrize("arguments", [COUNT, TIME], ids=["count", "time"])
def test_a_batch_whose_schema_changed_is_refused(name: str, arguments: dict[str, Any]) -> None:
    batch, parts = CHANGED[name]
    j = mr.WindowJoin(**arguments)
    for side in "rs":
        j.push(side, rows(0))
        before = j.stats
        with pytest.raises(mr.SchemaError) as caught:
            j.push(side, batch)
        assert all(part in str(caught.value) for part in (side, *parts))
        assert j.stats == before


@pytest.mark.parametrize("name", [name for name in CHANGED if name not in ("other type", "other order")])
@pytest.mark.parametrize("arguments", [COUNT, TIME], ids=["count", "time"])
def test_a_batch_that_does_not_fit_its_schema_is_refused(name: str, arguments: dict[str, Any]) -> None:
    batch, parts = CHANGED[name]
    known = {side: rows(0).schema for side in "rs"}
    both = {**arguments, "schemas": known}
    unharmed(both, lambda j: j.push("r", batch), mr.SchemaError, "r", *parts)
    unharmed(both, lambda j: j.push("s", batch), mr.SchemaError, "s", *parts)
    good = rows(0)
    unharmed(both, lambda j: j.push_both(good, batch, [0] * 5 + [1] * 5), mr.SchemaError, "s", *parts)


DOUBLED = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["x", "x"])


def test_several_columns_of_one_name_are_refused() -> None:
    unharmed(COUNT, lambda j: j.push("r", DOUBLED), mr.SchemaError, "'r'", "x", "rename")
    unharmed(COUNT, lambda j: j.push_both(rows(0, 1), DOUBLED, [0, 1]), mr.SchemaError, "x", "rename")
    with pytest.raises(mr.SchemaError, match=r"r .*x.*rename"):
        mr.join(DOUBLED, rows(0), on="r.x = s.x")
    frame = pd.DataFrame([[1, 2]], columns=["x", "x"])
    unharmed(COUNT, lambda j: j.push("r", frame), mr.SchemaError, "x")


@pytest.mark.parametrize("output", ["pairs", "seqs", "count"])
def test_a_schema_with_several_columns_of_one_name_is_refused(output: str) -> None:
    refused(mr.SchemaError, "x", "rename", schemas={"r": DOUBLED.schema}, output=output)


@pytest.mark.parametrize("side", ["r", "s"])
def test_a_column_that_clashes_in_the_output_is_refused(side: str) -> None:
    clash = pa.table({"x": [1], "seq": [2]})
    hit, spared = mr.WindowJoin(**COUNT), mr.WindowJoin(**COUNT)
    with pytest.raises(mr.SchemaError) as caught:
        hit.push(side, clash)
    check_message(caught.value, (f"{side}_seq", "rename"))
    goes_on_alike(hit, spared, 0)
    tables = {"r": rows(0), "s": rows(0), side: clash}
    with pytest.raises(mr.SchemaError, match=f"{side}_seq.*rename"):
        mr.join(tables["r"], tables["s"], on="r.x = s.x")
    # Without payload there is nothing to clash with.
    assert mr.join(clash, clash, on="r.x = s.x", output="seqs").num_rows == 1


def test_a_column_named_source_clashes_only_where_sources_are_named() -> None:
    batch = pa.table({"ts": [1], "x": [1], "source": [0]})
    one = mr.WindowJoin(**TIME)
    assert "r_source" in one.push("r", batch).column_names
    several = {**TIME, "sources": {"r": 2}}
    j = mr.WindowJoin(**several)
    with pytest.raises(mr.SchemaError, match="r_source"):
        j.push("r", batch)


# --- calls ---


@pytest.mark.parametrize("side", ["t", "R", "", None, 0, "rs", ["r"]], ids=str)
def test_a_wrong_side_is_refused_with_those_there_are(side: Any) -> None:
    unharmed(COUNT, lambda j: j.push(side, rows(0)), mr.ArgumentError, repr(side), "'r'", "'s'")
    unharmed(TIME, lambda j: j.advance(side, 5), mr.ArgumentError, repr(side), "'r'", "'s'")


def test_a_self_join_is_pushed_as_r_only() -> None:
    alone = {**COUNT, "self_join": True}
    unharmed(alone, lambda j: j.push("s", rows(0)), mr.ArgumentError, "'s'", "'r'", "self-join")
    unharmed(alone, lambda j: j.push_both(rows(0), rows(0), []), mr.ArgumentError, "self-join", "push('r'")


@pytest.mark.parametrize("source", [2, -1, "0", None, 1.0, True])
def test_a_source_out_of_range_is_refused(source: Any) -> None:
    one = {**TIME, "sources": {"r": 1}}
    unharmed(one, lambda j: j.push("r", rows(0), source=source), mr.ArgumentError, repr(source), "1 source")
    unharmed(one, lambda j: j.advance("s", 5, source=source), mr.ArgumentError, repr(source), "1 source")


@pytest.mark.parametrize(
    ("arrival", "parts"),
    [
        ([0, 1], ("1 zeros", "1 ones", "2 r rows", "1 s rows")),
        ([0, 0, 0], ("3 zeros", "0 ones")),
        ([0, 0, 1, 1], ("2 zeros", "2 ones")),
        ([0, 2, 1], ("0", "1")),
        ([0, -1, 1], ("0", "1")),
        (["r", "r", "s"], ("0", "1")),
        ([0.5, 0, 1], ("0", "1")),
        ([[0, 0, 1]], ("one-dimensional",)),
        ([0, None, 1], ("0", "1")),
        (None, ("0", "1")),
        (7, ("0", "1")),
        ([[0], [0, 1]], ("arrival",)),
    ],
    ids=str,
)
def test_a_bad_arrival_is_refused(arrival: Any, parts: tuple[str, ...]) -> None:
    for arguments in (COUNT, TIME):
        unharmed(arguments, lambda j: j.push_both(rows(0, 2), rows(0, 1), arrival), mr.ArgumentError, "arrival", *parts)


@pytest.mark.parametrize(
    "ts", ["2024-01-01", 1.5, None, True, [5], pa.scalar(None, pa.int64()), np.datetime64("NaT"), pd.NaT], ids=str
)
def test_what_is_not_a_point_in_time_is_refused(ts: Any) -> None:
    unharmed(TIME, lambda j: j.advance("r", ts), mr.ArgumentError, "ts=", "datetime", "integer")


def _advance(ts: Any, j: mr.WindowJoin) -> pa.Table:
    return j.advance("s", ts)


def test_a_point_in_time_of_another_kind_than_the_columns_is_refused() -> None:
    naive, zoned = datetime(1970, 1, 1), datetime(1970, 1, 1, tzinfo=UTC)
    for bad, arguments, unit, tz in (
        (naive, TIME, None, None),
        (5, STAMPS, "s", None),
        (zoned, STAMPS, "s", None),
        (naive, STAMPS, "s", "UTC"),
    ):
        known = {side: rows(0, unit=unit, tz=tz).schema for side in "rs"}
        unharmed(
            {**arguments, "schemas": known},
            partial(_advance, bad),
            mr.MillraceError,
            "both",
            unit=unit,
            tz=tz,
        )


def test_a_first_point_in_time_of_another_kind_than_the_window_is_refused() -> None:
    unharmed(TIME, lambda j: j.advance("r", datetime(1970, 1, 1)), mr.MillraceError, "integer")
    unharmed(TIME, lambda j: j.advance("r", datetime(2024, 1, 1)), mr.MillraceError, "integer")
    unharmed(STAMPS, lambda j: j.advance("r", 5), mr.MillraceError, "integer", unit="s")


@pytest.mark.parametrize("ts", [2**63, -(2**63) - 1, 2**200])
def test_a_point_in_time_beyond_64_bits_is_refused(ts: int) -> None:
    unharmed(TIME, lambda j: j.advance("r", ts), mr.ArgumentError, "64-bit")


def test_advance_without_time_is_refused() -> None:
    unharmed(COUNT, lambda j: j.advance("r", 5), mr.ArgumentError, "time=")


def test_max_pending_is_a_state_error_that_names_the_source_and_changes_nothing() -> None:
    def too_many(j: mr.WindowJoin) -> None:
        j.push("r", rows(1000, 50))

    unharmed({**TIME, "max_pending": 20}, too_many, mr.StateError, "source 0", "'s'", "max_pending=20", "advance")


def test_every_call_after_close_is_a_state_error() -> None:
    j = mr.WindowJoin(**TIME)
    feed(j, 0)
    j.close()
    calls: list[Callable[[], Any]] = [
        lambda: j.push("r", rows(0)),
        lambda: j.push("nonsense", rows(0)),
        lambda: j.push_both(rows(0, 1), rows(0, 1), [0, 1]),
        lambda: j.advance("r", 1),
        j.flush,
        j.close,
        j.state,
    ]
    for call in calls:
        with pytest.raises(mr.StateError) as caught:
            call()
        check_message(caught.value, ("closed",))


# --- conditions ---


@pytest.mark.parametrize(
    "on",
    ["r.x = ", "r.x = s.x OR r.ts = s.ts", "r.x > 5", "r.x LIKE s.x", "r.x / s.x = 1", "x = s.x", "q.x = s.x", ""],
)
def test_a_condition_that_is_not_allowed_points_at_its_position(on: str) -> None:
    with pytest.raises(mr.PredicateError) as caught:
        mr.WindowJoin(on=on, window="5 rows")
    check_message(caught.value, ("^",) if on else ("empty",))
    with pytest.raises(mr.PredicateError):
        mr.join(rows(0), rows(0), on=on)


# --- errors travel ---


@pytest.mark.parametrize(
    "error",
    [
        mr.MillraceError("a"),
        mr.PredicateError("not allowed", "r.x ? s.x", 4, 5),
        mr.PredicateError("alone"),
        mr.KeyTypeError("a"),
        mr.SchemaError("a"),
        mr.ArgumentError("a"),
        mr.DeviceUnavailable("a"),
        mr.DeviceFault("a"),
        mr.BitstreamError("a"),
        mr.StateError("a"),
    ],
    ids=lambda e: type(e).__name__,
)
def test_errors_cross_a_process_boundary_unchanged(error: mr.MillraceError) -> None:
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        back = pickle.loads(pickle.dumps(error, protocol))
        assert type(back) is type(error)
        assert str(back) == str(error)
        assert vars(back) == vars(error)
