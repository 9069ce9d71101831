"""The kernels of a step by ranges: several threads join many tuples that are all known before (`range_step.py`).

Each thread owns a range of words. In the first phase it inserts the new tuples in its range; then all are in the trees,
which nobody changes. In the second phase it finds the partners of those tuples. A tuple's interval hides what came
later, as it hides what has expired. So threads need no locks, and each one keeps to a part of the trees: its cache has
to hold that part alone. A thread without tuples helps others in the second phase. The third phase brings results into
order of arrival.
"""

from __future__ import annotations

from enum import auto
from typing import Any

import numpy as np

from millrace.host.join.pimtree.insert_trees import Sub, Trees, insert, node_at, sub_of
from millrace.host.join.pimtree.join_kernel import Side, find_partners, list_keys, search_group
from millrace.host.join.pimtree.static_tree import descend
from millrace.host.runtime.intrinsics import (
    atomic_add,
    load,
    load_as,
    load_byte,
    load_id,
    stack_words,
    store,
    store_as,
)
from millrace.host.runtime.jit import inline, kernel, share
from millrace.host.runtime.kernel_args import KernelArgs

BLOCK = 64
"""Tuples that a thread takes at once in the second phase."""
OWNER_SHIFT = 48
"""Where a result is: the thread that has found it, above its number among that thread's results."""


class Chunk(KernelArgs):
    """Consecutive tuples of a step, without a merge between them."""

    FROM_R = auto()  # the tuples of each side
    FROM_S = auto()
    TO_R = auto()
    TO_S = auto()
    WHERE_R = auto()  # where the results of each tuple are
    WHERE_S = auto()
    OWNERS = auto()


class Owner(KernelArgs):
    """What belongs to a range of words, in cache lines of its own."""

    NEXT_R = auto()  # the next tuple of each list that no thread has taken
    NEXT_S = auto()
    _1 = auto()
    _2 = auto()
    _3 = auto()
    _4 = auto()
    _5 = auto()
    _6 = auto()
    R = auto()  # copies of the sides' tables, with scratch memory of its own
    S = auto()
    LIST_R = auto()  # the live tuples in its range
    LIST_S = auto()
    COUNT_R = auto()
    COUNT_S = auto()
    LOW_R = auto()  # its ranges, which end where subindexes end; empty if the second word is below the first
    LOW_S = auto()
    HIGH_R = auto()
    HIGH_S = auto()
    _7 = auto()
    _8 = auto()
    _9 = auto()
    _10 = auto()
    _11 = auto()
    _12 = auto()


OWNER_BYTES = 8 * len(Owner)


@kernel
def chunk_end(order: int, first: int, stop: int, room_r: int, room_s: int) -> tuple[int, int]:
    """How many tuples of s are in a chunk from tuple `first` on for which both sides have room; and its end."""
    block, at, found = BLOCK, first, 0
    while at < stop:
        count, of_s = min(stop - at, block), 0
        for t in range(at, at + count):
            of_s += load_byte(order, t)
        if found + of_s <= room_s and at + count - first - found - of_s <= room_r:
            at += count
            found += of_s
        elif block > 1:
            block = 1
        else:
            break
    return found, at


@kernel
def range_end(tree: int, trees: int, word: Any) -> Any:
    """The last word of the subindex in which a word is."""
    keys, node = stack_words(1), stack_words(1)
    store_as(keys, 0, word)
    store(node, 0, 0)
    descend(tree, 0, load(trees, Trees.DEPTH), keys, node, 1, word)
    sub = sub_of(trees, load(node, 0)) if load(trees, Trees.DEPTH) > 0 else 0
    return load_as(node_at(trees, sub, word), Sub.BOUND, np.uint64(0))


@inline
def _owner(chunk: int, part: int) -> int:
    return load(chunk, Chunk.OWNERS) + part * OWNER_BYTES


@inline
def _list_tuples(chunk: int, own: int, side: int, like: Any) -> int:
    """List the live tuples of a side in an owner's range; returns their number."""
    table, out = load(own, Owner.R + side), load(own, Owner.LIST_R + side)
    words, live = load(table, Side.WORDS), load(table, Side.LIVE)
    low, high = type(like)(load(own, Owner.LOW_R + side)), type(like)(load(own, Owner.HIGH_R + side))
    count = 0
    if low <= high:
        for i in range(load(chunk, Chunk.FROM_R + side), load(chunk, Chunk.TO_R + side)):
            # A branch on the range would be mispredicted: each tuple is written, and the next one replaces it.
            store_as(out, count, np.uint32(i))
            inside = type(like)(load_as(words, i, like) - low) <= type(like)(high - low)
            count += inside & (load_byte(live, i) != 0)
    return count


