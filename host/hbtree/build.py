"""Builds an HB+-Tree from sorted keys, every level by all threads (thesis, appendix A, 4.1).

A separator is the largest word below its child, which is the last word of a leaf line whose number is known from the
layout: no level waits for another, and every node is written once. Nodes of the last inner level are written along
with the leaf lines below them, so that the L-segment is not read again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from millrace.host.base.types import Array
from millrace.host.hbtree.layout import LINE, Shape, shape_of
from millrace.host.hbtree.leaves import DISTINCT, Leaves, empty_leaves, fill_lines, filling, largest
from millrace.host.runtime.huge_pages import huge_array
from millrace.host.runtime.intrinsics import address, load_as, size_of, store_as, table
from millrace.host.runtime.jit import inline, share
from millrace.host.runtime.team import Team

SLICE = 1 << 13
"""Separators that one thread writes at a time, about; leaf lines that it fills."""
FEW = 1 << 9
"""Leaf lines, about, that are filled before the nodes above them are written: they stay in the nearest caches."""
(_LEAVES, _STRIDE, _LINES, _FANOUT, _SPAN, _COUNT, _BELOW, _OUT, _NODE_WORDS, _FIRST_CHILD, _LAST_WORD, _REGULAR) = (
    range(12)
)
_FILLING, _ABOVE, _VERDICTS, _PER_NODE, _ALL_LINES, _ALL_NODES = range(6)


@inline
def _separator(given: int, child: int, like: Any) -> Any:
    """The largest word below a child; the largest of all below the last one, and where there is none."""
    if child >= load_as(given, _BELOW, 0) - 1:
        return largest(like)
    line = (child + 1) * load_as(given, _SPAN, 0) - 1
    where = load_as(given, _LEAVES, 0) + line * load_as(given, _STRIDE, 0)
    return load_as(where, load_as(given, _LAST_WORD, 0), like)


@inline
def _implicit_nodes(given: int, first: int, stop: int, like: Any) -> None:
    """Some nodes of a level: one line each."""
    fanout, per_line = load_as(given, _FANOUT, 0), LINE // size_of(like)
    out = load_as(given, _OUT, 0)
    for node in range(first, stop):
        for i in range(per_line):
            # With as many children as words, the last word stays the largest: no query is above it.
            beyond = i == fanout - 1
            word = largest(like) if beyond else _separator(given, node * fanout + i, like)
            store_as(out, node * per_line + i, word)


@inline
def _regular_nodes(given: int, first: int, stop: int, like: Any) -> None:
    """Some nodes of a level: index line, key lines and, above the last inner level, children's lines."""
    fanout, per_line = load_as(given, _FANOUT, 0), LINE // size_of(like)
    first_child, words = load_as(given, _FIRST_CHILD, 0), load_as(given, _NODE_WORDS, 0)
    below = load_as(given, _BELOW, 0)
    for node in range(first, stop):
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


@inline
def _nodes(given: int, first: int, stop: int, like: Any) -> None:
    """Some nodes of a level, of either layout."""
    if load_as(given, _REGULAR, 0) != 0:
        _regular_nodes(given, first, stop, like)
    else:
        _implicit_nodes(given, first, stop, like)


