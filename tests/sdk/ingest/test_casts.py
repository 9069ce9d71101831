"""`schemas=` casts batches without changing a value, and says how to cast the others; durations in plain words."""

from __future__ import annotations

import decimal
from datetime import UTC, date, datetime, timedelta
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import millrace as mr
from millrace.ingest.durations import duration_text, parse_lateness, parse_window


def pushed(kind: Any, batch: Any) -> list[Any]:
    """The keys that a join with this schema has taken: every row of r meets itself in s."""
    schema = pa.schema([("x", kind)])
    j = mr.WindowJoin("r.x = s.x", window="10 rows", schemas={"r": schema, "s": schema})
    j.push("r", batch)
    pairs = j.push("s", batch)
    assert pairs.schema.field("r_x").type == schema.field("x").type
    return pairs["r_x"].to_pylist()  # type: ignore[no-any-return]


FITTING: dict[str, tuple[Any, Any, list[Any]]] = {
    "int64 as double": (pa.float64(), pa.table({"x": [1, 2]}), [1.0, 2.0]),
    "int32 as int64": (pa.int64(), pa.table({"x": pa.array([1, 2], pa.int32())}), [1, 2]),
    "int64 as int32": (pa.int32(), pa.table({"x": [1, 2]}), [1, 2]),
    "uint64 as int64": (pa.int64(), pa.table({"x": pa.array([1, 2], pa.uint64())}), [1, 2]),
    "nulls": (pa.int64(), pa.table({"x": pa.nulls(2)}), []),
    "nulls as text": (pa.string(), pa.table({"x": pa.nulls(2)}), []),
    "pandas integers with None": (pa.int64(), pd.DataFrame({"x": [1, None]}), [1]),
    "large_string": (pa.string(), pa.table({"x": pa.array(["a"], pa.large_string())}), ["a"]),
    "polars text": (pa.string(), pl.DataFrame({"x": ["a"]}), ["a"]),
    "categories": (pa.string(), pd.DataFrame({"x": pd.Categorical(["a"])}), ["a"]),
    "an empty frame": (pa.int64(), pd.DataFrame({"x": []}), []),
    "an empty frame of text": (pa.timestamp("us"), pd.DataFrame({"x": pd.Series([], dtype=object)}), []),
    "an empty frame without columns": (pa.int64(), pd.DataFrame(), []),
    "coarser times": (
        pa.timestamp("ns"),
        pa.table({"x": pa.array([7], pa.timestamp("s"))}),
        [pd.Timestamp(7, unit="s")],
    ),
    "another zone": (
        pa.timestamp("us", "UTC"),
        pa.table({"x": pa.array([0], pa.timestamp("us", "Europe/Rome"))}),
        [datetime(1970, 1, 1, tzinfo=UTC)],
    ),
    "dates as times": (pa.timestamp("s"), pa.table({"x": [date(1970, 1, 2)]}), [datetime(1970, 1, 2)]),
    "floats as float32": (pa.float32(), pa.table({"x": [0.5, float("nan")]}), [0.5]),
    "integers as decimals": (pa.decimal128(25, 2), pa.table({"x": [3]}), [decimal.Decimal("3.00")]),
    "decimals as integers": (pa.int64(), pa.table({"x": [decimal.Decimal("3.0"), None]}), [3]),
}


@pytest.mark.parametrize("name", FITTING)
def test_a_batch_is_cast_where_no_value_changes(name: str) -> None:
    kind, batch, wanted = FITTING[name]
    assert pushed(kind, batch) == wanted


