"""Structural changes of a regular HB+-Tree, by one thread: splits and merges nodes, grows and shrinks the root.

A full big leaf is split in halves. If words arrive in ascending order, the last big leaf keeps the fill of a fresh
build instead. Full upper nodes are split too, up to the root. The root is always upper node 0 (or big leaf 0 if there
is no upper node): its contents move, its number stays. A sparse big leaf is merged with a neighbour below the same
parent if the result has free slots, and so are upper nodes with few children. Freed node numbers go to a stack.
(Thesis, appendix A, 5.6.) Limit: the pools do not grow (`can_split`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from millrace.host.hbtree import edit as he
from millrace.host.hbtree import fragments as hf
from millrace.host.hbtree.layout import LINE
from millrace.host.hbtree.leaves import largest
from millrace.host.runtime.intrinsics import fill_bytes, load, load_as, move_bytes, size_of, store_as
from millrace.host.runtime.jit import inline, kernel


@inline
def child(node: int, slot: int, like: Any) -> int:
    """The number of a child of an upper node."""
    return np.int64(load_as(node + LINE + hf.fan(like) * size_of(like), slot, like))  # type: ignore[return-value]


@inline
def _set_child(node: int, slot: int, number: int, like: Any) -> None:
    store_as(node + LINE + hf.fan(like) * size_of(like), slot, type(like)(number))


@inline
def min_words(half: bool, like: Any) -> int:
    """Big leaves with fewer words are merged if possible."""
    return hf.fan(like) * hf.per_leaf(half, like) * 3 // 8


@inline
def max_journal_bytes(tree: int, half: bool, like: Any) -> int:
    """Maximum journal bytes of one change, except for a word that is in many lines."""
    leaf = hf.fan(like) * load(tree, hf.Pools.STRIDE) + hf.last_bytes(like)
    levels = load(tree, hf.Pools.LEVELS) + 2
    upper = hf.upper_bytes(like) + hf.fan(like) * (hf.FRAGMENT + 16)
    return 3 * leaf + 4 * levels * upper + (1 << 12)


# Allocation of node numbers.


@inline
def _take(tree: int, used: int, spare: int, stack: int) -> int:
    """Take a free number; the caller has checked that there is one."""
    left = load_as(tree, spare, 0)
    if left > 0:
        store_as(tree, spare, left - 1)
        return np.int64(load_as(load_as(tree, stack, 0), left - 1, hf.NONE))  # type: ignore[return-value]
    number = load_as(tree, used, 0)
    store_as(tree, used, number + 1)
    return number  # type: ignore[no-any-return]


@inline
def _take_leaf(tree: int, journal: int) -> int:
    leaf = _take(tree, hf.Pools.USED_LEAVES, hf.Pools.SPARE_LEAVES, hf.Pools.FREE_LEAVES)
    _log_fragment(tree, hf.Pools.LEAF_FRAGMENTS, leaf, journal)
    return leaf


@inline
def _take_upper(tree: int, journal: int) -> int:
    upper = _take(tree, hf.Pools.USED_UPPERS, hf.Pools.SPARE_UPPERS, hf.Pools.FREE_UPPERS)
    _log_fragment(tree, hf.Pools.UPPER_FRAGMENTS, upper, journal)
    return upper


@inline
def _give(tree: int, number: int, spare: int, stack: int, fragments: int, journal: int) -> None:
    """Free a number."""
    _log_fragment(tree, fragments, number, journal)
    left = load_as(tree, spare, 0)
    store_as(load_as(tree, stack, 0), left, np.int32(number))
    store_as(tree, spare, left + 1)
    hf.set_fragment(tree, fragments, number, hf.COUNT, -1)


@inline
def can_split(tree: int) -> bool:
    """Whether there are enough free numbers to split a node on each level."""
    leaves = load(tree, hf.Pools.MAX_LEAVES) - load(tree, hf.Pools.USED_LEAVES) + load(tree, hf.Pools.SPARE_LEAVES)
    uppers = load(tree, hf.Pools.MAX_UPPERS) - load(tree, hf.Pools.USED_UPPERS) + load(tree, hf.Pools.SPARE_UPPERS)
    return (leaves > 0) & (uppers > load(tree, hf.Pools.LEVELS) + 1)


@inline
def _log_fragment(tree: int, fragments: int, number: int, journal: int) -> None:
    hf.log_old(journal, load_as(tree, fragments, 0) + number * hf.FRAGMENT, hf.FRAGMENT)


@inline
def _touch(tree: int, upper: int, journal: int, like: Any) -> int:
    """Log an upper node before it changes and mark it; return its address."""
    node = hf.upper_node(tree, upper, like)
    hf.log_old(journal, node, hf.upper_bytes(like))
    _log_fragment(tree, hf.Pools.UPPER_FRAGMENTS, upper, journal)
    hf.mark(tree, hf.Pools.CHANGED_UPPERS, upper)
    return node


# Children of upper nodes.


@kernel
def _slot_of(tree: int, upper: int, number: int, like: Any) -> int:
    """The slot of the child with this number, or the number of children if there is none."""
    node, count = hf.upper_node(tree, upper, like), hf.fragment(tree, hf.Pools.UPPER_FRAGMENTS, upper, hf.COUNT)
    slot = 0
    while slot < count and child(node, slot, like) != number:
        slot += 1
    return slot


@kernel
def _set_count(tree: int, upper: int, count: int, like: Any) -> None:
    """Set the number of children; separators from the last child on become the largest word."""
    node = hf.upper_node(tree, upper, like)
    first = max(count - 1, 0)
    fill_bytes(node + LINE + first * size_of(like), (hf.fan(like) - first) * size_of(like))
    hf.set_index(node, 0, hf.fan(like), like)
    hf.set_fragment(tree, hf.Pools.UPPER_FRAGMENTS, upper, hf.COUNT, count)


@inline
def _shift(node: int, to: int, source: int, count: int, like: Any) -> None:
    """Move some separators and children inside a node."""
    item = size_of(like)
    for part in range(2):
        slots = node + LINE + part * hf.fan(like) * item
        move_bytes(slots + to * item, slots + source * item, count * item)


@kernel
def _add_child(tree: int, upper: int, slot: int, word: Any, number: int) -> None:
    """Insert a child behind the one in `slot`, with the separator `word` between them."""
    node, count = hf.upper_node(tree, upper, word), hf.fragment(tree, hf.Pools.UPPER_FRAGMENTS, upper, hf.COUNT)
    _shift(node, slot + 1, slot, count - slot, word)
    hf.set_key(node, slot, word)
    _set_child(node, slot + 1, number, word)
    _set_count(tree, upper, count + 1, word)


@kernel
def _drop_child(tree: int, upper: int, slot: int, like: Any) -> None:
    """Remove the child in `slot` (not the first); the child before it takes over its key range."""
    node, count = hf.upper_node(tree, upper, like), hf.fragment(tree, hf.Pools.UPPER_FRAGMENTS, upper, hf.COUNT)
    hf.set_key(node, slot - 1, hf.key(node, slot, like))
    _shift(node, slot, slot + 1, count - 1 - slot, like)
    _set_count(tree, upper, count - 1, like)


@kernel
def _move_children(
    tree: int, source: int, first: int, count: int, upper: int, at: int, fragments: int, journal: int, like: Any
) -> None:
    """Copy children of a node to another one, which becomes their parent."""
    old, new = hf.upper_node(tree, source, like), hf.upper_node(tree, upper, like)
    for i in range(count):
        number = child(old, first + i, like)
        hf.set_key(new, at + i, hf.key(old, first + i, like))
        _set_child(new, at + i, number, like)
        _log_fragment(tree, fragments, number, journal)
        hf.set_fragment(tree, fragments, number, hf.PARENT, upper)


# Growing.


@kernel
def _push_root_down(tree: int, fragments: int, journal: int, like: Any) -> int:
    """Move the root's children to a new node, which becomes its only child; return the new node."""
    count = hf.fragment(tree, hf.Pools.UPPER_FRAGMENTS, 0, hf.COUNT)
    other = _take_upper(tree, journal)
    node = _touch(tree, 0, journal, like)
    hf.mark(tree, hf.Pools.CHANGED_UPPERS, other)
    _move_children(tree, 0, 0, count, other, 0, fragments, journal, like)
    _set_count(tree, other, count, like)
    hf.set_fragment(tree, hf.Pools.UPPER_FRAGMENTS, other, hf.PARENT, 0)
    _set_child(node, 0, other, like)
    _set_count(tree, 0, 1, like)
    store_as(tree, hf.Pools.LEVELS, load(tree, hf.Pools.LEVELS) + 1)
    return other


