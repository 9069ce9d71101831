"""The kernels of WiB+-Tree: a tree of small sorted inner nodes over wide unsorted leaves (PanJoin, III-C, III-E).

A leaf is a partition of an LLAT, known by its Head entry; the table's columns from OWN on are the tree's. Inner nodes
have up to `FANOUT` children; key j is the floor of what is under child j, but key 0 is never read. Keys are distinct
floors of leaves, so all tuples of one word are in one leaf. A leaf without room

- whose words are all below the newcomer gives it to the leaf on the right, or to a new one between them: increasing
  words leave full leaves behind;
- that is the left-most, with all its words above the newcomer, moves as it is to the right: so do decreasing words;
- with one word only takes equal tuples into a chain of entries, and moves to the right of smaller ones;
- else is split at one of its words, near the median. Where most tuples are of one word, the few above it go to the
  right neighbour if it has room, lest each of them open a leaf of its own.

The paper sorts a leaf to split it. Ranks of a few of its words, counted `LANES` at a time, find a median sooner.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from millrace.host.base.types import Array
from millrace.host.join.panjoin.llat import (
    ENTRIES,
    FILL,
    FLOORS,
    IDS,
    JOB_TABLE,
    LANES,
    LOW,
    NEXT,
    OWN,
    PLACES,
    POINTER,
    RIGHT,
    ROOM,
    TAIL,
    WORDS,
    Arrays,
    Scalars,
    append,
    cut,
    fill_entry,
    first_lanes,
    floor_of,
    lacking,
    meta,
    number_at,
    ones,
    pose,
    run_end,
    scan_part,
    set_meta,
    take_entry,
    within,
    word_at,
)
from millrace.host.runtime.intrinsics import load_as, store_as
from millrace.host.runtime.jit import inline, kernel, load, share, store

FANOUT = 64
"""Children of an inner node, a multiple of LANES."""
DEEPEST = 16
"""Levels of inner nodes: half-full ones over 2^31 entries have seven."""
KEYS, CHILDREN, FILLS, NODES, USED, ROOT, HEIGHT, SPLITS, PATH = range(OWN, OWN + 9)
"""The tree's columns: keys, children and number of children by node (addresses), nodes there are and used, the root
(a leaf if the height is 0), levels of inner nodes, splits; then the nodes and slots of the path last walked."""
_CANDIDATES = 8
"""Words of a leaf that are tried as a key before all are."""
_LINK = np.int32(0)
_ZERO = np.uint64(0)
_MOST = np.uint64(0xFFFFFFFFFFFFFFFF)


@inline
def _slot(t: int, node: int, word: Any, like: Any) -> int:
    """The child of an inner node under which a word belongs: how many keys are at most `word`, without key 0."""
    keys, count = load(t, KEYS), number_at(load(t, FILLS), node, _LINK)
    slot = -1
    bits = 1
    for j in range(0, count, LANES):
        bits |= within(keys, FANOUT * node + j, _ZERO, word, like) & first_lanes(count - j)
        slot += ones(bits)
        bits = 0
    return slot


@inline
def _child(t: int, node: int, slot: int) -> Any:
    return number_at(load(t, CHILDREN), FANOUT * node + slot, _LINK)


@inline
def _descend(t: int, word: Any, like: Any) -> tuple[int, int, Any]:
    """The leaf of a word, its parent (-1 if it is the root), and the largest word that belongs under the parent."""
    node, parent = load(t, ROOT), -1
    last = limit = _MOST
    for _ in range(load(t, HEIGHT)):
        slot = _slot(t, node, word, like)
        parent, last = node, limit
        if slot + 1 < number_at(load(t, FILLS), node, _LINK):
            limit = word_at(load(t, KEYS), FANOUT * node + slot + 1, like) - np.uint64(1)
        node = _child(t, node, slot)
    return node, parent, last


@inline
def _walk(t: int, word: Any, like: Any) -> None:
    """Descend, and keep the path."""
    node = load(t, ROOT)
    for level in range(load(t, HEIGHT)):
        slot = _slot(t, node, word, like)
        store(t, PATH + 2 * level, node)
        store(t, PATH + 2 * level + 1, slot)
        node = _child(t, node, slot)


@inline
def _seek(t: int, parent: int, last: Any, word: Any, like: Any) -> tuple[int, int, Any]:
    """As `_descend`, for a word above the one that had this parent: batches are sorted, so most stay under it.

    Looking into the parent, which is in the nearest cache, is as quick as asking whether the leaf is the same one.
    """
    if parent >= 0 and word <= last:
        return _child(t, parent, _slot(t, parent, word, like)), parent, last
    return _descend(t, word, like)


# Inner nodes grow.


@inline
def _open(t: int, node: int, slot: int, key: Any, child: int, like: Any) -> None:
    """Put a child into an inner node that has room."""
    keys, children, fills = load(t, KEYS), load(t, CHILDREN), load(t, FILLS)
    base, count = FANOUT * node, number_at(fills, node, _LINK)
    for j in range(base + count, base + slot, -1):
        store_as(keys, j, load_as(keys, j - 1, like))
        store_as(children, j, load_as(children, j - 1, _LINK))
    store_as(keys, base + slot, _narrow(key, like))
    store_as(children, base + slot, np.int32(child))
    store_as(fills, node, np.int32(count + 1))


@inline
def _narrow(word: Any, like: Any) -> Any:
    """A word as it is stored. (A sum would be of 64 bits.)"""
    return type(like)(word)


@inline
def _split_node(t: int, node: int, slot: int, like: Any) -> int:
    """Move the upper children of a full inner node to a new one; one that grows at its end is left full."""
    keys, children, fills = load(t, KEYS), load(t, CHILDREN), load(t, FILLS)
    right = load(t, USED)
    store(t, USED, right + 1)
    keep = FANOUT - 1 if slot == FANOUT else FANOUT // 2
    for j in range(keep, FANOUT):
        store_as(keys, FANOUT * right + j - keep, load_as(keys, FANOUT * node + j, like))
        store_as(children, FANOUT * right + j - keep, load_as(children, FANOUT * node + j, _LINK))
    store_as(fills, node, np.int32(keep))
    store_as(fills, right, np.int32(FANOUT - keep))
    return right


@inline
def _adopt(t: int, leaf: int, key: Any, new: int, like: Any) -> None:
    """Put a new leaf, with a key, into the tree to the right of `leaf`; there are nodes enough."""
    _walk(t, floor_of(t, leaf, like), like)
    level = load(t, HEIGHT)
    store(t, SPLITS, load(t, SPLITS) + 1)
    while level > 0:
        level -= 1
        node, slot = load(t, PATH + 2 * level), load(t, PATH + 2 * level + 1) + 1
        if number_at(load(t, FILLS), node, _LINK) < FANOUT:
            _open(t, node, slot, key, new, like)
            return
        right = _split_node(t, node, slot, like)
        keep = number_at(load(t, FILLS), node, _LINK)
        if slot > keep:
            _open(t, right, slot - keep, key, new, like)
        else:
            _open(t, node, slot, key, new, like)
        key, new = word_at(load(t, KEYS), FANOUT * right, like), right
    root = load(t, USED)
    store(t, USED, root + 1)
    store_as(load(t, FILLS), root, np.int32(0))
    _open(t, root, 0, _ZERO, load(t, ROOT), like)
    _open(t, root, 1, key, new, like)
    store(t, ROOT, root)
    store(t, HEIGHT, load(t, HEIGHT) + 1)


# Leaves grow.


@inline
def _new_right(t: int, leaf: int, key: Any, like: Any) -> int:
    """A new empty leaf to the right, with a floor of its own."""
    new = take_entry(t)
    set_meta(t, new, RIGHT, meta(t, leaf, RIGHT))
    _adopt(t, leaf, key, new, like)
    set_meta(t, leaf, RIGHT, new)
    store_as(load(t, FLOORS), new, _narrow(key, like))
    return new


@inline
def _lower(t: int, leaf: int, key: Any, like: Any) -> None:
    """Lower a leaf's floor, and the key that leads to it: the path's last one that is not a node's first."""
    _walk(t, floor_of(t, leaf, like), like)
    level = load(t, HEIGHT) - 1
    while load(t, PATH + 2 * level + 1) == 0:
        level -= 1
    at = FANOUT * load(t, PATH + 2 * level) + load(t, PATH + 2 * level + 1)
    store_as(load(t, KEYS), at, _narrow(key, like))
    store_as(load(t, FLOORS), leaf, _narrow(key, like))


