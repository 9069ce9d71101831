"""The inner nodes of WiB+-Tree: small sorted nodes that lead to the leaves (PanJoin, III-C, III-E).

An inner node has up to `FANOUT` children. Key j is the floor of the subtree of child j; key 0 is never read. Keys are
distinct floors of leaves, so all tuples with the same word are in one leaf. The tree's columns follow those of the LLAT
in the table at address `t`. Kernels never allocate: `wibtree.py` owns and enlarges the arrays.
"""

from __future__ import annotations

from enum import auto
from typing import Any

import numpy as np

from millrace.host.join.panjoin.llat_entries import LANES, LlatTable, first_lanes, floor_of, number_at, word_at
from millrace.host.runtime.intrinsics import load, load_as, ones, store, store_as, within
from millrace.host.runtime.jit import inline
from millrace.host.runtime.kernel_args import KernelArgs

FANOUT = 64
"""Children of an inner node, a multiple of LANES."""
MAX_HEIGHT = 16
"""Levels of inner nodes: half-full nodes over 2^31 entries need seven."""
MAX_WORD = np.uint64(0xFFFFFFFFFFFFFFFF)
_LINK = np.int32(0)
_ZERO = np.uint64(0)


class Wib(KernelArgs):
    """The words of the tree in the table of its LLAT."""

    KEYS = LlatTable.OWN
    CHILDREN = auto()
    FILLS = auto()  # the number of children of each node
    NODES = auto()  # allocated
    USED = auto()
    ROOT = auto()  # a leaf if the height is 0
    HEIGHT = auto()  # levels of inner nodes
    SPLITS = auto()
    PATH = auto()  # from here on: node and slot per level of the last path


@inline
def _slot(t: int, node: int, word: Any, like: Any) -> int:
    """The child of an inner node that a word belongs to: the number of keys that are at most `word`, except key 0."""
    keys, count = load(t, Wib.KEYS), number_at(load(t, Wib.FILLS), node, _LINK)
    slot = -1
    bits = 1
    for j in range(0, count, LANES):
        bits |= within(keys, FANOUT * node + j, _ZERO, word, like) & first_lanes(count - j)
        slot += ones(bits)
        bits = 0
    return slot


@inline
def _child(t: int, node: int, slot: int) -> Any:
    return number_at(load(t, Wib.CHILDREN), FANOUT * node + slot, _LINK)


@inline
def _descend(t: int, word: Any, like: Any) -> tuple[int, int, Any]:
    """The leaf of a word, its parent (-1 if the leaf is the root), and the largest word of the parent's subtree."""
    node, parent = load(t, Wib.ROOT), -1
    last = limit = MAX_WORD
    for _ in range(load(t, Wib.HEIGHT)):
        slot = _slot(t, node, word, like)
        parent, last = node, limit
        if slot + 1 < number_at(load(t, Wib.FILLS), node, _LINK):
            limit = word_at(load(t, Wib.KEYS), FANOUT * node + slot + 1, like) - np.uint64(1)
        node = _child(t, node, slot)
    return node, parent, last


@inline
def walk(t: int, word: Any, like: Any) -> None:
    """Descend to the leaf of a word, and store the path in the table."""
    node = load(t, Wib.ROOT)
    for level in range(load(t, Wib.HEIGHT)):
        slot = _slot(t, node, word, like)
        store(t, Wib.PATH + 2 * level, node)
        store(t, Wib.PATH + 2 * level + 1, slot)
        node = _child(t, node, slot)


@inline
def seek(t: int, parent: int, last: Any, word: Any, like: Any) -> tuple[int, int, Any]:
    """As `_descend`, starting at the previous, smaller word's parent: batches are sorted, so most words stay under it.

    Searching the parent, which is in the first-level cache, is as fast as checking whether the leaf is the same.
    """
    if parent >= 0 and word <= last:
        return _child(t, parent, _slot(t, parent, word, like)), parent, last
    return _descend(t, word, like)


@inline
def _put_child(t: int, node: int, slot: int, key: Any, child: int, like: Any) -> None:
    """Insert a child into an inner node that is not full."""
    keys, children, fills = load(t, Wib.KEYS), load(t, Wib.CHILDREN), load(t, Wib.FILLS)
    base, count = FANOUT * node, number_at(fills, node, _LINK)
    for j in range(base + count, base + slot, -1):
        store_as(keys, j, load_as(keys, j - 1, like))
        store_as(children, j, load_as(children, j - 1, _LINK))
    store_as(keys, base + slot, to_stored(key, like))
    store_as(children, base + slot, np.int32(child))
    store_as(fills, node, np.int32(count + 1))


@inline
def to_stored(word: Any, like: Any) -> Any:
    """A word in its stored type. (A sum would have 64 bits.)"""
    return type(like)(word)


@inline
def _split_node(t: int, node: int, slot: int, like: Any) -> int:
    """Move the upper children of a full inner node to a new one. A node that grows at its end stays full."""
    keys, children, fills = load(t, Wib.KEYS), load(t, Wib.CHILDREN), load(t, Wib.FILLS)
    right = load(t, Wib.USED)
    store(t, Wib.USED, right + 1)
    keep = FANOUT - 1 if slot == FANOUT else FANOUT // 2
    for j in range(keep, FANOUT):
        store_as(keys, FANOUT * right + j - keep, load_as(keys, FANOUT * node + j, like))
        store_as(children, FANOUT * right + j - keep, load_as(children, FANOUT * node + j, _LINK))
    store_as(fills, node, np.int32(keep))
    store_as(fills, right, np.int32(FANOUT - keep))
    return right


@inline
def insert_child(t: int, leaf: int, key: Any, new: int, like: Any) -> None:
    """Insert a new leaf with a key to the right of `leaf`. The caller ensures that there are enough nodes."""
    walk(t, floor_of(t, leaf, like), like)
    level = load(t, Wib.HEIGHT)
    store(t, Wib.SPLITS, load(t, Wib.SPLITS) + 1)
    while level > 0:
        level -= 1
        node, slot = load(t, Wib.PATH + 2 * level), load(t, Wib.PATH + 2 * level + 1) + 1
        if number_at(load(t, Wib.FILLS), node, _LINK) < FANOUT:
            _put_child(t, node, slot, key, new, like)
            return
        right = _split_node(t, node, slot, like)
        keep = number_at(load(t, Wib.FILLS), node, _LINK)
        if slot > keep:
            _put_child(t, right, slot - keep, key, new, like)
        else:
            _put_child(t, node, slot, key, new, like)
        key, new = word_at(load(t, Wib.KEYS), FANOUT * right, like), right
    root = load(t, Wib.USED)
    store(t, Wib.USED, root + 1)
    store_as(load(t, Wib.FILLS), root, np.int32(0))
    _put_child(t, root, 0, _ZERO, load(t, Wib.ROOT), like)
    _put_child(t, root, 1, key, new, like)
    store(t, Wib.ROOT, root)
    store(t, Wib.HEIGHT, load(t, Wib.HEIGHT) + 1)
