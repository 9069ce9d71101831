"""Turns the neighbours of many queries into rows: the query, the rank, the neighbour's position and the distance."""

from __future__ import annotations

from dataclasses import dataclass
from enum import auto

import numpy as np

from millrace.host.base.types import Array, Longs, Positions
from millrace.host.knn.index import Neighbours
from millrace.host.knn.metric import Metric, distance_of
from millrace.host.runtime.allocator import result_array
from millrace.host.runtime.intrinsics import load, load_as, store, store_as
from millrace.host.runtime.jit import share
from millrace.host.runtime.kernel_args import KernelArgs
from millrace.host.runtime.team import Team

_QUERIES_PER_PART = 1 << 11


class _Args(KernelArgs):
    """The arguments of `_expand`."""

    COUNT = auto()
    FIRST = auto()  # the number of the first query
    K = auto()
    LEFT = auto()
    SPHERE = auto()
    OFFSETS = auto()
    COUNTS = auto()
    POSITIONS = auto()
    SQUARES = auto()
    OUT_ROWS = auto()
    OUT_RANKS = auto()
    OUT_POSITIONS = auto()
    OUT_DISTANCES = auto()


@share
def _expand(given: int, part: int, parts: int) -> None:
    n, k, sphere = load(given, _Args.COUNT), load(given, _Args.K), load(given, _Args.SPHERE) != 0
    first = load(given, _Args.FIRST)
    rows, ranks = load(given, _Args.OUT_ROWS), load(given, _Args.OUT_RANKS)
    positions, distances = load(given, _Args.OUT_POSITIONS), load(given, _Args.OUT_DISTANCES)
    for query in range(n * part // parts, n * (part + 1) // parts):
        at, count = load(load(given, _Args.OFFSETS), query), load(load(given, _Args.COUNTS), query)
        for j in range(count):
            store(rows, at + j, first + query)
            store_as(ranks, at + j, np.int32(j))
            store(positions, at + j, load(load(given, _Args.POSITIONS), k * query + j))
            store_as(distances, at + j, distance_of(load_as(load(given, _Args.SQUARES), k * query + j, 0.0), sphere))
        if count == 0 and load(given, _Args.LEFT) != 0:
            store(rows, at, first + query)
            store_as(ranks, at, np.int32(0))
            store(positions, at, -1)
            store_as(distances, at, 0.0)


@dataclass(frozen=True)
class NeighbourRows:
    """Rows in the order of (query, rank). With `left`, a query without a neighbour has one row, of position -1."""

    queries: Longs
    ranks: Array
    positions: Positions
    distances: Array
    pairs: int

    @property
    def missing(self) -> Array | None:
        """A mask of the rows without a neighbour; None if there are none."""
        return None if self.pairs == len(self.queries) else self.positions < 0


def neighbour_rows(found: Neighbours, metric: Metric, left: bool, team: Team, first: int = 0) -> NeighbourRows:
    """Expand neighbours to rows; queries are numbered from `first` on. The caller has acquired the team."""
    n = len(found.counts)
    kept = np.maximum(found.counts, 1) if left else found.counts
    offsets = np.cumsum(kept) - kept
    total = int(kept.sum())
    queries, positions = result_array(total, np.int64), result_array(total, np.int64)
    ranks, distances = result_array(total, np.int32), result_array(total, np.float64)
    given = _Args.pack(
        COUNT=n,
        FIRST=first,
        K=found.k,
        LEFT=int(left),
        SPHERE=int(metric == "haversine"),
        OFFSETS=offsets,
        COUNTS=found.counts,
        POSITIONS=found.positions,
        SQUARES=found.squares,
        OUT_ROWS=queries,
        OUT_RANKS=ranks,
        OUT_POSITIONS=positions,
        OUT_DISTANCES=distances,
    )
    team.run(_expand, given, max(n // _QUERIES_PER_PART, 1))
    return NeighbourRows(queries, ranks, positions, distances, int(found.counts.sum()))
