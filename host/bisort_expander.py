"""From records to partners: how many of them a question may meet, and their positions in order.

Host kernels of BI-Sort, on all threads. A subwindow has a few runs and an insertion buffer, oldest first; each run was
probed by its device and gave `<start, end>` records. Counting touches the tuples only where some of them are out of
reach; writing copies their ids. A question's partners of one run are sorted by word, so they are put in order by
position here; runs follow each other in time.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from millrace.host.jit import inline, kernel, share
from millrace.host.memory import load_as, prefetch, store_as
from millrace.host.segments import sort_segment

SLICE = 1 << 12
"""About how many questions one thread works on at a time."""
AHEAD = 12
"""How many questions ahead ids are asked for."""
LINE = 4
"""Entries of a run in the table of runs: addresses of starts, ends and ids, and whether it must be looked into."""
# The arguments of both kernels, by place.
QUESTIONS, RUNS, TABLE, WHO, BEGIN, END, STRIDE, FIRST, COUNTS, OUT, AT, ARGUMENTS = range(12)
_U32 = np.uint32


@kernel
def merge_in(words: Any, ids: Any, size: int, new_words: Any, new_ids: Any) -> None:
    """Merge sorted tuples into the first `size` of an array that has room, from the back; equal words: older first."""
    i, j, at = size - 1, len(new_words) - 1, size + len(new_words) - 1
    while j >= 0:
        if i >= 0 and words[i] > new_words[j]:
            words[at], ids[at] = words[i], ids[i]
            i -= 1
        else:
            words[at], ids[at] = new_words[j], new_ids[j]
            j -= 1
        at -= 1


@kernel
def search(words: Any, low: Any, high: Any, starts: Any, ends: Any) -> None:
    """Records of bounds in a few sorted words, each by binary search."""
    for q in range(low.shape[0]):
        starts[q] = np.searchsorted(words, low[q])
        ends[q] = np.searchsorted(words, high[q], "right")


@inline
def _in_reach(ids: int, start: int, end: int, begin: int, length: int) -> int:
    """How many ids lie in a stretch of positions."""
    total = 0
    for i in range(start, end):
        total += np.uint64(np.int64(load_as(ids, i, _U32(0))) - begin) < np.uint64(length)
    return total


@inline
def _reach(given: int, q: int) -> tuple[int, int]:
    """The first id that a question may meet, and how many ids from there on."""
    who = np.int64(load_as(load_as(given, WHO, 0), q, _U32(0))) * load_as(given, STRIDE, 0)
    begin, end = load_as(load_as(given, BEGIN, 0), who, 0), load_as(load_as(given, END, 0), who, 0)
    return begin - load_as(given, FIRST, 0), end - begin


@share
def count_partners(given: int, part: int, parts: int) -> None:
    """Add up the records of each question."""
    questions, runs, table = load_as(given, QUESTIONS, 0), load_as(given, RUNS, 0), load_as(given, TABLE, 0)
    counts = load_as(given, COUNTS, 0)
    first, stop = questions * part // parts, questions * (part + 1) // parts
    for q in range(first, stop):
        store_as(counts, q, 0)
    for k in range(runs):
        starts, ends = load_as(table, LINE * k, 0), load_as(table, LINE * k + 1, 0)
        ids, check = load_as(table, LINE * k + 2, 0), load_as(table, LINE * k + 3, 0)
        for q in range(first, stop):
            start, end = np.int64(load_as(starts, q, _U32(0))), np.int64(load_as(ends, q, _U32(0)))
            found = end - start
            if check:
                prefetch(ids + 4 * np.int64(load_as(starts, min(q + AHEAD, stop - 1), _U32(0))))
                begin, length = _reach(given, q)
                found = _in_reach(ids, start, end, begin, length)
            store_as(counts, q, load_as(counts, q, 0) + max(found, 0))


@share
def write_partners(given: int, part: int, parts: int) -> None:
    """Write each question's partners where the chain wants them."""
    questions, runs, table = load_as(given, QUESTIONS, 0), load_as(given, RUNS, 0), load_as(given, TABLE, 0)
    out, at = load_as(given, OUT, 0), load_as(given, AT, 0)
    offset = load_as(given, FIRST, 0)
    first, stop = questions * part // parts, questions * (part + 1) // parts
    for k in range(runs):
        starts, ends = load_as(table, LINE * k, 0), load_as(table, LINE * k + 1, 0)
        ids, check = load_as(table, LINE * k + 2, 0), load_as(table, LINE * k + 3, 0)
        for q in range(first, stop):
            prefetch(ids + 4 * np.int64(load_as(starts, min(q + AHEAD, stop - 1), _U32(0))))
            start, end = np.int64(load_as(starts, q, _U32(0))), np.int64(load_as(ends, q, _U32(0)))
            if start >= end:
                continue
            to = load_as(at, q, 0)
            count = end - start
            if check:
                begin, length = _reach(given, q)
                count = 0
                for i in range(start, end):
                    value = np.int64(load_as(ids, i, _U32(0)))
                    if np.uint64(value - begin) < np.uint64(length):
                        store_as(out, to + count, value + offset)
                        count += 1
            else:
                for i in range(count):
                    store_as(out, to + i, np.int64(load_as(ids, start + i, _U32(0))) + offset)
            sort_segment(out + 8 * to, count)
            store_as(at, q, to + count)
