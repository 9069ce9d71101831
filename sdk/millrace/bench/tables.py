"""Joins of two tables, ours or a peer's, as runners of the harness: each step joins the same tables again.

Tables are converted to the tool's own format before timing; the join is timed until all pairs are in memory.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millrace.bench.harness import Answer
from millrace.bench.workload import Rows, Workload, answer_columns
from millrace.ingest.choices import IndexName
from millrace.table_join import join

SORTED_ROWS = 1 << 20
"""Results of tables up to this size are compared row by row, larger ones by a fingerprint."""
COLUMNS = answer_columns("pairs")


@dataclass(frozen=True)
class Tables:
    """Two tables of `rows` rows, generated like the full windows of a `Workload`: key x and payload v."""

    rows: int

    @cached_property
    def workload(self) -> Workload:
        """Defines keys, band and match rate."""
        return Workload(self.rows, self.rows, "batches", "pairs")

    @cached_property
    def sides(self) -> tuple[Rows, Rows]:
        """r and s, generated once for all contenders."""
        return self.workload.fill()

    @property
    def facts(self) -> dict[str, Any]:
        """What a result line reports about the work."""
        facts = self.workload.facts
        return {"rows": self.rows, **{name: facts[name] for name in ("output", "selectivity", "distribution")}}


class Joiner(Protocol):
    """A join of two tables, ready to run; results have the tool's own format."""

    def run(self) -> Any:
        """Compute all pairs, materialized in memory."""

    def answer(self, result: Any) -> Answer:
        """A result's columns by name, as in `COLUMNS`."""

    def close(self) -> None:
        """Release all resources."""


class OurJoin:
    """`mr.join`, called through the public API."""

    def __init__(self, tables: Tables, index: str, device: str) -> None:
        """Arrow tables that share the arrays' memory."""
        self._sides = tuple(pa.table({"x": rows.x, "v": rows.v}) for rows in tables.sides)
        self._on, self._index, self._device = tables.workload.on, index, device

    def run(self) -> pa.Table:
        """One call."""
        r, s = self._sides
        return join(r, s, on=self._on, index=cast(IndexName, self._index), device=self._device)

    def answer(self, result: pa.Table) -> Answer:
        """All columns."""
        return {name: result.column(name).to_numpy() for name in COLUMNS}

    def close(self) -> None:
        """Nothing to release."""


class TableRun:
    """Runs a joiner; the unit of work is the row, of both tables together."""

    def __init__(self, make: Callable[[Tables], Joiner], tables: Tables) -> None:
        """Create the joiner with its own tables."""
        self._joiner = make(tables)
        self._rows = tables.rows
        self._last: Any = None

    def step(self) -> tuple[float, float]:
        """Join once."""
        self._last = None
        start = time.perf_counter()
        self._last = self._joiner.run()
        return 2 * self._rows, time.perf_counter() - start

    def answer(self) -> Answer:
        """The pairs in our order, or their fingerprint."""
        columns = self._joiner.answer(self._last)
        return _sorted(columns) if self._rows <= SORTED_ROWS else fingerprint(columns)

    def pause(self) -> None:
        """Free the last result."""
        self._last = None

    def close(self) -> None:
        """Close the joiner."""
        self.pause()
        self._joiner.close()


def _sorted(columns: Answer) -> Answer:
    order = np.lexsort((columns["s_seq"], columns["r_seq"]))
    return {name: column[order] for name, column in columns.items()}


def fingerprint(columns: Answer) -> Answer:
    """The number of rows and the sum of row hashes: equal for equal rows in any order."""
    rows = np.zeros(len(columns["r_seq"]), np.uint64)
    for column in columns.values():
        rows = _mixed(rows ^ np.ascontiguousarray(column).view(np.uint64))
    return {"pairs": np.array([len(rows)]), "hash": np.array([rows.sum(dtype=np.uint64)])}


def _mixed(words: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Mix the bits of each word (the finalizer of splitmix64); overflow wraps around."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (words ^ (words >> np.uint64(31))) + np.uint64(0x9E3779B97F4A7C15)
