"""The `hb_lookup` unit on the CPU: queries search an implicit tree down to its leaf lines (thesis, appendix A, 5.4).

Buffers: `nodes` (words), `offsets` (uint32), `leaf_words` (words, whole lines), `queries` (words), `found` (uint32,
out: the position of the first word that is not below the query, `n` if there is none). Scalars: `m` (queries),
`levels`, `n` (keys). The host checks whether the word found equals the query.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from millrace.host.base.types import Array
from millrace.host.hbtree import search as hs
from millrace.host.hbtree import search_args as ha
from millrace.host.hbtree.layout import LINE
from millrace.host.hbtree.search_call import run_search, tree_table
from millrace.host.runtime.team import Team


def hb_lookup(arrays: Sequence[Array], scalars: Sequence[int], team: Team) -> int:
    """Look up; return the number of queries."""
    nodes, offsets, leaf_words, queries, found = arrays
    m, levels, n = scalars
    per_line = LINE // nodes.itemsize
    bases = [int(first) * LINE for first in offsets[:levels]]
    tree = tree_table(nodes, bases, [*bases[1:], nodes.nbytes], fanout=per_line, leaf_words=leaf_words, size=n)
    positions = np.empty(m, np.int64)
    share = hs.search_64 if nodes.itemsize == 8 else hs.search_32
    run_search(share, team, tree, queries[:m], MODE=ha.LOWER, OUT=positions)
    found[:m] = positions
    return m
