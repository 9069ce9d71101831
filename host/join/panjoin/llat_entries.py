"""The kernels of the LLAT's entries: the layout of its table, vector comparison, and insertion (PanJoin, III-B2).

Kernels never allocate. They find an LLAT by the address `t` of its table, which `llat.py` fills. A kernel handles every
word as a uint64; `like` gives the type in which it is stored.
"""

from __future__ import annotations

from enum import auto
from typing import Any

import numpy as np

from millrace.host.runtime.intrinsics import WIDE_LANES, load, load_as, store, store_as
from millrace.host.runtime.jit import inline
from millrace.host.runtime.kernel_args import KernelArgs

LANES = WIDE_LANES
"""Words compared at once. An entry's capacity is a multiple of it, so that reading all lanes stays inside. Max. 63."""
FILL, NEXT, TAIL, RIGHT, META = range(5)
"""An entry's metadata, int32 each: number of tuples, next entry of the chain; in a Head entry also the last entry of
the chain and the partition to the right. -1 means none."""
TABLE = 128
_ID = np.uint32(0)
_LINK = np.int32(0)


class LlatTable(KernelArgs):
    """The table of an LLAT."""

    WORDS = auto()
    IDS = auto()
    METAS = auto()
    FLOORS = auto()
    ENTRY_CAPACITY = auto()  # tuples per entry
    BYTES = auto()  # of the words of an entry
    ENTRIES = auto()
    POINTER = auto()  # PtrG: the first unused entry
    END = auto()  # one past the largest id
    OWN = auto()  # the words from here on belong to the structure


@inline
def number_at(where: int, index: int, like: Any) -> Any:
    """An id or a link of an array, as an int64."""
    return np.int64(load_as(where, index, like))


@inline
def meta(t: int, entry: int, field: int) -> Any:
    """A field of an entry's metadata."""
    return number_at(load(t, LlatTable.METAS), META * entry + field, _LINK)


@inline
def set_meta(t: int, entry: int, field: int, value: int) -> None:
    """Set a field of an entry's metadata."""
    store_as(load(t, LlatTable.METAS), META * entry + field, np.int32(value))


@inline
def word_at(where: int, index: int, like: Any) -> Any:
    """A word of an array, as a uint64."""
    return np.uint64(load_as(where, index, like))


@inline
def floor_of(t: int, entry: int, like: Any) -> Any:
    """The smallest word allowed in a partition."""
    return word_at(load(t, LlatTable.FLOORS), entry, like)


@inline
def first_lanes(count: int) -> int:
    """The bits of the first `count` lanes, at most of all lanes."""
    return (1 << min(count, LANES)) - 1


@inline
def take_entry(t: int) -> int:
    """Take the unused entry at PtrG and clear its metadata. The caller ensures that there is one."""
    entry = load(t, LlatTable.POINTER)
    store(t, LlatTable.POINTER, entry + 1)
    set_meta(t, entry, FILL, 0)
    set_meta(t, entry, NEXT, -1)
    set_meta(t, entry, TAIL, entry)
    set_meta(t, entry, RIGHT, -1)
    return entry


@inline
def fill_entry(t: int, entry: int, words: int, ids: int, start: int, stop: int, like: Any) -> int:
    """Copy as many of the tuples `start .. stop` as fit into the entry. Returns the first one left over."""
    fill, capacity = meta(t, entry, FILL), load(t, LlatTable.ENTRY_CAPACITY)
    at = entry * capacity + fill
    stop = min(stop, start + capacity - fill)
    own_words, own_ids = load(t, LlatTable.WORDS), load(t, LlatTable.IDS)
    end = load(t, LlatTable.END)
    for i in range(start, stop):
        store_as(own_words, at + i - start, load_as(words, i, like))
        store_as(own_ids, at + i - start, load_as(ids, i, _ID))
        end = max(end, number_at(ids, i, _ID) + 1)
    store(t, LlatTable.END, end)
    set_meta(t, entry, FILL, fill + stop - start)
    return stop


@inline
def append(t: int, head: int, words: int, ids: int, start: int, stop: int, like: Any) -> int:
    """Append tuples to a partition's chain while there are unused entries. Returns the first one left over."""
    while True:
        start = fill_entry(t, meta(t, head, TAIL), words, ids, start, stop, like)
        if start == stop or load(t, LlatTable.POINTER) == load(t, LlatTable.ENTRIES):
            return start
        entry = take_entry(t)
        set_meta(t, meta(t, head, TAIL), NEXT, entry)
        set_meta(t, head, TAIL, entry)


@inline
def run_end(t: int, head: int, words: int, start: int, stop: int, like: Any) -> int:
    """The end of the sorted words from `start` on that belong to this partition. The first one does."""
    right = meta(t, head, RIGHT)
    if right < 0:
        return stop
    limit = floor_of(t, right, like)
    start += 1
    while start < stop and word_at(words, start, like) < limit:
        start += 1
    return start
