"""The node pools of an updatable (regular) HB+-Tree, and the fragments of its nodes (thesis, appendix A, 4.1).

A node's keys and children are one fragment; its size, parent and siblings are another, in a separate pool under the
same number. Searches read the first only. A big leaf has the number of its last-level inner node. Pools have spare
capacity, which takes no memory until it is used. Freed nodes go to a stack and are reused first.

A leaf line is filled from the front, `FRESH` quarters of it in a fresh build; unused slots hold the largest word. That
word is therefore not a key of the tree: rows with that key are stored outside it. A separator is an *upper bound* of
its line's words, so a change inside a line needs no change above it. In each node, the separator of the last used
child and all separators behind it hold the largest word, so a search always ends at an existing child.

Kernels take the address of one table (`Pools` below), which is also the tree's state. While a device
holds a copy of the inner nodes, `log_old` saves memory in a *journal* before it changes, so that a failed update can
be undone. Limits: 2**31 keys; node numbers fit 31 bits.
"""

from __future__ import annotations

from enum import auto
from typing import Any

import numpy as np

from millrace.host.hbtree.layout import LINE
from millrace.host.hbtree.leaves import largest
from millrace.host.runtime.intrinsics import (
    half_below,
    half_upto,
    line_below,
    line_upto,
    load,
    load_as,
    move_bytes,
    size_of,
    store_as,
)
from millrace.host.runtime.jit import inline
from millrace.host.runtime.kernel_args import KernelArgs

COUNT, PARENT, BEFORE, NEXT = range(4)
"""A fragment: words of a big leaf or children of an upper node (-1: free), the node above, siblings (-1: none)."""
FRAGMENT = 16
"""Bytes of a fragment."""
FRESH = 3
"""Quarters of a line that a fresh build fills."""
_JOURNAL_HEAD = 16
_TRAILER = 16
NONE = np.int32(0)
"""The type of a field."""


class Pools(KernelArgs):
    """The state of a tree: addresses of its pools and fragments, and numbers."""

    LEAVES = auto()
    LASTS = auto()
    UPPERS = auto()
    LEAF_FRAGMENTS = auto()
    UPPER_FRAGMENTS = auto()
    FREE_LEAVES = auto()  # stacks of free node numbers
    FREE_UPPERS = auto()
    CHANGED_LASTS = auto()  # one byte per inner node: whether it changed
    CHANGED_UPPERS = auto()
    WIDTH = auto()  # bytes of a value
    STRIDE = auto()  # bytes of a leaf line
    EQUALS = auto()  # whether words may be equal
    LEVELS = auto()  # number of inner levels
    SIZE = auto()  # words in the tree
    USED_LEAVES = auto()  # per pool: node numbers used so far, capacity, size of the stack of free numbers
    MAX_LEAVES = auto()
    SPARE_LEAVES = auto()
    USED_UPPERS = auto()
    MAX_UPPERS = auto()
    SPARE_UPPERS = auto()


@inline
def fragment(tree: int, pool: int, node: int, field: int) -> int:
    """A field of a fragment; `pool` is `Pools.LEAF_FRAGMENTS` or `Pools.UPPER_FRAGMENTS`."""
    return np.int64(load_as(load(tree, pool) + node * FRAGMENT, field, NONE))  # type: ignore[return-value]


@inline
def set_fragment(tree: int, pool: int, node: int, field: int, value: int) -> None:
    """Change a field of a fragment."""
    store_as(load(tree, pool) + node * FRAGMENT, field, np.int32(value))