@kernel
def _first_root(tree: int, journal: int, like: Any) -> None:
    """Create the first upper node above the only big leaf."""
    store_as(tree, hf.Pools.USED_UPPERS, 1)
    store_as(tree, hf.Pools.SPARE_UPPERS, 0)
    node = _touch(tree, 0, journal, like)
    _set_child(node, 0, 0, like)
    _set_count(tree, 0, 1, like)
    hf.set_fragment(tree, hf.Pools.LEAF_FRAGMENTS, 0, hf.PARENT, 0)
    store_as(tree, hf.Pools.LEVELS, 2)


@kernel
def _insert_above(tree: int, leaf: int, word: Any, added: int, journal: int) -> None:
    """Insert a new big leaf behind `leaf` in their parent; split full nodes up to the root."""
    if load(tree, hf.Pools.LEVELS) == 1:
        _first_root(tree, journal, word)
    old, new, fragments, half = leaf, added, hf.Pools.LEAF_FRAGMENTS, hf.fan(word) // 2
    upper = hf.fragment(tree, fragments, old, hf.PARENT)
    while True:
        if hf.fragment(tree, hf.Pools.UPPER_FRAGMENTS, upper, hf.COUNT) < hf.fan(word):
            _touch(tree, upper, journal, word)
            _add_child(tree, upper, _slot_of(tree, upper, old, word), word, new)
            hf.set_fragment(tree, fragments, new, hf.PARENT, upper)
            return
        if upper == 0:
            upper = _push_root_down(tree, fragments, journal, word)
        other = _take_upper(tree, journal)
        node = _touch(tree, upper, journal, word)
        hf.mark(tree, hf.Pools.CHANGED_UPPERS, other)
        middle = hf.key(node, half - 1, word)
        _move_children(tree, upper, half, hf.fan(word) - half, other, 0, fragments, journal, word)
        _set_count(tree, other, hf.fan(word) - half, word)
        _set_count(tree, upper, half, word)
        slot, target = _slot_of(tree, upper, old, word), upper
        if slot == half:
            slot, target = _slot_of(tree, other, old, word), other
        _add_child(tree, target, slot, word, new)
        hf.set_fragment(tree, fragments, new, hf.PARENT, target)
        old, new, word, fragments = upper, other, middle, hf.Pools.UPPER_FRAGMENTS
        upper = hf.fragment(tree, hf.Pools.UPPER_FRAGMENTS, upper, hf.PARENT)


