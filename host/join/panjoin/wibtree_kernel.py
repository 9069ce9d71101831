"""The kernels of WiB+-Tree: insertion into wide unsorted leaves, and probing (PanJoin, III-C, III-E).

A leaf is a partition of an LLAT, identified by its Head entry. The inner nodes are in `wibtree_nodes.py`. When a tuple
belongs to a full leaf, one of these applies:

- All words of the leaf are smaller: the tuple goes to the leaf on the right, or to a new one in between. So increasing
  words leave full leaves behind.
- The leaf is the leftmost, and all its words are larger: its tuples move to a new leaf on the right. So decreasing
  words leave full leaves behind.
- The leaf has one word only: an equal tuple is chained in another entry; for a smaller one the leaf moves to the right.
- Otherwise the leaf is split at one of its words, near the median. If most tuples have one word, the few above it go to
  the right neighbour if it has space, so that they do not open a leaf each.

The paper sorts a leaf to split it. Counting the ranks of a few words, `LANES` at a time, finds a median faster.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from millrace.host.base.types import Array
from millrace.host.join.panjoin.llat_entries import (
    FILL,
    LANES,
    NEXT,
    RIGHT,
    TAIL,
    LlatTable,
    append,
    fill_entry,
    floor_of,
    meta,
    run_end,
    set_meta,
    take_entry,
    word_at,
)
from millrace.host.join.panjoin.llat_probe import Arrays, Probe, Scalars, fill_job, part_range, required_ids, scan_part
from millrace.host.join.panjoin.wibtree_nodes import FANOUT, MAX_WORD, Wib, insert_child, seek, to_stored, walk
from millrace.host.runtime.intrinsics import load, load_as, ones, store, store_as, within
from millrace.host.runtime.jit import inline, kernel, share

_CANDIDATES = 8
"""Words of a leaf that are tried as a key before all words are."""
_ZERO = np.uint64(0)


@inline
def _new_right(t: int, leaf: int, key: Any, like: Any) -> int:
    """Insert a new empty leaf to the right, with its own floor."""
    new = take_entry(t)
    set_meta(t, new, RIGHT, meta(t, leaf, RIGHT))
    insert_child(t, leaf, key, new, like)
    set_meta(t, leaf, RIGHT, new)
    store_as(load(t, LlatTable.FLOORS), new, to_stored(key, like))
    return new


@inline
def _lower(t: int, leaf: int, key: Any, like: Any) -> None:
    """Lower a leaf's floor, and the key that leads to it: the last key of the path that is not key 0 of its node."""
    walk(t, floor_of(t, leaf, like), like)
    level = load(t, Wib.HEIGHT) - 1
    while load(t, Wib.PATH + 2 * level + 1) == 0:
        level -= 1
    at = FANOUT * load(t, Wib.PATH + 2 * level) + load(t, Wib.PATH + 2 * level + 1)
    store_as(load(t, Wib.KEYS), at, to_stored(key, like))
    store_as(load(t, LlatTable.FLOORS), leaf, to_stored(key, like))


@inline
def _space(t: int, leaf: int) -> Any:
    """The free space of a leaf in tuples: 0 if there is no such leaf, or if it is a chain of one word."""
    if leaf < 0 or meta(t, leaf, TAIL) != leaf:
        return 0
    return load(t, LlatTable.ENTRY_CAPACITY) - meta(t, leaf, FILL)


@inline
def _divert_right(t: int, leaf: int, word: Any, like: Any) -> None:
    """Make words from `word` on, which is larger than all in the leaf, belong to a leaf on the right."""
    right = meta(t, leaf, RIGHT)
    if _space(t, right) > 0:
        _lower(t, right, word, like)
    else:
        _new_right(t, leaf, word, like)


