"""`T_S`, the immutable B+-tree of PIM-Tree (section 3.1): sorted words, and inner levels without child references.

The layout is that of the implicit HB+-Tree (thesis, appendix A, 4.1): a node is one cache line, and child i of node n
has number `n * words_per_line + i`. Word i of a level is the last word of line i below it; the last one, and those
without a child, are the largest word, so a search never leaves the tree. Kernels build the tree in memory that the
caller owns: workers merge without leaving compiled code. Entries are a word and an id, a position relative to `BASE`.
Limit: 2**32 positions between the oldest and the newest entry.
"""

from __future__ import annotations

from enum import auto
from typing import Any

import numpy as np

from millrace.host.base.types import Array
from millrace.host.runtime.allocator import allocate
from millrace.host.runtime.intrinsics import (
    address,
    fill_bytes,
    line_below,
    load,
    load_as,
    prefetch,
    size_of,
    store,
    store_as,
)
from millrace.host.runtime.jit import inline, kernel
from millrace.host.runtime.kernel_args import KernelArgs, in_own_lines

LINE = 64
"""Bytes of a cache line, which is a node."""
MAX_LEVELS = 12


class Static(KernelArgs):
    """The table of a tree; from `LEVEL` on the addresses of the inner levels from the top, then that of the words."""

    WORDS = auto()
    IDS = auto()
    SIZE = auto()
    BASE = auto()
    LINES = auto()
    LEVELS = auto()
    NODES = auto()
    CAPACITY = auto()
    LEVEL = auto()


@inline
def largest(like: Any) -> Any:
    """The largest word of a type."""
    return type(like)(~type(like)(0))


@kernel
def build_levels(tree: int, size: int, like: Any) -> None:
    """Pad the last line of `size` sorted words, and write the inner levels into the memory at `NODES`."""
    per_line, item = LINE // size_of(like), size_of(like)
    words = load(tree, Static.WORDS)
    lines = max((size + per_line - 1) // per_line, 1)
    fill_bytes(words + item * size, item * (lines * per_line - size))
    levels, count = 0, lines
    while count > 1:
        count = (count + per_line - 1) // per_line
        levels += 1
    store(tree, Static.SIZE, size)
    store(tree, Static.LINES, lines)
    store(tree, Static.LEVELS, levels)
    store(tree, Static.LEVEL + levels, words)
    below, out = lines, load(tree, Static.NODES)
    for level in range(levels - 1, -1, -1):
        source = load(tree, Static.LEVEL + level + 1)
        count = (below + per_line - 1) // per_line
        for i in range(count * per_line):
            last = i >= below - 1
            store_as(out, i, largest(like) if last else load_as(source, i * per_line + per_line - 1, like))
        store(tree, Static.LEVEL + level, out)
        out += count * LINE
        below = count


@inline
def descend(tree: int, first: int, stop: int, keys: int, nodes: int, count: int, like: Any) -> None:
    """Walk a group of keys from level `first` to level `stop`. Each step prefetches the lines of the next one.

    `nodes` holds the numbers of the nodes; level `LEVELS` is the lines of words.
    """
    per_line = LINE // size_of(like)
    for level in range(first, stop):
        base, below = load(tree, Static.LEVEL + level), load(tree, Static.LEVEL + level + 1)
        for j in range(count):
            node = load(nodes, j)
            child = node * per_line + line_below(base + LINE * node, load_as(keys, j, like))
            store(nodes, j, child)
            prefetch(below + LINE * child)


@inline
def find_ranks(tree: int, keys: int, nodes: int, count: int, like: Any) -> None:
    """Replace line numbers by ranks: how many words are below the key. Prefetches the ids from there."""
    per_line = LINE // size_of(like)
    words, ids = load(tree, Static.WORDS), load(tree, Static.IDS)
    for j in range(count):
        line = load(nodes, j)
        rank = line * per_line + line_below(words + LINE * line, load_as(keys, j, like))
        store(nodes, j, rank)
        prefetch(ids + 4 * rank)


def node_words(size: int, word: np.dtype[Any]) -> int:
    """The words of all inner levels over `size` words."""
    per_line = LINE // word.itemsize
    lines, total = max(-(-size // per_line), 1), 0
    while lines > 1:
        lines = -(-lines // per_line)
        total += lines * per_line
    return total


class StaticTree:
    """The arrays of a tree and their table."""

    def __init__(self, word: np.dtype[Any], capacity: int, base: int = 0) -> None:
        """An empty tree with memory for `capacity` entries."""
        self.word = word
        self.words = allocate(capacity + LINE // word.itemsize, word)
        self.ids = allocate(capacity + 1, np.uint32)
        self._nodes = allocate(max(node_words(capacity, word), 1), word)
        self.table = in_own_lines(np.zeros(Static.LEVEL + MAX_LEVELS, np.int64))
        self.table[: Static.LEVEL] = Static.partly(
            WORDS=self.words, IDS=self.ids, NODES=self._nodes, BASE=base, CAPACITY=capacity
        )[:-1]
        self.finish(0)

    def finish(self, size: int) -> None:
        """Build the inner levels over the first `size` entries, which are sorted."""
        build_levels(address(self.table), size, self.word.type(0))

    @staticmethod
    def of(words: Array, positions: Array, base: int) -> StaticTree:
        """A tree of words in any order."""
        tree = StaticTree(words.dtype, len(words), base)
        order = np.argsort(words, kind="stable")
        tree.words[: len(words)] = words[order]
        tree.ids[: len(words)] = positions[order] - base
        tree.finish(len(words))
        return tree

    @property
    def base(self) -> int:
        """The position of id 0."""
        return int(self.table[Static.BASE])

    def __len__(self) -> int:
        """The number of entries."""
        return int(self.table[Static.SIZE])

    @property
    def nbytes(self) -> int:
        """Bytes of words, ids and inner levels."""
        return int(self.words.nbytes + self.ids.nbytes + self._nodes.nbytes)
