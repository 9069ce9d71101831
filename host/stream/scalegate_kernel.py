"""ScaleGate in compiled code: rings of (time, word) per source, a batch merge into one log, cursors of readers.

Follows ScaleJoin, section IV (Algorithms 1 and 2), as corrected: a clock per source decides what is ready, and the
order is (time, source, order of arrival within the source). The paper links one node per tuple into a shared skip list.
Here each source has a ring, and whoever finds the log empty merges all that is ready from the rings into the log, in
one go, under a lock that is only tried. Readers follow the log. What the slowest reader has passed is overwritten.

Threads: each source is used by one thread at a time, and so is each reader; otherwise calls may overlap. A source
stores its tuples, then its end, then its clock, each with release semantics. The merge loads in the other order with
acquire semantics, so it sees all tuples that a clock vouches for. Limits: sizes are powers of two, and fixed; a full
ring refuses (`append_one` returns 0), a full log delays the merge.
"""

from __future__ import annotations

from enum import auto

import numpy as np

from millrace.host.runtime.intrinsics import (
    LINE,
    atomic_load,
    atomic_store,
    load,
    load_byte,
    move_bytes,
    store,
    store_as,
)
from millrace.host.runtime.jit import inline, kernel
from millrace.host.runtime.kernel_args import KernelArgs
from millrace.host.runtime.spin_lock import release_lock, try_lock

NO_CLOCK, OPEN, CLOSED = 0, 1, 2
"""A source's state: before its first tuple or advance, with a clock, closed. One without a clock blocks all others."""
LATE, FULL, TAKEN = -1, 0, 1
"""What `append_one` returns."""
SCRATCH_WORDS = 4


class GateWords(KernelArgs):
    """The head of the control block; blocks of sources and readers follow it, all in cache lines of their own."""

    SOURCES = auto()
    READERS = auto()
    RING = auto()  # entries of a ring
    LOG = auto()  # entries of the log
    RING_TIMES = auto()
    RING_WORDS = auto()
    LOG_TIMES = auto()
    LOG_WORDS = auto()
    LOG_SOURCES = auto()
    SCRATCH = auto()  # of the merge: `SCRATCH_WORDS` for each source, and one more
    LOCK = 2 * LINE
    LOG_END = 3 * LINE
    SIZE = 4 * LINE


class SourceWords(KernelArgs):
    """A source's block: first what the source writes, then what the merge writes."""

    END = auto()  # tuples appended so far
    CLOCK = auto()
    STATE = auto()
    ROWS = auto()  # rows given, also dropped ones
    LATE_ROWS = auto()
    NULL_ROWS = auto()
    MERGED = auto()  # the last value of BEGIN that the source has seen
    BEGIN = LINE  # tuples merged so far
    SIZE = 2 * LINE


@inline
def source_words(gate: int, source: int) -> int:
    """The address of a source's block."""
    return gate + 8 * (GateWords.SIZE + SourceWords.SIZE * source)


@inline
def cursor_word(gate: int, reader: int) -> int:
    """The address of a reader's cursor: the number of log entries that it has read."""
    return gate + 8 * (GateWords.SIZE + SourceWords.SIZE * load(gate, GateWords.SOURCES) + LINE * reader)


@inline
def append_one(gate: int, source: int, time: int, word: int) -> int:
    """Add one tuple: `TAKEN`; or `LATE` if it is below the source's clock, or `FULL` if the ring is, with no change."""
    own, ring = source_words(gate, source), load(gate, GateWords.RING)
    state, end = load(own, SourceWords.STATE), load(own, SourceWords.END)
    if (state != NO_CLOCK) & (time < load(own, SourceWords.CLOCK)):
        return LATE
    if end - load(own, SourceWords.MERGED) >= ring:
        # Looked at only now: the word is in a cache line that the merge writes.
        store(own, SourceWords.MERGED, atomic_load(own + 8 * SourceWords.BEGIN))
        if end - load(own, SourceWords.MERGED) >= ring:
            return FULL
    at = source * ring + (end & (ring - 1))
    store(load(gate, GateWords.RING_TIMES), at, time)
    store(load(gate, GateWords.RING_WORDS), at, word)
    atomic_store(own + 8 * SourceWords.END, end + 1)
    move_clock(gate, source, time)
    return TAKEN


@inline
def append_sorted(gate: int, source: int, times: int, count: int) -> int:
    """Add tuples that ascend in time from the clock on, as far as the ring has room; return how many.

    A tuple's word is its number among the tuples of its source.
    """
    own, ring = source_words(gate, source), load(gate, GateWords.RING)
    end = load(own, SourceWords.END)
    count = min(count, ring - (end - atomic_load(own + 8 * SourceWords.BEGIN)))
    done = 0
    while done < count:
        here = (end + done) & (ring - 1)
        part, at = min(count - done, ring - here), source * ring + here
        move_bytes(load(gate, GateWords.RING_TIMES) + 8 * at, times + 8 * done, 8 * part)
        words = load(gate, GateWords.RING_WORDS) + 8 * at
        for i in range(part):
            store(words, i, end + done + i)
        done += part
    if count > 0:
        atomic_store(own + 8 * SourceWords.END, end + count)
        move_clock(gate, source, load(times, count - 1))
    return count


