"""Walks blocks of queries through the inner levels of an HB+-Tree; each step prefetches the lines of the next one.

A line is searched with vector code (`line_below`). A block passes the upper levels with the directory (`directory.py`)
or, without one, walks the cached levels in one step. Each level of the implicit layout is one step, each level of the
regular layout three (`PHASES`). `search.py` interleaves the steps of several blocks (thesis, appendix A, section 4).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from millrace.host.hbtree.directory import MAX_NODES_PER_ENTRY
from millrace.host.hbtree.layout import LINE
from millrace.host.hbtree.search_args import NODES, PHASES, Search, Tree, entry_of, entry_rule
from millrace.host.runtime.intrinsics import line_below, load, load_as, load_id, prefetch_far, size_of, store_as
from millrace.host.runtime.jit import inline


@inline
def load_words(args: int, first: int, count: int, words: int, like: Any) -> None:
    """Load the words of a block of queries."""
    queries, flip = load(args, Search.QUERIES), type(like)(load_as(args, Search.FLIP, np.uint64(0)))
    for j in range(count):
        store_as(words, j, type(like)(load_as(queries, first + j, like) ^ flip))


@inline
def set_start_nodes(args: int, tree: int, first: int, count: int, nodes: int) -> None:
    """Set the start nodes of a block; prefetch leaf lines that are known already."""
    at, start = load(args, Search.AT), load(args, Search.START)
    if start == 0:
        for j in range(count):
            store_as(nodes, j, 0)
        return
    for j in range(count):
        store_as(nodes, j, load_id(at, first + j))
    if (start == load(tree, Tree.LEVELS)) & (load(args, Search.MODE) != NODES):
        leaves, stride = load(tree, Tree.LEAVES), load(tree, Tree.STRIDE)
        for j in range(count):
            _prefetch_leaf(leaves + load_as(nodes, j, 0) * stride, stride)


@inline
def find_entries(tree: int, words: int, nodes: int, count: int, like: Any) -> None:
    """Find and prefetch the directory entries of a block's words."""
    starts, rule = load(tree, Tree.STARTS), entry_rule(tree)
    for j in range(count):
        entry = entry_of(load_as(words, j, like), rule)
        store_as(nodes, j, entry)
        prefetch_far(starts + 4 * entry)


@inline
def enter_start_level(tree: int, words: int, nodes: int, count: int, per_level: int, like: Any) -> None:
    """Find the nodes of the start level from a block's entries, and prefetch their lines."""
    starts, separators = load(tree, Tree.STARTS), load(tree, Tree.SEPARATORS)
    level, order, wide = load(tree, Tree.START_LEVEL), load(tree, Tree.ORDER), False
    for j in range(count):
        entry = load_as(nodes, j, 0)
        node, stop = load_id(starts, entry), load_id(starts, entry + 1)
        if node != stop:
            wide |= stop - node > MAX_NODES_PER_ENTRY
            stop, word = min(stop, node + MAX_NODES_PER_ENTRY), load_as(words, j, like)
            while node < stop and load_as(separators, node, like) < word:
                node += 1
        store_as(nodes, j, node if order == 0 else load_id(order, node))
    if wide:
        for j in range(count):
            store_as(nodes, j, 0)
        walk_steps(tree, 0, level * per_level, words, nodes, count, like)
    base = load_as(tree, Tree.BASES + level, 0)
    last = level == load(tree, Tree.LEVELS) - 1
    size = load_as(tree, Tree.LAST if last else Tree.UPPER, 0)
    for j in range(count):
        prefetch_far(base + load_as(nodes, j, 0) * size)


@inline
def _prefetch_leaf(where: int, stride: int) -> None:
    """Prefetch a leaf line and its values: up to two more lines."""
    prefetch_far(where)
    if stride > LINE:
        prefetch_far(where + LINE)
    if stride > 2 * LINE:
        prefetch_far(where + 2 * LINE)


@inline
def _implicit_step(tree: int, level: int, words: int, nodes: int, count: int, like: Any) -> None:
    """Walk one level of the implicit layout; prefetch the lines of the next."""
    fanout, base = load(tree, Tree.FANOUT), load_as(tree, Tree.BASES + level, 0)
    next_base = load_as(tree, Tree.BASES + level + 1, 0)
    if level == load(tree, Tree.LEVELS) - 1:
        stride = load(tree, Tree.STRIDE)
        for j in range(count):
            node = load_as(nodes, j, 0)
            node = node * fanout + line_below(base + node * LINE, load_as(words, j, like))
            store_as(nodes, j, node)
            if next_base != 0:
                _prefetch_leaf(next_base + node * stride, stride)
    elif level + 1 >= load(tree, Tree.NEAR):
        for j in range(count):
            node = load_as(nodes, j, 0)
            node = node * fanout + line_below(base + node * LINE, load_as(words, j, like))
            store_as(nodes, j, node)
            prefetch_far(next_base + node * LINE)
    else:
        for j in range(count):
            node = load_as(nodes, j, 0)
            store_as(nodes, j, node * fanout + line_below(base + node * LINE, load_as(words, j, like)))


@inline
def _regular_step(tree: int, step: int, words: int, nodes: int, count: int, like: Any) -> None:
    """Walk one step of a level of the regular layout; between steps, node and slot are combined in one number."""
    level, phase = step // PHASES, step % PHASES
    base, per_line = load_as(tree, Tree.BASES + level, 0), LINE // size_of(like)
    fanout, last = per_line * per_line, level == load(tree, Tree.LEVELS) - 1
    size = load_as(tree, Tree.LAST if last else Tree.UPPER, 0)
    next_base, stride = load_as(tree, Tree.BASES + level + 1, 0), load(tree, Tree.STRIDE)
    if phase == 0:
        for j in range(count):
            node = load_as(nodes, j, 0)
            line = line_below(base + node * size, load_as(words, j, like))
            store_as(nodes, j, node * per_line + line)
            prefetch_far(base + node * size + (1 + line) * LINE)
    elif phase == 1:
        for j in range(count):
            combined = load_as(nodes, j, 0)
            node, line = combined // per_line, combined & (per_line - 1)
            slot = line * per_line + line_below(base + node * size + (1 + line) * LINE, load_as(words, j, like))
            store_as(nodes, j, node * fanout + slot)
            if not last:
                prefetch_far(base + node * size + (1 + per_line) * LINE + slot * size_of(like))
            elif next_base != 0:
                _prefetch_leaf(next_base + (node * fanout + slot) * stride, stride)
    elif not last:
        next_size = load_as(tree, Tree.LAST if level == load(tree, Tree.LEVELS) - 2 else Tree.UPPER, 0)
        for j in range(count):
            combined = load_as(nodes, j, 0)
            node, slot = combined // fanout, combined & (fanout - 1)
            child = np.int64(load_as(base + node * size + (1 + per_line) * LINE, slot, like))
            store_as(nodes, j, child)
            prefetch_far(next_base + child * next_size)


@inline
def walk_steps(tree: int, first: int, stop: int, words: int, nodes: int, count: int, like: Any) -> None:
    """Walk steps `first` to `stop - 1` with a block."""
    if load(tree, Tree.REGULAR) != 0:
        for step in range(first, stop):
            _regular_step(tree, step, words, nodes, count, like)
    else:
        for step in range(first, stop):
            _implicit_step(tree, step, words, nodes, count, like)
