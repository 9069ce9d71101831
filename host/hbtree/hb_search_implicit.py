"""The `hb_search_implicit` unit on the CPU: queries walk inner levels of an implicit tree (thesis, appendix A, 5.3).

Buffers: `nodes` (words: the I-segment), `offsets` (uint32: first node of each inner level), `queries` (words), `at`
(uint32: per query the number, in its level, of the node to begin at), `leaves` (uint32, out: leaf line numbers).
Scalars: `m` (queries), `from` (the level to begin at; at 0 all begin at node 0 and `at` is not read), `levels` (inner
levels). `from` may be `levels`: then `leaves` is `at`. The fan-out is the words of a line, as for all devices.
"""

from __future__ import annotations

from collections.abc import Sequence

from millrace.host.base.types import Array
from millrace.host.hbtree import search as hs
from millrace.host.hbtree.layout import LINE
from millrace.host.hbtree.search_call import run_search, tree_table
from millrace.host.runtime.team import Team


def hb_search_implicit(arrays: Sequence[Array], scalars: Sequence[int], team: Team) -> int:
    """Walk; returns how many queries did."""
    nodes, offsets, queries, at, leaves = arrays
    m, start, levels = scalars
    per_line = LINE // nodes.itemsize
    bases = [int(first) * LINE for first in offsets[:levels]]
    tree = tree_table(nodes, bases, [*bases[1:], nodes.nbytes], fanout=per_line)
    share = hs.search_64 if nodes.itemsize == 8 else hs.search_32
    run_search(share, team, tree, queries[:m], MODE=hs.NODES, START=start, AT=at, OUT=leaves)
    return m
