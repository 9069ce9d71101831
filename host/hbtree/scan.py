"""Scans a regular HB+-Tree, whose lines are not full: ranges, the last of equal words, and neighbours of a word.

Lookups of one row use the kernels of `search.py`. Scans over several lines are here, because a line may be empty, and
the next big leaf is known from the fragments only. Positions are `line * per_leaf + lane`. (Thesis, appendix A, 4.)
Limit: no update may run during a scan.
"""

from __future__ import annotations

from enum import auto
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from millrace.host.base.types import Array
from millrace.host.hbtree import fragments as hf
from millrace.host.runtime.intrinsics import load, load_as, load_id, prefetch, size_of, store_as
from millrace.host.runtime.jit import inline, share
from millrace.host.runtime.kernel_args import KernelArgs
from millrace.host.runtime.team import Team

if TYPE_CHECKING:
    from millrace.host.hbtree.regular import RegularTree

Positions = npt.NDArray[np.int64]
SLICE = 1 << 11
"""Queries per task of a thread."""
MAX_COUNTED = 1 << 31
"""Ranges with more words are refused anyway: no Arrow array of lists has so many values."""
_MAX_GROWTH = 8
"""A group of ranges that are counted together may hold this often `MAX_COUNTED` words, at most."""
_AHEAD = 16


class _Args(KernelArgs):
    """The arguments of a scan."""

    TREE = auto()
    LINES = auto()
    LOW = auto()  # or the queries
    HIGH = auto()
    COUNT = auto()
    OFFSETS = auto()
    OUT = auto()
    BEFORE = auto()  # whether the neighbour is at or below the query


