"""`T_I`, the insert trees of PIM-Tree (section 3.3): one B+-tree per subindex, each over its own range of words.

Subindex k holds the words above `BOUND` of subindex k - 1, up to its own. Nodes are numbered and have one size: a
header line, words, and ids (in a leaf) or child numbers (in an inner node). Leaves are unsorted: an insertion appends,
a probe compares all words in vector code. A full leaf is split at its median. Equal words may span several leaves: an
insertion descends to the last of them, a probe to the first. Nodes are freed all at once, by a merge. The first leaf of
subindex k is node k, and its header line holds the words of the subindex too: most subindexes are one leaf.

Threads may insert under `LOCK` while others search without it: entries are written before the count that shows them,
and `VERSION` is odd during a split, so a reader that sees another version than before searches again.
Limit: the caller ensures that there are nodes for a split on every level.
"""

from __future__ import annotations

from enum import auto
from typing import Any

import numpy as np

from millrace.host.base.types import Array
from millrace.host.join.pimtree.static_tree import LINE, Static, StaticTree, largest
from millrace.host.runtime.allocator import allocate
from millrace.host.runtime.intrinsics import (
    WIDE_LANES,
    address,
    atomic_add,
    atomic_load,
    atomic_store,
    fence_loads,
    fence_stores,
    fill_bytes,
    lines_below,
    lines_upto,
    load,
    load_as,
    load_id,
    prefetch,
    size_of,
    stack_words,
    store,
    store_as,
    within,
)
from millrace.host.runtime.jit import inline, kernel
from millrace.host.runtime.kernel_args import KernelArgs, in_own_lines
from millrace.host.runtime.thread_sleep import pause

NODE = 32
"""Entries of a node: as many as `lines_below` compares."""
PATH_WORDS = 24
"""Words of the path to a leaf: a node and a slot per level."""
SPLIT_NODES = 6
"""Nodes that one insertion may take: enough for 16**5 leaves."""


class Trees(KernelArgs):
    """The table of the insert trees of one side."""

    POOL = auto()  # the nodes
    USED = auto()
    CAPACITY = auto()
    SUBINDEXES = auto()
    DEPTH = auto()  # the level of T_S whose nodes select the subindex
    FACTOR = auto()  # subindexes per node of that level, as a fraction of 2**32
    BASE = auto()
    INSERTED = auto()
    SPLITS = auto()


class Sub(KernelArgs):
    """The header line of a subindex's first leaf: the words of a leaf, then those of the subindex."""

    COUNT = auto()
    NEXT = auto()
    UPPER = auto()
    LOCK = auto()
    VERSION = auto()
    ROOT = auto()
    HEIGHT = auto()
    BOUND = auto()


COUNT, NEXT, UPPER = (int(field) for field in (Sub.COUNT, Sub.NEXT, Sub.UPPER))
"""Words of every leaf's header: entries, the next leaf (-1: none), and the lower bound of the next leaf's words."""


@inline
def node_bytes(like: Any) -> int:
    """The size of a node."""
    return LINE + NODE * (size_of(like) + 4)


@inline
def node_at(trees: int, number: int, like: Any) -> int:
    """The address of a node."""
    return load(trees, Trees.POOL) + number * node_bytes(like)


@inline
def ids_of(node: int, like: Any) -> int:
    """The address of a node's ids or children."""
    return node + LINE + NODE * size_of(like)


@inline
def sub_of(trees: int, node: int) -> int:
    """The subindex of the words below a node of T_S, on level `DEPTH`."""
    return (node * load(trees, Trees.FACTOR)) >> 32


