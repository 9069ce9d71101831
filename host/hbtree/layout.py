"""How an HB+-Tree lies in memory: how many nodes each level has and where they begin (thesis, appendix A, 4.1 and 5.2).

Everything is in lines of 64 bytes: 8 words of 64 bits or 16 of 32 (`per_line`). The L-segment holds the sorted words,
`per_leaf` in each line (half a line where values share it, see `hbtree_leaves`), the last line filled up with the
largest word. The I-segment holds the inner levels, the top one first. A node is searched for the *minimum* i with
query <= separator i (the paper says maximum, which is wrong); a separator is the largest word below its child, and
unused places, and the separator of the last child of a level, hold the largest word: a search always ends at a child
that is there. There is always at least one inner level and one leaf line.

*Implicit*: a node is a line; child i of node j is node `j * fanout + i` of the next level. With `fanout` `per_line + 1`
all words of a node are separators (the CPU alone); with `per_line` the last word is the largest (devices too).

*Regular*: a node is an index line (the last key of each key line), `per_line` lines of keys and `per_line` lines of
children: 17 lines of 64-bit words, 33 of 32-bit words, fan-out 64 or 256. Nodes of the upper levels are numbered in one
pool, the root is 0; they lie first in `nodes`. Nodes of the last level have no children's lines: last-level node i
belongs to big leaf i, whose line is `i * fanout + slot`. They lie behind the upper ones, from word `last` on, and are
numbered from 0. A big leaf has as many lines as its node has keys: 64, or 256 with 32-bit words, where the paper's 64
would leave three quarters of the node empty. In a node that is not full, and in the last of all, the separator of the
last child is the largest word. Limits: 2**31 keys, so that positions and node numbers fit 32 bits everywhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from millrace.host.base.types import Array

LINE = 64
"""Bytes of a node of the implicit layout, and of a leaf line."""
MOST_KEYS = 1 << 31
LayoutName = Literal["implicit", "regular"]
LAYOUTS: tuple[LayoutName, ...] = ("implicit", "regular")


@dataclass(frozen=True)
class Shape:
    """The sizes of a tree: `counts[l]` is how many nodes level l has, the leaf lines last."""

    layout: LayoutName
    word: np.dtype[Any]
    size: int
    fanout: int
    per_leaf: int
    counts: tuple[int, ...]

    @property
    def per_line(self) -> int:
        """Words of a line."""
        return LINE // self.word.itemsize

    @property
    def levels(self) -> int:
        """How many inner levels."""
        return len(self.counts) - 1

    @property
    def lines(self) -> int:
        """How many leaf lines."""
        return self.counts[-1]

    @property
    def upper_stride(self) -> int:
        """Words of an upper node of the regular layout; of any node of the implicit one."""
        return self.per_line if self.layout == "implicit" else (1 + 2 * self.per_line) * self.per_line

    @property
    def last_stride(self) -> int:
        """Words of a node of the last inner level."""
        return self.per_line if self.layout == "implicit" else (1 + self.per_line) * self.per_line

    @property
    def last(self) -> int:
        """The word in `nodes` where the last inner level begins."""
        return sum(self.counts[:-2]) * self.upper_stride

    @property
    def node_words(self) -> int:
        """All words of the I-segment."""
        return self.last + self.counts[-2] * self.last_stride

    @property
    def offsets(self) -> Array:
        """The first node of each inner level, in nodes from the top (uint32)."""
        return np.cumsum([0, *self.counts[:-2]]).astype(np.uint32)


def shape_of(layout: LayoutName, word: np.dtype[Any], size: int, hybrid: bool, per_leaf: int | None = None) -> Shape:
    """The shape of a tree of so many keys; a `hybrid` one is walked by devices too.

    `per_leaf`: words of a leaf line, by default as many as fit.
    """
    per_line = LINE // word.itemsize
    implicit = per_line if hybrid else per_line + 1
    fanout = implicit if layout == "implicit" else per_line * per_line
    words = per_leaf or per_line
    counts = [max(-(-size // words), 1)]
    while len(counts) == 1 or counts[0] > 1:
        counts.insert(0, -(-counts[0] // fanout))
    return Shape(layout, word, size, fanout, words, tuple(counts))
