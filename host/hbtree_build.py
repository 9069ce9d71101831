"""Builds the I-segment of an HB+-Tree over filled leaves, every level by all threads (thesis, appendix A, 4.1).

A separator is the largest word below its child, which is the last word of a leaf line whose number is known from the
layout: no level waits for another, and every node is written once.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from millrace.host.bisort_prober import size_of
from millrace.host.hbtree_layout import LINE, Shape
from millrace.host.hbtree_leaves import largest
from millrace.host.huge import huge_array
from millrace.host.jit import inline, share
from millrace.host.memory import address, load_as, store_as, table
from millrace.host.team import Team
from millrace.host.words import Array

SLICE = 1 << 13
"""Separators that one thread writes at a time, about."""
_LEAVES, _STRIDE, _LINES, _FANOUT, _SPAN, _NODES, _COUNT, _BELOW, _OUT, _NODE_WORDS, _FIRST_CHILD, _LAST_WORD = range(
    12
)


@inline
def _separator(given: int, child: int, like: Any) -> Any:
    """The largest word below a child; the largest of all below the last one, and where there is none."""
    if child >= load_as(given, _BELOW, 0) - 1:
        return largest(like)
    line = (child + 1) * load_as(given, _SPAN, 0) - 1
    where = load_as(given, _LEAVES, 0) + line * load_as(given, _STRIDE, 0)
    return load_as(where, load_as(given, _LAST_WORD, 0), like)


@inline
def _implicit_nodes(given: int, part: int, parts: int, like: Any) -> None:
    """Some nodes of a level: one line each."""
    count, fanout, per_line = load_as(given, _COUNT, 0), load_as(given, _FANOUT, 0), LINE // size_of(like)
    out = load_as(given, _OUT, 0)
    for node in range(count * part // parts, count * (part + 1) // parts):
        for i in range(per_line):
            # With as many children as words, the last word stays the largest: no query is above it.
            beyond = i == fanout - 1
            word = largest(like) if beyond else _separator(given, node * fanout + i, like)
            store_as(out, node * per_line + i, word)


@inline
def _regular_nodes(given: int, part: int, parts: int, like: Any) -> None:
    """Some nodes of a level: index line, key lines and, above the last inner level, children's lines."""
    count, fanout, per_line = load_as(given, _COUNT, 0), load_as(given, _FANOUT, 0), LINE // size_of(like)
    first_child, words = load_as(given, _FIRST_CHILD, 0), load_as(given, _NODE_WORDS, 0)
    below = load_as(given, _BELOW, 0)
    for node in range(count * part // parts, count * (part + 1) // parts):
        out = load_as(given, _OUT, 0) + node * words * size_of(like)
        for slot in range(fanout):
            child = node * fanout + slot
            # The last child of a node takes whatever comes so far: its parent's separator has seen to the rest.
            last = slot == fanout - 1
            word = largest(like) if last else _separator(given, child, like)
            store_as(out, per_line + slot, word)
            if slot % per_line == per_line - 1:
                store_as(out, slot // per_line, word)
            if first_child >= 0:
                store_as(out, per_line + fanout + slot, type(like)(first_child + min(child, below - 1)))


@share
def _implicit_32(given: int, part: int, parts: int) -> None:
    _implicit_nodes(given, part, parts, np.uint32(0))


@share
def _implicit_64(given: int, part: int, parts: int) -> None:
    _implicit_nodes(given, part, parts, np.uint64(0))


@share
def _regular_32(given: int, part: int, parts: int) -> None:
    _regular_nodes(given, part, parts, np.uint32(0))


@share
def _regular_64(given: int, part: int, parts: int) -> None:
    _regular_nodes(given, part, parts, np.uint64(0))


_SHARES = {
    ("implicit", 4): _implicit_32,
    ("implicit", 8): _implicit_64,
    ("regular", 4): _regular_32,
    ("regular", 8): _regular_64,
}


def level_starts(shape: Shape) -> list[int]:
    """The word of `nodes` where each inner level begins."""
    uppers = np.cumsum([0, *shape.counts[:-2]]) * shape.upper_stride
    return [int(word) for word in uppers]


class Lines(Protocol):
    """Filled leaf lines: all but the last hold `per_leaf` words, whatever room they have."""

    @property
    def data(self) -> Array:
        """Their memory."""

    @property
    def stride(self) -> int:
        """Bytes from a line to the next."""

    @property
    def per_leaf(self) -> int:
        """Words of a line."""


def build_nodes(shape: Shape, leaves: Lines, team: Team, spare: int = 0) -> Array:
    """The I-segment, with `spare` words behind it."""
    nodes = huge_array(shape.node_words + spare, shape.word)
    starts, pool = level_starts(shape), 0
    for level in range(shape.levels):
        count, below = shape.counts[level], shape.counts[level + 1]
        last = level == shape.levels - 1
        pool += count
        # Upper nodes are numbered in one pool; nodes of the last inner level from 0.
        first_child = -1 if last else 0 if level == shape.levels - 2 else pool
        given = table(
            leaves.data,
            *(leaves.stride, shape.lines, shape.fanout, shape.fanout ** (shape.levels - 1 - level)),
            *(0, count, below, address(nodes) + starts[level] * shape.word.itemsize),
            *(shape.last_stride if last else shape.upper_stride, first_child, leaves.per_leaf - 1),
        )
        parts = max(count * shape.fanout // SLICE, 1)
        team.run(_SHARES[shape.layout, shape.word.itemsize], given, parts)
    return nodes
