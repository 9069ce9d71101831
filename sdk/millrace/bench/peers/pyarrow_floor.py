"""Peer `pyarrow`: the least that a call on Arrow tables can cost, without any join or lookup.

It reads the columns of the input as NumPy arrays and builds an output table of the shape that the call returns. The
content of the output is not the answer, so results are not compared.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from millrace.bench.harness import Answer
from millrace.bench.tables import Tables
from millrace.bench.workload import Rows, Turn, Workload, answer_columns


class FloorSession:
    """The floor of a push with payload: a batch in, `rate` pairs per tuple out."""

    def __init__(self, workload: Workload) -> None:
        """Prepare the output's columns; they become Arrow arrays in each push."""
        self._output = _output(workload, round(workload.rate * workload.batch))

    def fill(self, r: Rows, s: Rows) -> None:
        """There is no window."""

    def prepare(self, turn: Turn) -> pa.Table:
        """The batch as an Arrow table, as our own join gets it."""
        rows = turn.r if len(turn.r) else turn.s
        return pa.table({"x": rows.x, "v": rows.v})

    def push(self, prepared: pa.Table) -> pa.Table:
        """Read the columns and build the output."""
        return _read_and_build([prepared], self._output)

    def answer(self, result: pa.Table) -> Answer:
        """Not compared."""
        return {}

    def close(self) -> None:
        """Nothing to release."""


class FloorJoin:
    """The floor of a join of two tables."""

    def __init__(self, tables: Tables) -> None:
        """Prepare the output's columns."""
        self._sides = [pa.table({"x": rows.x, "v": rows.v}) for rows in tables.sides]
        self._output = _output(tables.workload, round(tables.workload.rate * tables.rows))

    def run(self) -> pa.Table:
        """Read the columns of both tables and build the output."""
        return _read_and_build(self._sides, self._output)

    def answer(self, result: pa.Table) -> Answer:
        """Not compared."""
        return {}

    def close(self) -> None:
        """Nothing to release."""


class FloorLookup:
    """The floor of a lookup: a column of keys in, an array of values out."""

    def query(self, query_batch: pa.Array) -> pa.Array:
        """Read the keys and build an array of as many values."""
        return pa.array(query_batch.to_numpy())

    def answer(self, found: pa.Array) -> Answer:
        """Not compared."""
        return {}


def _output(workload: Workload, rows: int) -> dict[str, Any]:
    """The columns of an output of so many pairs: integers, and doubles for payload."""
    dtypes = {"r_v": np.float64, "s_v": np.float64}
    return {name: np.zeros(rows, dtypes.get(name, np.int64)) for name in answer_columns(workload.output)}


def _read_and_build(tables: list[pa.Table], output: dict[str, Any]) -> pa.Table:
    for table in tables:
        for column in table.columns:
            column.to_numpy()
    return pa.table({name: pa.array(values) for name, values in output.items()})