@inline
def prefetch_leaf(trees: int, sub: int, with_ids: bool, like: Any) -> None:
    """Prefetch the lines that a search of a subindex reads, and that an insertion (`with_ids`) writes.

    That is the header of its first leaf and its first words and ids: most subindexes are one leaf, half full at most.
    """
    node = node_at(trees, sub, like)
    prefetch(node)
    for line in range(NODE * size_of(like) // (2 * LINE)):
        prefetch(node + LINE + LINE * line)
    if with_ids:
        prefetch(ids_of(node, like))


@inline
def _new_node(trees: int, like: Any) -> int:
    """Take a node; returns its number."""
    number = atomic_add(trees + 8 * Trees.USED, 1)
    start_node(node_at(trees, number, like), like)
    return number


@inline
def start_node(node: int, like: Any) -> None:
    """Empty a node. Unused words are the largest: searches in inner nodes need that."""
    store(node, COUNT, 0)
    store(node, NEXT, -1)
    store_as(node, UPPER, np.uint64(0))
    fill_bytes(node + LINE, NODE * size_of(like))


@kernel
def restart(trees: int, tree: int, subindexes: int, base: int, like: Any) -> None:
    """Drop all entries, and follow the nodes of a T_S: those of the first level with at least `subindexes` nodes."""
    per_line, count, depth = LINE // size_of(like), load(tree, Static.LINES), load(tree, Static.LEVELS)
    while depth > 0 and (count + per_line - 1) // per_line >= subindexes:
        count = (count + per_line - 1) // per_line
        depth -= 1
    subs = max(min(subindexes, count), 1)
    store(trees, Trees.SUBINDEXES, subs)
    store(trees, Trees.DEPTH, depth if subs > 1 else 0)
    # Rounded up: the last node belongs to the last subindex.
    store(trees, Trees.FACTOR, ((subs << 32) + count - 1) // count)
    store(trees, Trees.BASE, base)
    store(trees, Trees.USED, subs)
    store(trees, Trees.INSERTED, 0)
    for sub in range(subs):
        header = node_at(trees, sub, like)
        store(header, COUNT, 0)
        store(header, NEXT, -1)
        store(header, Sub.LOCK, 0)
        store(header, Sub.VERSION, 0)
        store(header, Sub.ROOT, sub)
        store(header, Sub.HEIGHT, 0)
    level = load(tree, Static.LEVEL + depth)
    for node in range(count - 1):
        word = np.uint64(load_as(level, node * per_line + per_line - 1, like))
        store_as(node_at(trees, sub_of(trees, node), like), Sub.BOUND, word)
    store_as(node_at(trees, subs - 1, like), Sub.BOUND, np.uint64(largest(like)))


@kernel
def _split_leaf(trees: int, number: int, right: int, like: Any) -> Any:
    """Move the upper half of a full leaf to a new one; returns the lowest word that moves."""
    node, new = node_at(trees, number, like), node_at(trees, right, like)
    words, ids = node + LINE, ids_of(node, like)
    median, equal = _median(words, like)
    lowest = largest(like)
    stay = moved = 0
    for i in range(NODE):
        word, one = load_as(words, i, like), load_as(ids, i, np.uint32(0))
        left = word < median
        if word == median and equal > 0:
            left = True
            equal -= 1
        if left:
            store_as(words, stay, word)
            store_as(ids, stay, one)
            stay += 1
        else:
            store_as(new + LINE, moved, word)
            store_as(ids_of(new, like), moved, one)
            moved += 1
            lowest = min(lowest, word)
    store(node, COUNT, stay)
    store(new, COUNT, moved)
    store(new, NEXT, load(node, NEXT))
    store_as(new, UPPER, load_as(node, UPPER, np.uint64(0)))
    store(node, NEXT, right)
    store_as(node, UPPER, np.uint64(lowest))
    return lowest


@inline
def _median(words: int, like: Any) -> tuple[Any, int]:
    """The word of rank `NODE // 2` in a full leaf, and how many words equal to it are in the lower half."""
    half = NODE // 2
    for i in range(NODE):
        word = load_as(words, i, like)
        below = equal = 0
        for j in range(NODE):
            one = load_as(words, j, like)
            below += one < word
            equal += one == word
        if below < half <= below + equal:
            return word, half - below
    return load_as(words, 0, like), half


@inline
def _add_child(node: int, slot: int, word: Any, child: int, like: Any) -> None:
    """Insert an entry into an inner node that is not full."""
    words, children = node + LINE, ids_of(node, like)
    for j in range(load(node, COUNT), slot, -1):
        store_as(words, j, load_as(words, j - 1, like))
        store_as(children, j, load_as(children, j - 1, np.uint32(0)))
    store_as(words, slot, word)
    store_as(children, slot, np.uint32(child))
    store(node, COUNT, load(node, COUNT) + 1)


@inline
def _split_inner(node: int, new: int, like: Any) -> Any:
    """Move the upper half of a full inner node to a new one; returns the lower bound of what moves."""
    half = NODE // 2
    for j in range(half, NODE):
        store_as(new + LINE, j - half, load_as(node + LINE, j, like))
        store_as(ids_of(new, like), j - half, load_as(ids_of(node, like), j, np.uint32(0)))
        store_as(node + LINE, j, largest(like))
    bound = load_as(new + LINE, 0, like)
    store_as(new + LINE, 0, type(like)(0))
    store(node, COUNT, half)
    store(new, COUNT, half)
    return bound


@kernel
def _split_path(trees: int, header: int, path: int, leaf: int, like: Any) -> int:
    """Split a full leaf and the full nodes above it; returns the leaf's new right neighbour."""
    right = _new_node(trees, like)
    word, child = _split_leaf(trees, leaf, right, like), right
    atomic_add(trees + 8 * Trees.SPLITS, 1)
    for level in range(load(header, Sub.HEIGHT) - 1, -1, -1):
        node, slot = node_at(trees, load(path, 2 * level), like), load(path, 2 * level + 1) + 1
        if load(node, COUNT) < NODE:
            _add_child(node, slot, word, child, like)
            return right
        number = _new_node(trees, like)
        new = node_at(trees, number, like)
        bound = _split_inner(node, new, like)
        if slot > NODE // 2:
            _add_child(new, slot - NODE // 2, word, child, like)
        else:
            _add_child(node, slot, word, child, like)
        word, child = bound, number
    root = _new_node(trees, like)
    _add_child(node_at(trees, root, like), 0, type(like)(0), load(header, Sub.ROOT), like)
    _add_child(node_at(trees, root, like), 1, word, child, like)
    store(header, Sub.ROOT, root)
    store(header, Sub.HEIGHT, load(header, Sub.HEIGHT) + 1)
    return right


@inline
def insert(trees: int, sub: int, word: Any, one: int, like: Any) -> None:
    """Insert an entry into its subindex."""
    header, path = node_at(trees, sub, like), stack_words(PATH_WORDS)
    number = load(header, Sub.ROOT)
    for level in range(load(header, Sub.HEIGHT)):
        node = node_at(trees, number, like)
        slot = min(lines_upto(node + LINE, word), load(node, COUNT)) - 1
        store(path, 2 * level, number)
        store(path, 2 * level + 1, slot)
        number = load_id(ids_of(node, like), slot)
    node = node_at(trees, number, like)
    if load(node, COUNT) == NODE:
        version = header + 8 * Sub.VERSION
        atomic_store(version, load(header, Sub.VERSION) + 1)
        fence_stores()
        right = _split_path(trees, header, path, number, like)
        atomic_store(version, load(header, Sub.VERSION) + 1)
        if word >= type(like)(load_as(node, UPPER, np.uint64(0))):
            node = node_at(trees, right, like)
    count = load(node, COUNT)
    store_as(node + LINE, count, word)
    store_as(ids_of(node, like), count, np.uint32(one))
    atomic_store(node + 8 * COUNT, count + 1)


@inline
def begin_search(header: int) -> int:
    """The version of a subindex, once no split is going on."""
    while True:
        version = atomic_load(header + 8 * Sub.VERSION)
        if version & 1 == 0:
            return version
        pause()


@inline
def is_unchanged(header: int, version: int) -> bool:
    """Whether no split has begun since `begin_search`: what was read meanwhile is right."""
    fence_loads()
    return load(header, Sub.VERSION) == version


@inline
def first_leaf(trees: int, header: int, version: int, low: Any, like: Any) -> int:
    """The number of the first leaf of a subindex that may hold a word; the first node if it has changed meanwhile."""
    number = load(header, Sub.ROOT)
    for _ in range(load(header, Sub.HEIGHT)):
        node = node_at(trees, number, like)
        number = load_id(ids_of(node, like), max(lines_below(node + LINE, low) - 1, 0))
        if not is_unchanged(header, version):
            return 0  # the number may be none of a node
    return number


@inline
def leaf_hits(node: int, at: int, count: int, low: Any, high: Any, like: Any) -> int:
    """A bit mask of which of `WIDE_LANES` entries of a leaf of `count`, from `at` on, are in a closed range."""
    valid = (1 << min(count - at, WIDE_LANES)) - 1
    return within(node + LINE, at, np.uint64(low), np.uint64(high - low), like) & valid


@kernel
def insert_all(trees: int, words: int, ids: int, count: int, like: Any) -> None:
    """Insert entries into the only subindex."""
    for i in range(count):
        insert(trees, 0, load_as(words, i, like), load_id(ids, i), like)
    store(trees, Trees.INSERTED, load(trees, Trees.INSERTED) + count)


class InsertTrees:
    """The arrays of insert trees and their table."""

    def __init__(self, tree: StaticTree, subindexes: int, entries: int, base: int) -> None:
        """Empty subindexes, at most `subindexes`, along the nodes of T_S, with memory for `entries` entries."""
        self._like = tree.word.type(0)
        self._nodes = max(subindexes, 1) + entries * 8 // (NODE * 3) + entries // NODE + 64 * SPLIT_NODES
        self._pool = allocate(self._nodes * (LINE + NODE * (tree.word.itemsize + 4)), np.uint8)
        self._limits = max(subindexes, 1), entries
        self.table = in_own_lines(Trees.partly(POOL=self._pool, CAPACITY=self._nodes))
        self.restart(tree, subindexes, base)

    @property
    def entries(self) -> int:
        """How many entries there is memory for."""
        return self._limits[1]

    def serves(self, subindexes: int, entries: int) -> bool:
        """Whether there is memory for so many subindexes and entries."""
        return subindexes <= self._limits[0] and entries <= self._limits[1]

    def restart(self, tree: StaticTree, subindexes: int, base: int) -> None:
        """Drop all entries, and follow the nodes of another T_S."""
        restart(address(self.table), address(tree.table), subindexes, base, self._like)

    def insert_all(self, words: Array, positions: Array) -> None:
        """Insert entries into the only subindex."""
        ids = (positions - int(self.table[Trees.BASE])).astype(np.uint32)
        insert_all(address(self.table), address(words), address(ids), len(words), self._like)

    def __len__(self) -> int:
        """The number of entries."""
        return int(self.table[Trees.INSERTED])

    @property
    def nbytes(self) -> int:
        """Bytes of the nodes in use."""
        return int(self.table[Trees.USED]) * (len(self._pool) // self._nodes)
