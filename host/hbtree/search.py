"""Searches an HB+-Tree with blocks of queries: prefetches each line long before it is read.

This is software pipelining (thesis, appendix A, section 4). A block takes a *step*, which prefetches the lines of its
next one, and then the blocks behind it take theirs. So in each round every block in flight advances by one step
(`search_walk.py`). The last step searches the leaf lines and writes the results. All arguments are addresses in the
two tables of `search_args.py`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from millrace.host.hbtree.layout import LINE
from millrace.host.hbtree.search_args import (
    BLOCK,
    LAST,
    LAST_VALUES,
    LOWER,
    NODES,
    PHASES,
    RING,
    SCRATCH,
    VALUES,
    Search,
    Tree,
)
from millrace.host.hbtree.search_walk import enter_start_level, find_entries, load_words, set_start_nodes, walk_steps
from millrace.host.runtime.intrinsics import (
    half_below,
    half_upto,
    line_below,
    line_upto,
    load,
    load_as,
    load_byte,
    load_id,
    prefetch_far,
    stack_words,
    store_as,
)
from millrace.host.runtime.jit import inline, share

_I64 = np.int64


@inline
def _is_half(tree: int, like: Any) -> bool:
    """Whether values take half of a leaf line."""
    return load(tree, Tree.OFFSET) < LINE


@inline
def _leaf_below(where: int, word: Any, half: bool) -> int:
    """Number of words of a leaf line that are smaller than `word`."""
    return half_below(where, word) if half else line_below(where, word)


@inline
def _leaf_upto(where: int, word: Any, half: bool) -> int:
    """Number of words of a leaf line that are at most `word`."""
    return half_upto(where, word) if half else line_upto(where, word)


@inline
def _beyond(tree: int, line: int, bound: Any, like: Any) -> int:
    """The first position, from a line on, with a word above `bound`: exponential, then binary search."""
    leaves, stride, lines = load(tree, Tree.LEAVES), load(tree, Tree.STRIDE), load(tree, Tree.LINES)
    per_leaf, half = 1 << load(tree, Tree.LEAF_BITS), _is_half(tree, like)
    lane = _leaf_upto(leaves + line * stride, bound, half)
    if lane == per_leaf:
        low, step = line + 1, 1
        while low + step <= lines and load_as(leaves + (low + step - 1) * stride, per_leaf - 1, like) <= bound:
            low += step
            step *= 2
        high = min(low + step - 1, lines)
        while low < high:
            middle = (low + high) >> 1
            if load_as(leaves + middle * stride, per_leaf - 1, like) <= bound:
                low = middle + 1
            else:
                high = middle
        line = low
        lane = _leaf_upto(leaves + line * stride, bound, half) if line < lines else 0
    position: int = min(line * per_leaf + lane, load(tree, Tree.SIZE))
    return position


@inline
def _is_usable(args: int, index: int) -> bool:
    """Whether the mask includes a query."""
    mask = load(args, Search.MASK)
    return mask == 0 or load_byte(mask, index) != 0


@inline
def _output_row(rows: int, index: int) -> int:
    """The output row of a query."""
    return index if rows == 0 else load_id(rows, index)


@inline
def _positions(args: int, tree: int, first: int, words: int, nodes: int, count: int, like: Any) -> None:
    """The last step of `FIRST`, `LAST` and `LOWER`."""
    leaves, stride, size = load(tree, Tree.LEAVES), load(tree, Tree.STRIDE), load(tree, Tree.SIZE)
    out, mode, bits = load(args, Search.OUT), load(args, Search.MODE), load(tree, Tree.LEAF_BITS)
    half, per_leaf, rows = _is_half(tree, like), 1 << bits, load(args, Search.ROWS)
    for j in range(count):
        line, word = load_as(nodes, j, 0), load_as(words, j, like)
        lane = _leaf_below(leaves + line * stride, word, half)
        position, row = min((line << bits) + lane, size), _output_row(rows, first + j)
        if mode != LOWER:
            there = position < size and load_as(leaves + line * stride, lane & (per_leaf - 1), like) == word
            if not (there and _is_usable(args, row)):
                position = -1
            elif mode == LAST:
                position = _beyond(tree, line, word, like) - 1
        store_as(out, row, position)


@inline
def _values(args: int, tree: int, first: int, words: int, nodes: int, count: int, like: Any) -> int:
    """The last step of `VALUES` and `LAST_VALUES`: values in query order, 0 if absent; return the number of hits."""
    leaves, stride, size = load(tree, Tree.LEAVES), load(tree, Tree.STRIDE), load(tree, Tree.SIZE)
    out, width, offset = load(args, Search.OUT), load(tree, Tree.WIDTH), load(tree, Tree.OFFSET)
    last, valid, hits = load(args, Search.MODE) == LAST_VALUES, _I64(0), 0
    bits, half = load(tree, Tree.LEAF_BITS), _is_half(tree, like)
    mask, rows, flags = (1 << bits) - 1, load(args, Search.ROWS), load(args, Search.THERE)
    for j in range(count):
        line, word = load_as(nodes, j, 0), load_as(words, j, like)
        where = leaves + line * stride
        lane = _leaf_below(where, word, half)
        position = (line << bits) + lane
        lane &= mask
        row = _output_row(rows, first + j)
        there = (position < size) & (load_as(where, lane, like) == word) and _is_usable(args, row)
        if last and there:
            position = _beyond(tree, line, word, like) - 1
            where, lane = leaves + (position >> bits) * stride, position & mask
        _put(out, row, where + offset, lane, position, width, there)
        valid |= _I64(there) << j
        hits += there
    if rows == 0:
        store_as(load(args, Search.BITS), first // BLOCK, np.uint64(valid))
    elif hits < count:
        for j in range(count):
            if (valid >> j) & 1 == 0:
                store_as(flags, load_id(rows, first + j), np.uint8(0))
    return hits


@inline
def _put(out: int, index: int, where: int, lane: int, position: int, width: int, there: bool) -> None:
    """Write one result: the inline value of a word or, without inline values, its position."""
    if width == 8:
        store_as(out, index, load_as(where, lane, _I64(0)) if there else _I64(0))
    elif width == 4:
        store_as(out, index, load_as(where, lane, np.uint32(0)) if there else np.uint32(0))
    else:
        store_as(out, index, _I64(position) if there else _I64(0))


@inline
def _prefetch_output(args: int, tree: int, first: int, count: int) -> None:
    """Prefetch the output lines of a block of partitioned queries."""
    rows, out, shift = load(args, Search.ROWS), load(args, Search.OUT), 3
    if load(args, Search.MODE) >= VALUES and load(tree, Tree.WIDTH) == 4:
        shift = 2
    if rows != 0:
        for j in range(count):
            prefetch_far(out + (load_id(rows, first + j) << shift))


@inline
def _finish(args: int, tree: int, first: int, words: int, nodes: int, count: int, like: Any) -> int:
    """The last step of a block."""
    mode = load(args, Search.MODE)
    if mode >= VALUES:
        return _values(args, tree, first, words, nodes, count, like)
    if mode == NODES:
        out = load(args, Search.OUT)
        for j in range(count):
            store_as(out, first + j, np.uint32(load_as(nodes, j, 0)))
    else:
        _positions(args, tree, first, words, nodes, count, like)
    return 0


@inline
def _search_part(args: int, part: int, parts: int, like: Any) -> None:
    """Search some queries from level `START` to level `DEPTH` and, depending on `MODE`, in the leaves."""
    tree, total = load(args, Search.TREE), load(args, Search.COUNT)
    per_level = PHASES if load(tree, Tree.REGULAR) != 0 else 1
    start, depth = load(args, Search.START) * per_level, load(args, Search.DEPTH) * per_level
    near = min(max(load(tree, Tree.NEAR) * per_level, start), depth)
    start_step = load(tree, Tree.START_LEVEL) * per_level
    directed = (load(tree, Tree.STARTS) != 0) & (start == 0) & (depth >= start_step)
    lead = 1
    if directed:
        near, lead = start_step, 2
    blocks, rounds = (total + BLOCK - 1) // BLOCK, depth - near + lead + 1
    first, stop = blocks * part // parts, blocks * (part + 1) // parts
    scratch, hits = stack_words(SCRATCH), 0
    for turn in range(first, stop + rounds - 1):
        # The oldest block first: its lines were prefetched longest ago, and its ring slot is needed next.
        for behind in range(min(rounds - 1, turn - first), max(turn - stop + 1, 0) - 1, -1):
            block = turn - behind
            words = scratch + 16 * BLOCK * (block % RING)
            nodes, at = words + 8 * BLOCK, block * BLOCK
            count = min(total - at, BLOCK)
            if behind == 0:
                load_words(args, at, count, words, like)
                if directed:
                    find_entries(tree, words, nodes, count, like)
                else:
                    set_start_nodes(args, tree, at, count, nodes)
                    walk_steps(tree, start, near, words, nodes, count, like)
            elif behind < lead:
                enter_start_level(tree, words, nodes, count, per_level, like)
            elif behind < rounds - 1:
                if behind == rounds - 2:
                    _prefetch_output(args, tree, at, count)
                walk_steps(tree, near + behind - lead, near + behind - lead + 1, words, nodes, count, like)
            else:
                hits += _finish(args, tree, at, words, nodes, count, like)
    store_as(load(args, Search.HITS), part, hits)


@inline
def _ends_part(args: int, part: int, parts: int, like: Any) -> None:
    """Find the ends of ranges whose starts are known; an end is usually near its start."""
    tree, total, high = load(args, Search.TREE), load(args, Search.COUNT), load(args, Search.HIGH)
    flip = type(like)(load_as(args, Search.FLIP, np.uint64(0)))
    queries, out, ends = load(args, Search.QUERIES), load(args, Search.OUT), load(args, Search.ENDS)
    leaves, stride, bits = (
        load(tree, Tree.LEAVES),
        load(tree, Tree.STRIDE),
        load(tree, Tree.LEAF_BITS),
    )
    size, stop = load(tree, Tree.SIZE), total * (part + 1) // parts
    for j in range(total * part // parts, stop):
        if j + BLOCK < stop:
            prefetch_far(leaves + (load_as(out, j + BLOCK, 0) >> bits) * stride)
            prefetch_far(leaves + ((load_as(out, j + BLOCK, 0) >> bits) + 1) * stride)
        begin = load_as(out, j, 0)
        low, most = type(like)(load_as(queries, j, like) ^ flip), type(like)(load_as(high, j, like) ^ flip)
        end = begin
        if (begin < size) & (low <= most) and _is_usable(args, j):
            end = max(_beyond(tree, begin >> bits, most, like), begin)
        store_as(ends, j, end)


@share
def search_32(args: int, part: int, parts: int) -> None:
    """`_search_part` of 32-bit words."""
    _search_part(args, part, parts, np.uint32(0))


@share
def search_64(args: int, part: int, parts: int) -> None:
    """`_search_part` of 64-bit words."""
    _search_part(args, part, parts, np.uint64(0))


@share
def ends_32(args: int, part: int, parts: int) -> None:
    """`_ends_part` of 32-bit words."""
    _ends_part(args, part, parts, np.uint32(0))


@share
def ends_64(args: int, part: int, parts: int) -> None:
    """`_ends_part` of 64-bit words."""
    _ends_part(args, part, parts, np.uint64(0))
