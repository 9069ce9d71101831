"""The pools of a regular HB+-Tree that can change, and the fragments of its nodes (thesis, appendix A, 4.1).

A node's keys and children are one fragment, its size, parent and siblings another, in a pool of its own under the same
number: searches read the first alone. A big leaf has the number of its last inner node. Pools have room to grow that
costs nothing before it is used; nodes given back are stacked and used again first.

A leaf line is filled from its front, `FRESH` quarters of it in a fresh build; what is unused holds the largest word.
That word is therefore no key here: rows that have it are kept beside the tree. A separator is an *upper bound* of its
line's words, so that a change inside a line needs no change above it. In every node the separators of the last child in
use, and of all behind it, hold the largest word: a search always ends at a child that is there.

Kernels are given the address of one table (`LEAVES` … `SPARE_UPPERS` below), which is the tree's state too. While a
device holds a copy of the inner nodes, what is about to change is first kept in a *journal*, so that it can be put
back: `keep`. Limits: 2**31 keys; node numbers fit 31 bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from millrace.host.hbtree.layout import LINE
from millrace.host.hbtree.leaves import largest
from millrace.host.runtime.intrinsics import (
    half_below,
    half_upto,
    line_below,
    line_upto,
    load_as,
    move_bytes,
    size_of,
    store_as,
)
from millrace.host.runtime.jit import inline

(LEAVES, LASTS, UPPERS, LEAF_FRAGMENTS, UPPER_FRAGMENTS, FREE_LEAVES, FREE_UPPERS) = range(7)
"""Addresses of the pools, of the fragments, and of the stacks of free numbers."""
CHANGED_LASTS, CHANGED_UPPERS = 7, 8
"""Addresses of a byte per inner node: whether it changed."""
WIDTH, STRIDE, EQUALS, LEVELS, SIZE = 9, 10, 11, 12, 13
"""Bytes of a value and of a leaf line; whether there may be equal words; inner levels; words in the tree."""
USED_LEAVES, MOST_LEAVES, SPARE_LEAVES, USED_UPPERS, MOST_UPPERS, SPARE_UPPERS = range(14, 20)
"""Numbers ever used, room for, and on the stack of free ones."""
TABLE = 20
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


@inline
def fragment(tree: int, pool: int, node: int, field: int) -> int:
    """A field of a fragment; `pool` is `LEAF_FRAGMENTS` or `UPPER_FRAGMENTS`."""
    return np.int64(load_as(load_as(tree, pool, 0) + node * FRAGMENT, field, NONE))  # type: ignore[return-value]


@inline
def set_fragment(tree: int, pool: int, node: int, field: int, value: int) -> None:
    """Change a field of a fragment."""
    store_as(load_as(tree, pool, 0) + node * FRAGMENT, field, np.int32(value))


@inline
def fan(like: Any) -> int:
    """Slots of a node."""
    return (LINE // size_of(like)) * (LINE // size_of(like))


@inline
def last_bytes(like: Any) -> int:
    """Bytes of a node of the last inner level: its index line and key lines."""
    return LINE + fan(like) * size_of(like)


@inline
def upper_bytes(like: Any) -> int:
    """Bytes of an upper node: index line, key lines, children's lines."""
    return LINE + 2 * fan(like) * size_of(like)


@inline
def last_node(tree: int, leaf: int, like: Any) -> int:
    """Where the inner node of a big leaf lies."""
    return load_as(tree, LASTS, 0) + leaf * last_bytes(like)  # type: ignore[no-any-return]


@inline
def upper_node(tree: int, upper: int, like: Any) -> int:
    """Where an upper node lies."""
    return load_as(tree, UPPERS, 0) + upper * upper_bytes(like)  # type: ignore[no-any-return]


@inline
def leaf_line(tree: int, line: int) -> int:
    """Where a leaf line lies."""
    return load_as(tree, LEAVES, 0) + line * load_as(tree, STRIDE, 0)  # type: ignore[no-any-return]


@inline
def per_leaf(half: bool, like: Any) -> int:
    """Words of a leaf line; `half` of it are values where those are as wide."""
    return LINE // size_of(like) // (2 if half else 1)


@inline
def below(where: int, word: Any, half: bool) -> int:
    """How many words of a leaf line are below a word."""
    return half_below(where, word) if half else line_below(where, word)


@inline
def upto(where: int, word: Any, half: bool) -> int:
    """How many words of a leaf line are not above a word."""
    return half_upto(where, word) if half else line_upto(where, word)


@inline
def held(where: int, half: bool, like: Any) -> int:
    """How many words a leaf line holds."""
    return below(where, largest(like), half)


@inline
def slot_in(node: int, word: Any, like: Any) -> int:
    """The slot of a node that a word belongs to."""
    line = line_below(node, word)
    per_line = LINE // size_of(like)
    return line * per_line + line_below(node + (1 + line) * LINE, word)


@inline
def key(node: int, slot: int, like: Any) -> Any:
    """A separator."""
    return load_as(node + LINE, slot, like)


@inline
def set_key(node: int, slot: int, word: Any) -> None:
    """Change a separator; `set_index` is to follow."""
    store_as(node + LINE, slot, word)


@inline
def set_index(node: int, first: int, stop: int, like: Any) -> None:
    """Make the index line right for changed separators of some slots."""
    per_line = LINE // size_of(like)
    for line in range(first // per_line, (stop + per_line - 1) // per_line):
        store_as(node, line, key(node, line * per_line + per_line - 1, like))


@inline
def move_value(to: int, place: int, source: int, number: int, width: int) -> None:
    """Copy a value from one array of values to another."""
    if width == 8:
        store_as(to, place, load_as(source, number, np.uint64(0)))
    else:
        store_as(to, place, load_as(source, number, np.uint32(0)))


@inline
def mark(tree: int, flags: int, node: int) -> None:
    """Note that an inner node changes; `flags` is `CHANGED_LASTS` or `CHANGED_UPPERS`."""
    store_as(load_as(tree, flags, 0), node, np.uint8(1))


# The journal: what was there before, each stretch of memory followed by its address and length. Read from the end.


@inline
def keep(journal: int, where: int, size: int) -> None:
    """Keep a stretch of memory, whole numbers of 8 bytes, that is about to change; 0 is no journal.

    Changes come in order, so those of one line follow each other: what was kept last is not kept again.
    """
    if journal != 0:
        used = load_as(journal, 0, 0)
        at = journal + _JOURNAL_HEAD + used
        last = at - _TRAILER  # of an empty piece its head, which is no address
        if (load_as(last, 0, 0) != where) | (load_as(last, 1, 0) != size):
            move_bytes(at, where, size)
            store_as(at + size, 0, where)
            store_as(at + size, 1, size)
            store_as(journal, 0, used + size + _TRAILER)


@inline
def has_room(journal: int, size: int) -> bool:
    """Whether so many bytes can be kept, trailers included."""
    return journal == 0 or load_as(journal, 0, 0) + size <= load_as(journal, 1, 0)


@inline
def rewind(journal: int) -> None:
    """Put everything back, the last first."""
    used = load_as(journal, 0, 0)
    while used > 0:
        at = journal + _JOURNAL_HEAD + used - _TRAILER
        where, size = load_as(at, 0, 0), load_as(at, 1, 0)
        used -= size + _TRAILER
        move_bytes(where, journal + _JOURNAL_HEAD + used, size)
    store_as(journal, 0, 0)