@kernel
def split_leaf(
    tree: int, leaf: int, word: Any, new_values: int, number: int, scratch: int, half: bool, journal: int
) -> None:
    """Split a full big leaf and insert a new word."""
    fan = hf.fan(word)
    he.log_lines(tree, leaf * fan, fan, journal, word)
    _log_fragment(tree, hf.Pools.LEAF_FRAGMENTS, leaf, journal)
    total = he.gather(tree, leaf * fan, fan, scratch, 0, half, word)
    appends = (hf.fragment(tree, hf.Pools.LEAF_FRAGMENTS, leaf, hf.NEXT) < 0) & (
        load_as(scratch, total - 1, word) < word
    )
    he.insert_in_scratch(tree, scratch, total, word, new_values, number, half)
    total += 1
    left = fan * hf.per_leaf(half, word) * hf.FRESH // 4 if appends else total // 2
    other = _take_leaf(tree, journal)
    hf.set_key(hf.last_node(tree, other, word), fan - 1, largest(word))
    he.spread(tree, leaf * fan, fan, scratch, 0, left, half, word)
    he.spread(tree, other * fan, fan, scratch, left, total - left, half, word)
    after = hf.fragment(tree, hf.Pools.LEAF_FRAGMENTS, leaf, hf.NEXT)
    _link(tree, other, after, journal)
    _link(tree, leaf, other, journal)
    hf.set_fragment(tree, hf.Pools.LEAF_FRAGMENTS, leaf, hf.COUNT, left)
    hf.set_fragment(tree, hf.Pools.LEAF_FRAGMENTS, other, hf.COUNT, total - left)
    _insert_above(tree, leaf, load_as(scratch, left - 1, word), other, journal)


