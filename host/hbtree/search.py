"""Searches an HB+-Tree: blocks of queries walk the levels, each line asked for long before it is read.

A line is searched in vector code (`line_below`). This is software pipelining (thesis, appendix A, section 4): a block
takes a *step*, which asks for the lines of the next one, and then the blocks behind it take theirs before it goes on:
in each round every block under way is one step further. The upper levels are passed by way of a directory
(`hbtree_starts`) or, where there is none, those in the caches are one step.

Everything is given by address in two tables: the tree's (`TREE_…`) and the call's. Queries are numbers that become
words by flipping bits; those that a mask of bytes leaves out are absent. What is wanted at the end is told by `mode`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from millrace.host.hbtree.directory import FEW
from millrace.host.hbtree.layout import LINE
from millrace.host.runtime.intrinsics import (
    half_below,
    half_upto,
    line_below,
    line_upto,
    load_as,
    load_id,
    prefetch_far,
    size_of,
    stack_words,
    store_as,
)
from millrace.host.runtime.jit import inline, load_byte, share

BLOCK = 64
"""Queries that walk together: as many as bits of validity are written at once."""
RING = 16
"""Blocks that can be under way: no tree has more steps."""
SCRATCH = 2 * RING * BLOCK
"""Numbers of 64 bits that a part of a call works in, on its stack: words and nodes of all blocks under way."""
NEAR = 1 << 18
"""Bytes up to which levels are taken to be in the caches, those above them included: they are walked in one step."""
TREE_REGULAR, TREE_FANOUT, TREE_LEVELS, TREE_SIZE, TREE_LINES, TREE_LEAVES, TREE_STRIDE, TREE_WIDTH = range(8)
TREE_UPPER, TREE_LAST, TREE_NEAR = 8, 9, 10
"""Bytes of an upper node and of one of the last inner level; how many levels are near."""
TREE_LEAF_BITS, TREE_OFFSET = 11, 12
"""Words of a leaf line, as a power of two; bytes from there to their values."""
(TREE_STARTS, TREE_SEPARATORS, TREE_ORDER, TREE_START_LEVEL, TREE_BASE, TREE_SHIFT, TREE_SCALE, TREE_MOST) = range(
    13, 21
)
"""The directory of `hbtree_starts` (0: none), and what finds a word's entry in it."""
TREE_BASES = 21
"""From here on the address of each level's node 0, the leaves' last."""
(QUERIES, FLIP, MASK, COUNT, TREE, START, DEPTH, AT, OUT, BITS, HITS, MODE, HIGH, ENDS, PLACES, THERE) = range(16)
ARGUMENTS = 16
"""`PLACES`: where the answer of each query goes (0: in order); then bytes of `THERE` are cleared instead of `BITS`."""
FIRST, LAST, LOWER, NODES, VALUES, LAST_VALUES = range(6)
"""Modes: the position of the first equal word or the last (-1: none), of the first not below; nodes; values."""
PHASES = 3
"""Steps of a level of the regular layout: index line, key line, child."""
_I64 = np.int64


@inline
def _take(given: int, first: int, count: int, words: int, like: Any) -> None:
    """The words of a block of queries."""
    queries, flip = load_as(given, QUERIES, 0), type(like)(load_as(given, FLIP, np.uint64(0)))
    for j in range(count):
        store_as(words, j, type(like)(load_as(queries, first + j, like) ^ flip))


@inline
def _begin(given: int, tree: int, first: int, count: int, nodes: int) -> None:
    """The nodes a block begins at; leaves that are known already are asked for."""
    at, start = load_as(given, AT, 0), load_as(given, START, 0)
    if start == 0:
        for j in range(count):
            store_as(nodes, j, 0)
        return
    for j in range(count):
        store_as(nodes, j, load_id(at, first + j))
    if (start == load_as(tree, TREE_LEVELS, 0)) & (load_as(given, MODE, 0) != NODES):
        leaves, stride = load_as(tree, TREE_LEAVES, 0), load_as(tree, TREE_STRIDE, 0)
        for j in range(count):
            _ask_leaf(leaves + load_as(nodes, j, 0) * stride, stride)


