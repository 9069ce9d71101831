"""A directory that maps a word to the node of a deep level where its search starts, so that upper levels are skipped.

Upper levels are in the caches, so walking them costs no memory traffic, but most of a lookup's instructions (the
paper's tree has no such directory). The words between the first and the last separator of the start level are divided
into *entries* of equal width. Entry e holds the number of separators in all entries before it, so a word of entry e
belongs to one of the nodes `directory[e] .. directory[e + 1]`. That is usually one node; otherwise the search compares
the separators between them, which are stored in an array of their own. If an entry has more than
`MAX_NODES_PER_ENTRY` nodes, its block of queries walks from the root. If this would happen often, because the keys are
very uneven, the tree has no directory.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from millrace.host.base.types import Array
from millrace.host.hbtree.layout import Shape

ENTRIES = 8
"""Entries per node of the start level: about one word in `ENTRIES` falls into an entry with two nodes."""
MAX_NODES_PER_ENTRY = 8
"""Maximum number of nodes per entry whose separators are compared one by one."""
MIN_NODES = 16
"""Minimum number of nodes of the start level: a smaller level is in the L1 cache and quick to walk."""


@dataclass(frozen=True)
class StartDirectory:
    """The directory of a level: a word's entry is `min(max(word, base) - base >> shift, max_offset) * scale >> 32`."""

    level: int
    base: int
    shift: int
    max_offset: int
    scale: int
    directory: Array
    separators: Array
    order: Array | None
    """The node numbers (uint32) in key order, unless they are 0, 1, …"""

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        order = 0 if self.order is None else self.order.nbytes
        return int(self.directory.nbytes + self.separators.nbytes + order)


def separators_of(shape: Shape, nodes: Array, level: int) -> Array:
    """The separators between the nodes of a level in key order: those inside parents and those between parents."""
    item_words, begin = shape.upper_stride, 0
    first_key = 0 if shape.layout == "implicit" else shape.per_line
    found = nodes[:0]
    for above in range(level):
        count = shape.counts[above]
        keys = nodes[begin : begin + count * item_words].reshape(count, item_words)[:, first_key:]
        inside = np.empty((count, shape.fanout), nodes.dtype)
        inside[:, :-1] = keys[:, : shape.fanout - 1]
        inside[:-1, -1] = found
        found = inside.reshape(-1)[: shape.counts[above + 1] - 1]
        begin += count * item_words
    return np.ascontiguousarray(found)


def make_directory(shape: Shape, nodes: Array) -> StartDirectory | None:
    """The directory over a tree's I-segment, or None if it would not help."""
    level = shape.levels - (2 if shape.layout == "implicit" else 1)
    return None if level < 1 else directory_of(separators_of(shape, nodes, level), level)


def directory_of(separators: Array, level: int, order: Array | None = None) -> StartDirectory | None:
    """The directory of a level with these separators between its nodes; `order`: node numbers, if not 0, 1, …"""
    if len(separators) + 1 < MIN_NODES or separators[0] == separators[-1]:
        return None
    base, span = int(separators[0]), int(separators[-1]) - int(separators[0])
    entries, shift = ENTRIES * (len(separators) + 1), max(span.bit_length() - 32, 0)
    max_offset = span >> shift
    scale = (entries << 32) // (max_offset + 1)
    offsets = (separators - separators.dtype.type(base)) >> separators.dtype.type(shift)
    held = np.bincount(((offsets.astype(np.uint64) * np.uint64(scale)) >> np.uint64(32)).astype(np.int64))
    if held[held > MAX_NODES_PER_ENTRY].sum() > len(separators) // 2:
        return None
    directory = np.full(entries + 1, len(separators), np.uint32)
    directory[0] = 0
    np.cumsum(held, out=directory[1 : len(held) + 1])
    return StartDirectory(level, base, shift, max_offset, scale, directory, separators, order)
