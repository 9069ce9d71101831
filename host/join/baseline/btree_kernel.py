"""The kernels of `index="btree"`: a B+-tree in one flat array, and the per-tuple join over two of them.

A tree is an int64 array, given by its address `t`: a header, then nodes of `STRIDE` integers: count, next and
previous leaf, then the entries' words (sign bit flipped, so that signed order is the words' order), their positions
and, in inner nodes, their children. Entry j of an inner node is a lower bound of the subtree of child j, except entry
0, which becomes stale when smaller keys are inserted and is never read. Kernels never allocate: if an array is too
small, they stop before the current tuple, return which array must grow, and are called again. All arrays are passed in
a table of addresses per side, which `btree.py` fills.
"""

from __future__ import annotations

from enum import auto

import numpy as np

from millrace.host.base.types import Array
from millrace.host.runtime.intrinsics import load, load_byte, store
from millrace.host.runtime.jit import inline, kernel, share
from millrace.host.runtime.kernel_args import KernelArgs

LEAF = 64
"""Entries of a leaf."""
INNER = 2 * LEAF // 3
"""Entries of an inner node: three integers each, in the memory of a leaf's two."""
COUNT, NEXT, PREVIOUS, WORDS = 0, 1, 2, 4
STRIDE = WORDS + 2 * LEAF
ROOT, HEIGHT, FREE, USED, SPLITS, OLDEST, CAPACITY, PATH = 0, 1, 2, 3, 4, 5, 6, 8
MAX_HEIGHT = 24
HEADER = PATH + 2 * MAX_HEIGHT
DONE, TREE_R, TREE_S, OUT_R, OUT_S = range(5)


class Side(KernelArgs):
    """The table of one side."""

    TREE = auto()
    WORDS = auto()  # by position, from FIRST on: the words, and whether the tree holds the tuple
    HELD = auto()
    FIRST = auto()
    END = auto()  # one past the last position
    NEW = auto()  # the position of the first new tuple
    LIVE = auto()
    BEGIN = auto()  # the visible intervals of the new tuples
    STOP = auto()
    LOW = auto()  # the ranges of the new tuples, RANGES each
    HIGH = auto()
    RANGES = auto()
    COUNTS = auto()  # out
    OUT = auto()  # partners
    OUT_CAPACITY = auto()
    OUT_USED = auto()
    DONE_TUPLES = auto()


def new_tree(capacity: int) -> Array:
    """An empty tree: one leaf, and memory for `capacity` nodes."""
    tree = np.zeros(HEADER + capacity * STRIDE, np.int64)
    tree[ROOT], tree[FREE], tree[USED], tree[CAPACITY] = HEADER, -1, 1, capacity
    tree[HEADER + NEXT] = tree[HEADER + PREVIOUS] = -1
    return tree


def grown(tree: Array) -> Array:
    """The same tree with twice the memory (nodes are offsets, so they stay valid)."""
    bigger = np.concatenate([tree, np.zeros(len(tree) - HEADER, np.int64)])
    bigger[CAPACITY] *= 2
    return bigger


class RunArgs(KernelArgs):
    """What `run` is given."""

    ORDER = auto()
    TUPLES = auto()
    R = auto()
    S = auto()
    STOPPED = auto()  # out


RUN_BYTES = 8 * len(RunArgs)


@inline
def count_upto(t: int, node: int, skip: int, size: int, word: int, position: int) -> int:
    """How many entries of a node, from `skip` on, are at most `(word, position)`. The word loop is branch-free."""
    at = node + WORDS + skip
    n = load(t, node + COUNT) - skip
    upto = 0
    for j in range(at, at + n):
        upto += load(t, j) < word
    while upto < n and load(t, at + upto) == word and load(t, at + size + upto) <= position:
        upto += 1
    return upto


@inline
def descend(t: int, word: int, position: int) -> int:
    """The leaf of `(word, position)`. The inner nodes and entries of the path are stored in the header."""
    node = load(t, ROOT)
    for level in range(load(t, HEIGHT)):
        slot = count_upto(t, node, 1, INNER, word, position)
        store(t, PATH + 2 * level, node)
        store(t, PATH + 2 * level + 1, slot)
        node = load(t, node + WORDS + 2 * INNER + slot)
    return node


