"""Holds the points of a table s, indexed once, and finds the nearest of them for batches of r, as Spark tasks need it.

Results are row numbers of both tables; the caller gathers the payload. A probe belongs to the process that created it
and serves one thread at a time. It searches on the CPU.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from millrace.host.base.errors import StateError
from millrace.host.base.types import Longs, Side
from millrace.host.base.words import repeated
from millrace.host.data.timescale import NO_TIME
from millrace.host.data.tuples import Tuples
from millrace.host.knn.bounded_cells import BoundedCells
from millrace.host.knn.index import Neighbours, PointIndex, PointQueries
from millrace.host.knn.intake import bind_points
from millrace.host.knn.neighbour_rows import NeighbourRows, neighbour_rows
from millrace.host.runtime.pool import cores
from millrace.host.runtime.team import Team
from millrace.ingest.knn_arguments import SearchArguments
from millrace.join_parts.knn_blocks import MAX_BLOCK_PAIRS, query_blocks


class KnnProbe:
    """The points of a table s. `ties`: keys that order rows at equal distances; the rows' own order without them.

    `cells`: the rows are a shard of s, and each search checks that it holds all neighbours.
    """

    def __init__(
        self,
        args: SearchArguments,
        held: pa.Table,
        r_schema: pa.Schema,
        ties: Longs | None = None,
        cells: BoundedCells | None = None,
        block_pairs: int = MAX_BLOCK_PAIRS,
    ) -> None:
        """Check the columns of both sides, read s and open the device."""
        self._args, self._table, self._cells, self._block_pairs = args, held, cells, block_pairs
        self._intakes = bind_points(args.spec, {"r": r_schema, "s": held.schema})
        self._held = self._read("s", held)
        self._device = args.engine.open()
        self.team = self._device.team or Team(args.engine.threads or cores())
        spec = args.spec
        self._index = PointIndex(spec.dimensions, self.team, grouped=bool(spec.by["s"]), tied=ties is not None)
        columns = self._held.columns
        self._index.insert(spec.points_of("s", columns, self._held.live), spec.groups_of("s", columns), ties)

    def _read(self, side: Side, table: pa.Table) -> Tuples:
        """A table's rows as tuples: their points and groups."""
        intake = self._intakes[side]
        if side == "r" and intake.codes.due:
            intake.codes.sweep(self._held.columns[name] for name in self._intakes["s"].code_columns)
        return intake.read(table, repeated(0, table.num_rows), 0, NO_TIME).tuples

    def blocks(self, r: pa.Table, own: Longs | None = None) -> Iterator[NeighbourRows]:
        """The neighbours of r's rows, a block of rows at a time. `own`: the held row that each must not find."""
        args, spec = self._args, self._args.spec
        same = r is self._table and spec.on["r"] == spec.on["s"] and spec.by["r"] == spec.by["s"]
        tuples = self._held if same else self._read("r", r)
        for first, queries in query_blocks(args, tuples, len(self._held), own, self._block_pairs):
            self.team.acquire(max(len(queries), len(self._held)))
            try:
                found = self._index.query(queries, args.k, args.limit)
                rows = neighbour_rows(found, spec.metric, args.left, self.team, first)
            finally:
                self.team.depth -= 1
            self._check(queries, found)
            yield rows

    def _check(self, queries: PointQueries, found: Neighbours) -> None:
        """Raise a `StateError` if a row may have neighbours that are not in this shard."""
        if self._cells is None:
            return
        uncertain = self._cells.uncertain(queries.columns, found, self._args.k, self._args.limit)
        if uncertain.any():
            raise StateError(
                f"{int(np.count_nonzero(uncertain)):,} rows of r may have neighbours elsewhere: r or s has changed "
                f"since the call that planned this join. Repeat the call; cache frames that differ each time they are "
                f"computed, or use strategy='broadcast'"
            )

    def close(self) -> None:
        """Close the device and its threads."""
        self._device.close()
        self.team.close()
