"""Joins two small tables by evaluating the condition on all pairs of rows with NumPy: no index, nothing to compile.

For few rows this is faster than to build and search an index. The evaluator is the one that decides terms which an
index cannot (`Plan.matches`), so a pair means the same here. Limit: all pairs are evaluated, a block of r's rows at a
time.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from millrace.host.base.types import Positions, Side
from millrace.host.base.words import all_true
from millrace.host.data.tuples import Tuples
from millrace.host.expr.evaluate import Columns
from millrace.host.expr.plan import Plan
from millrace.join_parts.table_probe import Partners

FEW_PAIRS = 1 << 12
"""Tables with up to so many pairs of rows are always joined so."""
BLOCK_PAIRS = 1 << 20
"""Pairs that are evaluated at a time."""


def evaluated_blocks(plan: Plan, r: Tuples, s: Tuples) -> Iterator[Partners]:
    """The partners of r's rows in s, one block of rows at a time."""
    terms = plan.recheck_of("s", 0)
    rows, partners = _live(r), _live(s)
    block = max(BLOCK_PAIRS // max(len(partners), 1), 1)
    for first in range(0, max(len(r), 1), block):
        stop = min(first + block, len(r))
        some = rows[rows.searchsorted(first) : rows.searchsorted(stop)]
        own, other = some.repeat(len(partners)), np.tile(partners, len(some))
        columns: Columns = {**_columns("r", r, own), **_columns("s", s, other)}
        found = plan.matches(terms, columns, len(own)).nonzero()[0]
        own, other = own[found], other[found]
        yield Partners(np.bincount(own - first, minlength=stop - first), own, other, first)


def _live(tuples: Tuples) -> Positions:
    """The rows that can match."""
    return np.arange(len(tuples.live)) if all_true(tuples.live) else np.flatnonzero(tuples.live)


def _columns(side: Side, tuples: Tuples, rows: Positions) -> Columns:
    return {(side, name): values[rows] for name, values in tuples.columns.items()}
