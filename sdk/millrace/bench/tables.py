"""Joins of two whole tables, ours or a peer's, as runners of the harness: each step joins the same tables again.

Tables in the tool's own form are made beforehand; only the join is timed, until all pairs are complete in memory.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millrace.bench.harness import Answer
from millrace.bench.workload import Rows, Workload, answer_columns
from millrace.table_join import join

SORTED_ROWS = 1 << 20
"""Answers of tables up to this size are sorted and compared row by row; of larger ones a fingerprint is."""
COLUMNS = answer_columns("pairs")


@dataclass(frozen=True)
class Tables:
    """Two tables of `rows` rows, made like the full windows of a `Workload`: key x and payload v."""

    rows: int

    @cached_property
    def workload(self) -> Workload:
        """Where keys, band and match rate come from."""
        return Workload(self.rows, self.rows, "batches", "pairs")

    @cached_property
    def sides(self) -> tuple[Rows, Rows]:
        """r and s, made once for all contenders."""
        return self.workload.fill()

    @property
    def facts(self) -> dict[str, Any]:
        """What a result line says of the work."""
        facts = self.workload.facts
        return {"rows": self.rows, **{name: facts[name] for name in ("output", "selectivity", "distribution")}}


class Joiner(Protocol):
    """A join of two tables, ready to run; results have whatever form is natural to the tool."""

    def run(self) -> Any:
        """All pairs, complete in memory."""

    def answer(self, result: Any) -> Answer:
        """A result's columns by name, as in `COLUMNS`."""

    def close(self) -> None:
        """Give everything back."""


class OurJoin:
    """`mr.join`, used as a user would."""

    def __init__(self, tables: Tables, index: str, device: str) -> None:
        """Arrow tables over the same memory."""
        self._sides = tuple(pa.table({"x": rows.x, "v": rows.v}) for rows in tables.sides)
        self._on, self._index, self._device = tables.workload.on, index, device

    def run(self) -> pa.Table:
        """One call."""
        r, s = self._sides
        return join(r, s, on=self._on, index=self._index, device=self._device)

    def answer(self, result: pa.Table) -> Answer:
        """All columns."""
        return {name: result.column(name).to_numpy() for name in COLUMNS}

    def close(self) -> None:
        """Nothing to give back."""


class TableRun:
    """A joiner at work; the unit of work is the row, of both tables together."""

    def __init__(self, make: Callable[[Tables], Joiner], tables: Tables) -> None:
        """Makes the joiner's own tables."""
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
        """The pairs in our order, or what stands for them."""
        columns = self._joiner.answer(self._last)
        return _sorted(columns) if self._rows <= SORTED_ROWS else fingerprint(columns)

    def pause(self) -> None:
        """Forget the last result."""
        self._last = None

    def close(self) -> None:
        """End the joiner."""
        self.pause()
        self._joiner.close()


def _sorted(columns: Answer) -> Answer:
    order = np.lexsort((columns["s_seq"], columns["r_seq"]))
    return {name: column[order] for name, column in columns.items()}


def fingerprint(columns: Answer) -> Answer:
    """How many rows, and a sum over hashes of whole rows: equal for equal rows in any order."""
    rows = np.zeros(len(columns["r_seq"]), np.uint64)
    for column in columns.values():
        rows = _mixed(rows ^ np.ascontiguousarray(column).view(np.uint64))
    return {"pairs": np.array([len(rows)]), "hash": np.array([rows.sum(dtype=np.uint64)])}


def _mixed(words: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Spread every bit over the word (the finaliser of splitmix64); arrays wrap around in silence."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (words ^ (words >> np.uint64(31))) + np.uint64(0x9E3779B97F4A7C15)