@inline
def _link(tree: int, leaf: int, after: int, journal: int) -> None:
    """Link two big leaves as neighbours; `leaf` is in the journal already."""
    hf.set_fragment(tree, hf.Pools.LEAF_FRAGMENTS, leaf, hf.NEXT, after)
    if after >= 0:
        _log_fragment(tree, hf.Pools.LEAF_FRAGMENTS, after, journal)
        hf.set_fragment(tree, hf.Pools.LEAF_FRAGMENTS, after, hf.BEFORE, leaf)


# Shrinking.


@kernel
def merge_leaf(tree: int, leaf: int, scratch: int, half: bool, journal: int, like: Any) -> None:
    """Merge a big leaf with a neighbour below the same parent, if there is one with enough free slots."""
    fan, upper = hf.fan(like), hf.fragment(tree, hf.Pools.LEAF_FRAGMENTS, leaf, hf.PARENT)
    if load(tree, hf.Pools.LEVELS) == 1 or hf.fragment(tree, hf.Pools.UPPER_FRAGMENTS, upper, hf.COUNT) < 2:
        return
    slot = max(_slot_of(tree, upper, leaf, like), 1)
    node = hf.upper_node(tree, upper, like)
    left, right = child(node, slot - 1, like), child(node, slot, like)
    words = hf.fragment(tree, hf.Pools.LEAF_FRAGMENTS, left, hf.COUNT)
    others = hf.fragment(tree, hf.Pools.LEAF_FRAGMENTS, right, hf.COUNT)
    most = fan * hf.per_leaf(half, like) * hf.FRESH // 4
    if (words + others > most) & (words > 0) & (others > 0):
        return
    he.log_lines(tree, left * fan, fan, journal, like)
    _log_fragment(tree, hf.Pools.LEAF_FRAGMENTS, left, journal)
    total = he.gather(tree, left * fan, fan, scratch, 0, half, like)
    total = he.gather(tree, right * fan, fan, scratch, total, half, like)
    he.spread(tree, left * fan, fan, scratch, 0, total, half, like)
    hf.set_fragment(tree, hf.Pools.LEAF_FRAGMENTS, left, hf.COUNT, total)
    _link(tree, left, hf.fragment(tree, hf.Pools.LEAF_FRAGMENTS, right, hf.NEXT), journal)
    _touch(tree, upper, journal, like)
    _drop_child(tree, upper, slot, like)
    _give(tree, right, hf.Pools.SPARE_LEAVES, hf.Pools.FREE_LEAVES, hf.Pools.LEAF_FRAGMENTS, journal)
    _merge_uppers(tree, upper, journal, like)
    _shrink(tree, journal, like)