@inline
def _move_right(t: int, leaf: int, smallest: Any, like: Any) -> None:
    """Move all tuples of a leaf, whose smallest word is given, to a new leaf. This leaf stays for smaller words."""
    new = _new_right(t, leaf, smallest, like)
    at, start = new * load(t, LlatTable.ENTRY_CAPACITY), leaf * load(t, LlatTable.ENTRY_CAPACITY)
    for j in range(meta(t, leaf, FILL)):
        store_as(load(t, LlatTable.WORDS), at + j, load_as(load(t, LlatTable.WORDS), start + j, like))
        store_as(load(t, LlatTable.IDS), at + j, load_as(load(t, LlatTable.IDS), start + j, np.uint32(0)))
    tail = meta(t, leaf, TAIL)
    set_meta(t, new, FILL, meta(t, leaf, FILL))
    set_meta(t, new, NEXT, meta(t, leaf, NEXT))
    set_meta(t, new, TAIL, new if tail == leaf else tail)
    set_meta(t, leaf, FILL, 0)
    set_meta(t, leaf, NEXT, -1)
    set_meta(t, leaf, TAIL, leaf)


@inline
def _below(t: int, leaf: int, word: Any, like: Any) -> int:
    """How many words of a full leaf are below `word`, which is not 0."""
    start, capacity = leaf * load(t, LlatTable.ENTRY_CAPACITY), load(t, LlatTable.ENTRY_CAPACITY)
    rank = 0
    for j in range(start, start + capacity, LANES):
        rank += ones(within(load(t, LlatTable.WORDS), j, _ZERO, word - np.uint64(1), like))
    return rank


@inline
def _key_near(t: int, leaf: int, smallest: Any, goal: int, like: Any) -> tuple[Any, int]:
    """A word of a full leaf with about `goal` others below it, and their number; never the smallest word."""
    start, capacity = leaf * load(t, LlatTable.ENTRY_CAPACITY), load(t, LlatTable.ENTRY_CAPACITY)
    best, best_rank = smallest, 0
    step = capacity // _CANDIDATES
    while True:
        for j in range(start, start + capacity, step):
            word = word_at(load(t, LlatTable.WORDS), j, like)
            if word != smallest:
                rank = _below(t, leaf, word, like)
                if best_rank == 0 or abs(rank - goal) < abs(best_rank - goal):
                    best, best_rank = word, rank
        if step == 1 or abs(best_rank - goal) <= capacity // 8:
            break
        step = 1
    return best, best_rank


@inline
def _goal(t: int, leaf: int) -> int:
    """How many tuples of a full leaf stay when it is split: half of them, or most of them at the right end of the tree.

    In the last two leaves splits are due to nearly increasing keys, so few more tuples will follow there.
    """
    capacity, right = load(t, LlatTable.ENTRY_CAPACITY), meta(t, leaf, RIGHT)
    return capacity - capacity // 8 if right < 0 or meta(t, right, RIGHT) < 0 else capacity // 2


@inline
def _split(t: int, leaf: int, smallest: Any, like: Any) -> None:
    """Split a full leaf that has several distinct words."""
    key, keep = _key_near(t, leaf, smallest, _goal(t, leaf), like)
    capacity, words, ids = load(t, LlatTable.ENTRY_CAPACITY), load(t, LlatTable.WORDS), load(t, LlatTable.IDS)
    target = meta(t, leaf, RIGHT)
    if 4 * (capacity - keep) < capacity and _space(t, target) >= capacity - keep:
        _lower(t, target, key, like)
    else:
        target = _new_right(t, leaf, key, like)
    stay, move = leaf * capacity, target * capacity + meta(t, target, FILL)
    for j in range(leaf * capacity, leaf * capacity + capacity):
        word, number = load_as(words, j, like), load_as(ids, j, np.uint32(0))
        below = np.uint64(word) < key
        at = stay if below else move
        store_as(words, at, word)
        store_as(ids, at, number)
        stay += below
        move += not below
    set_meta(t, leaf, FILL, keep)
    set_meta(t, target, FILL, meta(t, target, FILL) + capacity - keep)