@inline
def entry_rule(tree: int) -> tuple[Any, Any, Any, Any]:
    """What `entry_of` goes by."""
    zero = np.uint64(0)
    rule = load_as(tree, TREE_BASE, zero), load_as(tree, TREE_SHIFT, zero), load_as(tree, TREE_MOST, zero)
    return (*rule, load_as(tree, TREE_SCALE, zero))


@inline
def entry_of(word: Any, rule: tuple[Any, Any, Any, Any]) -> int:
    """The entry of a word in the directory."""
    base, shift, most, scale = rule
    offset = (max(np.uint64(word), base) - base) >> shift
    entry: Any = min(offset, most) * scale >> np.uint64(32)
    return _I64(entry)  # type: ignore[return-value]


@inline
def _entries(tree: int, words: int, nodes: int, count: int, like: Any) -> None:
    """The entries of a block's words in the directory, which are asked for."""
    starts, rule = load_as(tree, TREE_STARTS, 0), entry_rule(tree)
    for j in range(count):
        entry = entry_of(load_as(words, j, like), rule)
        store_as(nodes, j, entry)
        prefetch_far(starts + 4 * entry)


@inline
def _enter(tree: int, words: int, nodes: int, count: int, per_level: int, like: Any) -> None:
    """The nodes of the start level that a block's entries lead to, whose lines are asked for."""
    starts, separators = load_as(tree, TREE_STARTS, 0), load_as(tree, TREE_SEPARATORS, 0)
    level, order, wide = load_as(tree, TREE_START_LEVEL, 0), load_as(tree, TREE_ORDER, 0), False
    for j in range(count):
        entry = load_as(nodes, j, 0)
        node, stop = load_id(starts, entry), load_id(starts, entry + 1)
        if node != stop:
            wide |= stop - node > FEW
            stop, word = min(stop, node + FEW), load_as(words, j, like)
            while node < stop and load_as(separators, node, like) < word:
                node += 1
        store_as(nodes, j, node if order == 0 else load_id(order, node))
    if wide:
        for j in range(count):
            store_as(nodes, j, 0)
        _steps(tree, 0, level * per_level, words, nodes, count, like)
    base = load_as(tree, TREE_BASES + level, 0)
    last = level == load_as(tree, TREE_LEVELS, 0) - 1
    size = load_as(tree, TREE_LAST if last else TREE_UPPER, 0)
    for j in range(count):
        prefetch_far(base + load_as(nodes, j, 0) * size)


@inline
def _ask_leaf(where: int, stride: int) -> None:
    """Ask for a leaf line and what lies beside it: up to two more lines."""
    prefetch_far(where)
    if stride > LINE:
        prefetch_far(where + LINE)
    if stride > 2 * LINE:
        prefetch_far(where + 2 * LINE)


