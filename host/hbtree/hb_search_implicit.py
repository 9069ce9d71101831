"""The `hb_search_implicit` unit on the CPU: queries walk inner levels of an implicit tree (thesis, appendix A, 5.3).

Buffers: `nodes` (words: the I-segment), `offsets` (uint32: first node of each inner level), `queries` (words), `at`
(uint32: per query the number of its start node within the level), `leaves` (uint32, out: leaf line numbers).
Scalars: `m` (queries), `from` (the start level; at 0 all start at node 0 and `at` is not read), `levels` (inner
levels). `from` may be `levels`: then `leaves` is `at`. The fan-out is the number of words of a line, as on all devices.
"""

from __future__ import annotations

from collections.abc import Sequence

from millrace.host.base.types import Array
from millrace.host.hbtree import search as hs
from millrace.host.hbtree import search_args as ha
from millrace.host.hbtree.layout import LINE
from millrace.host.hbtree.search_call import run_search, tree_table
from millrace.host.runtime.team import Team


def hb_search_implicit(arrays: Sequence[Array], scalars: Sequence[int], team: Team) -> int:
    """Walk the inner levels; return the number of queries."""
    nodes, offsets, queries, at, leaves = arrays
    m, start, levels = scalars
    per_line = LINE // nodes.itemsize
    bases = [int(first) * LINE for first in offsets[:levels]]
    tree = tree_table(nodes, bases, [*bases[1:], nodes.nbytes], fanout=per_line)
    share = hs.search_64 if nodes.itemsize == 8 else hs.search_32
    run_search(share, team, tree, queries[:m], MODE=ha.NODES, START=start, AT=at, OUT=leaves)
    return m
