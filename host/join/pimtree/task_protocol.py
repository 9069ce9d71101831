"""The ordered section of the parallel join (PIM-Tree, section 4; holes closed as in the model).

Workers take tasks, consecutive tuples of the queue, under the queue's lock. A task is active from then on until it is
completed. In the ordered section, which one thread at a time enters by trying a lock, the edges move past completed
tasks and results leave in order of arrival. A thread that completes a task and fails to get that lock must not be
missed: the holder looks again after it has unlocked, behind a sequentially consistent fence. The same holds for a
reader that has made room in the ring of pairs.
"""

from __future__ import annotations

from millrace.host.join.pimtree.control_block import NO_MEMORY, Control, Record, record_of, word_at
from millrace.host.join.pimtree.pair_ring import PairRing, emit_to_ring, ring_room
from millrace.host.runtime.intrinsics import atomic_load, atomic_store, fence, load, store
from millrace.host.runtime.jit import inline, kernel
from millrace.host.runtime.spin_lock import release_lock, try_lock
from millrace.host.runtime.thread_sleep import signal_event


@inline
def is_done(control: int, task: int) -> bool:
    """Whether a task is completed. There is a record beyond the last task, which is never completed."""
    return atomic_load(record_of(control, task) + 8 * Record.DONE) == task + 1


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
def _publish_free(control: int, head: int) -> None:
    """Say which tuples no worker needs any more, so that new ones can take their places in the rings.

    Probes of a task read no tuple before the edges of the moment when it was taken, and edges never move back. If no
    task is under way these are the present edges, read before `TASKS`: a task taken later reads edges after them.
    """
    edge_r, edge_s = atomic_load(word_at(control, Control.EDGE)), atomic_load(word_at(control, Control.EDGE_S))
    if atomic_load(word_at(control, Control.TASKS)) > head:
        record = record_of(control, head)
        edge_r, edge_s = load(record, Record.EDGE_R), load(record, Record.EDGE_S)
    atomic_store(word_at(control, Control.FREE_R), max(edge_r, load(control, Control.FREE_R)))
    atomic_store(word_at(control, Control.FREE_S), max(edge_s, load(control, Control.FREE_S)))
    atomic_store(word_at(control, Control.FREE), load(control, Control.LEFT))


@inline
def _waits(control: int) -> bool:
    """Whether the ordered section has something to do."""
    ready = is_done(control, atomic_load(word_at(control, Control.HEAD)))
    ready &= ring_room(load(control, Control.RING)) > 0
    for side in range(2):
        held = atomic_load(word_at(control, Control.FROZEN + side)) != 0
        ready |= (not held) & is_done(control, atomic_load(word_at(control, Control.EDGE_TASK + side)))
    return ready & (atomic_load(word_at(control, Control.STOP)) != NO_MEMORY)


@inline
def _progress(control: int, ring: int) -> int:
    """A number that changes whenever the ordered section has done something that a thread may wait for."""
    done = load(control, Control.HEAD) + load(control, Control.FREE_R) + load(control, Control.FREE_S)
    return done + load(control, Control.LEFT) + load(ring, PairRing.WRITTEN)


@kernel
def advance(control: int) -> None:
    """Move edges and let results leave, if no other thread does; must be called after each completed task."""
    ring = load(control, Control.RING)
    while try_lock(word_at(control, Control.ORDERED_LOCK)):
        before = _progress(control, ring)
        _move_edge(control, 0)
        _move_edge(control, 1)
        head = load(control, Control.HEAD)
        while is_done(control, head) and emit_to_ring(control, head):
            head += 1
            atomic_store(word_at(control, Control.HEAD), head)
        _publish_free(control, head)
        moved = _progress(control, ring) != before
        release_lock(word_at(control, Control.ORDERED_LOCK))
        fence()
        if moved:
            signal_event(ring + 8 * PairRing.PROGRESS)
            signal_event(word_at(control, Control.RESUME))
        if not _waits(control):
            return
