"""The workers of the parallel index-based join (PIM-Tree, section 4), from ring to ring: compiled code all the time.

A probe finds tuples before the edge in the index, and scans those from the edge to the end of its saved interval one by
one. Insertions lock one subindex; probes lock nothing. Merges are those of `parallel_merge.py`. Any worker can do all
work alone: none waits for one that has not come.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from millrace.host.join.baseline.btree_kernel import sort_positions
from millrace.host.join.pimtree.control_block import (
    NO_MEMORY,
    RUNNING,
    SLOT_BYTES,
    SLOTS,
    WORKER_BYTES,
    Control,
    Record,
    Worker,
    record_of,
    slot_of,
    word_at,
)
from millrace.host.join.pimtree.join_kernel import (
    Side,
    gather_keys,
    insert_locked,
    range_of,
    scan_static,
    scan_trees,
    search_group,
)
from millrace.host.join.pimtree.parallel_merge import merge_in_phases, merge_together
from millrace.host.join.pimtree.results import Slot, append
from millrace.host.join.pimtree.shared_merge import help_merge
from millrace.host.join.pimtree.static_tree import Static
from millrace.host.join.pimtree.task_protocol import advance
from millrace.host.runtime.intrinsics import (
    WIDE_LANES,
    atomic_load,
    atomic_store,
    load,
    load_byte,
    lowest_bit,
    store,
    within,
)
from millrace.host.runtime.jit import inline, kernel
from millrace.host.runtime.spin_lock import acquire_lock, release_lock
from millrace.host.runtime.thread_sleep import await_event, wake_sleepers

NO_TASK, WAIT, MERGE_R, MERGE_S, LEAVE = -1, -2, -3, -4, -5
IDLE_NANOSECONDS, HELP_NANOSECONDS = 500_000_000, 200_000
"""Longest sleeps of a worker of rings in one go: without tuples, and while it may not take a task. It looks again then:
no wake-up depends on the first; the second lets it help with a blocking merge."""


@inline
def _count_s(order: int, mask: int, first: int, count: int) -> int:
    found = 0
    for t in range(first, first + count):
        found += load_byte(order, t & mask) != 0
    return found


@inline
def _try_acquire(control: int, worker: int) -> int:
    """Take a task, with the queue's lock held; returns its number, or why there is none."""
    if load(control, Control.STOP) != RUNNING:
        return LEAVE
    if load(control, Control.DRAINING) != 0:
        return WAIT
    first, task = load(control, Control.NEXT), load(control, Control.TASKS)
    count = min(load(control, Control.TASK_ROWS), atomic_load(word_at(control, Control.TUPLES)) - first)
    if count == 0:
        return NO_TASK
    if task - atomic_load(word_at(control, Control.HEAD)) >= SLOTS or not _has_record(control, task):
        return WAIT
    of_s = _count_s(load(control, Control.ORDER), load(load(control, Control.R), Side.MASK), first, count)
    merging = load(control, Control.MERGING) != 0
    for side in range(2):
        new, table = of_s if side else count - of_s, load(control, Control.R + side)
        reserved = load(control, Control.RESERVED + side) + new
        full = reserved > load(table, Side.ROOM)
        if full & merging:
            return WAIT
        due = (not merging) & (load(worker, Worker.MERGES) != 0) & (reserved > load(table, Side.LIMIT))
        if full | due:
            return _begin_merge(control, side)
    _begin_task(control, task, count, of_s)
    atomic_store(worker + 8 * Worker.ACTIVE, 1)
    return task


@inline
def _has_record(control: int, task: int) -> bool:
    """Whether a task's record is free: edges that a merge holds need the records of the tasks since."""
    mask, free = load(control, Control.RECORD_MASK), True
    for side in range(2):
        free &= task - atomic_load(word_at(control, Control.EDGE_TASK + side)) < mask
    return free


@inline
def _begin_task(control: int, task: int, count: int, of_s: int) -> None:
    """Write a task's record; its tuples enter their windows."""
    record = record_of(control, task)
    taken_r, taken_s = load(control, Control.TAKEN), load(control, Control.TAKEN_S)
    store(record, Record.FROM_R, taken_r)
    store(record, Record.FROM_S, taken_s)
    store(record, Record.TO_R, taken_r + count - of_s)
    store(record, Record.TO_S, taken_s + of_s)
    store(record, Record.EDGE_R, atomic_load(word_at(control, Control.EDGE)))
    store(record, Record.EDGE_S, atomic_load(word_at(control, Control.EDGE_S)))
    store(record, Record.UPDATES, load(control, Control.UPDATING) + 2 * load(control, Control.UPDATING_S))
    store(control, Control.NEXT, taken_r + taken_s + count)
    atomic_store(word_at(control, Control.TASKS), task + 1)
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
        store(control, Control.STOP, NO_MEMORY)
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
    words, live, new, mask = (
        load(other, Side.WORDS),
        load(other, Side.LIVE),
        load(other, Side.NEW),
        load(other, Side.MASK),
    )
    while first < stop:
        here = first & mask
        count = min(stop - first, WIDE_LANES, mask + 1 - here)  # up to the end of the ring
        hits = within(words, here, np.uint64(low), np.uint64(high - low), like) & ((1 << count) - 1)
        while hits != 0:
            bit = lowest_bit(hits)
            hits &= hits - 1
            if load_byte(live, here + bit):
                at = append(slot, at, new + first + bit)
        first += count
    return at


