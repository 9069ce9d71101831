"""Whether a regular HB+-Tree from a file is one: everything that searches and changes rely on, level by level.

A file's checksums tell that it is as it was written, not who wrote it. Kernels follow numbers without looking, so a
wrong one would be read, or written, out of bounds, or followed for ever. Checked is what `hbtree_fragments` tells of
nodes: that every node in use is reached from the root once, and its parent and siblings are those of that walk; that
separators are in order and end with the largest word; that words are in order, where their separators say, and as many
as are told; and that all other numbers are on the stacks. All by NumPy, a stretch of big leaves at a time: about as
quick as the checksums.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from millrace.host.base.types import Array
from millrace.host.hbtree import fragments as hf
from millrace.host.hbtree.layout import MOST_KEYS
from millrace.host.hbtree.regular import RegularTree

MOST_LEVELS = 16
"""No tree of 2**31 keys has more, however empty its nodes are."""
_STRETCH = 1 << 8
"""Big leaves that are looked at together: their lines stay in the cache."""
Nodes = npt.NDArray[np.int64]


@dataclass(frozen=True)
class _Level:
    """Nodes of a level in key order, with the words that may be below each: from `low` to `high`."""

    nodes: Nodes
    low: Array
    high: Array


def is_sound(tree: RegularTree, values: int | None = None) -> bool:
    """Whether a tree may be searched and changed; `values`: each value must be below this number."""
    size = int(tree.table[hf.SIZE])
    if not 1 <= tree.levels <= MOST_LEVELS or size > MOST_KEYS or not tree.is_sound():
        return False
    leaves = _last_level(tree)
    return leaves is not None and _leaves_are_sound(tree, leaves, values)


# From the root to the last inner level.


def _last_level(tree: RegularTree) -> _Level | None:
    """The nodes of the last inner level, or nothing where what is above them is wrong."""
    largest = np.array([tree.largest], tree.word)
    level, seen = _Level(np.zeros(1, np.int64), np.zeros(1, tree.word), largest), [np.zeros(0, np.int64)]
    for number in range(tree.levels - 1):
        seen.append(level.nodes)
        below = _below(tree, level, is_last=number == tree.levels - 2)
        if below is None:
            return None
        level = below
    free = tree.pools.free_uppers[: int(tree.table[hf.SPARE_UPPERS])]
    return level if _are_all(np.concatenate([*seen, free]), tree.used_uppers) else None


def _are_all(numbers: Nodes, count: int) -> bool:
    """Whether these are 0, 1, … in any order, each once."""
    return len(numbers) == count and np.array_equal(np.sort(numbers), np.arange(count))


def _below(tree: RegularTree, level: _Level, is_last: bool) -> _Level | None:
    """The children of upper nodes, or nothing where a node is wrong."""
    fanout, per_line, pools = tree.fanout, tree.per_line, tree.pools
    nodes, slots = level.nodes, np.arange(fanout)
    counts = pools.upper_fragments.reshape(-1, 4)[nodes, hf.COUNT].astype(np.int64)
    if counts.min() < 1 or counts.max() > fanout:
        return None
    whole = pools.uppers.reshape(-1, tree.upper_bytes // tree.word.itemsize)[nodes]
    keys, used = whole[:, per_line : per_line + fanout], slots < counts[:, None]
    inner = slots < counts[:, None] - 1
    if not _keys_are_sound(tree, whole) or (keys != tree.largest)[~inner].any():
        return None
    low, high = np.broadcast_to(level.low[:, None], keys.shape), np.broadcast_to(level.high[:, None], keys.shape)
    if (inner & ((keys < low) | (keys > high))).any():
        return None
    children = whole[:, per_line + fanout :][used]
    fragments, count = (
        (pools.leaf_fragments, tree.used_leaves) if is_last else (pools.upper_fragments, tree.used_uppers)
    )
    if int(children.max()) >= count:
        return None
    numbers = children.astype(np.int64)
    if (fragments.reshape(-1, 4)[numbers, hf.PARENT] != np.repeat(nodes, counts)).any():
        return None
    first = np.concatenate([level.low[:, None], keys[:, :-1]], axis=1)
    return _Level(numbers, first[used], np.where(inner, keys, high)[used])


def _keys_are_sound(tree: RegularTree, nodes: Array) -> bool:
    """Whether separators are in order and end with the largest word, and the index lines are theirs."""
    per_line, fanout = tree.per_line, tree.fanout
    keys = nodes[:, per_line : per_line + fanout]
    led = np.array_equal(nodes[:, :per_line], keys[:, per_line - 1 :: per_line])
    return led and bool((keys[:, 1:] >= keys[:, :-1]).all() and (keys[:, -1] == tree.largest).all())


# Big leaves.


def _leaves_are_sound(tree: RegularTree, level: _Level, values: int | None) -> bool:
    """Whether the big leaves follow each other, and what is in them is where it should be."""
    order, pools = level.nodes, tree.pools
    free = pools.free_leaves[: int(tree.table[hf.SPARE_LEAVES])]
    if not _are_all(np.concatenate([order, free]), tree.used_leaves):
        return False
    fragments = pools.leaf_fragments.reshape(-1, 4)
    counts, none = fragments[order, hf.COUNT].astype(np.int64), np.array([-1])
    linked = np.array_equal(fragments[order, hf.NEXT], np.concatenate([order[1:], none]))
    linked = linked and np.array_equal(fragments[order, hf.BEFORE], np.concatenate([none, order[:-1]]))
    if not linked or (fragments[free, hf.COUNT] != -1).any() or int(counts.sum()) != int(tree.table[hf.SIZE]):
        return False
    stretches = (slice(first, first + _STRETCH) for first in range(0, len(order), _STRETCH))
    sound = all(
        _lines_are_sound(tree, _Level(order[part], level.low[part], level.high[part]), counts[part], values)
        for part in stretches
    )
    return sound and (values is None or not len(tree.top) or int(tree.top.max()) < values)


def _lines_are_sound(tree: RegularTree, level: _Level, counts: Nodes, values: int | None) -> bool:
    """The same of the lines of some big leaves, and of their inner nodes."""
    nodes = tree.pools.lasts.reshape(-1, tree.last_bytes // tree.word.itemsize)[level.nodes]
    if not _keys_are_sound(tree, nodes):
        return False
    lines = tree.pools.leaves.reshape(-1, tree.fanout, tree.stride)[level.nodes]
    cut = tree.per_leaf * tree.word.itemsize
    words, keys = lines[:, :, :cut].view(tree.word), nodes[:, tree.per_line :]
    held = words != tree.largest
    if (words[:, :, 1:] < words[:, :, :-1]).any() or (held.sum(axis=(1, 2)) != counts).any():
        return False
    least = np.maximum(np.concatenate([level.low[:, None], keys[:, :-1]], axis=1), level.low[:, None])
    most = np.minimum(keys, level.high[:, None])
    if (held[:, :, 0] & (words[:, :, 0] < least)).any() or (held & (words > most[:, :, None])).any():
        return False
    beside = lines[:, :, cut:].view(f"u{tree.width}")
    return values is None or not (held & (beside >= values)).any()
