"""The memory layout of an HB+-Tree: number of nodes per level and their offsets (thesis, appendix A, 4.1 and 5.2).

Everything is in lines of 64 bytes: 8 words of 64 bits or 16 of 32 (`per_line`). The L-segment holds the sorted words,
`per_leaf` in each line (half a line if values share it, see `leaves.py`); the last line is padded with the largest
word. The I-segment holds the inner levels, the top one first. A search in a node finds the *minimum* i with
query <= separator i (the paper says maximum, which is wrong). A separator is the largest word below its child. Unused
slots, and the separator of the last child of a level, hold the largest word, so a search always ends at an existing
child. There is always at least one inner level and one leaf line.

*Implicit*: a node is a line; child i of node j is node `j * fanout + i` of the next level. With `fanout` `per_line + 1`
all words of a node are separators (CPU only); with `per_line` the last word is the largest (also for devices).

*Regular*: a node is an index line (the last key of each key line), `per_line` lines of keys and `per_line` lines of
children: 17 lines of 64-bit words, 33 of 32-bit words, fan-out 64 or 256. Nodes of the upper levels share one pool and
its numbering, the root is 0; they come first in `nodes`. Nodes of the last level have no child lines: last-level node i
belongs to big leaf i, whose lines are `i * fanout + slot`. They follow the upper nodes, from word `last` on, and are
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
MAX_KEYS = 1 << 31
LayoutName = Literal["implicit", "regular"]
LAYOUTS: tuple[LayoutName, ...] = ("implicit", "regular")


@dataclass(frozen=True)
class Shape:
    """The sizes of a tree: `counts[l]` is the number of nodes of level l, the leaf lines last."""

    layout: LayoutName
    word: np.dtype[Any]
    size: int
    fanout: int
    per_leaf: int
    counts: tuple[int, ...]

    @property
    def per_line(self) -> int:
        """Words per line."""
        return LINE // self.word.itemsize

    @property
    def levels(self) -> int:
        """Number of inner levels."""
        return len(self.counts) - 1

    @property
    def lines(self) -> int:
        """Number of leaf lines."""
        return self.counts[-1]

    @property
    def upper_stride(self) -> int:
        """Words of an upper node of the regular layout, or of any node of the implicit one."""
        return self.per_line if self.layout == "implicit" else (1 + 2 * self.per_line) * self.per_line

    @property
    def last_stride(self) -> int:
        """Words of a node of the last inner level."""
        return self.per_line if self.layout == "implicit" else (1 + self.per_line) * self.per_line

    @property
    def last(self) -> int:
        """The index in `nodes` of the first word of the last inner level."""
        return sum(self.counts[:-2]) * self.upper_stride

    @property
    def node_words(self) -> int:
        """Number of words of the I-segment."""
        return self.last + self.counts[-2] * self.last_stride

    @property
    def offsets(self) -> Array:
        """The first node of each inner level, in nodes from the top (uint32)."""
        return np.cumsum([0, *self.counts[:-2]]).astype(np.uint32)


def shape_of(layout: LayoutName, word: np.dtype[Any], size: int, hybrid: bool, per_leaf: int | None = None) -> Shape:
    """The shape of a tree of `size` keys; devices can walk a `hybrid` one too.

    `per_leaf`: words of a leaf line (default: as many as fit).
    """
    per_line = LINE // word.itemsize
    implicit = per_line if hybrid else per_line + 1
    fanout = implicit if layout == "implicit" else per_line * per_line
    words = per_leaf or per_line
    counts = [max(-(-size // words), 1)]
    while len(counts) == 1 or counts[0] > 1:
        counts.insert(0, -(-counts[0] // fanout))
    return Shape(layout, word, size, fanout, words, tuple(counts))


def level_starts(shape: Shape) -> list[int]:
    """The index in `nodes` of the first word of each inner level."""
    uppers = np.cumsum([0, *shape.counts[:-2]]) * shape.upper_stride
    return [int(word) for word in uppers]