@kernel
def _merge_uppers(tree: int, upper: int, journal: int, like: Any) -> None:
    """Merge upper nodes with few children, from `upper` towards the root."""
    fragments = hf.Pools.LEAF_FRAGMENTS
    while upper != 0 and hf.fragment(tree, hf.Pools.UPPER_FRAGMENTS, upper, hf.COUNT) < hf.fan(like) // 4:
        above = hf.fragment(tree, hf.Pools.UPPER_FRAGMENTS, upper, hf.PARENT)
        if hf.fragment(tree, hf.Pools.UPPER_FRAGMENTS, above, hf.COUNT) < 2:
            return
        slot, node = max(_slot_of(tree, above, upper, like), 1), hf.upper_node(tree, above, like)
        left, right = child(node, slot - 1, like), child(node, slot, like)
        count = hf.fragment(tree, hf.Pools.UPPER_FRAGMENTS, left, hf.COUNT)
        others = hf.fragment(tree, hf.Pools.UPPER_FRAGMENTS, right, hf.COUNT)
        if count + others > hf.fan(like) * hf.FRESH // 4:
            return
        into = _touch(tree, left, journal, like)
        _move_children(tree, right, 0, others, left, count, fragments, journal, like)
        hf.set_key(into, count - 1, hf.key(node, slot - 1, like))
        _set_count(tree, left, count + others, like)
        _touch(tree, above, journal, like)
        _drop_child(tree, above, slot, like)
        _give(tree, right, hf.Pools.SPARE_UPPERS, hf.Pools.FREE_UPPERS, hf.Pools.UPPER_FRAGMENTS, journal)
        upper, fragments = above, hf.Pools.UPPER_FRAGMENTS


@kernel
def _shrink(tree: int, journal: int, like: Any) -> None:
    """Make the root's child the root while it is the only child."""
    while load(tree, hf.Pools.LEVELS) > 1 and hf.fragment(tree, hf.Pools.UPPER_FRAGMENTS, 0, hf.COUNT) == 1:
        levels = load(tree, hf.Pools.LEVELS) - 1
        only = child(hf.upper_node(tree, 0, like), 0, like)
        if levels == 1:
            _move_to_front(tree, only, journal, like)
        else:
            count = hf.fragment(tree, hf.Pools.UPPER_FRAGMENTS, only, hf.COUNT)
            _touch(tree, 0, journal, like)
            fragments = hf.Pools.LEAF_FRAGMENTS if levels == 2 else hf.Pools.UPPER_FRAGMENTS
            _move_children(tree, only, 0, count, 0, 0, fragments, journal, like)
            _set_count(tree, 0, count, like)
            _give(tree, only, hf.Pools.SPARE_UPPERS, hf.Pools.FREE_UPPERS, hf.Pools.UPPER_FRAGMENTS, journal)
        store_as(tree, hf.Pools.LEVELS, levels)


@kernel
def _move_to_front(tree: int, leaf: int, journal: int, like: Any) -> None:
    """Give the only big leaf number 0, and free all other numbers."""
    if leaf != 0:
        fan, stride = hf.fan(like), load(tree, hf.Pools.STRIDE)
        he.log_lines(tree, 0, fan, journal, like)
        _log_fragment(tree, hf.Pools.LEAF_FRAGMENTS, 0, journal)
        move_bytes(hf.leaf_line(tree, 0), hf.leaf_line(tree, leaf * fan), fan * stride)
        move_bytes(hf.last_node(tree, 0, like), hf.last_node(tree, leaf, like), hf.last_bytes(like))
        hf.set_fragment(
            tree, hf.Pools.LEAF_FRAGMENTS, 0, hf.COUNT, hf.fragment(tree, hf.Pools.LEAF_FRAGMENTS, leaf, hf.COUNT)
        )
        hf.mark(tree, hf.Pools.CHANGED_LASTS, 0)
    hf.set_fragment(tree, hf.Pools.LEAF_FRAGMENTS, 0, hf.NEXT, -1)
    hf.set_fragment(tree, hf.Pools.LEAF_FRAGMENTS, 0, hf.BEFORE, -1)
    for other in range(1, load(tree, hf.Pools.USED_LEAVES)):
        if hf.fragment(tree, hf.Pools.LEAF_FRAGMENTS, other, hf.COUNT) >= 0:
            _log_fragment(tree, hf.Pools.LEAF_FRAGMENTS, other, journal)
            hf.set_fragment(tree, hf.Pools.LEAF_FRAGMENTS, other, hf.COUNT, -1)
    store_as(tree, hf.Pools.USED_LEAVES, 1)
    store_as(tree, hf.Pools.SPARE_LEAVES, 0)
    store_as(tree, hf.Pools.USED_UPPERS, 0)
    store_as(tree, hf.Pools.SPARE_UPPERS, 0)
