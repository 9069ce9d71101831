"""The probe kernels of the LLAT: scan the partitions of a range, and store the ids found (PanJoin, III-E, III-F2).

RaP-Table and WiB+-Tree find the Head entry of each probe's low bound; `scan_part` then scans from there to the right.
`job` is the address of a probe's table. Limit: one probe call finds fewer than 2^32 tuples whose ids are wanted.
"""

from __future__ import annotations

from enum import auto
from typing import Any

import numpy as np

from millrace.host.base.types import Array
from millrace.host.join.panjoin.llat_entries import (
    FILL,
    LANES,
    META,
    NEXT,
    RIGHT,
    LlatTable,
    first_lanes,
    floor_of,
    meta,
    number_at,
    word_at,
)
from millrace.host.join.panjoin.subwindow import ID_PADDING
from millrace.host.runtime.intrinsics import load, load_as, lowest_bit, ones, prefetch, store, store_as, within
from millrace.host.runtime.jit import inline, kernel
from millrace.host.runtime.kernel_args import KernelArgs

Scalars = tuple[int, int, int, int, int]
Arrays = tuple[Array, Array, Array, Array, Array, Array, Array, Array]
_FROM, _UPTO, _TOTAL, PART_STATE = range(4)
"""The state of a part: the begin and end of its share of the id array, and how many ids it found."""
_AHEAD = 8
"""How many probes ahead an entry's cache lines are prefetched."""
_LINE = 64
_ID = np.uint32(0)
_ZERO = np.uint64(0)


class Probe(KernelArgs):
    """The arguments of a probe, at the start of its working memory."""

    TABLE = auto()  # of the LLAT
    SIZE = auto()  # the number of probes
    LOW = auto()
    HIGH = auto()
    PROBE_TUPLE = auto()
    BEGIN = auto()  # the visible intervals
    STOP = auto()
    STRIDE = auto()  # -1 without visible intervals
    FIRST = auto()  # the first position of the subwindow
    STARTS = auto()  # the match ranges to fill
    ENDS = auto()
    FOUND = auto()  # the ids, if WANT is set
    WANT = auto()
    PARTS = auto()
    STATE = auto()  # the state of each part, later in the working memory
    HEADS = auto()  # the Head entry of each probe's low bound, behind it


PROBE_SIZE = len(Probe)


@inline
def fill_job(job: Array, scalars: Scalars, arrays: Arrays) -> int:
    """Fill a probe's table: `(table, first, stride, want, parts)` and the arrays. Returns its address.

    A kernel, because in Python taking the address of one array is slower than all of this.
    """
    where: int = job.ctypes.data
    job[Probe.TABLE], job[Probe.FIRST], job[Probe.STRIDE], job[Probe.WANT], job[Probe.PARTS] = scalars
    low, high, probe_tuple, begin, end, starts, ends, found = arrays
    job[Probe.SIZE], job[Probe.LOW], job[Probe.HIGH] = len(low), low.ctypes.data, high.ctypes.data
    job[Probe.PROBE_TUPLE] = probe_tuple.ctypes.data
    job[Probe.BEGIN], job[Probe.STOP] = begin.ctypes.data, end.ctypes.data
    job[Probe.STARTS], job[Probe.ENDS], job[Probe.FOUND] = starts.ctypes.data, ends.ctypes.data, found.ctypes.data
    job[Probe.STATE] = where + 8 * PROBE_SIZE
    job[Probe.HEADS] = job[Probe.STATE] + 8 * PART_STATE * job[Probe.PARTS]
    space = len(found) - ID_PADDING if job[Probe.WANT] != 0 else 0
    for part in range(job[Probe.PARTS]):
        state = PROBE_SIZE + PART_STATE * part
        parts = job[Probe.PARTS]
        job[state + _FROM], job[state + _UPTO] = space * part // parts, space * (part + 1) // parts
    return where


@inline
def required_ids(job: Array) -> int:
    """How many ids need space if the space was too small, else -1. Assigns each part its share of that space."""
    total, fits = 0, True
    for part in range(job[Probe.PARTS]):
        state = PROBE_SIZE + PART_STATE * part
        fits = fits and job[state + _TOTAL] <= job[state + _UPTO] - job[state + _FROM]
        job[state + _FROM], job[state + _UPTO] = total, total + job[state + _TOTAL]
        total += job[state + _TOTAL]
    return -1 if fits or job[Probe.WANT] == 0 else total


@kernel
def fill_job_shared(job: Array, scalars: Scalars, arrays: Arrays) -> None:
    """`fill_job` for a probe that the team's threads share."""
    fill_job(job, scalars, arrays)


@kernel
def required_ids_shared(job: Array) -> int:
    """`required_ids` for a probe that the team's threads shared."""
    return required_ids(job)


@kernel
def set_found(job: Array, found: Array) -> None:
    """Set a larger array for the ids."""
    job[Probe.FOUND] = found.ctypes.data


@inline
def part_range(job: int, part: int, parts: int) -> tuple[int, int]:
    """The first and the end of a part's probes."""
    n = load(job, Probe.SIZE)
    return n * part // parts, n * (part + 1) // parts


