"""The workers of the parallel index-based join (PIM-Tree, section 4): compiled code from the first task to the last.

A probe finds tuples before the edge in the index, and scans those from the edge to the end of its saved interval one by
one. Insertions lock one subindex; probes lock nothing. A merge has two phases, which each
begin with a drain: no task is taken, and all active ones complete. In the first phase the trees of the side do not
change, and its new tuples are left to be scanned; in the second the merged trees are in use, and the merging worker
inserts those tuples. Any worker can do all work alone: none waits for one that has not come.
"""

from __future__ import annotations

from enum import auto
from typing import Any

import numpy as np

from millrace.host.join.baseline.btree_kernel import sort_positions
from millrace.host.join.pimtree.insert_trees import Sub, Trees, insert, node_at, restart, sub_of
from millrace.host.join.pimtree.join_kernel import Side, gather_keys, range_of, scan_static, scan_trees, search_group
from millrace.host.join.pimtree.merge import merge_trees
from millrace.host.join.pimtree.results import Slot, append
from millrace.host.join.pimtree.static_tree import Static, descend
from millrace.host.join.pimtree.task_protocol import (
    GROW_R,
    NO_MEMORY,
    RUNNING,
    SLOT_BYTES,
    SLOTS,
    Control,
    Record,
    advance,
    record_of,
    slot_of,
    word_at,
)
from millrace.host.runtime.intrinsics import (
    WIDE_LANES,
    atomic_load,
    atomic_store,
    load,
    load_as,
    load_byte,
    lowest_bit,
    store,
    store_as,
    within,
)
from millrace.host.runtime.jit import inline, kernel, share
from millrace.host.runtime.kernel_args import KernelArgs
from millrace.host.runtime.spin_lock import acquire_lock, release_lock
from millrace.host.runtime.thread_sleep import pause

NO_TASK, WAIT, MERGE_R, MERGE_S, LEAVE = -1, -2, -3, -4, -5


class Worker(KernelArgs):
    """A worker's own words."""

    ACTIVE = auto()
    R = auto()  # its copies of the tables of r and s, with scratch memory of its own
    S = auto()


WORKER_BYTES = 64


@inline
def _count_s(order: int, first: int, count: int) -> int:
    found = 0
    for t in range(first, first + count):
        found += load_byte(order, t) != 0
    return found


@inline
def _try_acquire(control: int, worker: int) -> int:
    """Take a task, with the queue's lock held; returns its number, or why there is none."""
    if load(control, Control.STOP) != RUNNING:
        return LEAVE
    if load(control, Control.DRAINING) != 0:
        return WAIT
    first, task = load(control, Control.NEXT), load(control, Control.TASKS)
    count = min(load(control, Control.TASK_ROWS), load(control, Control.TUPLES) - first)
    if count == 0:
        return NO_TASK
    if task - atomic_load(word_at(control, Control.HEAD)) >= SLOTS:
        return WAIT
    of_s = _count_s(load(control, Control.ORDER), first, count)
    for side in range(2):
        new = of_s if side else count - of_s
        reserved = load(control, Control.RESERVED + side) + new
        if reserved > load(load(control, Control.R + side), Side.LIMIT):
            return WAIT if load(control, Control.MERGING) != 0 else _begin_merge(control, side)
    _begin_task(control, task, first, count, of_s)
    atomic_store(worker + 8 * Worker.ACTIVE, 1)
    return task


@inline
def _begin_task(control: int, task: int, first: int, count: int, of_s: int) -> None:
    """Write a task's record; its tuples enter their windows."""
    record = record_of(control, task)
    taken_r, taken_s = load(control, Control.TAKEN), load(control, Control.TAKEN_S)
    store(record, Record.FIRST, first)
    store(record, Record.COUNT, count)
    store(record, Record.FROM_R, taken_r)
    store(record, Record.FROM_S, taken_s)
    store(record, Record.TO_R, taken_r + count - of_s)
    store(record, Record.TO_S, taken_s + of_s)
    store(record, Record.UPDATES, load(control, Control.UPDATING) + 2 * load(control, Control.UPDATING_S))
    store(control, Control.NEXT, first + count)
    store(control, Control.TASKS, task + 1)
    store(control, Control.TAKEN, taken_r + count - of_s)
    store(control, Control.TAKEN_S, taken_s + of_s)
    store(control, Control.RESERVED, load(control, Control.RESERVED) + count - of_s)
    store(control, Control.RESERVED_S, load(control, Control.RESERVED_S) + of_s)


@inline
def _begin_merge(control: int, side: int) -> int:
    """Begin a merge, with the queue's lock held, if the spare trees are large enough."""
    tree = load(load(load(control, Control.R + side), Side.STATICS), 0)
    spare = load(load(control, Control.SPARE_STATICS), side)
    if load(tree, Static.SIZE) + load(control, Control.RESERVED + side) > load(spare, Static.CAPACITY):
        store(control, Control.STOP, GROW_R + side)
        return LEAVE
    store(control, Control.MERGING, 1)
    store(control, Control.DRAINING, 1)
    return MERGE_R - side


