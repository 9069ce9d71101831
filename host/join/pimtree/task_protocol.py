"""The shared memory of the parallel join, and its ordered section (PIM-Tree, section 4; holes closed as in the model).

Workers take tasks, consecutive tuples of the queue, under the queue's lock. A task is active from then on until it is
completed. In the ordered section, which one thread at a time enters by trying a lock, the edges move past completed
tasks and results leave in order of arrival. A thread that completes a task and fails to get that lock must not be
missed: the holder looks again after it has unlocked, behind a sequentially consistent fence.
"""

from __future__ import annotations

from enum import auto

from millrace.host.join.pimtree.join_kernel import Side
from millrace.host.join.pimtree.results import Slot, enlarge
from millrace.host.runtime.intrinsics import atomic_load, atomic_store, fence, load, move_bytes, store
from millrace.host.runtime.jit import inline, kernel
from millrace.host.runtime.kernel_args import KernelArgs
from millrace.host.runtime.spin_lock import release_lock, try_lock

RUNNING, NO_MEMORY, GROW_R, GROW_S = range(4)
"""Values of `STOP`: why workers leave; the last two: the spare trees of a side are too small for a merge."""
SLOTS = 64
"""Tasks whose results may wait for an earlier one; few, so that their memory stays in the cache."""


class Control(KernelArgs):
    """The words that workers share; those of a group are used together and have a cache line of their own."""

    QUEUE_LOCK = auto()  # protects this group
    NEXT = auto()  # the next tuple
    TASKS = auto()  # tasks so far
    TAKEN = auto()  # tuples of r and of s so far
    TAKEN_S = auto()
    DRAINING = auto()  # no task may be taken
    RESERVED = auto()  # entries of the insert trees of r and of s, including those to come
    RESERVED_S = auto()
    MERGING = auto()
    UPDATING = auto()  # whether tuples of r and of s are inserted
    UPDATING_S = auto()
    STOP = auto()
    MERGES = auto()
    _1 = auto()
    _2 = auto()
    _3 = auto()
    ORDERED_LOCK = auto()  # protects this group
    HEAD = auto()  # the first task whose results have not left
    EDGE_TASK = auto()  # the first task that is not completed, for r and for s
    EDGE_TASK_S = auto()
    FROZEN = auto()  # edges that a merge holds
    FROZEN_S = auto()
    _4 = auto()
    _5 = auto()
    EDGE = auto()  # new tuples of r and of s before these are indexed
    EDGE_S = auto()
    ORDER = auto()  # from here on nothing changes
    TUPLES = auto()
    TASK_ROWS = auto()
    RECORDS = auto()
    SLOTS = auto()
    R = auto()
    S = auto()
    SPARE_STATICS = auto()
    SPARE_TREES = auto()
    SUBINDEXES = auto()  # of r and of s
    SUBINDEXES_S = auto()
    WORKERS = auto()  # the workers' own words, WORKER_BYTES each
    WORKER_COUNT = auto()
    BLOCKING = auto()  # whether all workers merge together, and no task is processed meanwhile
    SHARED_MERGE = auto()


class Record(KernelArgs):
    """A task: its first tuple, how many, its first and last new tuples of r and s, whether it is completed."""

    FIRST = auto()
    COUNT = auto()
    FROM_R = auto()
    FROM_S = auto()
    TO_R = auto()
    TO_S = auto()
    UPDATES = auto()  # bit 0: tuples of r are inserted; bit 1: of s
    DONE = auto()


class Worker(KernelArgs):
    """A worker's own words."""

    ACTIVE = auto()
    R = auto()  # its copies of the tables of r and s, with scratch memory of its own
    S = auto()


WORKER_BYTES = 64


RECORD_BYTES = 8 * len(Record)
SLOT_BYTES = 8 * len(Slot)


@inline
def record_of(control: int, task: int) -> int:
    """The address of a task's record."""
    return load(control, Control.RECORDS) + task * RECORD_BYTES


@inline
def slot_of(control: int, task: int) -> int:
    """The address of a task's two slots: the results of r's tuples, then those of s's."""
    return load(control, Control.SLOTS) + task % SLOTS * 2 * SLOT_BYTES


@inline
def word_at(control: int, field: int) -> int:
    """The address of a word, for atomics."""
    return control + 8 * field


@inline
def is_done(control: int, task: int) -> bool:
    """Whether a task is completed. There is a record beyond the last task, which is never completed."""
    return atomic_load(record_of(control, task) + 8 * Record.DONE) != 0


@inline
def _move_edge(control: int, side: int) -> None:
    """Move a side's edge past completed tasks, unless a merge holds it."""
    task = load(control, Control.EDGE_TASK + side)
    if load(control, Control.FROZEN + side) != 0 or not is_done(control, task):
        return
    while is_done(control, task):
        task += 1
    store(control, Control.EDGE_TASK + side, task)
    atomic_store(word_at(control, Control.EDGE + side), load(record_of(control, task - 1), Record.TO_R + side))


@inline
def _emit(control: int, task: int) -> bool:
    """Append the results of a task to the output of each side; false if there is no memory."""
    for side in range(2):
        slot = slot_of(control, task) + side * SLOT_BYTES
        out = load(control, Control.R + side) + 8 * Side.OUT
        found, used = load(slot, Slot.USED), load(out, Slot.USED)
        if load(out, Slot.CAPACITY) >= 0 and found > 0:
            if used + found > load(out, Slot.CAPACITY) and not enlarge(out, used + found):
                return False
            move_bytes(load(out, Slot.WHERE) + 8 * used, load(slot, Slot.WHERE), 8 * found)
            store(out, Slot.USED, used + found)
    return True


@inline
def _waits(control: int) -> bool:
    """Whether the ordered section has something to do."""
    ready = is_done(control, atomic_load(word_at(control, Control.HEAD)))
    for side in range(2):
        held = atomic_load(word_at(control, Control.FROZEN + side)) != 0
        ready |= (not held) & is_done(control, atomic_load(word_at(control, Control.EDGE_TASK + side)))
    return ready & (atomic_load(word_at(control, Control.STOP)) != NO_MEMORY)


@kernel
def advance(control: int) -> None:
    """Move edges and let results leave, if no other thread does; must be called after each completed task."""
    while try_lock(word_at(control, Control.ORDERED_LOCK)):
        _move_edge(control, 0)
        _move_edge(control, 1)
        head = load(control, Control.HEAD)
        while is_done(control, head):
            if not _emit(control, head):
                atomic_store(word_at(control, Control.STOP), NO_MEMORY)
                break
            head += 1
            atomic_store(word_at(control, Control.HEAD), head)
        release_lock(word_at(control, Control.ORDERED_LOCK))
        fence()
        if not _waits(control):
            return
