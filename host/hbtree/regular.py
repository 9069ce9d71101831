"""The regular HB+-Tree: nodes in pools, lines with free places; it can change (thesis, appendix A, 4.1 and 5.6).

How it lies in memory is told in `hbtree_fragments`. It is bulk-built from packed leaves, searched by the kernels of the
implicit tree and by the same units on devices, and changed by `hbtree_update`. It speaks in words and *places*: a place
is `line * per_leaf + lane`, and says nothing of the order. Values lie beside the words always: numbers of 4 or 8 bytes.
The largest word marks free places; values of rows that have it as their key are in `top`.

Many threads may search at a time, but none while it changes. Limit: 2**31 keys.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from millrace.host.base.errors import ArgumentError
from millrace.host.base.types import Array
from millrace.host.hbtree import fragments as hf
from millrace.host.hbtree import search as hs
from millrace.host.hbtree.build import build_nodes
from millrace.host.hbtree.directory import Starts, directory_of
from millrace.host.hbtree.layout import LINE, MOST_KEYS, Shape, shape_of
from millrace.host.hbtree.leaves import Leaves
from millrace.host.hbtree.query_order import run_led
from millrace.host.hbtree.regular_build import loosen
from millrace.host.hbtree.search_call import run_search, tree_table
from millrace.host.hbtree.tree import Numbers, Positions, helpers
from millrace.host.runtime import pool
from millrace.host.runtime.huge_pages import huge_array
from millrace.host.runtime.intrinsics import address
from millrace.host.runtime.jit import Share
from millrace.host.runtime.team import Team

SPARE_NODES = 64
"""Big leaves that a pool has room for beyond half as many again as are in it."""
MOST_WASTE = 1.4
"""How much more memory than a fresh build a tree may take before it is better built anew."""


@dataclass(frozen=True)
class _Lined:
    """Leaf lines of which so many words are in use, for `build_nodes`."""

    data: Array
    stride: int
    per_leaf: int


@dataclass
class Pools:
    """The memory of a tree. Fragments have four numbers a node; `changed_…` a byte."""

    leaves: Array
    lasts: Array
    uppers: Array
    leaf_fragments: npt.NDArray[np.int32]
    upper_fragments: npt.NDArray[np.int32]
    free_leaves: npt.NDArray[np.int32]
    free_uppers: npt.NDArray[np.int32]
    changed_lasts: npt.NDArray[np.uint8]
    changed_uppers: npt.NDArray[np.uint8]

    def addresses(self) -> list[int]:
        """In the order of the kernels' table."""
        return [address(array) for array in vars(self).values()]


