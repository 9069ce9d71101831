"""An immutable run of points: blocks along a Hilbert curve, and a tree of bounding boxes over them.

A block has `BLOCK` points, dimension by dimension. A node has `FANOUT` children, which are consecutive blocks or nodes:
their boxes, then for each child the least and largest position, the least tie key, and the least and largest group of
the points below it. All nodes are full but the last of each level. Building sorts once and never splits a node, so a
run costs little more than a sort. Limit: 2^31 points.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import auto
from typing import Any

import numpy as np

from millrace.host.base.types import Array, Longs
from millrace.host.knn.curve import Curve
from millrace.host.knn.lanes import BLOCK, FACTS, FANOUT, node_words
from millrace.host.runtime.allocator import allocate, free
from millrace.host.runtime.intrinsics import load, load_as, load_id, prefetch, store, store_as
from millrace.host.runtime.jit import inline, share
from millrace.host.runtime.kernel_args import KernelArgs
from millrace.host.runtime.team import Team

_AHEAD = 8
"""Prefetch distance in points."""
_BLOCKS_PER_PART = 512
_INF = np.inf


@dataclass(frozen=True)
class Points:
    """Points in columns, with the position of each, its key among equal distances, and its group if there are any."""

    columns: list[Array]
    positions: Longs
    ties: Longs
    groups: Longs | None = None

    def __len__(self) -> int:
        """Return the number of points."""
        return len(self.positions)

    def take(self, rows: Longs) -> Points:
        """Some of the points."""
        positions = self.positions[rows]
        return Points(
            [column[rows] for column in self.columns],
            positions,
            positions if self.ties is self.positions else self.ties[rows],
            None if self.groups is None else self.groups[rows],
        )


class _Args(KernelArgs):
    """The arguments of `_fill_blocks` and `_fill_nodes`."""

    N = auto()
    DIMS = auto()
    ORDER = auto()
    POSITIONS = auto()
    TIES = auto()
    GROUPS = auto()
    BLOCKS = auto()
    OUT_POSITIONS = auto()
    OUT_TIES = auto()
    OUT_GROUPS = auto()
    NODES = auto()  # the level that is filled
    CHILDREN = auto()  # how many it has
    BELOW = auto()  # the nodes of the level below
    COLUMN = auto()  # the first column of coordinates; the others follow


@inline
def _fill_block(given: int, block: int, dims: int) -> None:
    """Copy the points of a block, and write its box into its node."""
    n, order = load(given, _Args.N), load(given, _Args.ORDER)
    out = load(given, _Args.BLOCKS) + 8 * BLOCK * dims * block
    count = min(BLOCK, n - BLOCK * block)
    rows = order + 4 * BLOCK * block
    node = load(given, _Args.NODES) + 8 * node_words(dims) * (block // FANOUT)
    child = block % FANOUT
    for i in range(dims):
        column, to = load(given, _Args.COLUMN + i), out + 8 * BLOCK * i
        low, high = _INF, -_INF
        for j in range(count):
            if block * BLOCK + j + _AHEAD < n:
                prefetch(column + 8 * load_id(rows, j + _AHEAD))
            value = load_as(column, load_id(rows, j), 0.0)
            store_as(to, j, value)
            low, high = min(low, value), max(high, value)
        for j in range(count, BLOCK):
            store_as(to, j, np.nan)
        store_as(node, 2 * FANOUT * i + child, low)
        store_as(node, 2 * FANOUT * i + FANOUT + child, high)
    facts = node + 16 * FANOUT * dims
    _copy_ids(given, rows, BLOCK * block, count, facts, child)


@inline
def _copy_ids(given: int, rows: int, at: int, count: int, facts: int, child: int) -> None:
    """Copy positions, tie keys and groups of a block, and write their ends."""
    positions, ties, groups = load(given, _Args.POSITIONS), load(given, _Args.TIES), load(given, _Args.GROUPS)
    first = load_id(rows, 0)
    low = high = load(positions, first)
    least = load(ties, first)
    for j in range(count):
        position = load(positions, load_id(rows, j))
        store(load(given, _Args.OUT_POSITIONS), at + j, position)
        low, high = min(low, position), max(high, position)
        if ties != positions:
            tie = load(ties, load_id(rows, j))
            store(load(given, _Args.OUT_TIES), at + j, tie)
            least = min(least, tie)
    store(facts, child, low)
    store(facts, FANOUT + child, high)
    store(facts, 2 * FANOUT + child, least if ties != positions else low)
    if groups != 0:
        for j in range(count):
            store(load(given, _Args.OUT_GROUPS), at + j, load(groups, load_id(rows, j)))
        store(facts, 3 * FANOUT + child, load(groups, first))  # points are in the order of their groups
        store(facts, 4 * FANOUT + child, load(groups, load_id(rows, count - 1)))


@share
def _fill_blocks(given: int, part: int, parts: int) -> None:
    dims, children = load(given, _Args.DIMS), load(given, _Args.CHILDREN)
    nodes = -(-children // FANOUT)
    for node in range(nodes * part // parts, nodes * (part + 1) // parts):
        stop = min(children, FANOUT * (node + 1))
        for block in range(FANOUT * node, stop):
            _fill_block(given, block, dims)
        _clear(load(given, _Args.NODES) + 8 * node_words(dims) * node, dims, stop - FANOUT * node)


@inline
def _clear(node: int, dims: int, first: int) -> None:
    """Empty the boxes of a node from a child on."""
    for line in range(2 * dims):
        for child in range(first, FANOUT):
            store_as(node, FANOUT * line + child, np.nan)


@share
def _fill_nodes(given: int, part: int, parts: int) -> None:
    """Write a level above the first: the box of each child is that of its own children together."""
    dims, children, below = load(given, _Args.DIMS), load(given, _Args.CHILDREN), load(given, _Args.BELOW)
    words = node_words(dims)
    nodes = -(-children // FANOUT)
    for number in range(nodes * part // parts, nodes * (part + 1) // parts):
        node = load(given, _Args.NODES) + 8 * words * number
        stop = min(children, FANOUT * (number + 1))
        for at in range(FANOUT * number, stop):
            _fill_child(node, at % FANOUT, below + 8 * words * at, dims)
        _clear(node, dims, stop - FANOUT * number)


@inline
def _fill_child(node: int, child: int, lower: int, dims: int) -> None:
    count = 0
    while count < FANOUT and load_as(lower, count, 0.0) == load_as(lower, count, 0.0):
        count += 1
    for i in range(dims):
        low, high = _INF, -_INF
        for j in range(count):
            low = min(low, load_as(lower, 2 * FANOUT * i + j, 0.0))
            high = max(high, load_as(lower, 2 * FANOUT * i + FANOUT + j, 0.0))
        store_as(node, 2 * FANOUT * i + child, low)
        store_as(node, 2 * FANOUT * i + FANOUT + child, high)
    facts, own = lower + 16 * FANOUT * dims, node + 16 * FANOUT * dims
    for line in range(FACTS):
        value = load(facts, FANOUT * line)
        for j in range(1, count):
            other = load(facts, FANOUT * line + j)
            larger = (line == 1) | (line == 4)  # the largest position and group
            value = max(value, other) if larger else min(value, other)
        store(own, FANOUT * line + child, value)


class PointRun:
    """Blocks and nodes of some points; `first` and `end` bound their positions."""

    def __init__(self, points: Points, team: Team) -> None:
        """Build the run of at least one point; the caller has acquired the team."""
        self.dims, self.count = len(points.columns), len(points)
        self.curve = Curve(points.columns)
        self.first, self.end = int(points.positions.min()), int(points.positions.max()) + 1
        order = self.curve.order(points.columns, points.groups, team)
        blocks = -(-self.count // BLOCK)
        slots = blocks * BLOCK
        self.coordinates = allocate(slots * self.dims, np.float64)
        self.positions = allocate(slots, np.int64)
        distinct = points.ties is not points.positions
        self.ties = allocate(slots, np.int64) if distinct else self.positions
        self.groups = allocate(slots, np.int64) if points.groups is not None else None
        self.levels: list[Array] = []
        columns = [np.ascontiguousarray(column) for column in points.columns]
        given: dict[str, Any] = {
            "N": self.count,
            "DIMS": self.dims,
            "ORDER": order,
            "POSITIONS": points.positions,
            "TIES": points.ties,
            "GROUPS": 0 if points.groups is None else points.groups,
            "BLOCKS": self.coordinates,
            "OUT_POSITIONS": self.positions,
            "OUT_TIES": self.ties,
            "OUT_GROUPS": 0 if self.groups is None else self.groups,
        }
        self._build_levels(given, columns, blocks, team)
        free(order)

    def _build_levels(self, given: dict[str, Any], columns: list[Array], children: int, team: Team) -> None:
        below: Array | int = 0
        while True:
            nodes = -(-children // FANOUT)
            level = allocate(nodes * (2 * self.dims + FACTS) * FANOUT, np.int64)
            words = _Args.pack(*columns, **given, NODES=level, CHILDREN=children, BELOW=below)
            parts = max(nodes * FANOUT // _BLOCKS_PER_PART, 1)
            team.run(_fill_blocks if not self.levels else _fill_nodes, words, parts)
            self.levels.append(level)
            if nodes == 1:
                return
            children, below = nodes, level

    def __len__(self) -> int:
        """Return the number of points."""
        return self.count

    @property
    def nbytes(self) -> int:
        """The memory of blocks and nodes."""
        arrays = (self.coordinates, self.positions, *self.levels)
        return sum(array.nbytes for array in arrays) + (0 if self.groups is None else self.groups.nbytes)
