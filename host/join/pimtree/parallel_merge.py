"""The merges of the parallel join (PIM-Tree, section 4.2): together, or in two phases while other workers go on.

Both begin with a drain: no task is taken, and all active ones complete. Together (blocking), all workers then merge
(`shared_merge.py`), and nothing else happens meanwhile. In two phases (non-blocking), one worker merges. In the first
phase the trees of the side do not change, and its new tuples are left to be scanned. The second begins with a drain
too: the merged trees are in use, and the merging worker inserts the tuples that were left out.
"""

from __future__ import annotations

from typing import Any

from millrace.host.join.pimtree.control_block import WORKER_BYTES, Control, Worker, word_at
from millrace.host.join.pimtree.insert_trees import Trees, restart, sub_of
from millrace.host.join.pimtree.join_kernel import Side, insert_locked
from millrace.host.join.pimtree.merge import merge_trees
from millrace.host.join.pimtree.shared_merge import merge_shared
from millrace.host.join.pimtree.static_tree import Static, descend
from millrace.host.join.pimtree.task_protocol import advance
from millrace.host.runtime.intrinsics import atomic_load, atomic_store, load, load_as, load_byte, store, store_as
from millrace.host.runtime.jit import inline, kernel
from millrace.host.runtime.spin_lock import acquire_lock, release_lock
from millrace.host.runtime.thread_sleep import signal_event, spin_or_nap


@inline
def _drain(control: int) -> None:
    """Wait until no task is active; no new one is taken meanwhile."""
    for number in range(load(control, Control.WORKER_COUNT)):
        active = load(control, Control.WORKERS) + number * WORKER_BYTES + 8 * Worker.ACTIVE
        spins = 0
        while atomic_load(active) != 0:
            spins = spin_or_nap(active, 1, spins)


@inline
def _set_draining(control: int, value: int) -> None:
    acquire_lock(word_at(control, Control.QUEUE_LOCK))
    store(control, Control.DRAINING, value)
    release_lock(word_at(control, Control.QUEUE_LOCK))
    if value == 0:
        signal_event(word_at(control, Control.RESUME))


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
    """The oldest position of a side that a tuple not yet taken may see: windows of rings are count windows."""
    table = load(control, Control.R + side)
    end = load(table, Side.NEW) + load(control, Control.TAKEN + side)
    return max(end - load(table, Side.WINDOW), load(table, Side.OLDEST))


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
    group, mask = load(own, Side.TASK_ROWS), load(own, Side.MASK)
    for start in range(first, stop, group):
        count = min(group, stop - start)
        for j in range(count):
            store(subs, j, 0)
            store_as(load(own, Side.OWN_WORDS), j, load_as(words, (start + j) & mask, like))
        descend(tree, 0, load(trees, Trees.DEPTH), load(own, Side.OWN_WORDS), subs, count, like)
        for j in range(count):
            if load_byte(live, (start + j) & mask):
                insert_locked(own, sub_of(trees, load(subs, j)), start + j, like)


@kernel
def merge_together(control: int, side: int, like: Any) -> None:
    """Merge the trees of a side together with the workers that wait for it. `DRAINING` is set already."""
    table = load(control, Control.R + side)
    _drain(control)
    oldest = _oldest(control, side)
    tree, trees = load(load(table, Side.STATICS), 0), load(load(table, Side.TREES), 0)
    new_tree = load(load(control, Control.SPARE_STATICS), side)
    store(new_tree, Static.BASE, oldest)
    merge_shared(load(control, Control.SHARED_MERGE), tree, trees, oldest, new_tree, like)
    # The same insert trees again: they are in the cache, the spare ones are not.
    restart(trees, new_tree, load(control, Control.SUBINDEXES + side), oldest, like)
    _swap_words(load(table, Side.STATICS), load(control, Control.SPARE_STATICS) + 8 * side)
    acquire_lock(word_at(control, Control.QUEUE_LOCK))
    store(control, Control.RESERVED + side, 0)
    store(control, Control.DRAINING, 0)
    _end_merge(control)
    release_lock(word_at(control, Control.QUEUE_LOCK))
    signal_event(word_at(control, Control.RESUME))


@inline
def _end_merge(control: int) -> None:
    """Note the end of a merge, with the queue's lock held."""
    store(control, Control.MERGING, 0)
    store(control, Control.MERGES, load(control, Control.MERGES) + 1)


@kernel
def merge_in_phases(control: int, worker: int, side: int, like: Any) -> None:
    """Merge the trees of a side in two phases, while other workers go on. `DRAINING` is set already."""
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
    _end_merge(control)
    release_lock(word_at(control, Control.QUEUE_LOCK))
    advance(control)
