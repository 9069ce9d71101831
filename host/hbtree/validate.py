"""Validates a regular HB+-Tree from a file: all invariants that searches and updates rely on, level by level.

A file's checksums show that it was not altered, but not which program wrote it. Kernels follow node numbers without
checks, so a wrong one would cause reads or writes out of bounds, or an endless loop. This module checks the invariants
of `fragments.py`: each node in use has one path from the root, with the right parent and siblings; separators are in
order and end with the largest word; words are in order, within their separators, and as many as the fragments say; all
other node numbers are on the free stacks. It uses NumPy, with a chunk of big leaves at a time: about as fast as the
checksums. (Not in the paper.)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from millrace.host.base.types import Array
from millrace.host.hbtree import fragments as hf
from millrace.host.hbtree.layout import MAX_KEYS
from millrace.host.hbtree.regular import RegularTree

MAX_LEVELS = 16
"""No tree of 2**31 keys has more levels, however sparse its nodes are."""
_CHUNK = 1 << 8
"""Big leaves that are checked together: their lines stay in the cache."""
Nodes = npt.NDArray[np.int64]


@dataclass(frozen=True)
class _Level:
    """Nodes of a level in key order, with the range of words below each: from `low` to `high`."""

    nodes: Nodes
    low: Array
    high: Array


def is_sound(tree: RegularTree, values: int | None = None) -> bool:
    """Whether a tree can be searched and updated safely; `values`: each value must be below this number."""
    size = int(tree.table[hf.Pools.SIZE])
    if not 1 <= tree.levels <= MAX_LEVELS or size > MAX_KEYS or not _stays_in_pools(tree):
        return False
    leaves = _last_level(tree)
    return leaves is not None and _leaves_are_sound(tree, leaves, values)


def _stays_in_pools(tree: RegularTree) -> bool:
    """Whether a tree from a file stays inside its pools: line widths, children and siblings."""
    width, item = tree.width, tree.word.itemsize
    leaves, uppers = tree.used_leaves, tree.used_uppers
    if tree.stride != tree.per_leaf * (item + width) or (tree.levels > 1) != (uppers > 0):
        return False
    pools = tree.pools
    siblings = pools.leaf_fragments.reshape(-1, 4)[:, hf.BEFORE :]
    children = pools.uppers.reshape(uppers, -1)[:, tree.per_line + tree.fanout :] if uppers else np.zeros(1)
    return bool((siblings < leaves).all() and (siblings >= -1).all() and (children < max(leaves, uppers)).all())


# From the root to the last inner level.


def _last_level(tree: RegularTree) -> _Level | None:
    """The nodes of the last inner level, or None if a level above is invalid."""
    largest = np.array([tree.largest], tree.word)
    level, seen = _Level(np.zeros(1, np.int64), np.zeros(1, tree.word), largest), [np.zeros(0, np.int64)]
    for number in range(tree.levels - 1):
        seen.append(level.nodes)
        below = _below(tree, level, is_last=number == tree.levels - 2)
        if below is None:
            return None
        level = below
    free = tree.pools.free_uppers[: int(tree.table[hf.Pools.SPARE_UPPERS])]
    return level if _are_all(np.concatenate([*seen, free]), tree.used_uppers) else None


def _are_all(numbers: Nodes, count: int) -> bool:
    """Whether these are 0, 1, … in any order, each once."""
    return len(numbers) == count and np.array_equal(np.sort(numbers), np.arange(count))


def _below(tree: RegularTree, level: _Level, is_last: bool) -> _Level | None:
    """The children of upper nodes, or None if a node is invalid."""
    fanout, per_line, pools = tree.fanout, tree.per_line, tree.pools
    nodes, slots = level.nodes, np.arange(fanout)
    counts = pools.upper_fragments.reshape(-1, 4)[nodes, hf.COUNT].astype(np.int64)
    if counts.min() < 1 or counts.max() > fanout:
        return None
    nodes_read = pools.uppers.reshape(-1, tree.upper_bytes // tree.word.itemsize)[nodes]
    keys, used = nodes_read[:, per_line : per_line + fanout], slots < counts[:, None]
    inner = slots < counts[:, None] - 1
    if not _keys_are_sound(tree, nodes_read) or (keys != tree.largest)[~inner].any():
        return None
    low, high = np.broadcast_to(level.low[:, None], keys.shape), np.broadcast_to(level.high[:, None], keys.shape)
    if (inner & ((keys < low) | (keys > high))).any():
        return None
    children = nodes_read[:, per_line + fanout :][used]
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
    """Whether separators are in order, end with the largest word, and match the index lines."""
    per_line, fanout = tree.per_line, tree.fanout
    keys = nodes[:, per_line : per_line + fanout]
    led = np.array_equal(nodes[:, :per_line], keys[:, per_line - 1 :: per_line])
    return led and bool((keys[:, 1:] >= keys[:, :-1]).all() and (keys[:, -1] == tree.largest).all())


# Big leaves.


def _leaves_are_sound(tree: RegularTree, level: _Level, values: int | None) -> bool:
    """Whether the big leaves are linked in order, and their words and counts are valid."""
    order, pools = level.nodes, tree.pools
    free = pools.free_leaves[: int(tree.table[hf.Pools.SPARE_LEAVES])]
    if not _are_all(np.concatenate([order, free]), tree.used_leaves):
        return False
    fragments = pools.leaf_fragments.reshape(-1, 4)
    counts, none = fragments[order, hf.COUNT].astype(np.int64), np.array([-1])
    linked = np.array_equal(fragments[order, hf.NEXT], np.concatenate([order[1:], none]))
    linked = linked and np.array_equal(fragments[order, hf.BEFORE], np.concatenate([none, order[:-1]]))
    if not linked or (fragments[free, hf.COUNT] != -1).any() or int(counts.sum()) != int(tree.table[hf.Pools.SIZE]):
        return False
    chunks = (slice(first, first + _CHUNK) for first in range(0, len(order), _CHUNK))
    sound = all(
        _lines_are_sound(tree, _Level(order[part], level.low[part], level.high[part]), counts[part], values)
        for part in chunks
    )
    return sound and (values is None or not len(tree.top) or int(tree.top.max()) < values)


def _lines_are_sound(tree: RegularTree, level: _Level, counts: Nodes, values: int | None) -> bool:
    """Whether the lines of some big leaves, and their inner nodes, are valid."""
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
    inline_values = lines[:, :, cut:].view(f"u{tree.width}")
    return values is None or not (held & (inline_values >= values)).any()