REFUSED: dict[str, tuple[Any, Any]] = {
    "integers that are no doubles": (pa.float64(), [2**53 + 1]),
    "fractions": (pa.int64(), [1.5]),
    "NaN": (pa.int64(), np.array([1.0, np.nan])),
    "too large": (pa.int32(), [2**40]),
    "digits": (pa.float32(), [0.1]),
    "text": (pa.int64(), ["1"]),
    "numbers as text": (pa.string(), [1]),
    "booleans": (pa.int64(), [True]),
    "naive times": (pa.timestamp("us", "UTC"), [datetime(2020, 1, 1)]),
    "finer times": (pa.timestamp("s"), pa.array([1], pa.timestamp("ms"))),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_cast_that_would_change_values_is_refused_and_says_how(name: str) -> None:
    kind, column = REFUSED[name]
    with pytest.raises(mr.SchemaError, match=r"x of type .*schemas\['r'\] has .*\.cast\("):
        pushed(kind, pa.table({"x": column}))


def test_columns_may_come_in_another_order_but_not_others() -> None:
    schema = pa.schema([("x", pa.int64()), ("y", pa.string())])
    j = mr.WindowJoin("r.x = s.x", window="10 rows", schemas={"r": schema, "s": schema})
    j.push_both(pa.table({"y": ["a"], "x": [1]}), pa.table({"y": pa.nulls(1), "x": [1.0]}), [0, 1])
    assert j.stats.pairs == 1
    for batch, words in (({"x": [1]}, "y is missing"), ({"x": [1], "y": ["a"], "z": [1]}, "z is new")):
        with pytest.raises(mr.SchemaError, match=words):
            j.push("r", pa.table(batch))
    assert j.stats.rows == {"r": 1, "s": 1}


def test_a_live_join_casts_too() -> None:
    schema = pa.schema([("x", pa.float64())])
    with mr.LiveJoin("r.x = s.x", window="10 rows", schemas={"r": schema, "s": schema}) as live:
        live.put("r", pa.table({"x": [1]}))
        live.put("s", pd.DataFrame({"x": [1, None]}))
        assert live.flush().num_rows == 1


def test_a_lazy_frame_says_collect() -> None:
    lazy, table = pl.LazyFrame({"x": [1]}), pa.table({"x": [1]})
    attempts: list[Any] = [
        lambda: mr.join(lazy, table, on="r.x = s.x"),
        lambda: mr.WindowJoin("r.x = s.x", window="10 rows").push("r", lazy),
        lambda: mr.OrderedIndex(lazy),
    ]
    for attempt in attempts:
        with pytest.raises(mr.ArgumentError, match=r"LazyFrame.*\.collect\(\)"):
            attempt()


MINUTE = 60 * 10**9


@pytest.mark.parametrize(
    ("given", "ns"),
    [
        ("1 hour 30 minutes", 90 * MINUTE),
        ("1h30min", 90 * MINUTE),
        ("1 day, 2.5 hours, 3 s", (26 * 60 + 30) * MINUTE + 3 * 10**9),
        (timedelta(minutes=5), 5 * MINUTE),
        (pd.Timedelta(5, "ns"), 5),
        (np.timedelta64(5, "m"), 5 * MINUTE),
        (np.timedelta64(2, "W"), 14 * 24 * 60 * MINUTE),
        (pa.scalar(timedelta(minutes=5)), 5 * MINUTE),
    ],
    ids=str,
)
def test_lengths_of_time(given: Any, ns: int) -> None:
    for span in (parse_window(given).r, parse_lateness(given)):
        assert (span.measure, span.length) == ("ns", ns)


@pytest.mark.parametrize(
    "given",
    ["1 hour 30", "1 hour -5 minutes", "5 rows 3 minutes", "1 hour and a half", np.timedelta64("NaT"), pd.NaT],
    ids=str,
)
def test_what_is_no_length_is_refused(given: Any) -> None:
    with pytest.raises(mr.ArgumentError, match="1 hour 30 minutes"):
        parse_window(given)


def test_reprs_have_durations_as_people_write_them() -> None:
    j = mr.WindowJoin("r.x = s.x", window=timedelta(hours=1, minutes=30), time="ts", lateness="90 s")
    assert "window 1 hour 30 minutes," in repr(j)
    assert "1 minute 30 seconds" in str(j.explain())
    assert [duration_text(ns) for ns in (0, 1, 1_500_000_000, 7 * 86_400 * 10**9)] == [
        "0 seconds",
        "1 nanosecond",
        "1 second 500 milliseconds",
        "7 days",
    ]