@inline
def _implicit_step(tree: int, level: int, words: int, nodes: int, count: int, like: Any) -> None:
    """One level of the implicit layout; asks for the lines of the next."""
    fanout, base = load_as(tree, TREE_FANOUT, 0), load_as(tree, TREE_BASES + level, 0)
    next_base = load_as(tree, TREE_BASES + level + 1, 0)
    if level == load_as(tree, TREE_LEVELS, 0) - 1:
        stride = load_as(tree, TREE_STRIDE, 0)
        for j in range(count):
            node = load_as(nodes, j, 0)
            node = node * fanout + line_below(base + node * LINE, load_as(words, j, like))
            store_as(nodes, j, node)
            if next_base != 0:
                _ask_leaf(next_base + node * stride, stride)
    elif level + 1 >= load_as(tree, TREE_NEAR, 0):
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
    """One step of a level of the regular layout; between steps a node's number stands above the slot found in it."""
    level, phase = step // PHASES, step % PHASES
    base, per_line = load_as(tree, TREE_BASES + level, 0), LINE // size_of(like)
    fanout, last = per_line * per_line, level == load_as(tree, TREE_LEVELS, 0) - 1
    size = load_as(tree, TREE_LAST if last else TREE_UPPER, 0)
    next_base, stride = load_as(tree, TREE_BASES + level + 1, 0), load_as(tree, TREE_STRIDE, 0)
    if phase == 0:
        for j in range(count):
            node = load_as(nodes, j, 0)
            line = line_below(base + node * size, load_as(words, j, like))
            store_as(nodes, j, node * per_line + line)
            prefetch_far(base + node * size + (1 + line) * LINE)
    elif phase == 1:
        for j in range(count):
            place = load_as(nodes, j, 0)
            node, line = place // per_line, place & (per_line - 1)
            slot = line * per_line + line_below(base + node * size + (1 + line) * LINE, load_as(words, j, like))
            store_as(nodes, j, node * fanout + slot)
            if not last:
                prefetch_far(base + node * size + (1 + per_line) * LINE + slot * size_of(like))
            elif next_base != 0:
                _ask_leaf(next_base + (node * fanout + slot) * stride, stride)
    elif not last:
        next_size = load_as(tree, TREE_LAST if level == load_as(tree, TREE_LEVELS, 0) - 2 else TREE_UPPER, 0)
        for j in range(count):
            place = load_as(nodes, j, 0)
            node, slot = place // fanout, place & (fanout - 1)
            child = _I64(load_as(base + node * size + (1 + per_line) * LINE, slot, like))
            store_as(nodes, j, child)
            prefetch_far(next_base + child * next_size)


@inline
def _steps(tree: int, first: int, stop: int, words: int, nodes: int, count: int, like: Any) -> None:
    """A block takes some steps."""
    if load_as(tree, TREE_REGULAR, 0) != 0:
        for step in range(first, stop):
            _regular_step(tree, step, words, nodes, count, like)
    else:
        for step in range(first, stop):
            _implicit_step(tree, step, words, nodes, count, like)


@inline
def _is_half(tree: int, like: Any) -> bool:
    """Whether half of a leaf line are values."""
    return load_as(tree, TREE_OFFSET, 0) < LINE  # type: ignore[no-any-return]


@inline
def _leaf_below(where: int, word: Any, half: bool) -> int:
    """How many words of a leaf line come before the place of a word."""
    return half_below(where, word) if half else line_below(where, word)


@inline
def _leaf_upto(where: int, word: Any, half: bool) -> int:
    """How many words of a leaf line come before the first that is above a word."""
    return half_upto(where, word) if half else line_upto(where, word)


@inline
def _beyond(tree: int, line: int, bound: Any, like: Any) -> int:
    """The first position, from a line on, whose word is above a bound: in strides that double, then halving."""
    leaves, stride, lines = load_as(tree, TREE_LEAVES, 0), load_as(tree, TREE_STRIDE, 0), load_as(tree, TREE_LINES, 0)
    per_leaf, half = 1 << load_as(tree, TREE_LEAF_BITS, 0), _is_half(tree, like)
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
    position: int = min(line * per_leaf + lane, load_as(tree, TREE_SIZE, 0))
    return position


@inline
def _usable(given: int, index: int) -> bool:
    """Whether a query is to be answered."""
    mask = load_as(given, MASK, 0)
    return mask == 0 or load_byte(mask, index) != 0


@inline
def _place(places: int, index: int) -> int:
    """Where the answer of a query goes."""
    return index if places == 0 else load_id(places, index)


@inline
def _positions(given: int, tree: int, first: int, words: int, nodes: int, count: int, like: Any) -> None:
    """The last step of `FIRST`, `LAST` and `LOWER`."""
    leaves, stride, size = load_as(tree, TREE_LEAVES, 0), load_as(tree, TREE_STRIDE, 0), load_as(tree, TREE_SIZE, 0)
    out, mode, bits = load_as(given, OUT, 0), load_as(given, MODE, 0), load_as(tree, TREE_LEAF_BITS, 0)
    half, per_leaf, places = _is_half(tree, like), 1 << bits, load_as(given, PLACES, 0)
    for j in range(count):
        line, word = load_as(nodes, j, 0), load_as(words, j, like)
        lane = _leaf_below(leaves + line * stride, word, half)
        position, place = min((line << bits) + lane, size), _place(places, first + j)
        if mode != LOWER:
            there = position < size and load_as(leaves + line * stride, lane & (per_leaf - 1), like) == word
            if not (there and _usable(given, place)):
                position = -1
            elif mode == LAST:
                position = _beyond(tree, line, word, like) - 1
        store_as(out, place, position)