@inline
def _ends(t: int, leaf: int, like: Any) -> tuple[Any, Any]:
    """The smallest and the largest word of a full entry."""
    start = leaf * load(t, LlatTable.ENTRY_CAPACITY)
    smallest = largest = word_at(load(t, LlatTable.WORDS), start, like)
    for j in range(start, start + load(t, LlatTable.ENTRY_CAPACITY)):
        word = word_at(load(t, LlatTable.WORDS), j, like)
        smallest, largest = min(smallest, word), max(largest, word)
    return smallest, largest


@inline
def _make_space(t: int, leaf: int, word: Any, like: Any) -> bool:
    """Change the tree so that there is space for a word whose leaf is full. False if it belongs to the leaf's chain."""
    smallest, largest = _ends(t, leaf, like)
    if word > largest:
        _divert_right(t, leaf, word, like)
    elif word < smallest and (smallest == largest or floor_of(t, leaf, like) == _ZERO):
        _move_right(t, leaf, smallest, like)
    elif smallest != largest:
        _split(t, leaf, smallest, like)
    else:
        return False
    return True


@inline
def _has_space(t: int) -> bool:
    """Whether entries and nodes suffice for one more leaf, with a split on every level."""
    return load(t, LlatTable.POINTER) < load(t, LlatTable.ENTRIES) and load(t, Wib.USED) + load(t, Wib.HEIGHT) < load(
        t, Wib.NODES
    )


@inline
def _equal_end(words: int, start: int, stop: int, like: Any) -> int:
    """The end of the words equal to the first one."""
    word = word_at(words, start, like)
    while start < stop and word_at(words, start, like) == word:
        start += 1
    return start


@inline
def _insert(t: int, words: int, ids: int, start: int, stop: int, like: Any) -> int:
    """Insert sorted tuples while there are entries and nodes. Returns the first one left over."""
    parent, last = -1, MAX_WORD
    while start < stop:
        word = word_at(words, start, like)
        leaf, parent, last = seek(t, parent, last, word, like)
        space = _space(t, leaf)
        if space > 0:
            end = run_end(t, leaf, words, start, min(start + space, stop), like)
            start = fill_entry(t, leaf, words, ids, start, end, like)
        elif not _has_space(t):
            return start
        elif _make_space(t, leaf, word, like):
            parent = -1
        else:
            start = append(t, leaf, words, ids, start, _equal_end(words, start, stop, like), like)
    return stop


@inline
def _probe(job: int, part: int, parts: int, like: Any) -> None:
    """Find the leaves of a part's low bounds, each starting from the previous one, then scan."""
    t, lows, heads = load(job, Probe.TABLE), load(job, Probe.LOW), load(job, Probe.HEADS)
    start, stop = part_range(job, part, parts)
    parent, last = -1, MAX_WORD
    for q in range(start, stop):
        leaf, parent, last = seek(t, parent, last, word_at(lows, q, like), like)
        store(heads, q, leaf)
    scan_part(job, part, parts, like)


@kernel
def insert(t: int, words: Array, ids: Array, start: int, like: Any) -> int:
    """Insert a sorted batch from tuple `start` on. Returns the first tuple left over when entries or nodes run out."""
    return _insert(t, words.ctypes.data, ids.ctypes.data, start, len(words), like)


@kernel
def probe_alone(job: Array, scalars: Scalars, arrays: Arrays, like: Any) -> int:
    """Run all probes. Returns `required_ids`."""
    _probe(fill_job(job, scalars, arrays), 0, 1, like)
    return required_ids(job)


@share
def probe32(job: int, part: int, parts: int) -> None:
    """Run a part of the probes, with 32-bit words."""
    _probe(job, part, parts, np.uint32(0))


@share
def probe64(job: int, part: int, parts: int) -> None:
    """Run a part of the probes, with 64-bit words."""
    _probe(job, part, parts, np.uint64(0))
