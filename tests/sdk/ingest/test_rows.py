"""Rows given as mappings: what is written into blocks of rows equals what Arrow makes of the same values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import millrace as mr
from millrace.ingest.rows import BLOCK_ROWS, RowReader

SCHEMA = pa.schema([("a", pa.int64()), ("b", pa.uint8()), ("c", pa.float64())])


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