@inline
def _values(given: int, tree: int, first: int, words: int, nodes: int, count: int, like: Any) -> int:
    """The last step of `VALUES` and `LAST_VALUES`: values in query order, 0 where absent; how many are there."""
    leaves, stride, size = load_as(tree, TREE_LEAVES, 0), load_as(tree, TREE_STRIDE, 0), load_as(tree, TREE_SIZE, 0)
    out, width, offset = load_as(given, OUT, 0), load_as(tree, TREE_WIDTH, 0), load_as(tree, TREE_OFFSET, 0)
    last, valid, hits = load_as(given, MODE, 0) == LAST_VALUES, _I64(0), 0
    bits, half = load_as(tree, TREE_LEAF_BITS, 0), _is_half(tree, like)
    mask, places, flags = (1 << bits) - 1, load_as(given, PLACES, 0), load_as(given, THERE, 0)
    for j in range(count):
        line, word = load_as(nodes, j, 0), load_as(words, j, like)
        where = leaves + line * stride
        lane = _leaf_below(where, word, half)
        position = (line << bits) + lane
        lane &= mask
        place = _place(places, first + j)
        there = (position < size) & (load_as(where, lane, like) == word) and _usable(given, place)
        if last and there:
            position = _beyond(tree, line, word, like) - 1
            where, lane = leaves + (position >> bits) * stride, position & mask
        _put(out, place, where + offset, lane, position, width, there)
        valid |= _I64(there) << j
        hits += there
    if places == 0:
        store_as(load_as(given, BITS, 0), first // BLOCK, np.uint64(valid))
    elif hits < count:
        for j in range(count):
            if (valid >> j) & 1 == 0:
                store_as(flags, load_id(places, first + j), np.uint8(0))
    return hits


@inline
def _put(out: int, index: int, where: int, lane: int, position: int, width: int, there: bool) -> None:
    """One answer: the value beside a word or, where there are none, its position."""
    if width == 8:
        store_as(out, index, load_as(where, lane, _I64(0)) if there else _I64(0))
    elif width == 4:
        store_as(out, index, load_as(where, lane, np.uint32(0)) if there else np.uint32(0))
    else:
        store_as(out, index, _I64(position) if there else _I64(0))


@inline
def _ask_answers(given: int, tree: int, first: int, count: int) -> None:
    """Ask for the lines that the answers of a block of parted queries go to."""
    places, out, shift = load_as(given, PLACES, 0), load_as(given, OUT, 0), 3
    if load_as(given, MODE, 0) >= VALUES and load_as(tree, TREE_WIDTH, 0) == 4:
        shift = 2
    if places != 0:
        for j in range(count):
            prefetch_far(out + (load_id(places, first + j) << shift))


@inline
def _finish(given: int, tree: int, first: int, words: int, nodes: int, count: int, like: Any) -> int:
    """The last step of a block."""
    mode = load_as(given, MODE, 0)
    if mode >= VALUES:
        return _values(given, tree, first, words, nodes, count, like)
    if mode == NODES:
        out = load_as(given, OUT, 0)
        for j in range(count):
            store_as(out, first + j, np.uint32(load_as(nodes, j, 0)))
    else:
        _positions(given, tree, first, words, nodes, count, like)
    return 0


@inline
def _search_part(given: int, part: int, parts: int, like: Any) -> None:
    """A stretch of queries from level `START` to level `DEPTH` and, if wanted, through the leaves."""
    tree, total = load_as(given, TREE, 0), load_as(given, COUNT, 0)
    per_level = PHASES if load_as(tree, TREE_REGULAR, 0) != 0 else 1
    start, depth = load_as(given, START, 0) * per_level, load_as(given, DEPTH, 0) * per_level
    near = min(max(load_as(tree, TREE_NEAR, 0) * per_level, start), depth)
    door = load_as(tree, TREE_START_LEVEL, 0) * per_level
    directed = (load_as(tree, TREE_STARTS, 0) != 0) & (start == 0) & (depth >= door)
    lead = 1
    if directed:
        near, lead = door, 2
    blocks, rounds = (total + BLOCK - 1) // BLOCK, depth - near + lead + 1
    first, stop = blocks * part // parts, blocks * (part + 1) // parts
    room, hits = stack_words(SCRATCH), 0
    for turn in range(first, stop + rounds - 1):
        # The block in front goes first: what it asked for longest ago is there, and its place in the ring is next.
        for behind in range(min(rounds - 1, turn - first), max(turn - stop + 1, 0) - 1, -1):
            block = turn - behind
            words = room + 16 * BLOCK * (block % RING)
            nodes, at = words + 8 * BLOCK, block * BLOCK
            count = min(total - at, BLOCK)
            if behind == 0:
                _take(given, at, count, words, like)
                if directed:
                    _entries(tree, words, nodes, count, like)
                else:
                    _begin(given, tree, at, count, nodes)
                    _steps(tree, start, near, words, nodes, count, like)
            elif behind < lead:
                _enter(tree, words, nodes, count, per_level, like)
            elif behind < rounds - 1:
                if behind == rounds - 2:
                    _ask_answers(given, tree, at, count)
                _steps(tree, near + behind - lead, near + behind - lead + 1, words, nodes, count, like)
            else:
                hits += _finish(given, tree, at, words, nodes, count, like)
    store_as(load_as(given, HITS, 0), part, hits)


@inline
def _ends_part(given: int, part: int, parts: int, like: Any) -> None:
    """Where ranges end whose starts are known: right behind the start as a rule, else farther on."""
    tree, total, high = load_as(given, TREE, 0), load_as(given, COUNT, 0), load_as(given, HIGH, 0)
    flip = type(like)(load_as(given, FLIP, np.uint64(0)))
    queries, out, ends = load_as(given, QUERIES, 0), load_as(given, OUT, 0), load_as(given, ENDS, 0)
    leaves, stride, bits = (
        load_as(tree, TREE_LEAVES, 0),
        load_as(tree, TREE_STRIDE, 0),
        load_as(tree, TREE_LEAF_BITS, 0),
    )
    size, stop = load_as(tree, TREE_SIZE, 0), total * (part + 1) // parts
    for j in range(total * part // parts, stop):
        if j + BLOCK < stop:
            prefetch_far(leaves + (load_as(out, j + BLOCK, 0) >> bits) * stride)
            prefetch_far(leaves + ((load_as(out, j + BLOCK, 0) >> bits) + 1) * stride)
        begin = load_as(out, j, 0)
        low, most = type(like)(load_as(queries, j, like) ^ flip), type(like)(load_as(high, j, like) ^ flip)
        end = begin
        if (begin < size) & (low <= most) and _usable(given, j):
            end = max(_beyond(tree, begin >> bits, most, like), begin)
        store_as(ends, j, end)


@share
def search_32(given: int, part: int, parts: int) -> None:
    """`_search_part` of 32-bit words."""
    _search_part(given, part, parts, np.uint32(0))


@share
def search_64(given: int, part: int, parts: int) -> None:
    """`_search_part` of 64-bit words."""
    _search_part(given, part, parts, np.uint64(0))


@share
def ends_32(given: int, part: int, parts: int) -> None:
    """`_ends_part` of 32-bit words."""
    _ends_part(given, part, parts, np.uint32(0))


@share
def ends_64(given: int, part: int, parts: int) -> None:
    """`_ends_part` of 64-bit words."""
    _ends_part(given, part, parts, np.uint64(0))
