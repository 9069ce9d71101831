"""Arguments of the search kernels: two tables of 64-bit words, `Tree` for the tree and `Search` for the call.

`search.py` and `search_walk.py` read them, `search_call.py` fills them. Queries are numbers that become words by
flipping bits (`FLIP`). A query whose byte in `MASK` is 0 counts as absent. `MODE` selects the result. (Thesis,
appendix A, 4 and 5.)
"""

from __future__ import annotations

from enum import auto
from typing import Any

import numpy as np

from millrace.host.runtime.intrinsics import load_as
from millrace.host.runtime.jit import inline
from millrace.host.runtime.kernel_args import KernelArgs

BLOCK = 64
"""Queries per block, which walk the tree together: one word of validity bits."""
RING = 16
"""Maximum number of blocks in flight: no tree has more steps."""
SCRATCH = 2 * RING * BLOCK
"""64-bit entries of stack memory per task: words and nodes of all blocks in flight."""
NEAR = 1 << 18
"""Levels within so many bytes from the root are assumed to be cached, and are walked in one step."""
FIRST, LAST, LOWER, NODES, VALUES, LAST_VALUES = range(6)
"""Modes: position of the first or last equal word (-1: none), or of the first word not below; nodes; values."""
PHASES = 3
"""Steps per level of the regular layout: index line, key line, child."""


class Tree(KernelArgs):
    """The table of a tree."""

    REGULAR = auto()
    FANOUT = auto()
    LEVELS = auto()
    SIZE = auto()
    LINES = auto()
    LEAVES = auto()
    STRIDE = auto()
    WIDTH = auto()
    UPPER = auto()  # bytes of an upper node
    LAST = auto()  # bytes of a node of the last inner level
    NEAR = auto()  # number of cached levels
    LEAF_BITS = auto()  # log2 of the words of a leaf line
    OFFSET = auto()  # bytes from a line to its values
    STARTS = auto()  # the directory of `directory.py` (0: none)
    SEPARATORS = auto()
    ORDER = auto()
    START_LEVEL = auto()
    BASE = auto()  # this and the next three map a word to its entry in the directory
    SHIFT = auto()
    SCALE = auto()
    MAX_OFFSET = auto()
    BASES = auto()  # from here on: the address of node 0 of each level, the leaves last


class Search(KernelArgs):
    """The arguments of a search."""

    QUERIES = auto()
    FLIP = auto()
    MASK = auto()
    COUNT = auto()
    TREE = auto()
    START = auto()
    DEPTH = auto()
    AT = auto()
    OUT = auto()
    BITS = auto()
    HITS = auto()
    MODE = auto()
    HIGH = auto()
    ENDS = auto()
    ROWS = auto()  # the output row of each query (0: in order)
    THERE = auto()  # with `ROWS`: bytes that absent queries clear, in place of `BITS`


@inline
def entry_rule(tree: int) -> tuple[Any, Any, Any, Any]:
    """The numbers that `entry_of` uses."""
    zero = np.uint64(0)
    rule = load_as(tree, Tree.BASE, zero), load_as(tree, Tree.SHIFT, zero), load_as(tree, Tree.MAX_OFFSET, zero)
    return (*rule, load_as(tree, Tree.SCALE, zero))


@inline
def entry_of(word: Any, rule: tuple[Any, Any, Any, Any]) -> int:
    """The entry of a word in the directory."""
    base, shift, most, scale = rule
    offset = (max(np.uint64(word), base) - base) >> shift
    entry: Any = min(offset, most) * scale >> np.uint64(32)
    return np.int64(entry)  # type: ignore[return-value]
