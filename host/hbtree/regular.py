"""The regular HB+-Tree: nodes in pools, lines with free slots; it can be updated (thesis, appendix A, 4.1 and 5.6).

Its memory layout is in `fragments.py`. It is bulk-built from packed leaves, searched by the kernels of the implicit
tree and by the same device units, and changed by `update.py`. Its interface uses words and positions: a position is
`line * per_leaf + lane` and does not give the rank in key order. Values are always inline: numbers of 4 or 8 bytes. The
largest word marks free slots; the values of rows with that key are in `top`.

Many threads may search at a time, but none during an update. Limit: 2**31 keys.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from millrace.host.base.errors import ArgumentError
from millrace.host.base.types import Array
from millrace.host.hbtree import fragments as hf
from millrace.host.hbtree import search as hs
from millrace.host.hbtree import search_args as ha
from millrace.host.hbtree.build import build_nodes
from millrace.host.hbtree.directory import StartDirectory, directory_of
from millrace.host.hbtree.layout import LINE, MAX_KEYS, shape_of
from millrace.host.hbtree.leaves import Leaves
from millrace.host.hbtree.pools import Pools, copy_resized, fresh_fragments
from millrace.host.hbtree.query_order import run_partitioned
from millrace.host.hbtree.regular_build import FilledLeaves, copy_with_gaps, count_below_largest
from millrace.host.hbtree.search_call import run_few, run_search, tree_table
from millrace.host.hbtree.tree import ALONE, MIN_SHARED, Numbers, Positions, helpers
from millrace.host.runtime import pool
from millrace.host.runtime.allocator import huge_array
from millrace.host.runtime.intrinsics import address
from millrace.host.runtime.jit import Share
from millrace.host.runtime.team import Team

SPARE_NODES = 64
"""Spare capacity of a pool in nodes, in addition to half of the nodes in use."""
MAX_WASTE = 1.4
"""Maximum memory relative to a fresh build before the tree is rebuilt."""


class RegularTree:
    """An updatable tree; made by `build`, or from the stored pools and numbers of another tree."""

    layout = "regular"

    def __init__(self, word: np.dtype[Any], pools: Pools, numbers: Array, top: Array, threads: int | None) -> None:
        """`numbers`: entries of the table from `WIDTH` on."""
        self.word, self.pools, self.top = word, pools, top
        self.per_line = LINE // word.itemsize
        self.fanout = self.per_line**2
        self.threads = min(threads or pool.cores(), pool.size())
        self.table = np.zeros(len(hf.Pools), np.int64)
        self.table[: hf.Pools.WIDTH] = pools.addresses()
        self.table[hf.Pools.WIDTH :] = numbers
        self.refresh()

    @classmethod
    def build(cls, leaves: Leaves, width: int, equals: bool, threads: int | None = None) -> RegularTree:
        """Build from packed leaves and their values; without values, a value is its position, `width` bytes wide.

        `equals`: whether there are equal words.
        """
        if leaves.size > MAX_KEYS:
            raise ArgumentError(f"{leaves.size:,} keys are too many; allowed are {MAX_KEYS:,}: split them by range")
        shape_leaves = Leaves(leaves.data, leaves.word, leaves.size, leaves.width or width)
        width, per_leaf, stride = shape_leaves.width, shape_leaves.per_leaf, shape_leaves.stride
        used = per_leaf * hf.FRESH // 4
        size = count_below_largest(leaves)
        shape = shape_of("regular", leaves.word, size, True, used)
        count = shape.counts[-2]
        max_leaves, max_uppers = count + count // 2 + SPARE_NODES, 2 * sum(shape.counts[:-2]) + SPARE_NODES
        with helpers(threads or pool.cores(), leaves.size) as team:
            data, top = copy_with_gaps(leaves, width, size, used, max_leaves * shape.fanout, count * shape.fanout, team)
            nodes = build_nodes(shape, FilledLeaves(data, stride, used), team, (max_leaves - count) * shape.last_stride)
        uppers = huge_array(max_uppers * shape.upper_stride, shape.word)
        uppers[: shape.last] = nodes[: shape.last]
        leaf_fragments, upper_fragments = fresh_fragments(shape, used, max_leaves, max_uppers)
        pools = Pools(
            *(data, nodes[shape.last :], uppers, leaf_fragments, upper_fragments),
            *(huge_array(max_leaves, np.int32), huge_array(max_uppers, np.int32)),
            *(huge_array(max_leaves, np.uint8), huge_array(max_uppers, np.uint8)),
        )
        numbers = [
            width,
            stride,
            equals,
            shape.levels,
            size,
            count,
            max_leaves,
            0,
            sum(shape.counts[:-2]),
            max_uppers,
            0,
        ]
        return cls(leaves.word, pools, np.array(numbers, np.int64), top, threads)

    # Properties.

    @property
    def width(self) -> int:
        """Bytes per value."""
        return int(self.table[hf.Pools.WIDTH])

    @property
    def stride(self) -> int:
        """Bytes of a leaf line, with its values."""
        return int(self.table[hf.Pools.STRIDE])

    @property
    def per_leaf(self) -> int:
        """Words per leaf line."""
        return self.per_line // (2 if self.width == self.word.itemsize else 1)

    @property
    def levels(self) -> int:
        """Number of inner levels."""
        return int(self.table[hf.Pools.LEVELS])

    @property
    def has_equals(self) -> bool:
        """Whether there may be equal words."""
        return bool(self.table[hf.Pools.EQUALS])

    @property
    def size(self) -> int:
        """Number of words, `top` included."""
        return int(self.table[hf.Pools.SIZE]) + len(self.top)

    @property
    def used_leaves(self) -> int:
        """Big leaves, including freed ones."""
        return int(self.table[hf.Pools.USED_LEAVES])

    @property
    def used_uppers(self) -> int:
        """Upper nodes, including freed ones."""
        return int(self.table[hf.Pools.USED_UPPERS])

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
        """Bytes of both segments and of the fragments; spare capacity that was never used takes no memory."""
        fragments = (self.used_leaves + self.used_uppers) * hf.FRAGMENT
        return self.inner_nbytes + self.used_leaves * self.fanout * self.stride + fragments + self.top.nbytes

    @property
    def is_wasteful(self) -> bool:
        """Whether a fresh build would take much less memory."""
        fresh = -(-int(self.table[hf.Pools.SIZE]) // (self.fanout * self.per_leaf * hf.FRESH // 4)) + 1
        return self.used_leaves > MAX_WASTE * fresh + 1

    def is_sparse(self) -> npt.NDArray[np.bool_]:
        """Per big leaf: whether it is in use and has few words."""
        counts = self.pools.leaf_fragments.reshape(-1, 4)[: self.used_leaves, hf.COUNT]
        sparse: npt.NDArray[np.bool_] = (counts >= 0) & (counts < self.fanout * self.per_leaf * 3 // 8)
        return sparse

    # For devices: the upper nodes at full capacity first, then the nodes of the last level.

    @property
    def offsets(self) -> Array:
        """Only implicit trees have offsets: an empty array."""
        return np.zeros(0, np.uint32)

    @property
    def last(self) -> int:
        """The index of the first word of the last inner level in a device segment."""
        return len(self.pools.uppers)

    @property
    def node_words(self) -> int:
        """Words of a device segment, with spare capacity for new nodes."""
        max_leaves = int(self.table[hf.Pools.MAX_LEAVES])
        nodes = min(self.used_leaves + self.used_leaves // 8 + SPARE_NODES, max_leaves)
        return self.last + nodes * self.last_bytes // self.word.itemsize

    @property
    def nodes(self) -> Array:
        """A copy of the device segment in one array."""
        segment = np.zeros(self.node_words, self.word)
        for offset, words in self.node_pieces():
            segment[offset : offset + len(words)] = words
        return segment

    def node_pieces(self) -> list[tuple[int, Array]]:
        """The I-segment as pieces: offset in the device segment, and words."""
        uppers, lasts = self.used_uppers * self.upper_bytes, self.used_leaves * self.last_bytes
        pieces = [(self.last, self.pools.lasts[: lasts // self.word.itemsize])]
        return [(0, self.pools.uppers[: uppers // self.word.itemsize]), *pieces] if uppers else pieces

    def changed_pieces(self) -> list[tuple[int, Array]]:
        """Nodes changed since the last call, each with its offset in the device segment."""
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

    def clear_changed(self) -> int:
        """Clear the marks of changed nodes; return how many there were."""
        flags = self.pools.changed_uppers, self.pools.changed_lasts
        changed = sum(int(np.count_nonzero(flag)) for flag in flags)
        for flag in flags if changed else ():
            flag[:] = 0
        return changed

    # The scalar state, to undo an update or to store the tree.

    def numbers(self) -> tuple[Array, Array, Array, Array]:
        """Copies of the table's numbers and of the stacks of free nodes, and `top`."""
        spare = int(self.table[hf.Pools.SPARE_LEAVES]), int(self.table[hf.Pools.SPARE_UPPERS])
        stacks = self.pools.free_leaves[: spare[0]].copy(), self.pools.free_uppers[: spare[1]].copy()
        return (self.table[hf.Pools.WIDTH :].copy(), *stacks, self.top)

    def set_numbers(self, numbers: tuple[Array, Array, Array, Array]) -> None:
        """Restore what `numbers` returned."""
        self.table[hf.Pools.WIDTH :] = numbers[0]
        self.pools.free_leaves[: len(numbers[1])] = numbers[1]
        self.pools.free_uppers[: len(numbers[2])] = numbers[2]
        self.top = numbers[3]
        self.refresh()

    def refresh(self) -> None:
        """Rebuild the search tables after a change. The start directory is built later, when it pays off."""
        self.starts: StartDirectory | None = None
        self._queries_since_change = 0
        self._set_tables()

    def _set_tables(self) -> None:
        pools, levels = self.pools, self.levels
        # Levels below the root are assumed not to be cached: their sizes change with updates.
        distance = address(pools.uppers) - address(pools.lasts)
        bases = [distance] * (levels - 1) + [0]
        ends = [self.upper_bytes] + [self.inner_nbytes + ha.NEAR] * (levels - 1)
        leaves = pools.leaves[: self.used_leaves * self.fanout * self.stride]
        positions = self.used_leaves * self.fanout * self.per_leaf
        held = leaves, positions, self.stride, self.width, self.per_leaf, self.starts
        # One assignment: other threads may search while the directory is built.
        self._search_table = tree_table(pools.lasts, bases, ends, 0, *held), self.starts
        self._walk_table = tree_table(pools.lasts, bases, ends, 0)

    # Searching.

    @property
    def largest(self) -> int:
        """The word that marks free slots."""
        return int(np.iinfo(self.word).max)

    def run(self, share: Share, queries: Array, /, flip: int = 0, **args: Any) -> int:
        """Run a kernel of `search.py` over queries; the largest word finds free slots."""
        self._build_directory_if_due(len(queries))
        table, starts = self._search_table
        if len(queries) < MIN_SHARED:
            return run_search(share, ALONE, table, queries, flip, **args)
        with helpers(self.threads, len(queries)) as team:
            return run_partitioned(share, team, table, starts, self.nbytes, queries, flip, args)

    def look_up_few(
        self, share: Share, raw: Array, flip: int, mask: Array | None, out: Any, bits: Any, mode: int
    ) -> int:
        """Look up at most `FEW` queries, into two Arrow buffers."""
        self._build_directory_if_due(len(raw))
        return run_few(share, self._search_table[0], raw, flip, mask, out, bits, mode)

    def _build_directory_if_due(self, count: int) -> None:
        """Build the start directory once there were as many queries since the last change as it has nodes."""
        before, self._queries_since_change = self._queries_since_change, self._queries_since_change + count
        if before < self.used_leaves <= self._queries_since_change and self.levels > 1:
            separators, order = self._last_level_separators()
            self.starts = directory_of(separators, self.levels - 1, order)
            self._set_tables()

    def _last_level_separators(self) -> tuple[Array, Array]:
        """The separators between the nodes of the last inner level, and the node numbers, in key order."""
        uppers = self.pools.uppers.reshape(-1, self.upper_bytes // self.word.itemsize)
        counts = self.pools.upper_fragments.reshape(-1, 4)[:, hf.COUNT]
        nodes, ends = np.zeros(1, np.int64), np.full(1, self.largest, self.word)
        for _ in range(self.levels - 1):
            keys = uppers[nodes, self.per_line : self.per_line + self.fanout]
            children, count = uppers[nodes, self.per_line + self.fanout :], counts[nodes]
            # The upper bound of a node is the upper bound of its last child.
            keys[np.arange(len(nodes)), count - 1] = ends
            there = np.arange(self.fanout) < count[:, None]
            nodes, ends = children[there].astype(np.int64), keys[there]
        return ends[:-1], nodes.astype(np.uint32)

    def lines_of(self, words: Array, team: Team) -> Numbers:
        """The leaf line of each word."""
        out = np.empty(len(words), np.uint32)
        run_search(self._share, team, self._walk_table, words, MODE=ha.NODES, OUT=out)
        return out

    def walk(self, queries: Array, depth: int, at: Numbers | None = None, start: int = 0) -> Numbers:
        """Walk levels `start .. depth - 1` from nodes `at` (unused if `start` is 0); return nodes of level `depth`."""
        out = np.empty(len(queries), np.uint32)
        with helpers(self.threads, len(queries)) as team:
            nodes = 0 if at is None else at
            run_search(
                self._share, team, self._walk_table, queries, MODE=ha.NODES, START=start, DEPTH=depth, OUT=out, AT=nodes
            )
        return out

    def leaf(self, queries: Array, leaves: Numbers) -> Positions:
        """Positions of queries whose leaf lines are known: of the first equal word, -1 if there is none."""
        return self._search(queries, START=self.levels, AT=leaves)

    def lookup(self, queries: Array) -> Positions:
        """`walk` all levels, then `leaf`."""
        return self._search(queries)

    def _search(self, queries: Array, **args: Any) -> Positions:
        out = np.empty(len(queries), np.int64)
        self.run(self._share, queries, OUT=out, MODE=ha.FIRST, **args)
        free = queries == self.word.type(self.largest)
        if free.any():
            out[free] = -1
        return out

    @property
    def _share(self) -> Share:
        return hs.search_64 if self.word.itemsize == 8 else hs.search_32

    def values_at(self, positions: Positions) -> Array:
        """The values at positions."""
        inline_values = self._lines()[:, self.per_leaf * self.word.itemsize :].view(f"u{self.width}")
        found: Array = inline_values[positions // self.per_leaf, positions % self.per_leaf]
        return found

    def words_at(self, positions: Positions) -> Array:
        """The words at positions."""
        words = self._lines()[:, : self.per_leaf * self.word.itemsize].view(self.word)
        found: Array = words[positions // self.per_leaf, positions % self.per_leaf]
        return found

    def _lines(self) -> Array:
        """The bytes of the used leaf lines, a row each."""
        return self.pools.leaves[: self.used_leaves * self.fanout * self.stride].reshape(-1, self.stride)

    def sample(self, rng: np.random.Generator, count: int) -> Array:
        """Random words of the tree: each is the first of a line."""
        rows = self._lines()
        words = rows[rng.integers(0, len(rows), count), : self.word.itemsize].copy().view(self.word).reshape(-1)
        held = words[words != self.word.type(self.largest)]
        return np.resize(held, count) if len(held) else np.zeros(count, self.word)

    @property
    def is_owned(self) -> bool:
        """Whether the tree can be updated: its memory is not a mapped file."""
        return bool(self.pools.leaves.flags.writeable)

    def owned(self) -> RegularTree:
        """A copy in separate memory with spare capacity."""
        pools = self.pools
        numbers = self.table[hf.Pools.WIDTH :].copy()
        count, uppers = self.used_leaves, self.used_uppers
        max_leaves, max_uppers = count + count // 2 + SPARE_NODES, 2 * uppers + SPARE_NODES
        numbers[[hf.Pools.MAX_LEAVES - hf.Pools.WIDTH, hf.Pools.MAX_UPPERS - hf.Pools.WIDTH]] = max_leaves, max_uppers
        sizes = (max_leaves * self.fanout * self.stride, *self._pool_words(max_leaves, max_uppers))
        copies = [copy_resized(array, size) for array, size in zip(vars(pools).values(), sizes, strict=True)]
        return RegularTree(self.word, Pools(*copies), numbers, self.top, self.threads)

    def used_sizes(self) -> tuple[int, ...]:
        """Number of used elements of each pool."""
        leaves, uppers = self.used_leaves, self.used_uppers
        sizes = list(self._pool_words(leaves, uppers))
        sizes[4:6] = int(self.table[hf.Pools.SPARE_LEAVES]), int(self.table[hf.Pools.SPARE_UPPERS])
        return (leaves * self.fanout * self.stride, *sizes)

    def _pool_words(self, leaves: int, uppers: int) -> tuple[int, ...]:
        """Number of elements of all pools but the leaves, for so many nodes."""
        lasts, nodes = leaves * self.last_bytes, uppers * self.upper_bytes
        item = self.word.itemsize
        return (lasts // item, nodes // item, 4 * leaves, 4 * uppers, leaves, uppers, leaves, uppers)

    def rows(self) -> tuple[Array, Array]:
        """Copies of all words in key order and of their values."""
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