@inline
def _take_node(t: int) -> int:
    node = load(t, FREE)
    if node >= 0:
        store(t, FREE, load(t, node + NEXT))
    else:
        node = HEADER + load(t, USED) * STRIDE
        store(t, USED, load(t, USED) + 1)
    store(t, node + COUNT, 0)
    store(t, node + NEXT, -1)
    store(t, node + PREVIOUS, -1)
    return node


@inline
def _free_node(t: int, node: int) -> None:
    store(t, node + NEXT, load(t, FREE))
    store(t, FREE, node)


@inline
def _insert_value(t: int, start: int, stop: int, value: int) -> None:
    """Move `start .. stop` up by one and store a value at its start."""
    for j in range(stop, start, -1):
        store(t, j, load(t, j - 1))
    store(t, start, value)


@inline
def _remove_value(t: int, start: int, stop: int) -> None:
    """Remove the value at `start` and move the others of `start .. stop` down by one."""
    for j in range(start, stop - 1):
        store(t, j, load(t, j + 1))


@inline
def _put_entry(t: int, node: int, slot: int, word: int, position: int, child: int) -> None:
    """Insert an entry into a node that is not full. A leaf's entry has no child (-1)."""
    at, n = node + WORDS, load(t, node + COUNT)
    size = LEAF if child < 0 else INNER
    _insert_value(t, at + slot, at + n, word)
    _insert_value(t, at + size + slot, at + size + n, position)
    if child >= 0:
        _insert_value(t, at + 2 * size + slot, at + 2 * size + n, child)
    store(t, node + COUNT, n + 1)


@inline
def _split(t: int, node: int, leaf: bool, slot: int) -> int:
    """Move the upper half into a new node on the right. If the new entry is the last one, the left node stays full."""
    right = _take_node(t)
    n = load(t, node + COUNT)
    keep = n - 1 if slot == n else n // 2
    size = LEAF if leaf else INNER
    for part in range(2 if leaf else 3):
        source, target = node + WORDS + part * size, right + WORDS + part * size
        for j in range(keep, n):
            store(t, target + j - keep, load(t, source + j))
    store(t, right + COUNT, n - keep)
    store(t, node + COUNT, keep)
    store(t, SPLITS, load(t, SPLITS) + 1)
    if leaf:
        after = load(t, node + NEXT)
        store(t, right + NEXT, after)
        store(t, right + PREVIOUS, node)
        store(t, node + NEXT, right)
        if after >= 0:
            store(t, after + PREVIOUS, right)
    return right


@inline
def _insert(t: int, word: int, position: int) -> None:
    """Insert one entry. The caller ensures that there are nodes for a split on every level."""
    node = descend(t, word, position)
    slot = count_upto(t, node, 0, LEAF, word, position)
    child = -1
    level = load(t, HEIGHT)
    size = LEAF
    while load(t, node + COUNT) == size:
        right = _split(t, node, child < 0, slot)
        keep = load(t, node + COUNT)
        if slot > keep:
            _put_entry(t, right, slot - keep, word, position, child)
        else:
            _put_entry(t, node, slot, word, position, child)
        word, position, child = load(t, right + WORDS), load(t, right + WORDS + size), right
        if level == 0:
            root = _take_node(t)
            _put_entry(t, root, 0, load(t, node + WORDS), load(t, node + WORDS + size), node)
            _put_entry(t, root, 1, word, position, child)
            store(t, ROOT, root)
            store(t, HEIGHT, load(t, HEIGHT) + 1)
            return
        size = INNER
        level -= 1
        node = load(t, PATH + 2 * level)
        slot = load(t, PATH + 2 * level + 1) + 1
    _put_entry(t, node, slot, word, position, child)


@inline
def _unlink(t: int, leaf: int) -> None:
    after, before = load(t, leaf + NEXT), load(t, leaf + PREVIOUS)
    if after >= 0:
        store(t, after + PREVIOUS, before)
    if before >= 0:
        store(t, before + NEXT, after)


