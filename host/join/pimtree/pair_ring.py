"""The ring into which a live join's pairs leave, in order of arrival, and from which one reader at a time takes them.

A pair is two words: the position of the new tuple, shifted left by one, with its side in the lowest bit (0: r); and the
position of its partner. Partners of a tuple ascend. Only the thread in the ordered section writes. If the ring is full
it leaves off in the middle of a task, even of a tuple, and goes on when there is room: the reader itself calls
`advance` after it has read, so nobody has to be woken for it.
"""

from __future__ import annotations

from enum import auto

from millrace.host.join.pimtree.control_block import SLOT_BYTES, Control, Record, record_of, slot_of
from millrace.host.join.pimtree.join_kernel import Side
from millrace.host.join.pimtree.results import Slot
from millrace.host.runtime.intrinsics import atomic_load, atomic_store, load, load_byte, move_bytes, store
from millrace.host.runtime.jit import inline
from millrace.host.runtime.kernel_args import KernelArgs

PAIR_BYTES = 16


class PairRing(KernelArgs):
    """The words of a ring; each group has a cache line of its own."""

    WRITTEN = auto()  # pairs so far
    TUPLES = auto()  # tuples whose pairs have all been written
    _1 = auto()
    _2 = auto()
    _3 = auto()
    _4 = auto()
    _5 = auto()
    _6 = auto()
    READ = auto()  # pairs taken so far
    _7 = auto()
    _8 = auto()
    _9 = auto()
    _10 = auto()
    _11 = auto()
    _12 = auto()
    _13 = auto()
    PROGRESS = auto()  # an event: readers wait for it, and threads that wait for room for new tuples
    SLEEPERS = auto()
    _14 = auto()
    _15 = auto()
    _16 = auto()
    _17 = auto()
    _18 = auto()
    _19 = auto()
    PAIRS = auto()  # from here on nothing changes
    MASK = auto()


@inline
def ring_room(ring: int) -> int:
    """How many pairs can be written; at least, if another thread reads."""
    return load(ring, PairRing.MASK) + 1 - (atomic_load(ring) - atomic_load(ring + 8 * PairRing.READ))


@inline
def _write_pairs(ring: int, own: int, partners: int, count: int) -> int:
    """Write pairs of one tuple, as many as there is room for; returns how many."""
    count = min(count, ring_room(ring))
    pairs, mask, at = load(ring, PairRing.PAIRS), load(ring, PairRing.MASK), load(ring, PairRing.WRITTEN)
    for k in range(count):
        where = pairs + ((at + k) & mask) * PAIR_BYTES
        store(where, 0, own)
        store(where, 1, load(partners, k))
    atomic_store(ring, at + count)
    return count


@inline
def emit_to_ring(control: int, task: int) -> bool:
    """Write the pairs of a task, from where the last call has stopped; false if the ring is full before its end."""
    ring, record, slots = load(control, Control.RING), record_of(control, task), slot_of(control, task)
    order, mask = load(control, Control.ORDER), load(load(control, Control.R), Side.MASK)
    stop = load(record, Record.TO_R) + load(record, Record.TO_S)
    for t in range(load(control, Control.LEFT), stop):
        of_s = int(load_byte(order, t & mask) != 0)
        side, i = load(control, Control.R + of_s), load(control, Control.LEFT_R + of_s)
        at, done = load(control, Control.LEFT_RESULTS + of_s), load(control, Control.LEFT_PARTNERS)
        left = load(load(side, Side.COUNTS), i & mask) - done
        partners = load(slots + of_s * SLOT_BYTES, Slot.WHERE) + 8 * at
        own = (load(side, Side.NEW) + i) * 2 + of_s
        written = _write_pairs(ring, own, partners, left) if left > 0 else 0
        store(control, Control.LEFT_RESULTS + of_s, at + written)
        if written < left:
            store(control, Control.LEFT_PARTNERS, done + written)
            return False
        store(control, Control.LEFT_PARTNERS, 0)
        store(control, Control.LEFT_R + of_s, i + 1)
        store(control, Control.LEFT, t + 1)
    store(control, Control.LEFT_RESULTS, 0)
    store(control, Control.LEFT_RESULTS_S, 0)
    atomic_store(ring + 8 * PairRing.TUPLES, stop)
    return True


@inline
def read_pairs(ring: int, to: int, most: int) -> int:
    """Take up to `most` pairs; returns how many. The caller is the only reader, and calls `advance` afterwards."""
    pairs, mask, at = load(ring, PairRing.PAIRS), load(ring, PairRing.MASK), load(ring, PairRing.READ)
    count = min(most, atomic_load(ring) - at)
    first = at & mask
    straight = min(count, mask + 1 - first)
    move_bytes(to, pairs + first * PAIR_BYTES, straight * PAIR_BYTES)
    move_bytes(to + straight * PAIR_BYTES, pairs, (count - straight) * PAIR_BYTES)
    atomic_store(ring + 8 * PairRing.READ, at + count)
    return count
