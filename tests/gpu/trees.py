"""HB+-Trees for tests of the search units, built by plain loops directly from the description of the layouts.

Nothing of the runtime's own tree is used. The regular trees are harder than the runtime's: nodes have random fill and
random numbers in their pool, so that a search must follow the child lines.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from millrace.host.base.types import Array


@dataclass
class Tree:
    """`paths[l][i]` is the number, in level l, of the node above the i-th line in key order; the line itself last."""

    words: Array
    nodes: Array
    offsets: Array
    leaf_words: Array
    levels: int
    last: int
    paths: Array

    def lines(self, queries: Array) -> Any:
        """The line, in key order, of the first word >= each query; the last line if there is none."""
        per_line = 64 // self.words.itemsize
        return np.minimum(np.searchsorted(self.words, queries), max(len(self.words) - 1, 0)) // per_line


def implicit(words: Array) -> Tree:
    """Fan-out: the number of words per line."""
    per_line, top = 64 // words.itemsize, np.iinfo(words.dtype).max
    leaf_words = np.full((max(1, -(-len(words) // per_line)), per_line), top, words.dtype)
    leaf_words.reshape(-1)[: len(words)] = words
    levels: list[Array] = []
    largest = leaf_words.max(axis=1)
    while not levels or len(largest) > 1:
        nodes = np.full((-(-len(largest) // per_line), per_line), top, words.dtype)
        nodes.reshape(-1)[: len(largest) - 1] = largest[:-1]
        nodes[:, -1] = top
        starts = range(0, len(largest), per_line)
        largest = np.array([largest[at : at + per_line].max() for at in starts], words.dtype)
        levels.insert(0, nodes)
    offsets = np.cumsum([0, *map(len, levels[:-1])]).astype(np.uint32)
    line = np.arange(len(leaf_words))
    paths = np.array([line // per_line ** (len(levels) - level) for level in range(len(levels) + 1)], np.uint32)
    return Tree(words, np.concatenate(levels).reshape(-1), offsets, leaf_words.reshape(-1), len(levels), 0, paths)


def regular(words: Array, rng: np.random.Generator, full: bool) -> Tree:
    """With `full` nodes, or with random fill."""
    per_line = 64 // words.itemsize
    keys = per_line**2
    lines = [words[at : at + per_line].max() for at in range(0, len(words), per_line)]
    groups = [_cut(lines or [np.iinfo(words.dtype).max], keys, rng, full)]
    while len(groups[0]) > 1:
        groups.insert(0, _cut([max(group) for group in groups[0]], keys, rng, full))
    upper = sum(map(len, groups[:-1]))
    free = [0, *(1 + rng.permutation(upper - 1))] if upper else []
    numbers = [np.array([free.pop(0) for _ in level]) for level in groups[:-1]]
    numbers.append(rng.permutation(len(groups[-1])))
    last = upper * per_line * (1 + 2 * per_line)
    nodes = np.full(last + len(groups[-1]) * per_line * (1 + per_line), 77, words.dtype)
    for depth, level in enumerate(groups):
        children = list(numbers[depth + 1]) if depth + 1 < len(groups) else None
        for number, group in zip(numbers[depth], level, strict=True):
            below = None if children is None else [children.pop(0) for _ in group]
            node = _node(group, below, group is level[-1], words.dtype)
            at = len(node) * number + (last if below is None else 0)
            nodes[at : at + len(node)] = node
    return Tree(words, nodes, np.zeros(0, np.uint32), words, len(groups), last, _paths(groups, numbers, keys))


def _cut(items: list[Any], limit: int, rng: np.random.Generator, full: bool) -> list[list[Any]]:
    groups = []
    while items:
        size = limit if full else int(rng.choice([2, limit // 2, limit - 1, limit]))
        groups.append(items[:size])
        items = items[size:]
    return groups


def _node(group: list[Any], children: list[int] | None, at_the_end: bool, dtype: Any) -> Array:
    """Index line, key lines and, above the last level, children's lines."""
    per_line, top = 64 // np.dtype(dtype).itemsize, np.iinfo(dtype).max
    keys = np.full(per_line**2, top, dtype)
    keys[: len(group)] = group
    if len(group) < len(keys) or at_the_end:
        keys[len(group) - 1] = top
    node = np.concatenate([keys[per_line - 1 :: per_line], keys])
    if children is None:
        return node
    below = np.full(per_line**2, top, dtype)  # invalid node numbers: a search that follows one fails
    below[: len(children)] = children
    return np.concatenate([node, below])


def _paths(groups: list[list[list[Any]]], numbers: list[Array], keys: int) -> Array:
    paths: list[Array] = []
    for level, number in zip(groups, numbers, strict=True):
        sizes = [len(group) for group in level]
        parent, slot = np.repeat(np.arange(len(level)), sizes), np.concatenate([np.arange(size) for size in sizes])
        paths = [path[parent] for path in [*paths, number]]
    return np.array([*paths, paths[-1] * keys + slot], np.uint32)
