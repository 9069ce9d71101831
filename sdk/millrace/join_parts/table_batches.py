"""The iterator that `mr.join(batch_rows=…)` returns: the result in tables of at most so many rows.

It probes s with a piece of r at a time, so memory holds s, its index and the pairs of one piece. Between two tables it
holds no threads. The devices are closed when the iterator is exhausted, closed or collected, or when it raises.
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Iterator
from dataclasses import replace
from types import TracebackType

import pyarrow as pa

from millrace.ingest.arguments import Engine, OpenedEngine
from millrace.join_parts.bound_tables import BoundTables
from millrace.join_parts.table_probe import TableProbe
from millrace.join_parts.table_result import TableResult

FIRST_ROWS = 1 << 14
"""Maximum number of rows of r in the first piece."""
FIRST_PAIRS = 1 << 22
"""The first piece is small enough to give at most about this many pairs, even if all rows match."""
MAX_ROWS = 1 << 20
PIECE_PAIRS = 1 << 20
"""About how many rows of the result a piece should give, if `batch_rows` is not more."""


class TableBatches(Iterator[pa.Table]):
    """Yields the rows of a join in order; every table but the last has `batch_rows` rows.

    A join without pairs yields one empty table. The iterator serves one thread at a time.
    """

    def __init__(
        self, result: TableResult, bound: BoundTables, engine: Engine, opened: OpenedEngine, batch_rows: int
    ) -> None:
        """`opened`: the devices, which the iterator closes."""
        self._work = _PieceWork(result, bound, engine, opened)
        self._release = weakref.finalize(self, self._work.close)
        self._tables = _cut(self._work.tables(batch_rows), result.schema, batch_rows)

    def __next__(self) -> pa.Table:
        """The next table."""
        try:
            return next(self._tables)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Free the index and close the devices; the iterator ends."""
        self._tables = iter(())
        self._release()

    def __enter__(self) -> TableBatches:
        """Use the iterator in a `with` statement."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the iterator."""
        self.close()


class _PieceWork:
    """The join piece by piece, and the devices that it uses."""

    def __init__(self, result: TableResult, bound: BoundTables, engine: Engine, opened: OpenedEngine) -> None:
        self._result, self._bound, self._engine, self._opened = result, bound, engine, opened
        self._probe: TableProbe | None = None

    def tables(self, batch_rows: int) -> Iterator[pa.Table]:
        """The result of one piece of r after the other."""
        tables = self._result.tables
        held = self._bound.read("s", tables["s"])
        self._probe = probe = TableProbe(self._bound, self._engine, held, opened=self._opened)
        first, rows = 0, max(1, min(FIRST_ROWS, FIRST_PAIRS // max(tables["s"].num_rows, 1)))
        while first < tables["r"].num_rows:
            piece = self._bound.read("r", tables["r"].slice(first, rows))
            found = [
                replace(block, rows=block.rows + first, first=block.first + first)
                for block in probe.blocks_of(piece, want_pairs=self._result.wants_pairs)
            ]
            if probe.fallback is not None and not first:
                warn_of_fallback(probe.fallback, 4)
            made = 0
            for block in found:
                for table in self._result.parts(block, batch_rows):
                    made += table.num_rows
                    yield table
            first += rows
            rows = _next_rows(rows, made, max(batch_rows, PIECE_PAIRS))

    def close(self) -> None:
        """Free the index and close the devices."""
        if self._probe is not None:
            self._probe.free()
        self._opened.close()


def warn_of_fallback(said: str, level: int, operator: str = "mr.join") -> None:
    """Report a fallback by a warning, because the result of `mr.join` has no stats."""
    warnings.warn(f"{operator} fell back, {said}", RuntimeWarning, stacklevel=level + 1)


def _next_rows(rows: int, pairs: int, wanted: int) -> int:
    """Rows of the next piece of r, so that it gives about as many pairs as wanted."""
    return max(1, min(MAX_ROWS, 8 * rows, rows * wanted // max(pairs, 1)))


def _cut(tables: Iterator[pa.Table], schema: pa.Schema, batch_rows: int) -> Iterator[pa.Table]:
    """The same rows in tables of `batch_rows` rows; the last one may have fewer."""
    kept: list[pa.Table] = []
    rows, empty = 0, True
    for table in tables:
        kept.append(table)
        rows += table.num_rows
        while rows >= batch_rows:
            joined = pa.concat_tables(kept)
            yield joined.slice(0, batch_rows)
            empty, rest = False, joined.slice(batch_rows)
            kept, rows = [rest], rest.num_rows
    if rows or empty:
        yield pa.concat_tables(kept) if rows else schema.empty_table()