@inline
def move_clock(gate: int, source: int, time: int) -> None:
    """Move a source's clock forward."""
    own = source_words(gate, source)
    if load(own, SourceWords.STATE) == NO_CLOCK:
        atomic_store(own + 8 * SourceWords.CLOCK, time)
        atomic_store(own + 8 * SourceWords.STATE, OPEN)
    elif time > load(own, SourceWords.CLOCK):
        atomic_store(own + 8 * SourceWords.CLOCK, time)


@inline
def close_source(gate: int, source: int) -> None:
    """The source adds nothing more and holds nothing back."""
    atomic_store(source_words(gate, source) + 8 * SourceWords.STATE, CLOSED)


@inline
def slowest_cursor(gate: int) -> int:
    """The smallest cursor of all readers."""
    slowest = atomic_load(cursor_word(gate, 0))
    for reader in range(1, load(gate, GateWords.READERS)):
        slowest = min(slowest, atomic_load(cursor_word(gate, reader)))
    return slowest


@inline
def _before(time: int, source: int, other_time: int, other_source: int) -> bool:
    return (time < other_time) | ((time == other_time) & (source < other_source))


@inline
def _sink(heap: int, size: int, at: int, time: int, source: int) -> None:
    """Put an entry into a binary heap, least first, at `at` or below; the entry there is overwritten."""
    while True:
        child = 2 * at + 1
        if child >= size:
            break
        if child + 1 < size and _before(
            load(heap, 2 * child + 2), load(heap, 2 * child + 3), load(heap, 2 * child), load(heap, 2 * child + 1)
        ):
            child += 1
        if not _before(load(heap, 2 * child), load(heap, 2 * child + 1), time, source):
            break
        store(heap, 2 * at, load(heap, 2 * child))
        store(heap, 2 * at + 1, load(heap, 2 * child + 1))
        at = child
    store(heap, 2 * at, time)
    store(heap, 2 * at + 1, source)


@inline
def _frontier(gate: int, ends: int, begins: int, limit: int) -> int:
    """Store the least clock at `limit` and each source's limits; return the source of that clock.

    The number of sources if all are closed: then everything is ready. -1 if a source has no clock yet: nothing is.
    """
    sources = load(gate, GateWords.SOURCES)
    last = sources
    for source in range(sources):
        own = source_words(gate, source)
        state = atomic_load(own + 8 * SourceWords.STATE)
        if state == NO_CLOCK:
            return -1
        clock = atomic_load(own + 8 * SourceWords.CLOCK)
        if (state == OPEN) & ((last == sources) | (clock < load(limit, 0))):
            store(limit, 0, clock)
            last = source
        store(ends, source, atomic_load(own + 8 * SourceWords.END))
        store(begins, source, load(own, SourceWords.BEGIN))
    return last