@inline
def _space(t: int, leaf: int) -> Any:
    """How many tuples a leaf can still take: none if there is no such leaf, or it is a chain of one word."""
    if leaf < 0 or meta(t, leaf, TAIL) != leaf:
        return 0
    return load(t, ROOM) - meta(t, leaf, FILL)


@inline
def _open_right(t: int, leaf: int, word: Any, like: Any) -> None:
    """Let words from `word` on, which is above all in the leaf, go to the right of it."""
    right = meta(t, leaf, RIGHT)
    if _space(t, right) > 0:
        _lower(t, right, word, like)
    else:
        _new_right(t, leaf, word, like)


@inline
def _move_right(t: int, leaf: int, least: Any, like: Any) -> None:
    """Move all of a leaf's tuples, the least of which is given, to a new leaf: smaller ones have this to themselves."""
    new = _new_right(t, leaf, least, like)
    at, start = new * load(t, ROOM), leaf * load(t, ROOM)
    for j in range(meta(t, leaf, FILL)):
        store_as(load(t, WORDS), at + j, load_as(load(t, WORDS), start + j, like))
        store_as(load(t, IDS), at + j, load_as(load(t, IDS), start + j, np.uint32(0)))
    tail = meta(t, leaf, TAIL)
    set_meta(t, new, FILL, meta(t, leaf, FILL))
    set_meta(t, new, NEXT, meta(t, leaf, NEXT))
    set_meta(t, new, TAIL, new if tail == leaf else tail)
    set_meta(t, leaf, FILL, 0)
    set_meta(t, leaf, NEXT, -1)
    set_meta(t, leaf, TAIL, leaf)