@inline
def fan(like: Any) -> int:
    """Number of slots of a node."""
    return (LINE // size_of(like)) * (LINE // size_of(like))


@inline
def last_bytes(like: Any) -> int:
    """Bytes of a node of the last inner level: its index line and key lines."""
    return LINE + fan(like) * size_of(like)


@inline
def upper_bytes(like: Any) -> int:
    """Bytes of an upper node: index line, key lines, child lines."""
    return LINE + 2 * fan(like) * size_of(like)


@inline
def last_node(tree: int, leaf: int, like: Any) -> int:
    """Address of the inner node of a big leaf."""
    return load(tree, Pools.LASTS) + leaf * last_bytes(like)


@inline
def upper_node(tree: int, upper: int, like: Any) -> int:
    """Address of an upper node."""
    return load(tree, Pools.UPPERS) + upper * upper_bytes(like)


@inline
def leaf_line(tree: int, line: int) -> int:
    """Address of a leaf line."""
    return load(tree, Pools.LEAVES) + line * load(tree, Pools.STRIDE)


@inline
def per_leaf(half: bool, like: Any) -> int:
    """Number of words of a leaf line; if `half`, values as wide as the words take the other half."""
    return LINE // size_of(like) // (2 if half else 1)


@inline
def below(where: int, word: Any, half: bool) -> int:
    """Number of words of a leaf line that are smaller than `word`."""
    return half_below(where, word) if half else line_below(where, word)


@inline
def upto(where: int, word: Any, half: bool) -> int:
    """Number of words of a leaf line that are at most `word`."""
    return half_upto(where, word) if half else line_upto(where, word)


@inline
def word_count(where: int, half: bool, like: Any) -> int:
    """Number of words in a leaf line."""
    return below(where, largest(like), half)


@inline
def slot_in(node: int, word: Any, like: Any) -> int:
    """The slot of a node whose child contains a word."""
    line = line_below(node, word)
    per_line = LINE // size_of(like)
    return line * per_line + line_below(node + (1 + line) * LINE, word)


@inline
def key(node: int, slot: int, like: Any) -> Any:
    """A separator."""
    return load_as(node + LINE, slot, like)


@inline
def set_key(node: int, slot: int, word: Any) -> None:
    """Set a separator; `set_index` must follow."""
    store_as(node + LINE, slot, word)


@inline
def set_index(node: int, first: int, stop: int, like: Any) -> None:
    """Update the index line after changes to separators `first` to `stop - 1`."""
    per_line = LINE // size_of(like)
    for line in range(first // per_line, (stop + per_line - 1) // per_line):
        store_as(node, line, key(node, line * per_line + per_line - 1, like))


@inline
def move_value(to: int, index: int, source: int, number: int, width: int) -> None:
    """Copy a value from one array of values to another."""
    if width == 8:
        store_as(to, index, load_as(source, number, np.uint64(0)))
    else:
        store_as(to, index, load_as(source, number, np.uint32(0)))


@inline
def mark(tree: int, flags: int, node: int) -> None:
    """Mark an inner node as changed; `flags` is `Pools.CHANGED_LASTS` or `Pools.CHANGED_UPPERS`."""
    store_as(load_as(tree, flags, 0), node, np.uint8(1))


# The journal: old contents of memory ranges, each followed by its address and length. It is read from the end.


@inline
def log_old(journal: int, where: int, size: int) -> None:
    """Save a memory range (a multiple of 8 bytes) before it changes; journal 0 means none.

    Changes are in key order, so those of one line are consecutive: a range equal to the last one is not saved again.
    """
    if journal != 0:
        used = load_as(journal, 0, 0)
        at = journal + _JOURNAL_HEAD + used
        last = at - _TRAILER  # in an empty piece this is its head, which is no address
        if (load_as(last, 0, 0) != where) | (load_as(last, 1, 0) != size):
            move_bytes(at, where, size)
            store_as(at + size, 0, where)
            store_as(at + size, 1, size)
            store_as(journal, 0, used + size + _TRAILER)


@inline
def has_space(journal: int, size: int) -> bool:
    """Whether the journal has space for `size` bytes, trailers included."""
    return journal == 0 or load_as(journal, 0, 0) + size <= load_as(journal, 1, 0)


@inline
def rewind(journal: int) -> None:
    """Restore all saved ranges, the last one first."""
    used = load_as(journal, 0, 0)
    while used > 0:
        at = journal + _JOURNAL_HEAD + used - _TRAILER
        where, size = load_as(at, 0, 0), load_as(at, 1, 0)
        used -= size + _TRAILER
        move_bytes(where, journal + _JOURNAL_HEAD + used, size)
    store_as(journal, 0, 0)
