"""The ends of the rings of a live join in compiled code: put new tuples in, take pairs out, and wait for either.

New tuples are written where the workers of `host/join/pimtree` read them: a ring for the order of arrival (a byte per
tuple: its side) and for each side rings of words, ranges and visible intervals. Windows are count windows, so the
visible interval of a tuple follows from the number of tuples before it. One thread at a time puts, one at a time takes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from millrace.host.join.pimtree.control_block import STOPPED, Control, word_at
from millrace.host.join.pimtree.join_kernel import Side
from millrace.host.join.pimtree.pair_ring import PairRing, read_pairs
from millrace.host.join.pimtree.task_protocol import advance
from millrace.host.runtime.intrinsics import (
    atomic_add,
    atomic_load,
    atomic_store,
    fence,
    load,
    load_as,
    load_byte,
    store,
    store_as,
)
from millrace.host.runtime.jit import inline, kernel
from millrace.host.runtime.thread_sleep import await_event, signal_event, wake_sleepers


@inline
def room(control: int, side: int) -> int:
    """How many tuples of a side can be put now."""
    size = load(load(control, Control.R), Side.MASK) + 1
    used = load(control, Control.TUPLES) - atomic_load(word_at(control, Control.FREE))
    own = load(control, Control.ARRIVED + side) - atomic_load(word_at(control, Control.FREE_R + side))
    return size - max(used, own)


@inline
def _write_tuple(control: int, side: int, source: int, at: int, like: Any) -> None:
    """Write the next tuple of a side: element `at` of the arrays at `source` (words, liveness, lows, highs)."""
    table, other = load(control, Control.R + side), load(control, Control.R + 1 - side)
    mask, i, ranges = load(table, Side.MASK), load(control, Control.ARRIVED + side), load(table, Side.RANGES)
    here = i & mask
    stop = load(other, Side.NEW) + load(control, Control.ARRIVED + 1 - side)
    store_as(load(table, Side.WORDS), here, load_as(load(source, 0), at, like))
    store_as(load(table, Side.LIVE), here, np.uint8(load_byte(load(source, 1), at)))
    store(load(table, Side.BEGIN), here, max(stop - load(other, Side.WINDOW), 0))
    store(load(table, Side.STOP), here, stop)
    if load(table, Side.LOW) != 0:
        for k in range(ranges):
            low, high = load_as(load(source, 2), at * ranges + k, like), load_as(load(source, 3), at * ranges + k, like)
            store_as(load(table, Side.LOW), here * ranges + k, low)
            store_as(load(table, Side.HIGH), here * ranges + k, high)
    store_as(load(control, Control.ORDER), load(control, Control.TUPLES) & mask, np.uint8(side))
    store(control, Control.ARRIVED + side, i + 1)
    # Workers see a tuple by this count: it is written last.
    atomic_store(word_at(control, Control.TUPLES), load(control, Control.TUPLES) + 1)


@inline
def wake_worker(control: int) -> None:
    """Wake one worker, after tuples were written; it wakes the next one if there is more than a task."""
    event = word_at(control, Control.WORK)
    atomic_add(event, 1)
    fence()  # the count before the look at the sleepers, as in `signal_event`
    if atomic_load(event + 8) > 0:
        wake_sleepers(event, 1)


@kernel
def put_tuples(control: int, side: int, source: int, first: int, count: int, like: Any) -> int:
    """Put tuples of a side, as many as there is room for; returns how many."""
    count = min(count, room(control, side))
    for at in range(first, first + count):
        _write_tuple(control, side, source, at, like)
    if count > 0:
        wake_worker(control)
    return max(count, 0)


@kernel
def take_pairs(control: int, to: int, most: int) -> int:
    """Take up to `most` pairs; returns how many. Lets pairs that waited for room leave."""
    count = read_pairs(load(control, Control.RING), to, most)
    if count > 0:
        fence()  # the room made, before the look at what waits for it
        advance(control)
    return count


@kernel
def await_progress(control: int, seen: int, nanoseconds: int) -> None:
    """Wait for pairs, or for room, or that tuples are done, since the event had the count `seen`."""
    await_event(load(control, Control.RING) + 8 * PairRing.PROGRESS, seen, nanoseconds)


@kernel
def close_rings(control: int, stop: bool) -> None:
    """Make workers leave when no tuples are left; with `stop`, after their current tasks."""
    if stop:
        atomic_store(word_at(control, Control.STOP), STOPPED)
    atomic_store(word_at(control, Control.CLOSED), 1)
    signal_event(word_at(control, Control.WORK))
    signal_event(word_at(control, Control.RESUME))
    signal_event(load(control, Control.RING) + 8 * PairRing.PROGRESS)