@inline
def _merge(gate: int) -> None:
    """Merge what is ready into the log, as far as it has room; the caller holds the lock."""
    sources, heap = load(gate, GateWords.SOURCES), load(gate, GateWords.SCRATCH)
    ends, begins, limit = heap + 16 * sources, heap + 24 * sources, heap + 32 * sources
    ring, times = load(gate, GateWords.RING), load(gate, GateWords.RING_TIMES)
    last = _frontier(gate, ends, begins, limit)
    if last < 0:
        return
    size = 0
    for source in range(sources):
        begin = load(begins, source)
        if begin < load(ends, source):
            time = load(times, source * ring + (begin & (ring - 1)))
            if _is_ready(time, source, load(limit, 0), last, sources):
                store(heap, 2 * size, time)
                store(heap, 2 * size + 1, source)
                size += 1
    for at in range(size // 2 - 1, -1, -1):
        _sink(heap, size, at, load(heap, 2 * at), load(heap, 2 * at + 1))
    _drain(gate, size, load(limit, 0), last)
    for source in range(sources):
        atomic_store(source_words(gate, source) + 8 * SourceWords.BEGIN, load(begins, source))


@inline
def _is_ready(time: int, source: int, limit: int, last: int, sources: int) -> bool:
    """Whether a tuple is at or below the frontier (`limit`, `last`)."""
    return (last == sources) | (time < limit) | ((time == limit) & (source <= last))


@inline
def _drain(gate: int, size: int, limit: int, last: int) -> None:
    """Move tuples from the rings to the log in order, until the heap is empty or the log is full."""
    sources, heap = load(gate, GateWords.SOURCES), load(gate, GateWords.SCRATCH)
    ends, begins = heap + 16 * sources, heap + 24 * sources
    ring, log = load(gate, GateWords.RING), load(gate, GateWords.LOG)
    ring_times, ring_words = load(gate, GateWords.RING_TIMES), load(gate, GateWords.RING_WORDS)
    log_times, log_words = load(gate, GateWords.LOG_TIMES), load(gate, GateWords.LOG_WORDS)
    log_sources, at = load(gate, GateWords.LOG_SOURCES), load(gate, GateWords.LOG_END)
    stop = slowest_cursor(gate) + log
    while (size > 0) & (at < stop):
        source = load(heap, 1)
        begin, to = load(begins, source), at & (log - 1)
        store(log_times, to, load(heap, 0))
        store(log_words, to, load(ring_words, source * ring + (begin & (ring - 1))))
        store(log_sources, to, source)
        begin += 1
        at += 1
        store(begins, source, begin)
        time = load(ring_times, source * ring + (begin & (ring - 1)))
        if (begin < load(ends, source)) & _is_ready(time, source, limit, last, sources):
            _sink(heap, size, 0, time, source)
        else:
            size -= 1
            _sink(heap, size, 0, load(heap, 2 * size), load(heap, 2 * size + 1))
    atomic_store(gate + 8 * GateWords.LOG_END, at)


@inline
def merge_ready(gate: int) -> None:
    """Merge what is ready, unless another thread is doing so."""
    if try_lock(gate + 8 * GateWords.LOCK):
        _merge(gate)
        release_lock(gate + 8 * GateWords.LOCK)


@inline
def read_ready(gate: int, reader: int, limit: int, times: int, sources: int, words: int) -> int:
    """Copy up to `limit` tuples that this reader has not read yet, in order; return how many."""
    cursor, log = cursor_word(gate, reader), load(gate, GateWords.LOG)
    at = load(cursor, 0)
    if atomic_load(gate + 8 * GateWords.LOG_END) == at:
        merge_ready(gate)
    count = min(atomic_load(gate + 8 * GateWords.LOG_END) - at, limit)
    done = 0
    while done < count:
        here = (at + done) & (log - 1)
        part = min(count - done, log - here)
        move_bytes(times + 8 * done, load(gate, GateWords.LOG_TIMES) + 8 * here, 8 * part)
        move_bytes(sources + 8 * done, load(gate, GateWords.LOG_SOURCES) + 8 * here, 8 * part)
        move_bytes(words + 8 * done, load(gate, GateWords.LOG_WORDS) + 8 * here, 8 * part)
        done += part
    atomic_store(cursor, at + count)
    return count


# Calls from Python.


@kernel
def screen(times: int, known: int, count: int, state: int, clock: int, kept: int) -> int:
    """Mark the rows to keep: those with a time (`known`: a byte per row, or no array) that is not below the clock.

    Each row kept moves the clock. Returns how many are kept.
    """
    total = 0
    for i in range(count):
        keep = 0
        if (known == 0) or load_byte(known, i) != 0:
            time = load(times, i)
            if (state == NO_CLOCK) | (time >= clock):
                clock, state, keep = time, OPEN, 1
        store_as(kept, i, np.uint8(keep))
        total += keep
    return total


@kernel
def append_rows(gate: int, source: int, times: int, kept: int, count: int, late: int, nulls: int) -> None:
    """Add the rows marked in `kept`, for which the ring has room, and count all; their words number the rows kept."""
    own, ring = source_words(gate, source), load(gate, GateWords.RING)
    end, time = load(own, SourceWords.END), 0
    before = end
    for i in range(count):
        if load_byte(kept, i) != 0:
            time = load(times, i)
            at = source * ring + (end & (ring - 1))
            store(load(gate, GateWords.RING_TIMES), at, time)
            store(load(gate, GateWords.RING_WORDS), at, end)
            end += 1
    store(own, SourceWords.ROWS, load(own, SourceWords.ROWS) + count)
    store(own, SourceWords.LATE_ROWS, load(own, SourceWords.LATE_ROWS) + late)
    store(own, SourceWords.NULL_ROWS, load(own, SourceWords.NULL_ROWS) + nulls)
    atomic_store(own + 8 * SourceWords.END, end)
    if end > before:
        move_clock(gate, source, time)


@kernel
def use_rings(gate: int, size: int, times: int, words: int) -> None:
    """Use other memory for the rings, with `size` entries each: all at once, whatever interrupts the caller."""
    store(gate, GateWords.RING, size)
    store(gate, GateWords.RING_TIMES, times)
    store(gate, GateWords.RING_WORDS, words)


@kernel
def advance_clock(gate: int, source: int, time: int) -> None:
    """See `move_clock`."""
    move_clock(gate, source, time)


@kernel
def close_one(gate: int, source: int) -> None:
    """See `close_source`."""
    close_source(gate, source)


@kernel
def read_log(gate: int, reader: int, limit: int, times: int, sources: int, words: int, state: int) -> None:
    """See `read_ready`; stores how many tuples were read, and the number of the first."""
    first = load(cursor_word(gate, reader), 0)
    count = 0
    while count < limit:
        here = 8 * count
        more = read_ready(gate, reader, limit - count, times + here, sources + here, words + here)
        if more == 0:
            break
        count += more
    store(state, 1, first)
    store(state, 0, count)