@inline
def _below(t: int, leaf: int, word: Any, like: Any) -> int:
    """How many words of a full leaf are below one that is not 0."""
    start, room = leaf * load(t, ROOM), load(t, ROOM)
    rank = 0
    for j in range(start, start + room, LANES):
        rank += ones(within(load(t, WORDS), j, _ZERO, word - np.uint64(1), like))
    return rank


@inline
def _key_near(t: int, leaf: int, least: Any, goal: int, like: Any) -> tuple[Any, int]:
    """A word of a full leaf that has about `goal` others below it, and how many it has; not its least one."""
    start, room = leaf * load(t, ROOM), load(t, ROOM)
    best, best_rank = least, 0
    step = room // _CANDIDATES
    while True:
        for j in range(start, start + room, step):
            word = word_at(load(t, WORDS), j, like)
            if word != least:
                rank = _below(t, leaf, word, like)
                if best_rank == 0 or abs(rank - goal) < abs(best_rank - goal):
                    best, best_rank = word, rank
        if step == 1 or abs(best_rank - goal) <= room // 8:
            break
        step = 1
    return best, best_rank


@inline
def _goal(t: int, leaf: int) -> int:
    """How many tuples of a full leaf should stay when it is split: half of them, or most at the right end of the tree.

    There, and in the leaf before, splits come of keys that nearly increase: few others will follow.
    """
    room, right = load(t, ROOM), meta(t, leaf, RIGHT)
    return room - room // 8 if right < 0 or meta(t, right, RIGHT) < 0 else room // 2


