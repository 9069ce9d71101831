"""Rows put as mappings: a value is taken as it is, or refused; blocks of rows hold what Arrow makes of the values."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import millrace as mr
from millrace.ingest.rows import BLOCK_ROWS, RowReader

SCHEMA = pa.schema([("a", pa.int64()), ("b", pa.uint8()), ("c", pa.float64())])
NOON = dt.datetime(2024, 2, 29, 12, 0, 0, 4000)
UTC = dt.UTC


def test_rows_of_several_blocks_stay_as_they_were_written() -> None:
    reader = RowReader(SCHEMA, "r")
    rows = [{"c": i / 2, "a": -i, "b": i % 256} for i in range(2 * BLOCK_ROWS + 3)]
    tables = [reader.read(row) for row in rows]
    for row, table in zip(rows, tables, strict=True):
        assert table.equals(pa.Table.from_pylist([row], SCHEMA))
    tables[-1].validate(full=True)


@pytest.mark.parametrize(
    "row",
    [
        {"a": None, "b": 1, "c": 1.0},
        {"a": np.int64(4), "b": 1, "c": np.float32(1.5)},
        {"a": 4, "b": 1, "c": 7},
    ],
)
def test_other_values_are_what_arrow_makes_of_them(row: dict[str, Any]) -> None:
    reader = RowReader(SCHEMA, "r")
    expected = [pa.array([row[field.name]], field.type)[0].as_py() for field in SCHEMA]
    assert [column[0].as_py() for column in reader.read(row).columns] == expected
    plain = {"a": 1, "b": 2, "c": 3.0}
    assert reader.read(plain).to_pylist() == [plain]


@pytest.mark.parametrize(
    "row",
    [{"a": True, "b": 1, "c": 1.0}, {"a": 1, "b": 256, "c": 1.0}, {"a": 1 << 63, "b": 1, "c": 1.0}, {"a": 1.5, "b": 1}],
)
def test_values_out_of_range_and_missing_columns_are_refused(row: dict[str, Any]) -> None:
    reader = RowReader(SCHEMA, "r")
    with pytest.raises(mr.SchemaError):
        reader.read(row)
    assert reader.read({"a": 5, "b": 0, "c": 0.0}).to_pylist() == [{"a": 5, "b": 0, "c": 0.0}]


def read(value: Any, kind: pa.DataType) -> Any:
    return RowReader(pa.schema([("x", kind)]), "r").read({"x": value})["x"].to_pylist()[0]


@pytest.mark.parametrize(
    ("value", "kind", "wanted"),
    [
        (2.0, pa.int64(), 2),
        (np.int16(3), pa.int32(), 3),
        (2**63, pa.uint64(), 2**63),
        (7, pa.float32(), 7.0),
        (pa.scalar(5, pa.int8()), pa.int64(), 5),
        (NOON, pa.timestamp("ms"), NOON),
        (NOON.replace(tzinfo=dt.timezone(dt.timedelta(hours=2))), pa.timestamp("us", "UTC"), None),
        (np.datetime64("2024-02-29", "s"), pa.timestamp("us"), dt.datetime(2024, 2, 29)),
        (dt.date(2024, 2, 29), pa.timestamp("us"), dt.datetime(2024, 2, 29)),
        (Decimal("1.5"), pa.decimal128(9, 2), Decimal("1.50")),
        (Decimal(1), pa.int64(), 1),
        (Decimal("2.00"), pa.int8(), 2),
        (Decimal(2**64 - 1), pa.uint64(), 2**64 - 1),
        ([1, 2], pa.list_(pa.int32()), [1, 2]),
        (None, pa.string(), None),
    ],
)
def test_equal_values_of_other_types_are_taken(value: Any, kind: pa.DataType, wanted: Any) -> None:
    found = read(value, kind)
    assert found == (value if isinstance(value, dt.datetime) and wanted is None else wanted)


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (1.5, pa.int64()),
        (np.float64(1.5), pa.int32()),
        (float("nan"), pa.int64()),
        (Decimal("1.5"), pa.int64()),
        (Decimal(300), pa.int8()),
        (Decimal(2**63), pa.int64()),
        (2**40, pa.int32()),
        (2**53 + 1, pa.float64()),
        (True, pa.int64()),
        (True, pa.float64()),
        (5, pa.timestamp("us")),
        (NOON.replace(microsecond=1), pa.timestamp("ms")),
        (NOON.replace(tzinfo=UTC), pa.timestamp("us")),
        (NOON, pa.timestamp("us", "UTC")),
        (NOON, pa.date32()),
        (np.datetime64(2**60, "W"), pa.timestamp("us")),
        (np.datetime64(1, ("s", 25)), pa.timestamp("s")),
        (b"a", pa.string()),
        ("a", pa.binary()),
    ],
)
def test_other_values_are_refused(value: Any, kind: pa.DataType) -> None:
    with pytest.raises(mr.SchemaError, match=r"the row put to 'r' has x=.*, which is no "):
        read(value, kind)
