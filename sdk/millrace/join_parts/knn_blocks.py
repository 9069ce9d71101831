"""Cuts r's rows into blocks of nearest-neighbour queries, for `mr.knn_join` and for Spark's tasks.

A block has about `pairs` neighbours at most, which bounds the scratch memory of its search.
"""

from __future__ import annotations

from collections.abc import Iterator

from millrace.host.base.types import Longs
from millrace.host.data.tuples import Tuples
from millrace.host.knn.index import PointQueries
from millrace.ingest.knn_arguments import SearchArguments

MAX_BLOCK_PAIRS = 1 << 24
"""Neighbours of a block of r rows, about."""


def query_blocks(
    args: SearchArguments, r: Tuples, held: int, own: Longs | None, pairs: int = MAX_BLOCK_PAIRS
) -> Iterator[tuple[int, PointQueries]]:
    """The first row and the queries of each block. `held`: rows of s; `own`: the row of s that each must not find."""
    spec = args.spec
    points, groups = spec.points_of("r", r.columns, r.live), spec.groups_of("r", r.columns)
    step = max(pairs // min(args.k, max(held, 1)), 1)
    for first in range(0, len(r), step):
        part = slice(first, min(first + step, len(r)))
        yield (
            first,
            PointQueries(
                [one[part] for one in points],
                own=None if own is None else own[part],
                groups=None if groups is None else groups[part],
            ),
        )