@inline
def _find_partners(own: int, other: int, i: int, key: int, edge: int, slot: int, like: Any) -> None:
    """Append the partners of tuple i: before the edge from the index, from it on by a scan."""
    here, new = i & load(own, Side.MASK), load(other, Side.NEW)
    begin, end = load(load(own, Side.BEGIN), here), load(load(own, Side.STOP), here)
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
    store(load(own, Side.COUNTS), here, at - start)
    if load(slot, Slot.CAPACITY) >= 0:
        sort_positions(load(slot, Slot.WHERE), start, at)
    store(slot, Slot.USED, at)


@inline
def _insert_new(own: int, first: int, like: Any) -> None:
    """Insert the group's tuples of a side, from number `first` on."""
    number = 0
    for i in range(first, load(own, Side.DONE_TUPLES)):
        if load_byte(load(own, Side.LIVE), i & load(own, Side.MASK)):
            insert_locked(own, load(load(own, Side.OWN_SUBS), number), i, like)
            number += 1


@inline
def _process_group(control: int, r: int, s: int, slot: int, first: int, count: int, updates: int, like: Any) -> None:
    """Search for a group of tuples together; then each finds its partners, in order; then all are inserted.

    Insertions come last because each has a barrier, across which the processor does not overlap cache misses. Pairs
    within the group are found all the same: the edge is before it.
    """
    order, mask = load(control, Control.ORDER), load(r, Side.MASK)
    from_r, from_s = load(r, Side.DONE_TUPLES), load(s, Side.DONE_TUPLES)
    gather_keys(order, first, count, r, s, like)
    search_group(r, like)
    search_group(s, like)
    key_r = key_s = 0
    for t in range(first, first + count):
        of_s = load_byte(order, t & mask) != 0
        own, other, key = (s, r, key_r) if of_s else (r, s, key_s)
        i = load(own, Side.DONE_TUPLES)
        if load_byte(load(own, Side.LIVE), i & mask):
            # The edge is read before the trees: what is before it was inserted earlier.
            edge = atomic_load(word_at(control, Control.EDGE_S if not of_s else Control.EDGE))
            _find_partners(own, other, i, key, edge, slot + of_s * SLOT_BYTES, like)
            if of_s:
                key_r += load(own, Side.RANGES)
            else:
                key_s += load(own, Side.RANGES)
        else:
            store(load(own, Side.COUNTS), i & mask, 0)
        store(own, Side.DONE_TUPLES, i + 1)
    if updates & 1:
        _insert_new(r, from_r, like)
    if updates & 2:
        _insert_new(s, from_s, like)


@inline
def _process(control: int, worker: int, task: int, like: Any) -> None:
    """Process a task, a group of tuples at a time; then complete it."""
    record, slot = record_of(control, task), slot_of(control, task)
    r, s = load(worker, Worker.R), load(worker, Worker.S)
    first = load(record, Record.FROM_R) + load(record, Record.FROM_S)
    stop = load(record, Record.TO_R) + load(record, Record.TO_S)
    store(r, Side.DONE_TUPLES, load(record, Record.FROM_R))
    store(s, Side.DONE_TUPLES, load(record, Record.FROM_S))
    store(slot, Slot.USED, 0)
    store(slot + SLOT_BYTES, Slot.USED, 0)
    group = load(r, Side.TASK_ROWS)
    for at in range(first, stop, group):
        _process_group(control, r, s, slot, at, min(group, stop - at), load(record, Record.UPDATES), like)
    if load(slot, Slot.FAILED) | load(slot + SLOT_BYTES, Slot.FAILED):
        atomic_store(word_at(control, Control.STOP), NO_MEMORY)
    atomic_store(record + 8 * Record.DONE, task + 1)
    atomic_store(worker + 8 * Worker.ACTIVE, 0)
    advance(control)


@inline
def _merge(control: int, worker: int, side: int, like: Any) -> None:
    if load(control, Control.BLOCKING) != 0:
        merge_together(control, side, like)
    else:
        merge_in_phases(control, worker, side, like)


# Workers of rings.


@inline
def _wake_another(control: int) -> None:
    """Wake one worker if tuples are left: who brings tuples wakes only one."""
    left = atomic_load(word_at(control, Control.TUPLES)) > atomic_load(word_at(control, Control.NEXT))
    if left & (atomic_load(word_at(control, Control.WORK_SLEEPERS)) > 0):
        wake_sleepers(word_at(control, Control.WORK), 1)


@kernel
def serve(control: int, part: int, stay: bool, like: Any) -> None:
    """The loop of worker `part` of rings: take tasks until the input is closed; sleep while there are none.

    Without `stay` it returns when there are none: for a thread that has just brought tuples.
    """
    worker = load(control, Control.WORKERS) + part * WORKER_BYTES
    while True:
        work, resume = atomic_load(word_at(control, Control.WORK)), atomic_load(word_at(control, Control.RESUME))
        closed = atomic_load(word_at(control, Control.CLOSED)) != 0
        task = _acquire(control, worker)
        if task >= 0:
            _wake_another(control)
            _process(control, worker, task, like)
        elif task in (MERGE_R, MERGE_S):
            _merge(control, worker, MERGE_R - task, like)
        elif task == LEAVE or closed or not stay:
            return
        elif task == WAIT:
            help_merge(load(control, Control.SHARED_MERGE), like)
            await_event(word_at(control, Control.RESUME), resume, HELP_NANOSECONDS)
        else:
            await_event(word_at(control, Control.WORK), work, IDLE_NANOSECONDS)
