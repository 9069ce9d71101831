"""Builds an HB+-Tree from sorted keys, each level with all threads (thesis, appendix A, 4.1).

A separator is the largest word below its child: the last word of a leaf line whose number follows from the layout.
So no level depends on another, and each node is written once. Nodes of the last inner level are written together
with the leaf lines below them, so that the L-segment is not read a second time. Limit: 2**31 keys (`layout.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import auto
from typing import Any, Protocol

import numpy as np

from millrace.host.base.faults import fault_point
from millrace.host.base.types import Array
from millrace.host.hbtree import plain
from millrace.host.hbtree.layout import LINE, Shape, level_starts, shape_of
from millrace.host.hbtree.leaves import DISTINCT, Leaves, empty_leaves, fill_arguments, fill_lines, largest
from millrace.host.runtime.allocator import huge_array
from millrace.host.runtime.intrinsics import address, load, load_as, size_of, store_as
from millrace.host.runtime.jit import inline, share
from millrace.host.runtime.kernel_args import KernelArgs
from millrace.host.runtime.team import Team

SLICE = 1 << 13
"""Approximate number of separators that a thread writes per task, or of leaf lines that it fills."""
LINES_AT_ONCE = 1 << 9
"""Approximate number of leaf lines filled before the nodes above them are written: they stay in the L1/L2 caches."""


class _Level(KernelArgs):
    """The arguments that describe an inner level."""

    LEAVES = auto()
    STRIDE = auto()
    LINES = auto()
    FANOUT = auto()
    SPAN = auto()
    COUNT = auto()
    BELOW = auto()
    OUT = auto()
    NODE_WORDS = auto()
    FIRST_CHILD = auto()
    LAST_WORD = auto()
    REGULAR = auto()


class _Bottom(KernelArgs):
    """The arguments of the leaves and the level above them."""

    FILLING = auto()
    ABOVE = auto()
    VERDICTS = auto()
    PER_NODE = auto()
    ALL_LINES = auto()
    ALL_NODES = auto()


@inline
def _separator(args: int, child: int, like: Any) -> Any:
    """The largest word below a child; the maximum of the type for the last child and for missing children."""
    if child >= load(args, _Level.BELOW) - 1:
        return largest(like)
    line = (child + 1) * load(args, _Level.SPAN) - 1
    where = load(args, _Level.LEAVES) + line * load(args, _Level.STRIDE)
    return load_as(where, load(args, _Level.LAST_WORD), like)


@inline
def _implicit_nodes(args: int, first: int, stop: int, like: Any) -> None:
    """Write some nodes of a level, one line each."""
    fanout, per_line = load(args, _Level.FANOUT), LINE // size_of(like)
    out = load(args, _Level.OUT)
    for node in range(first, stop):
        for i in range(per_line):
            # With as many children as words, the last word is the maximum of the type: no query is larger.
            beyond = i == fanout - 1
            word = largest(like) if beyond else _separator(args, node * fanout + i, like)
            store_as(out, node * per_line + i, word)


@inline
def _regular_nodes(args: int, first: int, stop: int, like: Any) -> None:
    """Write some nodes of a level: index line, key lines and, above the last inner level, child lines."""
    fanout, per_line = load(args, _Level.FANOUT), LINE // size_of(like)
    first_child, words = load(args, _Level.FIRST_CHILD), load(args, _Level.NODE_WORDS)
    below = load(args, _Level.BELOW)
    for node in range(first, stop):
        out = load(args, _Level.OUT) + node * words * size_of(like)
        for slot in range(fanout):
            child = node * fanout + slot
            # The last child needs no separator of its own: the parent's separator already bounds its words.
            last = slot == fanout - 1
            word = largest(like) if last else _separator(args, child, like)
            store_as(out, per_line + slot, word)
            if slot % per_line == per_line - 1:
                store_as(out, slot // per_line, word)
            if first_child >= 0:
                store_as(out, per_line + fanout + slot, type(like)(first_child + min(child, below - 1)))


@inline
def _nodes(args: int, first: int, stop: int, like: Any) -> None:
    """Write some nodes of a level, of either layout."""
    if load(args, _Level.REGULAR) != 0:
        _regular_nodes(args, first, stop, like)
    else:
        _implicit_nodes(args, first, stop, like)


@inline
def _level(args: int, part: int, parts: int, like: Any) -> None:
    """Write one part of the nodes of a level."""
    count = load(args, _Level.COUNT)
    _nodes(args, count * part // parts, count * (part + 1) // parts, like)


@inline
def _bottom(args: int, part: int, parts: int, like: Any) -> None:
    """Write one part of the last inner level: some leaf lines, then the nodes above them while the lines are cached."""
    level, fill_args = load(args, _Bottom.ABOVE), load(args, _Bottom.FILLING)
    fanout, lines, count = load(args, _Bottom.PER_NODE), load(args, _Bottom.ALL_LINES), load(args, _Bottom.ALL_NODES)
    step, stop = max(LINES_AT_ONCE // fanout, 1), count * (part + 1) // parts
    known = DISTINCT
    for first in range(count * part // parts, stop, step):
        last = min(first + step, stop)
        known = min(known, fill_lines(fill_args, first * fanout, min(last * fanout, lines), like))
        if level != 0:
            _nodes(level, first, last, like)
    store_as(load(args, _Bottom.VERDICTS), part, known)


@share
def _level_32(args: int, part: int, parts: int) -> None:
    _level(args, part, parts, np.uint32(0))


@share
def _level_64(args: int, part: int, parts: int) -> None:
    _level(args, part, parts, np.uint64(0))


@share
def _bottom_32(args: int, part: int, parts: int) -> None:
    _bottom(args, part, parts, np.uint32(0))


@share
def _bottom_64(args: int, part: int, parts: int) -> None:
    _bottom(args, part, parts, np.uint64(0))


class FilledLines(Protocol):
    """Filled leaf lines: all but the last hold `per_leaf` words, which may be less than their capacity."""

    @property
    def data(self) -> Array:
        """The memory of the lines."""

    @property
    def stride(self) -> int:
        """Bytes from a line to the next."""

    @property
    def per_leaf(self) -> int:
        """Words of a line."""


def _level_table(shape: Shape, leaves: FilledLines, nodes: Array, level: int) -> Array:
    """The kernel arguments that describe a level."""
    last = level == shape.levels - 1
    # Upper nodes share one numbering; nodes of the last inner level are numbered from 0.
    first_child = -1 if last else 0 if level == shape.levels - 2 else sum(shape.counts[: level + 1])
    return _Level.pack(
        LEAVES=leaves.data,
        STRIDE=leaves.stride,
        LINES=shape.lines,
        FANOUT=shape.fanout,
        SPAN=shape.fanout ** (shape.levels - 1 - level),
        COUNT=shape.counts[level],
        BELOW=shape.counts[level + 1],
        OUT=address(nodes) + level_starts(shape)[level] * shape.word.itemsize,
        NODE_WORDS=shape.last_stride if last else shape.upper_stride,
        FIRST_CHILD=first_child,
        LAST_WORD=leaves.per_leaf - 1,
        REGULAR=int(shape.layout == "regular"),
    )


def _run_levels(shape: Shape, leaves: FilledLines, nodes: Array, levels: range, team: Team) -> None:
    """Write complete levels above filled leaves."""
    fault_point("index.build")
    for level in levels:
        args = _level_table(shape, leaves, nodes, level)
        parts = max(shape.counts[level] * shape.fanout // SLICE, 1)
        team.run(_level_64 if shape.word.itemsize == 8 else _level_32, args, parts)


def build_nodes(shape: Shape, leaves: FilledLines, team: Team, spare: int = 0) -> Array:
    """Return the I-segment above filled leaves, followed by `spare` unused words."""
    nodes = huge_array(shape.node_words + spare, shape.word)
    if shape.layout == "implicit" and isinstance(leaves, Leaves) and plain.without_kernels(shape.size):
        plain.fill_nodes(shape, leaves, nodes)
        return nodes
    _run_levels(shape, leaves, nodes, range(shape.levels), team)
    return nodes


@dataclass(frozen=True)
class Built:
    """Leaves, the I-segment if requested, and the order of the keys; if `UNSORTED`, the rest is not usable."""

    leaves: Leaves
    nodes: Array | None
    known: int


def build(raw: Array, flip: int, values: Array | None, hybrid: bool | None, team: Team) -> Built:
    """Build from keys (unsigned numbers that become words by flipping bits) and their inline values.

    `hybrid`: true for the fan-out that devices support, false for the larger one; None builds the leaves only.
    """
    leaves = empty_leaves(raw.dtype, len(raw), 0 if values is None else values.dtype.itemsize)
    shape = shape_of("implicit", leaves.word, leaves.size, bool(hybrid), leaves.per_leaf)
    if leaves.size == 0:
        return Built(leaves, None if hybrid is None else build_nodes(shape, leaves, team), DISTINCT)
    if plain.without_kernels(leaves.size):
        known = plain.fill_leaves(leaves, raw, flip, values)
        return Built(leaves, None if hybrid is None else build_nodes(shape, leaves, team), known)
    parts = max(shape.lines // SLICE, 1)
    verdicts, nodes, above = np.zeros(parts, np.int64), None, np.zeros(0, np.int64)
    if hybrid is not None:
        nodes = huge_array(shape.node_words, shape.word)
        above = _level_table(shape, leaves, nodes, shape.levels - 1)
    fill_table = fill_arguments(leaves, raw, flip, values)
    args = _Bottom.pack(
        FILLING=fill_table,
        ABOVE=above if len(above) else 0,
        VERDICTS=verdicts,
        PER_NODE=shape.fanout,
        ALL_LINES=shape.lines,
        ALL_NODES=shape.counts[-2],
    )
    team.run(_bottom_64 if shape.word.itemsize == 8 else _bottom_32, args, parts)
    if nodes is not None:
        _run_levels(shape, leaves, nodes, range(shape.levels - 1), team)
    return Built(leaves, nodes, int(verdicts.min()))


def fill(raw: Array, flip: int, values: Array | None, team: Team) -> tuple[Leaves, int]:
    """Build the leaves only; also return the order of the keys."""
    built = build(raw, flip, values, None, team)
    return built.leaves, built.known