@inline
def _delete(t: int, word: int, position: int) -> None:
    """Delete an existing entry. Nodes that become empty are freed, up to the root."""
    node = descend(t, word, position)
    slot = count_upto(t, node, 0, LEAF, word, position) - 1
    level = load(t, HEIGHT)
    size = LEAF
    while True:
        at, n = node + WORDS, load(t, node + COUNT)
        for part in range(2 if size == LEAF else 3):
            _remove_value(t, at + part * size + slot, at + part * size + n)
        store(t, node + COUNT, n - 1)
        if n > 1 or level == 0:
            break
        if size == LEAF:
            _unlink(t, node)
        _free_node(t, node)
        size = INNER
        level -= 1
        node = load(t, PATH + 2 * level)
        slot = load(t, PATH + 2 * level + 1)
    while load(t, HEIGHT) > 0 and load(t, load(t, ROOT) + COUNT) == 1:
        old = load(t, ROOT)
        store(t, ROOT, load(t, old + WORDS + 2 * INNER))
        store(t, HEIGHT, load(t, HEIGHT) - 1)
        _free_node(t, old)


@inline
def _has_space(t: int) -> bool:
    """Whether there are enough nodes for an insertion that splits every level, without reusing freed ones."""
    return load(t, USED) + load(t, HEIGHT) + 2 <= load(t, CAPACITY)


@inline
def _probe(t: int, low: int, high: int, begin: int, end: int, out: int, used: int, capacity: int) -> int:
    """Write the partners with `low <= word <= high` and `begin <= position < end`.

    Returns their number, or -1 if `out` is full. `capacity` is -1 if only the number is wanted.
    """
    node = descend(t, low, -1)
    slot = count_upto(t, node, 0, LEAF, low, -1)
    found = 0
    while node >= 0:
        at = node + WORDS
        for j in range(at + slot, at + load(t, node + COUNT)):
            if load(t, j) > high:
                return found
            position = load(t, j + LEAF)
            if begin <= position < end:
                if capacity >= 0:
                    if used + found == capacity:
                        return -1
                    store(out, used + found, position)
                found += 1
        node = load(t, node + NEXT)
        slot = 0
    return found


@inline
def sort_positions(out: int, start: int, stop: int) -> None:
    """Sort ascending: insertion sort for few values (the usual case), else heap sort."""
    if stop - start > 32:
        _heap_sort(out, start, stop)
        return
    for i in range(start + 1, stop):
        value = load(out, i)
        j = i
        while j > start and load(out, j - 1) > value:
            store(out, j, load(out, j - 1))
            j -= 1
        store(out, j, value)


@inline
def _sift_down(out: int, start: int, at: int, n: int) -> None:
    """Sift down the value at `at` in a heap of `n` values."""
    value = load(out, start + at)
    while 2 * at + 1 < n:
        child = 2 * at + 1
        if child + 1 < n and load(out, start + child) < load(out, start + child + 1):
            child += 1
        if load(out, start + child) <= value:
            break
        store(out, start + at, load(out, start + child))
        at = child
    store(out, start + at, value)