@inline
def _prefetch_entry(t: int, head: int, want: bool) -> None:
    """Prefetch what a scan of an entry reads, including the ids if they are wanted."""
    prefetch(load(t, LlatTable.METAS) + 4 * META * head)
    start = load(t, LlatTable.WORDS) + head * load(t, LlatTable.BYTES)
    for line in range(start, start + load(t, LlatTable.BYTES), _LINE):
        prefetch(line)
    if want:
        start = load(t, LlatTable.IDS) + 4 * head * load(t, LlatTable.ENTRY_CAPACITY)
        for line in range(start, start + 4 * load(t, LlatTable.ENTRY_CAPACITY), _LINE):
            prefetch(line)


@inline
def _visible_interval(t: int, job: int, probe: int) -> tuple[int, int]:
    """The begin and end of the ids visible to a probe."""
    stride, known = load(job, Probe.STRIDE), load(t, LlatTable.END)
    if stride < 0:
        return 0, known
    probe_tuple = stride * number_at(load(job, Probe.PROBE_TUPLE), probe, _ID)
    first = load(job, Probe.FIRST)
    begin, end = load(load(job, Probe.BEGIN), probe_tuple) - first, load(load(job, Probe.STOP), probe_tuple) - first
    return min(max(begin, 0), known), min(max(end, 0), known)


@inline
def _store_ids(ids: int, bits: int, out: int, found: int) -> None:
    """Store the ids whose bits are set."""
    while bits != 0:
        store_as(out, found, load_as(ids, lowest_bit(bits), _ID))
        found += 1
        bits &= bits - 1


@inline
def _scan_chain(
    t: int, entry: int, low: Any, span: Any, all_words: bool, begin: int, end: int, out: int, space: int, like: Any
) -> int:
    """Count a partition's tuples with words in `low .. low + span`, or all. Stores their ids if they fit in `space`."""
    words, ids = load(t, LlatTable.WORDS), load(t, LlatTable.IDS)
    all_ids = begin == 0 and end == load(t, LlatTable.END)
    first_id, id_span = np.uint64(begin), np.uint64(end - begin - 1)
    found = 0
    while entry >= 0:
        at, fill = entry * load(t, LlatTable.ENTRY_CAPACITY), meta(t, entry, FILL)
        if all_words and all_ids and space <= 0:
            found += fill
            fill = 0
        for j in range(at, at + fill, LANES):
            bits = first_lanes(at + fill - j)
            if not all_words:
                bits &= within(words, j, low, span, like)
            if bits != 0 and not all_ids:
                bits &= within(ids, j, first_id, id_span, _ID)
            before = found
            found += ones(bits)
            if found <= space:
                _store_ids(ids + 4 * j, bits, out, before)
        entry = meta(t, entry, NEXT)
    return found


@inline
def _scan(t: int, head: int, low: Any, high: Any, begin: int, end: int, out: int, space: int, like: Any) -> int:
    """Count the tuples with words in `low .. high` and ids in `begin .. end - 1`, from the partition of `low` on."""
    found = 0
    if begin >= end:
        return found
    while True:
        right = meta(t, head, RIGHT)
        last = right < 0 or high < floor_of(t, right, like)
        all_words = not last and low <= floor_of(t, head, like)
        more = space - found
        found += _scan_chain(t, head, low, high - low, all_words, begin, end, out + 4 * found, more, like)
        if last:
            return found
        head = right


@inline
def scan_part(job: int, part: int, parts: int, like: Any) -> None:
    """Make the match ranges of a part's probes, whose Head entries are known. Stores ids while there is space.

    Equal probes are adjacent. If only their count is needed, it is copied from the previous probe. Otherwise a heavy
    hitter that probes for its own key would count all its matches once per tuple.
    """
    t, heads, state = load(job, Probe.TABLE), load(job, Probe.HEADS), load(job, Probe.STATE) + 8 * PART_STATE * part
    want = load(job, Probe.WANT) != 0
    used, upto = load(state, _FROM), load(state, _UPTO)
    found = total = 0
    previous = _ZERO, _ZERO, -1, -1
    start, stop = part_range(job, part, parts)
    for q in range(start, stop):
        if q + _AHEAD < stop:
            _prefetch_entry(t, load(heads, q + _AHEAD), want)
        low, high = word_at(load(job, Probe.LOW), q, like), word_at(load(job, Probe.HIGH), q, like)
        begin, end = _visible_interval(t, job, q)
        if used < upto or previous != (low, high, begin, end):
            out = load(job, Probe.FOUND) + 4 * used
            found = _scan(t, load(heads, q), low, high, begin, end, out, upto - used, like)
            previous = low, high, begin, end
        at = used if want else 0
        store_as(load(job, Probe.STARTS), q, np.uint32(at))
        store_as(load(job, Probe.ENDS), q, np.uint32(at + found))
        total += found
        # Once the space is used up, the rest is only counted: a second scan follows.
        used = used + found if used + found <= upto else upto
    store(state, _TOTAL, total)
