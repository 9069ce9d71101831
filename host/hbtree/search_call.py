"""Calls the kernels of `hbtree_search`: the tables that they are given everything in."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from millrace.host.base.types import Array
from millrace.host.hbtree import search as hs
from millrace.host.hbtree.directory import Starts
from millrace.host.hbtree.layout import LINE
from millrace.host.runtime.intrinsics import address
from millrace.host.runtime.jit import Share
from millrace.host.runtime.team import Team

SLICE = 1 << 12
"""About how many queries one thread takes at a time."""


def tree_table(
    nodes: Array,
    bases: Sequence[int],
    ends: Sequence[int],
    fanout: int,
    leaf_words: Array | None = None,
    size: int = 0,
    stride: int = LINE,
    width: int = 0,
    per_leaf: int | None = None,
    starts: Starts | None = None,
) -> Array:
    """What kernels know of a tree: per inner level the byte of `nodes` where its node 0 lies and where it ends; leaves.

    `fanout` 0 is a regular tree. `leaf_words` may hold values of `width` bytes behind each `per_leaf` words, which
    begin every `stride` bytes; without leaves the tree can be walked only. `starts` leads past the upper levels.
    """
    levels, per_line = len(bases), LINE // nodes.itemsize
    leaves = 0 if leaf_words is None else address(leaf_words)
    lines = 0 if leaf_words is None else leaf_words.nbytes // stride
    regular = [(1 + 2 * per_line) * LINE, (1 + per_line) * LINE]
    sizes = regular if fanout == 0 else [LINE, LINE]
    near = max(sum(end <= hs.NEAR for end in ends), 1)
    words = per_leaf or per_line
    head = [fanout == 0, fanout, levels, size, lines, leaves, stride, width, *sizes, near]
    head += [words.bit_length() - 1, words * nodes.itemsize, *_directory(starts)]
    return np.array([*head, *(address(nodes) + base for base in bases), leaves], np.int64)


def _directory(starts: Starts | None) -> list[int]:
    """The part of the table that tells of a directory."""
    if starts is None:
        return [0] * (hs.TREE_BASES - hs.TREE_STARTS)
    base = starts.base - (1 << 64 if starts.base >> 63 else 0)
    order = 0 if starts.order is None else address(starts.order)
    arrays = [address(starts.directory), address(starts.separators), order]
    return [*arrays, starts.level, base, starts.shift, starts.scale, starts.most]


def run_search(share: Share, team: Team, tree: Array, queries: Array, flip: int = 0, **given: int | Array) -> int:
    """Run a kernel over queries with arguments named as in `hbtree_search`; the hits it counted.

    `flip` makes words of the queries.
    """
    count = len(queries)
    parts = max(-(-count // SLICE), 1)
    hits = np.zeros(parts, np.int64)
    arguments = np.zeros(hs.ARGUMENTS, np.int64)
    levels = int(tree[hs.TREE_LEVELS])
    named = {"QUERIES": queries, "COUNT": count, "TREE": tree, "DEPTH": levels, "HITS": hits, **given}
    for name, value in named.items():
        arguments[getattr(hs, name)] = address(value) if isinstance(value, np.ndarray) else value
    arguments.view(np.uint64)[hs.FLIP] = flip
    team.run(share, arguments, parts)
    return int(hits.sum())