@inline
def _acquire(control: int, worker: int) -> int:
    acquire_lock(word_at(control, Control.QUEUE_LOCK))
    task = _try_acquire(control, worker)
    release_lock(word_at(control, Control.QUEUE_LOCK))
    return task


# One task.


@inline
def _scan_new(other: int, low: Any, high: Any, first: int, stop: int, slot: int, at: int, like: Any) -> int:
    """Append the new tuples `first .. stop` of the other side that are in a range: those that may not be indexed."""
    words, live, new = load(other, Side.WORDS), load(other, Side.LIVE), load(other, Side.NEW)
    while first < stop:
        hits = within(words, first, np.uint64(low), np.uint64(high - low), like)
        hits &= (1 << min(stop - first, WIDE_LANES)) - 1
        while hits != 0:
            i = first + lowest_bit(hits)
            hits &= hits - 1
            if load_byte(live, i):
                at = append(slot, at, new + i)
        first += WIDE_LANES
    return at


@inline
def _find_partners(own: int, other: int, i: int, key: int, edge: int, slot: int, like: Any) -> None:
    """Append the partners of tuple i: before the edge from the index, from it on by a scan."""
    begin, end, new = load(load(own, Side.BEGIN), i), load(load(own, Side.STOP), i), load(other, Side.NEW)
    indexed, start = min(end, new + edge), load(slot, Slot.USED)
    at = start
    for k in range(load(own, Side.RANGES)):
        low, high = range_of(own, i, k, like)
        if low > high:
            continue
        rank, sub = load(load(other, Side.RANKS), key + k), load(load(other, Side.KEY_SUBS), key + k)
        at = scan_static(load(load(other, Side.STATICS), 0), rank, high, begin, indexed, slot, at, like)
        at = scan_trees(load(load(other, Side.TREES), 0), sub, low, high, begin, indexed, slot, at, like)
        at = _scan_new(other, low, high, max(begin - new, edge), end - new, slot, at, like)
    store(load(own, Side.COUNTS), i, at - start)
    if load(slot, Slot.CAPACITY) >= 0:
        sort_positions(load(slot, Slot.WHERE), start, at)
    store(slot, Slot.USED, at)


@inline
def _insert_locked(own: int, sub: int, i: int, like: Any) -> None:
    trees = load(load(own, Side.TREES), 0)
    lock = node_at(trees, sub, like) + 8 * Sub.LOCK
    acquire_lock(lock)
    insert(trees, sub, load_as(load(own, Side.WORDS), i, like), load(own, Side.NEW) + i - load(trees, Trees.BASE), like)
    release_lock(lock)


@inline
def _process_group(control: int, r: int, s: int, slot: int, first: int, count: int, updates: int, like: Any) -> None:
    """Search for a group of tuples together; then each finds its partners and is inserted, in order."""
    order = load(control, Control.ORDER)
    gather_keys(order, first, count, r, s, like)
    search_group(r, like)
    search_group(s, like)
    key_r = key_s = own_r = own_s = 0
    for t in range(first, first + count):
        of_s = load_byte(order, t) != 0
        own, other, key, number = (s, r, key_r, own_s) if of_s else (r, s, key_s, own_r)
        i = load(own, Side.DONE_TUPLES)
        if load_byte(load(own, Side.LIVE), i):
            # The edge is read before the trees: what is before it was inserted earlier.
            edge = atomic_load(word_at(control, Control.EDGE_S if not of_s else Control.EDGE))
            _find_partners(own, other, i, key, edge, slot + of_s * SLOT_BYTES, like)
            if updates & (2 if of_s else 1):
                _insert_locked(own, load(load(own, Side.OWN_SUBS), number), i, like)
            if of_s:
                key_r, own_s = key_r + load(own, Side.RANGES), own_s + 1
            else:
                key_s, own_r = key_s + load(own, Side.RANGES), own_r + 1
        store(own, Side.DONE_TUPLES, i + 1)


@inline
def _process(control: int, worker: int, task: int, like: Any) -> None:
    """Process a task, a group of tuples at a time; then complete it."""
    record, slot = record_of(control, task), slot_of(control, task)
    r, s = load(worker, Worker.R), load(worker, Worker.S)
    first, stop = load(record, Record.FIRST), load(record, Record.FIRST) + load(record, Record.COUNT)
    store(r, Side.DONE_TUPLES, load(record, Record.FROM_R))
    store(s, Side.DONE_TUPLES, load(record, Record.FROM_S))
    store(slot, Slot.USED, 0)
    store(slot + SLOT_BYTES, Slot.USED, 0)
    group = load(r, Side.TASK_ROWS)
    for at in range(first, stop, group):
        _process_group(control, r, s, slot, at, min(group, stop - at), load(record, Record.UPDATES), like)
    if load(slot, Slot.FAILED) | load(slot + SLOT_BYTES, Slot.FAILED):
        atomic_store(word_at(control, Control.STOP), NO_MEMORY)
    atomic_store(record + 8 * Record.DONE, 1)
    atomic_store(worker + 8 * Worker.ACTIVE, 0)
    advance(control)


# A merge.