@inline
def _next_line(tree: int, line: int, like: Any) -> int:
    """The next line in key order, -1 after the last."""
    fan = hf.fan(like)
    if (line + 1) % fan != 0:
        return line + 1
    after = hf.fragment(tree, hf.Pools.LEAF_FRAGMENTS, line // fan, hf.NEXT)
    return after * fan if after >= 0 else -1


@inline
def _line_before(tree: int, line: int, like: Any) -> int:
    """The previous line in key order, -1 before the first."""
    fan = hf.fan(like)
    if line % fan != 0:
        return line - 1
    before = hf.fragment(tree, hf.Pools.LEAF_FRAGMENTS, line // fan, hf.BEFORE)
    return before * fan + fan - 1 if before >= 0 else -1


@inline
def _range(tree: int, line: int, low: Any, high: Any, out: int, at: int, half: bool) -> int:
    """Count the words from `low` to `high`, starting at a line; copy their values to `out` if it is not 0."""
    width, lanes = load(tree, hf.Pools.WIDTH), hf.per_leaf(half, low)
    lane, total = hf.below(hf.leaf_line(tree, line), low, half), 0
    while line >= 0:
        where = hf.leaf_line(tree, line)
        stop = hf.upto(where, high, half)
        if out != 0:
            for i in range(lane, stop):
                hf.move_value(out, at + total + i - lane, where + lanes * size_of(low), i, width)
        total += max(stop - lane, 0)
        if stop < hf.word_count(where, half, low):
            return total
        line, lane = _next_line(tree, line, low), 0
    return total


@inline
def _ranges(args: int, part: int, parts: int, half: bool, like: Any) -> None:
    """Count the values of some ranges or, if their output offsets are known, copy them."""
    tree, lines, count = load(args, _Args.TREE), load(args, _Args.LINES), load(args, _Args.COUNT)
    lows, highs = load(args, _Args.LOW), load(args, _Args.HIGH)
    offsets, out = load(args, _Args.OFFSETS), load(args, _Args.OUT)
    stop = count * (part + 1) // parts
    for i in range(count * part // parts, stop):
        if i + _AHEAD < stop:
            ahead = hf.leaf_line(tree, load_id(lines, i + _AHEAD))
            for line in range(3):
                prefetch(ahead + line * load(tree, hf.Pools.STRIDE))
        low, high = load_as(lows, i, like), load_as(highs, i, like)
        if out != 0:
            if load_as(offsets, i + 1, 0) > load_as(offsets, i, 0):
                _range(tree, load_id(lines, i), low, high, out, load_as(offsets, i, 0), half)
        else:
            found = _range(tree, load_id(lines, i), low, high, 0, 0, half) if low <= high else 0
            store_as(offsets, i, found)


@inline
def _lasts(args: int, part: int, parts: int, half: bool, like: Any) -> None:
    """The position of the last word equal to a query: the one before the position of the next larger word."""
    tree, lines, count = load(args, _Args.TREE), load(args, _Args.LINES), load(args, _Args.COUNT)
    queries, out = load(args, _Args.LOW), load(args, _Args.OUT)
    stop = count * (part + 1) // parts
    for i in range(count * part // parts, stop):
        if i + _AHEAD < stop:
            prefetch(hf.leaf_line(tree, load_id(lines, i + _AHEAD)))
        line, word = load_id(lines, i), load_as(queries, i, like)
        lane = hf.upto(hf.leaf_line(tree, line), word, half)
        while lane == 0:
            line = _line_before(tree, line, like)
            if line < 0:
                break
            lane = hf.word_count(hf.leaf_line(tree, line), half, like)
        there = lane > 0 and load_as(hf.leaf_line(tree, line), lane - 1, like) == word
        store_as(out, i, line * hf.per_leaf(half, like) + lane - 1 if there else np.int64(-1))


@inline
def _neighbours(args: int, part: int, parts: int, half: bool, like: Any) -> None:
    """The position of the last word not above a query, or of the first one not below it; -1 if there is none."""
    tree, lines, count = load(args, _Args.TREE), load(args, _Args.LINES), load(args, _Args.COUNT)
    queries, out, before = load(args, _Args.LOW), load(args, _Args.OUT), load(args, _Args.BEFORE)
    stop = count * (part + 1) // parts
    for i in range(count * part // parts, stop):
        if i + _AHEAD < stop:
            prefetch(hf.leaf_line(tree, load_id(lines, i + _AHEAD)))
        line, word = load_id(lines, i), load_as(queries, i, like)
        lane = 0
        if before != 0:
            lane = hf.upto(hf.leaf_line(tree, line), word, half) - 1
            while lane < 0 and line >= 0:
                line = _line_before(tree, line, like)
                if line >= 0:
                    lane = hf.word_count(hf.leaf_line(tree, line), half, like) - 1
        else:
            lane = hf.below(hf.leaf_line(tree, line), word, half)
            while line >= 0 and lane >= hf.word_count(hf.leaf_line(tree, line), half, like):
                line, lane = _next_line(tree, line, like), 0
        store_as(out, i, line * hf.per_leaf(half, like) + lane if line >= 0 else np.int64(-1))


@inline
def _is_paired(args: int, like: Any) -> bool:
    return load_as(load(args, _Args.TREE), hf.Pools.WIDTH, 0) == size_of(like)  # type: ignore[no-any-return]


@share
def _ranges_32(args: int, part: int, parts: int) -> None:
    _ranges(args, part, parts, _is_paired(args, np.uint32(0)), np.uint32(0))


@share
def _ranges_64(args: int, part: int, parts: int) -> None:
    _ranges(args, part, parts, _is_paired(args, np.uint64(0)), np.uint64(0))


@share
def _lasts_32(args: int, part: int, parts: int) -> None:
    _lasts(args, part, parts, _is_paired(args, np.uint32(0)), np.uint32(0))


@share
def _lasts_64(args: int, part: int, parts: int) -> None:
    _lasts(args, part, parts, _is_paired(args, np.uint64(0)), np.uint64(0))


@share
def _neighbours_32(args: int, part: int, parts: int) -> None:
    _neighbours(args, part, parts, _is_paired(args, np.uint32(0)), np.uint32(0))


@share
def _neighbours_64(args: int, part: int, parts: int) -> None:
    _neighbours(args, part, parts, _is_paired(args, np.uint64(0)), np.uint64(0))


def _parts(count: int) -> int:
    return -(-count // SLICE)


def count_ranges(
    tree: RegularTree, lines: Array, low: Array, high: Array, team: Team, most: int = MAX_COUNTED
) -> Positions:
    """Count the words from `low[i]` to `high[i]`, which is not the largest word; `lines`: the lines of `low`.

    Counting takes time for every word. So it goes by groups of ranges, and ends once more than `most` words are
    counted; the ranges that are left count 0.
    """
    counts = np.zeros(len(low), np.int64)
    kernel = _ranges_64 if tree.word.itemsize == 8 else _ranges_32
    done, total, group = 0, 0, max(most // max(tree.size, 1), 1)
    largest = _MAX_GROWTH * group
    while done < len(low) and total <= most:
        now = slice(done, done + group)
        args = _Args.pack(
            TREE=tree.table,
            LINES=lines[now],
            LOW=low[now],
            HIGH=high[now],
            COUNT=len(low[now]),
            OFFSETS=counts[now],
            OUT=0,
            BEFORE=0,
        )
        team.run(kernel, args, _parts(len(low[now])))
        total += int(counts[now].sum())
        done, group = done + group, min(2 * group, largest)
    return counts


def copy_ranges(
    tree: RegularTree, lines: Array, low: Array, high: Array, offsets: Positions, out: Array, team: Team
) -> None:
    """Copy the values of those ranges to `out`, those of range i from `offsets[i]` on."""
    if len(low) and offsets[-1] > offsets[0]:
        args = _Args.pack(
            TREE=tree.table, LINES=lines, LOW=low, HIGH=high, COUNT=len(low), OFFSETS=offsets, OUT=out, BEFORE=0
        )
        team.run(_ranges_64 if tree.word.itemsize == 8 else _ranges_32, args, _parts(len(low)))


def last_positions(tree: RegularTree, lines: Array, queries: Array, team: Team) -> Positions:
    """The position of the last of equal words, -1 if there is none; `lines`: the lines of the next larger words."""
    out = np.empty(len(queries), np.int64)
    if len(queries):
        args = _Args.partly(TREE=tree.table, LINES=lines, LOW=queries, COUNT=len(queries), OUT=out)
        team.run(_lasts_64 if tree.word.itemsize == 8 else _lasts_32, args, _parts(len(queries)))
    return out


def neighbour_positions(tree: RegularTree, lines: Array, queries: Array, before: bool, team: Team) -> Positions:
    """The position of the last word not above each query, or (not `before`) of the first not below; -1 if none.

    `lines`: the lines of the next larger words if `before`, else those of the queries.
    """
    out = np.empty(len(queries), np.int64)
    if len(queries):
        args = _Args.partly(
            TREE=tree.table, LINES=lines, LOW=queries, COUNT=len(queries), OUT=out, BEFORE=1 if before else 0
        )
        team.run(_neighbours_64 if tree.word.itemsize == 8 else _neighbours_32, args, _parts(len(queries)))
    return out