class RegularTree:
    """A tree that can change; made by `build`, or from what `parts` told."""

    layout = "regular"

    def __init__(self, word: np.dtype[Any], pools: Pools, numbers: Array, top: Array, threads: int | None) -> None:
        """`numbers`: entries of the table from `WIDTH` on."""
        self.word, self.pools, self.top = word, pools, top
        self.per_line = LINE // word.itemsize
        self.fanout = self.per_line**2
        self.threads = min(threads or pool.cores(), pool.size())
        self.table = np.zeros(hf.TABLE, np.int64)
        self.table[: hf.WIDTH] = pools.addresses()
        self.table[hf.WIDTH :] = numbers
        self.refresh()

    @classmethod
    def build(cls, leaves: Leaves, width: int, equals: bool, threads: int | None = None) -> RegularTree:
        """From packed leaves, whose values are kept; where they have none, a value is a position, `width` bytes wide.

        `equals`: whether some words are equal.
        """
        if leaves.size > MOST_KEYS:
            raise ArgumentError(f"{leaves.size:,} keys are too many; allowed are {MOST_KEYS:,}: split them by range")
        shape_leaves = Leaves(leaves.data, leaves.word, leaves.size, leaves.width or width)
        width, per_leaf, stride = shape_leaves.width, shape_leaves.per_leaf, shape_leaves.stride
        used = per_leaf * hf.FRESH // 4
        size = _below_top(leaves)
        shape = shape_of("regular", leaves.word, size, True, used)
        count = shape.counts[-2]
        most, most_uppers = count + count // 2 + SPARE_NODES, 2 * sum(shape.counts[:-2]) + SPARE_NODES
        with helpers(threads or pool.cores(), leaves.size) as team:
            data, top = loosen(leaves, width, size, used, most * shape.fanout, count * shape.fanout, team)
            nodes = build_nodes(shape, _Lined(data, stride, used), team, (most - count) * shape.last_stride)
        uppers = huge_array(most_uppers * shape.upper_stride, shape.word)
        uppers[: shape.last] = nodes[: shape.last]
        leaf_fragments, upper_fragments = _fragments(shape, used, most, most_uppers)
        pools = Pools(
            *(data, nodes[shape.last :], uppers, leaf_fragments, upper_fragments),
            *(huge_array(most, np.int32), huge_array(most_uppers, np.int32)),
            *(huge_array(most, np.uint8), huge_array(most_uppers, np.uint8)),
        )
        numbers = [width, stride, equals, shape.levels, size, count, most, 0, sum(shape.counts[:-2]), most_uppers, 0]
        return cls(leaves.word, pools, np.array(numbers, np.int64), top, threads)

    # What it is.

    @property
    def width(self) -> int:
        """Bytes of a value."""
        return int(self.table[hf.WIDTH])

    @property
    def stride(self) -> int:
        """Bytes of a leaf line, with its values."""
        return int(self.table[hf.STRIDE])

    @property
    def per_leaf(self) -> int:
        """Words of a leaf line."""
        return self.per_line // (2 if self.width == self.word.itemsize else 1)

    @property
    def levels(self) -> int:
        """Inner levels."""
        return int(self.table[hf.LEVELS])

    @property
    def has_equals(self) -> bool:
        """Whether there may be equal words."""
        return bool(self.table[hf.EQUALS])

    @property
    def size(self) -> int:
        """Words, those of `top` included."""
        return int(self.table[hf.SIZE]) + len(self.top)

    @property
    def used_leaves(self) -> int:
        """Big leaves, free ones between them included."""
        return int(self.table[hf.USED_LEAVES])

    @property
    def used_uppers(self) -> int:
        """Upper nodes, free ones between them included."""
        return int(self.table[hf.USED_UPPERS])

    @property
    def last_bytes(self) -> int:
        """Bytes of a node of the last inner level."""
        return LINE + self.fanout * self.word.itemsize

    @property
    def upper_bytes(self) -> int:
        """Bytes of an upper node."""
        return LINE + 2 * self.fanout * self.word.itemsize

    @property
    def inner_nbytes(self) -> int:
        """Bytes of the I-segment."""
        return self.used_leaves * self.last_bytes + self.used_uppers * self.upper_bytes

    @property
    def nbytes(self) -> int:
        """Bytes of both segments and of the fragments; room to grow that was never used takes no memory."""
        fragments = (self.used_leaves + self.used_uppers) * hf.FRAGMENT
        return self.inner_nbytes + self.used_leaves * self.fanout * self.stride + fragments + self.top.nbytes

    @property
    def is_wasteful(self) -> bool:
        """Whether a fresh build would take much less memory."""
        fresh = -(-int(self.table[hf.SIZE]) // (self.fanout * self.per_leaf * hf.FRESH // 4)) + 1
        return self.used_leaves > MOST_WASTE * fresh + 1

    def is_sparse(self) -> npt.NDArray[np.bool_]:
        """Per big leaf whether it has few words, and is no free one."""
        counts = self.pools.leaf_fragments.reshape(-1, 4)[: self.used_leaves, hf.COUNT]
        sparse: npt.NDArray[np.bool_] = (counts >= 0) & (counts < self.fanout * self.per_leaf * 3 // 8)
        return sparse

    # For devices: upper nodes first, with room for all that there can be, then the nodes of the last level.

    @property
    def offsets(self) -> Array:
        """Of an implicit tree alone."""
        return np.zeros(0, np.uint32)

    @property
    def last(self) -> int:
        """The word of a device's segment where the last inner level begins."""
        return len(self.pools.uppers)

    @property
    def node_words(self) -> int:
        """Words of a device's segment, with some room for new nodes."""
        most = int(self.table[hf.MOST_LEAVES])
        nodes = min(self.used_leaves + self.used_leaves // 8 + SPARE_NODES, most)
        return self.last + nodes * self.last_bytes // self.word.itemsize

    @property
    def nodes(self) -> Array:
        """A device's segment in one piece: a copy."""
        whole = np.zeros(self.node_words, self.word)
        for place, words in self.node_pieces():
            whole[place : place + len(words)] = words
        return whole

    def node_pieces(self) -> list[tuple[int, Array]]:
        """The I-segment: words, and where they go in a device's segment."""
        uppers, lasts = self.used_uppers * self.upper_bytes, self.used_leaves * self.last_bytes
        pieces = [(self.last, self.pools.lasts[: lasts // self.word.itemsize])]
        return [(0, self.pools.uppers[: uppers // self.word.itemsize]), *pieces] if uppers else pieces

    def changed_pieces(self) -> list[tuple[int, Array]]:
        """Nodes that changed since they were asked for last, each with its place in a device's segment."""
        found: list[tuple[int, Array]] = []
        item = self.word.itemsize
        for flags, pool_, first, size in (
            (self.pools.changed_uppers, self.pools.uppers, 0, self.upper_bytes // item),
            (self.pools.changed_lasts, self.pools.lasts, self.last, self.last_bytes // item),
        ):
            for node in np.flatnonzero(flags.view(np.bool_)).tolist():
                flags[node] = 0
                found.append((first + node * size, pool_[node * size : (node + 1) * size]))
        return found

    def forget_changed(self) -> int:
        """Nothing has changed; how many nodes had."""
        flags = self.pools.changed_uppers, self.pools.changed_lasts
        changed = sum(int(np.count_nonzero(flag)) for flag in flags)
        for flag in flags if changed else ():
            flag[:] = 0
        return changed

    # Its state, to be put back or stored.

    def numbers(self) -> tuple[Array, Array, Array, Array]:
        """The table's numbers, the stacks of free nodes, and `top`."""
        spare = int(self.table[hf.SPARE_LEAVES]), int(self.table[hf.SPARE_UPPERS])
        stacks = self.pools.free_leaves[: spare[0]].copy(), self.pools.free_uppers[: spare[1]].copy()
        return (self.table[hf.WIDTH :].copy(), *stacks, self.top)

    def set_numbers(self, numbers: tuple[Array, Array, Array, Array]) -> None:
        """Put them back."""
        self.table[hf.WIDTH :] = numbers[0]
        self.pools.free_leaves[: len(numbers[1])] = numbers[1]
        self.pools.free_uppers[: len(numbers[2])] = numbers[2]
        self.top = numbers[3]
        self.refresh()

    def refresh(self) -> None:
        """Make the searches' table anew: after every change. The directory of starts waits until it is worth it."""
        self.starts: Starts | None = None
        self._asked = 0
        self._set_tables()

    def _set_tables(self) -> None:
        pools, levels = self.pools, self.levels
        # Levels below the root are taken to be far: how large each is changes all the time.
        apart = address(pools.uppers) - address(pools.lasts)
        bases = [apart] * (levels - 1) + [0]
        ends = [self.upper_bytes] + [self.inner_nbytes + hs.NEAR] * (levels - 1)
        leaves = pools.leaves[: self.used_leaves * self.fanout * self.stride]
        places = self.used_leaves * self.fanout * self.per_leaf
        held = leaves, places, self.stride, self.width, self.per_leaf, self.starts
        # Together, in one step: other threads may be searching while the directory is made.
        self._led = tree_table(pools.lasts, bases, ends, 0, *held), self.starts
        self._walk_table = tree_table(pools.lasts, bases, ends, 0)

    # Searching.

    @property
    def largest(self) -> int:
        """The word that marks free places."""
        return int(np.iinfo(self.word).max)

    def run(self, share: Share, queries: Array, /, flip: int = 0, **given: Any) -> int:
        """Run a kernel of `hbtree_search` over queries; the largest word finds free places."""
        self._consider(len(queries))
        with helpers(self.threads, len(queries)) as team:
            table, starts = self._led
            return run_led(share, team, table, starts, self.nbytes, queries, flip, given)

    def _consider(self, count: int) -> None:
        """Make the directory of starts once the queries since the last change are as many as its nodes."""
        before, self._asked = self._asked, self._asked + count
        if before < self.used_leaves <= self._asked and self.levels > 1:
            separators, order = self._ends_of_nodes()
            self.starts = directory_of(separators, self.levels - 1, order)
            self._set_tables()

    def _ends_of_nodes(self) -> tuple[Array, Array]:
        """The separators between the nodes of the last inner level, and those nodes' numbers, in order."""
        uppers = self.pools.uppers.reshape(-1, self.upper_bytes // self.word.itemsize)
        counts = self.pools.upper_fragments.reshape(-1, 4)[:, hf.COUNT]
        nodes, ends = np.zeros(1, np.int64), np.full(1, self.largest, self.word)
        for _ in range(self.levels - 1):
            keys = uppers[nodes, self.per_line : self.per_line + self.fanout]
            children, count = uppers[nodes, self.per_line + self.fanout :], counts[nodes]
            # What bounds the last child of a node bounds the node.
            keys[np.arange(len(nodes)), count - 1] = ends
            there = np.arange(self.fanout) < count[:, None]
            nodes, ends = children[there].astype(np.int64), keys[there]
        return ends[:-1], nodes.astype(np.uint32)

    def lines_of(self, words: Array, team: Team) -> Numbers:
        """The leaf lines that words belong to."""
        out = np.empty(len(words), np.uint32)
        run_search(self._share, team, self._walk_table, words, MODE=hs.NODES, OUT=out)
        return out

    def walk(self, queries: Array, depth: int, at: Numbers | None = None, start: int = 0) -> Numbers:
        """Walk levels `start .. depth - 1` from nodes `at` (not read if `start` is 0); the nodes in level `depth`."""
        out = np.empty(len(queries), np.uint32)
        with helpers(self.threads, len(queries)) as team:
            nodes = 0 if at is None else at
            run_search(
                self._share, team, self._walk_table, queries, MODE=hs.NODES, START=start, DEPTH=depth, OUT=out, AT=nodes
            )
        return out

    def leaf(self, queries: Array, leaves: Numbers) -> Positions:
        """Places of queries whose leaf lines are known: of the first equal word, -1 if there is none."""
        return self._search(queries, START=self.levels, AT=leaves)

    def lookup(self, queries: Array) -> Positions:
        """`walk` all levels, then `leaf`."""
        return self._search(queries)

    def _search(self, queries: Array, **given: Any) -> Positions:
        out = np.empty(len(queries), np.int64)
        self.run(self._share, queries, OUT=out, MODE=hs.FIRST, **given)
        free = queries == self.word.type(self.largest)
        if free.any():
            out[free] = -1
        return out

    @property
    def _share(self) -> Share:
        return hs.search_64 if self.word.itemsize == 8 else hs.search_32

    def values_at(self, places: Positions) -> Array:
        """The values at places."""
        rows = self.pools.leaves[: self.used_leaves * self.fanout * self.stride].reshape(-1, self.stride)
        beside = rows[:, self.per_leaf * self.word.itemsize :].view(f"u{self.width}")
        found: Array = beside[places // self.per_leaf, places % self.per_leaf]
        return found

    def sample(self, rng: np.random.Generator, count: int) -> Array:
        """Words of the tree, drawn at random: each the first of a line."""
        rows = self.pools.leaves[: self.used_leaves * self.fanout * self.stride].reshape(-1, self.stride)
        words = rows[rng.integers(0, len(rows), count), : self.word.itemsize].copy().view(self.word).reshape(-1)
        held = words[words != self.word.type(self.largest)]
        return np.resize(held, count) if len(held) else np.zeros(count, self.word)

    @property
    def is_owned(self) -> bool:
        """Whether it may change: its memory is no file's."""
        return bool(self.pools.leaves.flags.writeable)

    def owned(self) -> RegularTree:
        """A copy in memory of its own, with room to grow."""
        pools = self.pools
        numbers = self.table[hf.WIDTH :].copy()
        count, uppers = self.used_leaves, self.used_uppers
        most, most_uppers = count + count // 2 + SPARE_NODES, 2 * uppers + SPARE_NODES
        numbers[[hf.MOST_LEAVES - hf.WIDTH, hf.MOST_UPPERS - hf.WIDTH]] = most, most_uppers
        sizes = (most * self.fanout * self.stride, *self._pool_words(most, most_uppers))
        copies = [_copied(array, size) for array, size in zip(vars(pools).values(), sizes, strict=True)]
        return RegularTree(self.word, Pools(*copies), numbers, self.top, self.threads)

    def used_sizes(self) -> tuple[int, ...]:
        """Elements in use of every pool."""
        leaves, uppers = self.used_leaves, self.used_uppers
        sizes = list(self._pool_words(leaves, uppers))
        sizes[4:6] = int(self.table[hf.SPARE_LEAVES]), int(self.table[hf.SPARE_UPPERS])
        return (leaves * self.fanout * self.stride, *sizes)

    def is_sound(self) -> bool:
        """Whether a tree from a file stays inside its pools: line widths, children and siblings."""
        width, item = self.width, self.word.itemsize
        leaves, uppers = self.used_leaves, self.used_uppers
        if self.stride != self.per_leaf * (item + width) or (self.levels > 1) != (uppers > 0):
            return False
        pools = self.pools
        siblings = pools.leaf_fragments.reshape(-1, 4)[:, hf.BEFORE :]
        children = pools.uppers.reshape(uppers, -1)[:, self.per_line + self.fanout :] if uppers else np.zeros(1)
        return bool((siblings < leaves).all() and (siblings >= -1).all() and (children < max(leaves, uppers)).all())

    def _pool_words(self, leaves: int, uppers: int) -> tuple[int, ...]:
        """Elements of all pools but the leaves', for so many nodes."""
        lasts, nodes = leaves * self.last_bytes, uppers * self.upper_bytes
        item = self.word.itemsize
        return (lasts // item, nodes // item, 4 * leaves, 4 * uppers, leaves, uppers, leaves, uppers)

    def rows(self) -> tuple[Array, Array]:
        """All words in order, with their values: copies."""
        fragments = self.pools.leaf_fragments.reshape(-1, 4)[: self.used_leaves]
        following = fragments[:, hf.NEXT].tolist()
        leaf = int(np.flatnonzero((fragments[:, hf.COUNT] >= 0) & (fragments[:, hf.BEFORE] < 0))[0])
        order = []
        while leaf >= 0:
            order.append(leaf)
            leaf = following[leaf]
        lines = self.pools.leaves[: self.used_leaves * self.fanout * self.stride].reshape(
            self.used_leaves, self.fanout, self.stride
        )[order]
        cut = self.per_leaf * self.word.itemsize
        words = np.ascontiguousarray(lines[:, :, :cut]).reshape(-1).view(self.word)
        values = np.ascontiguousarray(lines[:, :, cut:]).reshape(-1).view(f"u{self.width}")
        there = words != self.word.type(self.largest)
        top = np.full(len(self.top), self.largest, self.word)
        return np.concatenate([words[there], top]), np.concatenate([values[there], self.top])


def _copied(array: Array, size: int) -> Array:
    """The beginning of an array in memory of its own, of another size."""
    made = huge_array(size, array.dtype)
    held = min(size, len(array))
    made[:held] = array[:held]
    return made


def _below_top(leaves: Leaves) -> int:
    """How many words are below the largest: only the last ones can be it."""
    rows = leaves.data.reshape(leaves.lines, leaves.stride)[:, : leaves.offset]
    size = leaves.size
    while size > 0:
        line = (size - 1) // leaves.per_leaf
        first = line * leaves.per_leaf
        words = np.ascontiguousarray(rows[line]).view(leaves.word)[: size - first]
        below = int(np.searchsorted(words, np.iinfo(leaves.word).max))
        if below:
            return first + below
        size = first
    return 0


def _fragments(shape: Shape, used: int, most: int, most_uppers: int) -> tuple[Array, Array]:
    """Sizes, parents and siblings of a fresh tree, level by level."""
    fanout, counts, levels = shape.fanout, shape.counts, shape.levels
    leaves, uppers = huge_array(4 * most, np.int32), huge_array(4 * most_uppers, np.int32)
    starts = [int(first) for first in np.cumsum([0, *counts[:-2]])]
    for level in range(levels):
        number = np.arange(counts[level], dtype=np.int32)
        last = level == levels - 1
        rows = leaves if last else uppers[4 * starts[level] :]
        view = rows[: 4 * counts[level]].reshape(-1, 4)
        each = fanout * used if last else fanout
        total = shape.size if last else counts[level + 1]
        first = 0 if last else starts[level]
        view[:, hf.COUNT] = np.minimum(total - number.astype(np.int64) * each, each)
        view[:, hf.PARENT] = -1 if level == 0 else starts[level - 1] + number // fanout
        view[:, hf.BEFORE] = np.where(number > 0, first + number - 1, -1)
        view[:, hf.NEXT] = np.where(number < counts[level] - 1, first + number + 1, -1)
    return leaves, uppers