@inline
def _drain(control: int) -> None:
    """Wait until no task is active; no new one is taken meanwhile."""
    for number in range(load(control, Control.WORKER_COUNT)):
        while atomic_load(load(control, Control.WORKERS) + number * WORKER_BYTES + 8 * Worker.ACTIVE) != 0:
            pause()


@inline
def _set_draining(control: int, value: int) -> None:
    acquire_lock(word_at(control, Control.QUEUE_LOCK))
    store(control, Control.DRAINING, value)
    release_lock(word_at(control, Control.QUEUE_LOCK))


@inline
def _set_edge(control: int, side: int, frozen: int, task: int, edge: int) -> None:
    """Hold an edge at a tuple, or let it go on from a task; all earlier tasks are completed."""
    acquire_lock(word_at(control, Control.ORDERED_LOCK))
    store(control, Control.EDGE_TASK + side, task)
    atomic_store(word_at(control, Control.EDGE + side), edge)
    atomic_store(word_at(control, Control.FROZEN + side), frozen)
    release_lock(word_at(control, Control.ORDERED_LOCK))


@inline
def _oldest(control: int, side: int) -> int:
    """The oldest position of a side that a tuple not yet taken may see: intervals never move back."""
    other, taken = load(control, Control.R + 1 - side), load(control, Control.TAKEN + 1 - side)
    seen = load(load(other, Side.BEGIN), taken - 1) if taken > 0 else 0
    return max(seen, load(load(control, Control.R + side), Side.OLDEST))


@inline
def _swap_words(a: int, b: int) -> None:
    before = load(a, 0)
    store(a, 0, load(b, 0))
    store(b, 0, before)


@inline
def _insert_pending(own: int, first: int, stop: int, like: Any) -> None:
    """Insert new tuples `first .. stop`, a group at a time."""
    tree, trees = load(load(own, Side.STATICS), 0), load(load(own, Side.TREES), 0)
    words, live, subs = load(own, Side.WORDS), load(own, Side.LIVE), load(own, Side.OWN_SUBS)
    group = load(own, Side.TASK_ROWS)
    for start in range(first, stop, group):
        count = min(group, stop - start)
        for j in range(count):
            store(subs, j, 0)
            store_as(load(own, Side.OWN_WORDS), j, load_as(words, start + j, like))
        descend(tree, 0, load(trees, Trees.DEPTH), load(own, Side.OWN_WORDS), subs, count, like)
        for j in range(count):
            if load_byte(live, start + j):
                _insert_locked(own, sub_of(trees, load(subs, j)), start + j, like)


@kernel
def _merge(control: int, worker: int, side: int, like: Any) -> None:
    """Merge the trees of a side in two phases. `DRAINING` is set already."""
    own, table = load(worker, Worker.R + side), load(control, Control.R + side)
    _drain(control)
    frozen, oldest = load(control, Control.TAKEN + side), _oldest(control, side)
    _set_edge(control, side, 1, load(control, Control.TASKS), frozen)
    store(control, Control.UPDATING + side, 0)
    store(control, Control.RESERVED + side, 0)
    _set_draining(control, 0)
    tree, trees = load(load(table, Side.STATICS), 0), load(load(table, Side.TREES), 0)
    new_tree = load(load(control, Control.SPARE_STATICS), side)
    new_trees = load(load(control, Control.SPARE_TREES), side)
    store(new_tree, Static.BASE, oldest)
    merge_trees(tree, trees, oldest, new_tree, like)
    restart(new_trees, new_tree, load(control, Control.SUBINDEXES + side), oldest, like)
    _set_draining(control, 1)
    _drain(control)
    _swap_words(load(table, Side.STATICS), load(control, Control.SPARE_STATICS) + 8 * side)
    _swap_words(load(table, Side.TREES), load(control, Control.SPARE_TREES) + 8 * side)
    pending, task = load(control, Control.TAKEN + side), load(control, Control.TASKS)
    store(control, Control.UPDATING + side, 1)
    _set_draining(control, 0)
    _insert_pending(own, frozen, pending, like)
    _set_edge(control, side, 0, task, pending)
    acquire_lock(word_at(control, Control.QUEUE_LOCK))
    store(control, Control.MERGING, 0)
    store(control, Control.MERGES, load(control, Control.MERGES) + 1)
    release_lock(word_at(control, Control.QUEUE_LOCK))
    advance(control)


@inline
def _work(control: int, part: int, like: Any) -> None:
    """Take tasks until there are none left, or until workers must stop."""
    worker = load(control, Control.WORKERS) + part * WORKER_BYTES
    while True:
        task = _acquire(control, worker)
        if task >= 0:
            _process(control, worker, task, like)
        elif task in (MERGE_R, MERGE_S):
            _merge(control, worker, MERGE_R - task, like)
        elif task == WAIT:
            advance(control)
            pause()
        else:
            return


@share
def work_32(control: int, part: int, parts: int) -> None:
    """The loop of worker `part`, for 32-bit words."""
    _work(control, part, np.uint32(0))


@share
def work_64(control: int, part: int, parts: int) -> None:
    """The loop of worker `part`, for 64-bit words."""
    _work(control, part, np.uint64(0))