@inline
def _split(t: int, leaf: int, least: Any, like: Any) -> None:
    """Split a full leaf of several words."""
    key, keep = _key_near(t, leaf, least, _goal(t, leaf), like)
    room, words, ids = load(t, ROOM), load(t, WORDS), load(t, IDS)
    target = meta(t, leaf, RIGHT)
    if 4 * (room - keep) < room and _space(t, target) >= room - keep:
        _lower(t, target, key, like)
    else:
        target = _new_right(t, leaf, key, like)
    stay, move = leaf * room, target * room + meta(t, target, FILL)
    for j in range(leaf * room, leaf * room + room):
        word, number = load_as(words, j, like), load_as(ids, j, np.uint32(0))
        below = np.uint64(word) < key
        at = stay if below else move
        store_as(words, at, word)
        store_as(ids, at, number)
        stay += below
        move += not below
    set_meta(t, leaf, FILL, keep)
    set_meta(t, target, FILL, meta(t, target, FILL) + room - keep)


@inline
def _ends(t: int, leaf: int, like: Any) -> tuple[Any, Any]:
    """The least and the largest word of a full entry."""
    start = leaf * load(t, ROOM)
    least = most = word_at(load(t, WORDS), start, like)
    for j in range(start, start + load(t, ROOM)):
        word = word_at(load(t, WORDS), j, like)
        least, most = min(least, word), max(most, word)
    return least, most


@inline
def _make_room(t: int, leaf: int, word: Any, like: Any) -> bool:
    """Change the tree so that a word, whose leaf is full, finds room; false if it belongs into the leaf's chain."""
    least, most = _ends(t, leaf, like)
    if word > most:
        _open_right(t, leaf, word, like)
    elif word < least and (least == most or floor_of(t, leaf, like) == _ZERO):
        _move_right(t, leaf, least, like)
    elif least != most:
        _split(t, leaf, least, like)
    else:
        return False
    return True


@inline
def _has_room(t: int) -> bool:
    """Whether one more leaf, with a split on every level, finds entries and nodes."""
    return load(t, POINTER) < load(t, ENTRIES) and load(t, USED) + load(t, HEIGHT) < load(t, NODES)


@inline
def _equal_end(words: int, start: int, stop: int, like: Any) -> int:
    """Where the words equal to the first end."""
    word = word_at(words, start, like)
    while start < stop and word_at(words, start, like) == word:
        start += 1
    return start


@inline
def _insert(t: int, words: int, ids: int, start: int, stop: int, like: Any) -> int:
    """Put sorted tuples in while there are entries and nodes; the first one left over."""
    parent, last = -1, _MOST
    while start < stop:
        word = word_at(words, start, like)
        leaf, parent, last = _seek(t, parent, last, word, like)
        space = _space(t, leaf)
        if space > 0:
            end = run_end(t, leaf, words, start, min(start + space, stop), like)
            start = fill_entry(t, leaf, words, ids, start, end, like)
        elif not _has_room(t):
            return start
        elif _make_room(t, leaf, word, like):
            parent = -1
        else:
            start = append(t, leaf, words, ids, start, _equal_end(words, start, stop, like), like)
    return stop


@inline
def _probe(job: int, part: int, parts: int, like: Any) -> None:
    """Find the leaves of a part's low ends, each by the path of the one before, then scan."""
    t, lows, places = load(job, JOB_TABLE), load(job, LOW), load(job, PLACES)
    start, stop = cut(job, part, parts)
    parent, last = -1, _MOST
    for q in range(start, stop):
        leaf, parent, last = _seek(t, parent, last, word_at(lows, q, like), like)
        store(places, q, leaf)
    scan_part(job, part, parts, like)


@kernel
def insert(t: int, words: Array, ids: Array, start: int, like: Any) -> int:
    """Put a sorted batch in, from tuple `start` on; the first one for which entries or nodes did not suffice."""
    return _insert(t, words.ctypes.data, ids.ctypes.data, start, len(words), like)


@kernel
def probe_alone(job: Array, scalars: Scalars, arrays: Arrays, like: Any) -> int:
    """Put all questions; what is `lacking`."""
    _probe(pose(job, scalars, arrays), 0, 1, like)
    return lacking(job)


@share
def probe32(job: int, part: int, parts: int) -> None:
    """Put a part of the questions, words of 32 bits."""
    _probe(job, part, parts, np.uint32(0))


@share
def probe64(job: int, part: int, parts: int) -> None:
    """Put a part of the questions, words of 64 bits."""
    _probe(job, part, parts, np.uint64(0))
