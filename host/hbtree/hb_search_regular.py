"""The `hb_search_regular` unit on the CPU: queries walk the inner levels of a regular tree (thesis, appendix A, 5.3).

Buffers: `nodes` (words: the upper nodes, then those of the last inner level; see `layout.py`), `queries` (words),
`at` (uint32: the start node per query: its number in the pool of upper nodes, or among the nodes of the last
inner level if `from` is that level), `leaves` (uint32, out: leaf line numbers). Scalars: `m` (queries), `from` (the
start level; at 0 all start at node 0 and `at` is not read), `levels` (inner levels), `last` (the word of `nodes`
where the last inner level begins). `from` may be `levels`: then `leaves` is `at`.

With P words in a line, an upper node has `(1 + 2 * P) * P` words: index line, P lines of keys, P lines of children; one
of the last level has `(1 + P) * P`: no children, slot i of node j is leaf line `j * P * P + i`.
"""

from __future__ import annotations

from collections.abc import Sequence

from millrace.host.base.types import Array
from millrace.host.hbtree import search as hs
from millrace.host.hbtree import search_args as ha
from millrace.host.hbtree.search_call import run_search, tree_table
from millrace.host.runtime.team import Team


def hb_search_regular(arrays: Sequence[Array], scalars: Sequence[int], team: Team) -> int:
    """Walk the inner levels; return the number of queries."""
    nodes, queries, at, leaves = arrays
    m, start, levels, last = scalars
    bases = [0] * (levels - 1) + [last * nodes.itemsize]
    # The ends of the upper levels are unknown. They are small compared to the last level, so they count as one.
    ends = [last * nodes.itemsize] * (levels - 1) + [nodes.nbytes]
    tree = tree_table(nodes, bases, ends, fanout=0)
    share = hs.search_64 if nodes.itemsize == 8 else hs.search_32
    run_search(share, team, tree, queries[:m], MODE=ha.NODES, START=start, AT=at, OUT=leaves)
    return m