@inline
def _heap_sort(out: int, start: int, stop: int) -> None:
    n = stop - start
    if all_ascending(out, start, stop):
        return
    for at in range(n // 2 - 1, -1, -1):
        _sift_down(out, start, at, n)
    for last in range(n - 1, 0, -1):
        top = load(out, start)
        store(out, start, load(out, start + last))
        store(out, start + last, top)
        _sift_down(out, start, 0, last)


@inline
def all_ascending(out: int, start: int, stop: int) -> bool:
    """Whether values are already in order, as partners with equal keys are."""
    for i in range(start + 1, stop):  # noqa: SIM110 - no generators in kernels
        if load(out, i - 1) > load(out, i):
            return False
    return True


@inline
def _expire(side: int, before: int) -> None:
    """Delete everything below a position."""
    t, first = load(side, Side.TREE), load(side, Side.FIRST)
    while load(t, OLDEST) < before:
        position = load(t, OLDEST)
        if load_byte(load(side, Side.HELD), position - first):
            _delete(t, load(load(side, Side.WORDS), position - first), position)
        store(t, OLDEST, position + 1)


@inline
def _partners(t: int, side: int, i: int) -> bool:
    """Search the other side's tree for tuple i. False if the output is full (nothing is kept then)."""
    ranges, out, used, capacity = (
        load(side, Side.RANGES),
        load(side, Side.OUT),
        load(side, Side.OUT_USED),
        load(side, Side.OUT_CAPACITY),
    )
    begin, end = load(load(side, Side.BEGIN), i), load(load(side, Side.STOP), i)
    total = 0
    for k in range(ranges * i, ranges * i + ranges):
        low, high = load(load(side, Side.LOW), k), load(load(side, Side.HIGH), k)
        if low <= high:
            found = _probe(t, low, high, begin, end, out, used + total, capacity)
            if found < 0:
                return False
            total += found
    store(load(side, Side.COUNTS), i, total)
    if capacity >= 0:
        sort_positions(out, used, used + total)
        store(side, Side.OUT_USED, used + total)
    return True


@inline
def _process_tuple(own: int, other: int, i: int) -> int:
    """Process one tuple: expire, search, insert. 0 if done, 1 if its tree must grow first, 2 if the output must."""
    t = load(own, Side.TREE)
    if not _has_space(t):
        return 1
    _expire(other, min(load(load(own, Side.BEGIN), i), load(other, Side.END)))
    if load_byte(load(own, Side.LIVE), i):
        if not _partners(load(other, Side.TREE), own, i):
            return 2
        position = load(own, Side.NEW) + i
        at = position - load(own, Side.FIRST)
        if load_byte(load(own, Side.HELD), at):
            _insert(t, load(load(own, Side.WORDS), at), position)
    return 0


@kernel
def run(given: int) -> None:
    """Process tuples in order until all are done or an array must grow, and store which (`STOPPED`)."""
    order, r, s = load(given, RunArgs.ORDER), load(given, RunArgs.R), load(given, RunArgs.S)
    done = load(r, Side.DONE_TUPLES) + load(s, Side.DONE_TUPLES)
    for at in range(done, load(given, RunArgs.TUPLES)):
        of_s = load_byte(order, at)
        own, other = (s, r) if of_s else (r, s)
        i = load(own, Side.DONE_TUPLES)
        stop = _process_tuple(own, other, i)
        if stop:
            store(given, RunArgs.STOPPED, (TREE_S if of_s else TREE_R) if stop == 1 else (OUT_S if of_s else OUT_R))
            return
        store(own, Side.DONE_TUPLES, i + 1)
    store(given, RunArgs.STOPPED, DONE)


@share
def run_partition(runs: int, part: int, parts: int) -> None:
    """Run one of several partitions."""
    run(runs + RUN_BYTES * part)


@kernel
def merge_partitions(tables: int, parts: int, tuples: int, out: int) -> None:
    """Write the partners of all partitions of a side, ascending for each tuple. Uses `OUT_USED` as a cursor."""
    for part in range(parts):
        store(load(tables, part), Side.OUT_USED, 0)
    end = 0
    for i in range(tuples):
        start = end
        for part in range(parts):
            side = load(tables, part)
            used, found = load(side, Side.OUT_USED), load(load(side, Side.COUNTS), i)
            for j in range(used, used + found):
                store(out, end, load(load(side, Side.OUT), j))
                end += 1
            store(side, Side.OUT_USED, used + found)
        sort_positions(out, start, end)


@kernel
def insert_all(side: int, start: int, stop: int) -> int:
    """Insert positions `start .. stop`. Returns the first position left over if the tree must grow."""
    t, first = load(side, Side.TREE), load(side, Side.FIRST)
    for position in range(start, stop):
        if not _has_space(t):
            return position
        if load_byte(load(side, Side.HELD), position - first):
            _insert(t, load(load(side, Side.WORDS), position - first), position)
    return stop


@kernel
def expire(side: int, before: int) -> None:
    """Delete everything below a position."""
    _expire(side, before)