@inline
def _level(given: int, part: int, parts: int, like: Any) -> None:
    """A part of the nodes of a level."""
    count = load_as(given, _COUNT, 0)
    _nodes(given, count * part // parts, count * (part + 1) // parts, like)


@inline
def _bottom(given: int, part: int, parts: int, like: Any) -> None:
    """A part of the last inner level, each few nodes right after their lines were filled, while those are at hand."""
    level, filling_given = load_as(given, _ABOVE, 0), load_as(given, _FILLING, 0)
    fanout, lines, count = load_as(given, _PER_NODE, 0), load_as(given, _ALL_LINES, 0), load_as(given, _ALL_NODES, 0)
    few, stop = max(FEW // fanout, 1), count * (part + 1) // parts
    known = DISTINCT
    for first in range(count * part // parts, stop, few):
        last = min(first + few, stop)
        known = min(known, fill_lines(filling_given, first * fanout, min(last * fanout, lines), like))
        if level != 0:
            _nodes(level, first, last, like)
    store_as(load_as(given, _VERDICTS, 0), part, known)


@share
def _level_32(given: int, part: int, parts: int) -> None:
    _level(given, part, parts, np.uint32(0))


@share
def _level_64(given: int, part: int, parts: int) -> None:
    _level(given, part, parts, np.uint64(0))


@share
def _bottom_32(given: int, part: int, parts: int) -> None:
    _bottom(given, part, parts, np.uint32(0))


@share
def _bottom_64(given: int, part: int, parts: int) -> None:
    _bottom(given, part, parts, np.uint64(0))


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


def _level_table(shape: Shape, leaves: Lines, nodes: Array, level: int) -> Array:
    """What the kernels know of a level."""
    last = level == shape.levels - 1
    # Upper nodes are numbered in one pool; nodes of the last inner level from 0.
    first_child = -1 if last else 0 if level == shape.levels - 2 else sum(shape.counts[: level + 1])
    return table(
        leaves.data,
        *(leaves.stride, shape.lines, shape.fanout, shape.fanout ** (shape.levels - 1 - level)),
        *(shape.counts[level], shape.counts[level + 1]),
        address(nodes) + level_starts(shape)[level] * shape.word.itemsize,
        *(shape.last_stride if last else shape.upper_stride, first_child, leaves.per_leaf - 1),
        int(shape.layout == "regular"),
    )


def _run_levels(shape: Shape, leaves: Lines, nodes: Array, levels: range, team: Team) -> None:
    """Write whole levels over leaves that are filled."""
    for level in levels:
        given = _level_table(shape, leaves, nodes, level)
        parts = max(shape.counts[level] * shape.fanout // SLICE, 1)
        team.run(_level_64 if shape.word.itemsize == 8 else _level_32, given, parts)


def build_nodes(shape: Shape, leaves: Lines, team: Team, spare: int = 0) -> Array:
    """The I-segment over leaves that are filled already, with `spare` words behind it."""
    nodes = huge_array(shape.node_words + spare, shape.word)
    _run_levels(shape, leaves, nodes, range(shape.levels), team)
    return nodes


@dataclass(frozen=True)
class Built:
    """Leaves, the I-segment if it was wanted, and what is known of the keys' order: if `UNSORTED`, it is of no use."""

    leaves: Leaves
    nodes: Array | None
    known: int


def build(raw: Array, flip: int, values: Array | None, hybrid: bool | None, team: Team) -> Built:
    """Build from keys as unsigned numbers, made words by flipping bits, and the values to lie beside them.

    `hybrid`: an implicit tree of the fan-out that devices walk too, or of the other; nothing: the leaves alone.
    """
    leaves = empty_leaves(raw.dtype, len(raw), 0 if values is None else values.dtype.itemsize)
    shape = shape_of("implicit", leaves.word, leaves.size, bool(hybrid), leaves.per_leaf)
    if leaves.size == 0:
        return Built(leaves, None if hybrid is None else build_nodes(shape, leaves, team), DISTINCT)
    parts = max(shape.lines // SLICE, 1)
    verdicts, nodes, above = np.zeros(parts, np.int64), None, np.zeros(0, np.int64)
    if hybrid is not None:
        nodes = huge_array(shape.node_words, shape.word)
        above = _level_table(shape, leaves, nodes, shape.levels - 1)
    fill_table = filling(leaves, raw, flip, values)
    given = table(*(fill_table, above if len(above) else 0, verdicts), *(shape.fanout, shape.lines, shape.counts[-2]))
    team.run(_bottom_64 if shape.word.itemsize == 8 else _bottom_32, given, parts)
    if nodes is not None:
        _run_levels(shape, leaves, nodes, range(shape.levels - 1), team)
    return Built(leaves, nodes, int(verdicts.min()))


def fill(raw: Array, flip: int, values: Array | None, team: Team) -> tuple[Leaves, int]:
    """`build` of the leaves alone, and what is known of the keys' order."""
    built = build(raw, flip, values, None, team)
    return built.leaves, built.known