@inline
def _gather(own: int, side: int, numbers: int, count: int, like: Any) -> None:
    """List the keys and words of a group of a side's tuples."""
    store(load(own, Owner.R), Side.KEY_COUNT, 0)
    store(load(own, Owner.S), Side.KEY_COUNT, 0)
    store(load(own, Owner.R), Side.OWN_COUNT, 0)
    store(load(own, Owner.S), Side.OWN_COUNT, 0)
    for t in range(count):
        list_keys(load(own, Owner.R + side), load(own, Owner.S - side), load_id(numbers, t), like)


@inline
def _insert_group(own: int, side: int, numbers: int, count: int, like: Any) -> None:
    table = load(own, Owner.R + side)
    _gather(own, side, numbers, count, like)
    search_group(table, like)
    trees, words, subs = load(load(table, Side.TREES), 0), load(table, Side.WORDS), load(table, Side.OWN_SUBS)
    first = load(table, Side.NEW) - load(trees, Trees.BASE)
    for t in range(count):
        i = load_id(numbers, t)
        insert(trees, load(subs, t), load_as(words, i, like), first + i, like)


@inline
def _probe_group(chunk: int, own: int, side: int, numbers: int, count: int, part: int, like: Any) -> None:
    """Find the partners of a group of tuples, which may be another owner's, with the memory of this one."""
    table, other = load(own, Owner.R + side), load(own, Owner.S - side)
    _gather(own, side, numbers, count, like)
    search_group(other, like)
    where, ranges = load(chunk, Chunk.WHERE_R + side), load(table, Side.RANGES)
    for t in range(count):
        i = load_id(numbers, t)
        store(where, i, load(table, Side.OUT_USED) | part << OWNER_SHIFT)
        find_partners(table, other, i, t * ranges, like)


@inline
def _insert(chunk: int, part: int, like: Any) -> None:
    own = _owner(chunk, part)
    for side in range(2):
        total = _list_tuples(chunk, own, side, like)
        store(own, Owner.COUNT_R + side, total)
        store(own, Owner.NEXT_R + side, 0)
        group, numbers = load(load(own, Owner.R + side), Side.TASK_ROWS), load(own, Owner.LIST_R + side)
        for first in range(0, total, group):
            _insert_group(own, side, numbers + 4 * first, min(group, total - first), like)


@inline
def _probe(chunk: int, part: int, parts: int, like: Any) -> None:
    mine = _owner(chunk, part)
    group = load(load(mine, Owner.R), Side.TASK_ROWS)
    for step in range(2 * parts):
        own, side = _owner(chunk, (part + step // 2) % parts), step & 1
        total, numbers = load(own, Owner.COUNT_R + side), load(own, Owner.LIST_R + side)
        while True:
            first = atomic_add(own + 8 * (Owner.NEXT_R + side), BLOCK)
            if first >= total:
                break
            stop = min(first + BLOCK, total)
            for at in range(first, stop, group):
                _probe_group(chunk, mine, side, numbers + 4 * at, min(group, stop - at), part, like)


@share
def insert_32(chunk: int, part: int, parts: int) -> None:
    """The first phase of an owner, for 32-bit words."""
    _insert(chunk, part, np.uint32(0))


@share
def insert_64(chunk: int, part: int, parts: int) -> None:
    """The first phase of an owner, for 64-bit words."""
    _insert(chunk, part, np.uint64(0))


@share
def probe_32(chunk: int, part: int, parts: int) -> None:
    """The second phase of an owner, for 32-bit words."""
    _probe(chunk, part, parts, np.uint32(0))


@share
def probe_64(chunk: int, part: int, parts: int) -> None:
    """The second phase of an owner, for 64-bit words."""
    _probe(chunk, part, parts, np.uint64(0))


class Delivery(KernelArgs):
    """The results of one side's tuples, on their way into order of arrival."""

    COUNTS = auto()
    WHERE = auto()
    ENDS = auto()  # the sums of counts
    OUT = auto()
    TUPLES = auto()
    SOURCES = auto()  # the results of each owner


@share
def deliver(delivery: int, part: int, parts: int) -> None:
    """The third phase: copy the results of some tuples."""
    counts, where, ends, out, tuples, sources = (
        load(delivery, Delivery.COUNTS),
        load(delivery, Delivery.WHERE),
        load(delivery, Delivery.ENDS),
        load(delivery, Delivery.OUT),
        load(delivery, Delivery.TUPLES),
        load(delivery, Delivery.SOURCES),
    )
    for i in range(part * tuples // parts, (part + 1) * tuples // parts):
        count = load(counts, i)
        if count > 0:
            found = load(where, i)
            source = load(sources, found >> OWNER_SHIFT) + 8 * (found & ((1 << OWNER_SHIFT) - 1))
            to = out + 8 * (load(ends, i) - count)
            for k in range(count):
                store(to, k, load(source, k))
