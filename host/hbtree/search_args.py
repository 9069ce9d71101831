"""Arguments of the search kernels: two tables of 64-bit entries, one for the tree and one for the call.

`search.py` and `search_walk.py` read them, `search_call.py` fills them. Queries are numbers that become words by
flipping bits (`FLIP`). A query whose byte in `MASK` is 0 counts as absent. `MODE` selects the result. (Thesis,
appendix A, 4 and 5.)
"""

from __future__ import annotations

from typing import Any

import numpy as np

from millrace.host.runtime.intrinsics import load_as
from millrace.host.runtime.jit import inline

BLOCK = 64
"""Queries per block, which walk the tree together: one word of validity bits."""
RING = 16
"""Maximum number of blocks in flight: no tree has more steps."""
SCRATCH = 2 * RING * BLOCK
"""64-bit entries of stack memory per task: words and nodes of all blocks in flight."""
NEAR = 1 << 18
"""Levels within so many bytes from the root are assumed to be cached, and are walked in one step."""
TREE_REGULAR, TREE_FANOUT, TREE_LEVELS, TREE_SIZE, TREE_LINES, TREE_LEAVES, TREE_STRIDE, TREE_WIDTH = range(8)
TREE_UPPER, TREE_LAST, TREE_NEAR = 8, 9, 10
"""Bytes of an upper node and of one of the last inner level; number of cached levels."""
TREE_LEAF_BITS, TREE_OFFSET = 11, 12
"""log2 of the words of a leaf line; bytes from a line to its values."""
TREE_STARTS, TREE_SEPARATORS, TREE_ORDER, TREE_START_LEVEL = 13, 14, 15, 16
TREE_BASE, TREE_SHIFT, TREE_SCALE, TREE_MAX_OFFSET = 17, 18, 19, 20
"""The directory of `directory.py` (0: none), and the numbers that map a word to its entry."""
TREE_BASES = 21
"""From here on: the address of node 0 of each level, the leaves last."""
(QUERIES, FLIP, MASK, COUNT, TREE, START, DEPTH, AT, OUT, BITS, HITS, MODE, HIGH, ENDS, ROWS, THERE) = range(16)
ARGUMENTS = 16
"""`ROWS`: the output row of each query (0: in order). With it, absent queries clear bytes of `THERE`, not `BITS`."""
FIRST, LAST, LOWER, NODES, VALUES, LAST_VALUES = range(6)
"""Modes: position of the first or last equal word (-1: none), or of the first word not below; nodes; values."""
PHASES = 3
"""Steps per level of the regular layout: index line, key line, child."""


@inline
def entry_rule(tree: int) -> tuple[Any, Any, Any, Any]:
    """The numbers that `entry_of` uses."""
    zero = np.uint64(0)
    rule = load_as(tree, TREE_BASE, zero), load_as(tree, TREE_SHIFT, zero), load_as(tree, TREE_MAX_OFFSET, zero)
    return (*rule, load_as(tree, TREE_SCALE, zero))


@inline
def entry_of(word: Any, rule: tuple[Any, Any, Any, Any]) -> int:
    """The entry of a word in the directory."""
    base, shift, most, scale = rule
    offset = (max(np.uint64(word), base) - base) >> shift
    entry: Any = min(offset, most) * scale >> np.uint64(32)
    return np.int64(entry)  # type: ignore[return-value]
