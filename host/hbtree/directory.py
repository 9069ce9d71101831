"""Where a query may start in an HB+-Tree: a directory over the words that leads past the upper inner levels.

Walking the upper levels costs no memory traffic, they are in the caches, but it is most of a lookup's instructions
(the paper's tree has no such directory). Words between the first and the last separator of the start level are cut into
equal *entries*; entry e holds how many separators lie in entries before it, so a word of entry e belongs to node
`directory[e] .. directory[e + 1]` of that level: one node as a rule, else the separators between, side by side in an
array of their own, decide. Where keys are so uneven that an entry has more than `FEW` nodes, the block of queries
walks from the root, and where that would happen often there is no directory at all.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from millrace.host.base.types import Array
from millrace.host.hbtree.layout import Shape

ENTRIES = 8
"""Entries per node of the start level: about one word in so many meets an entry with two nodes."""
FEW = 8
"""Nodes up to which the separators of an entry are tried one after the other."""
LEAST = 16
"""Nodes that the start level has at least: fewer are in the nearest cache, and walked quickly."""


@dataclass(frozen=True)
class Starts:
    """The directory of a level: a word's entry is `min(max(word, base) - base >> shift, most) * scale >> 32`."""

    level: int
    base: int
    shift: int
    most: int
    scale: int
    directory: Array
    separators: Array
    order: Array | None
    """The nodes' numbers (uint32), where they do not follow each other."""

    @property
    def nbytes(self) -> int:
        """Bytes that it takes."""
        order = 0 if self.order is None else self.order.nbytes
        return int(self.directory.nbytes + self.separators.nbytes + order)


def separators_of(shape: Shape, nodes: Array, level: int) -> Array:
    """The separators between the nodes of a level, in order: those inside parents, and those between parents."""
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


def make_starts(shape: Shape, nodes: Array) -> Starts | None:
    """The directory over a tree's I-segment, or nothing where it would not help."""
    level = shape.levels - (2 if shape.layout == "implicit" else 1)
    return None if level < 1 else directory_of(separators_of(shape, nodes, level), level)


def directory_of(separators: Array, level: int, order: Array | None = None) -> Starts | None:
    """The directory of a level between whose nodes lie these separators; `order`: the nodes' numbers, if not 0, 1, …"""
    if len(separators) + 1 < LEAST or separators[0] == separators[-1]:
        return None
    base, span = int(separators[0]), int(separators[-1]) - int(separators[0])
    entries, shift = ENTRIES * (len(separators) + 1), max(span.bit_length() - 32, 0)
    most = span >> shift
    scale = (entries << 32) // (most + 1)
    offsets = (separators - separators.dtype.type(base)) >> separators.dtype.type(shift)
    held = np.bincount(((offsets.astype(np.uint64) * np.uint64(scale)) >> np.uint64(32)).astype(np.int64))
    if held[held > FEW].sum() > len(separators) // 2:
        return None
    directory = np.full(entries + 1, len(separators), np.uint32)
    directory[0] = 0
    np.cumsum(held, out=directory[1 : len(held) + 1])
    return Starts(level, base, shift, most, scale, directory, separators, order)
