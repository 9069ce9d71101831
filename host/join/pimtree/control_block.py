"""The words that the workers of the parallel join share (PIM-Tree, section 4): queue, ordered section, edges, tasks.

Words of a group are used together and have cache lines of their own. Tuples and tasks are in rings: task n is at
`n & RECORD_MASK`, and the tuples as `Side.MASK` says.
"""

from __future__ import annotations

from enum import auto

from millrace.host.runtime.intrinsics import load
from millrace.host.runtime.jit import inline
from millrace.host.runtime.kernel_args import KernelArgs

RUNNING, NO_MEMORY, STOPPED = range(3)
"""Values of `STOP`: why workers leave."""
SLOTS = 64
"""Tasks whose results may wait for an earlier one; few, so that their memory stays in the cache."""


class Control(KernelArgs):
    """The words that workers share."""

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
    LEFT = auto()  # into a ring: tuples whose pairs have left, then those of r and of s
    LEFT_R = auto()
    LEFT_S = auto()
    LEFT_PARTNERS = auto()  # partners of the next tuple that have left, and results of its task, of r and of s
    LEFT_RESULTS = auto()
    LEFT_RESULTS_S = auto()
    _4 = auto()
    _5 = auto()
    _6 = auto()
    _7 = auto()
    EDGE = auto()  # new tuples of r and of s before these are indexed
    EDGE_S = auto()
    FREE = auto()  # tuples, and new tuples of r and of s, before these are not needed any more
    FREE_R = auto()
    FREE_S = auto()
    _8 = auto()
    _9 = auto()
    _10 = auto()
    TUPLES = auto()  # tuples that have arrived
    ARRIVED = auto()  # those of r and of s
    ARRIVED_S = auto()
    CLOSED = auto()  # workers leave when there is no task
    _11 = auto()
    _12 = auto()
    _13 = auto()
    _14 = auto()
    WORK = auto()  # an event: workers of a ring that find no tuple wait for it; then the number of those
    WORK_SLEEPERS = auto()
    RESUME = auto()  # an event: workers of a ring that may not take a task wait for it
    RESUME_SLEEPERS = auto()
    _15 = auto()
    _16 = auto()
    _17 = auto()
    _18 = auto()
    ORDER = auto()  # from here on nothing changes
    TASK_ROWS = auto()
    RECORDS = auto()
    RECORD_MASK = auto()
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
    RING = auto()  # the ring of pairs (`pair_ring.py`)


class Record(KernelArgs):
    """A task, in a cache line: its new tuples of r and s, from the first to the last one. They are all its tuples."""

    FROM_R = auto()
    FROM_S = auto()
    TO_R = auto()
    TO_S = auto()
    EDGE_R = auto()  # the edges when it was taken: its probes read no new tuple before them
    EDGE_S = auto()
    UPDATES = auto()  # bit 0: tuples of r are inserted; bit 1: of s
    DONE = auto()  # its number plus 1 once it is completed


class Worker(KernelArgs):
    """A worker's own words."""

    ACTIVE = auto()
    R = auto()  # its copies of the tables of r and s, with scratch memory of its own
    S = auto()
    MERGES = auto()  # whether it begins merges; if not, it goes on as long as the insert trees have memory


WORKER_BYTES = 64
RECORD_BYTES = 8 * len(Record)
SLOT_WORDS = 8
"""A `Slot` and what fills its cache line: workers write to theirs for every tuple."""
SLOT_BYTES = 8 * SLOT_WORDS


@inline
def record_of(control: int, task: int) -> int:
    """The address of a task's record."""
    return load(control, Control.RECORDS) + (task & load(control, Control.RECORD_MASK)) * RECORD_BYTES


@inline
def slot_of(control: int, task: int) -> int:
    """The address of a task's two slots: the results of r's tuples, then those of s's."""
    return load(control, Control.SLOTS) + task % SLOTS * 2 * SLOT_BYTES


@inline
def word_at(control: int, field: int) -> int:
    """The address of a word, for atomics."""
    return control + 8 * field
