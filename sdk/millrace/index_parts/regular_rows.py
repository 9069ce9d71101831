"""The rows of an ordered index of the regular layout: a tree that changes in place, and its separate values.

Values of 4 or 8 bytes without nulls are inline. For others the inline value is a row number, and the rows are in a
`ValueStore`. The largest word is not a key of the tree: its rows are in `top` (`hbtree/regular.py`).

An update changes the tree in place. It is rebuilt instead if the batch is large relative to the index, if the pools are
full, if too much memory would be unused, and if inline values cannot stay inline. (Thesis, appendix A, 5.6.) Limit:
2**31 keys.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from millrace.host.base.types import Array, Mask
from millrace.host.base.words import KeyType, mask_and, true_mask
from millrace.host.hbtree import search as hs
from millrace.host.hbtree import search_args as ha
from millrace.host.hbtree.build import fill
from millrace.host.hbtree.editor import Changes
from millrace.host.hbtree.regular import RegularTree
from millrace.host.hbtree.scan import copy_ranges, count_ranges, last_positions, neighbour_positions
from millrace.host.hbtree.search_call import FEW
from millrace.host.hbtree.tree import HBTree, Numbers, Positions, helpers
from millrace.host.hybrid.lookup_runner import Finish
from millrace.index_parts.implicit_rows import merge_rows
from millrace.index_parts.results import arrow_of, flipped, lists_of, memory_of, offsets_of, search_values
from millrace.index_parts.rows import Rows, copied, is_part
from millrace.index_parts.update_input import Update
from millrace.index_parts.value_store import ValueStore

ROW_NUMBER = 4
"""Bytes of the row number of a separate value."""
LARGE_SHARE = 0.25
"""A batch larger than this share of the index is merged into a new tree."""
MAX_DEAD = 0.3
"""Maximum number of unreferenced rows per row of the index, before it is rebuilt."""


@dataclass
class RegularRows:
    """A tree, and the types and separate values of its rows."""

    tree: RegularTree
    store: ValueStore | None
    kind: KeyType
    value_type: pa.DataType
    numbered: bool
    null_keys: int
    next_row: int
    duplicates: str

    @classmethod
    def of(cls, rows: Rows, duplicates: str, threads: int) -> RegularRows:
        """Copy the rows of an index into an updatable tree."""
        store = None if rows.separate_values is None else ValueStore([rows.separate_values], rows.value_type)
        width = 8 if store is None else ROW_NUMBER
        tree = RegularTree.build(rows.leaves, width, rows.equals, threads)
        about = rows.kind, rows.value_type, rows.numbered, rows.null_keys, rows.next_row
        return cls(tree, store, *about, duplicates)

    def __len__(self) -> int:
        """Number of rows."""
        return self.tree.size

    @property
    def nbytes(self) -> int:
        """Bytes of keys, values and inner nodes."""
        return self.tree.nbytes + (0 if self.store is None else self.store.nbytes)

    @property
    def inner_nbytes(self) -> int:
        """Bytes of the inner nodes."""
        return self.tree.inner_nbytes

    @property
    def wanted_type(self) -> pa.DataType | None:
        """The type of new values; None if values are row numbers."""
        return None if self.numbered else self.value_type

    def sample(self, count: int) -> Array:
        """Random words of the index."""
        return self.tree.sample(np.random.default_rng(0), count)

    # Lookups.

    @property
    def _picks_last(self) -> bool:
        return self.duplicates == "last" and self.tree.has_equals

    def lookup(self, raw: Array, flip: int, mask: Mask | None) -> pa.Array:
        """Look up on the CPU only."""
        if self.store is not None or self._picks_last:
            words, finish = self.device_words(raw, flip)
            return self.device_values(raw, flip, finish(words, self.tree.walk(words, self.tree.levels)), mask)
        return self._lookup_inline(raw, flip, mask)

    def _lookup_inline(self, raw: Array, flip: int, mask: Mask | None) -> pa.Array:
        """Look up inline values with one kernel."""
        top = self.tree.largest ^ flip
        any_top = top in raw.tolist() if len(raw) <= FEW else True
        tops = raw == raw.dtype.type(top) if any_top else true_mask(0)
        any_top = any_top and bool(tops.any())
        usable = mask_and(mask, ~tops) if any_top and mask is not None else ~tops if any_top else mask
        count = len(raw)
        out, bits = (
            pa.allocate_buffer(count * self.tree.width),
            pa.allocate_buffer(-(-count // ha.BLOCK) * ha.BLOCK // 8),
        )
        masked = None if usable is None else np.ascontiguousarray(usable).view(np.uint8)
        share = hs.search_64 if raw.dtype.itemsize == 8 else hs.search_32
        hits = search_values(self.tree, share, raw, flip, masked, out, bits, ha.VALUES)
        found = pa.Array.from_buffers(self.value_type, count, [None if hits == count else bits, out], count - hits)
        if not any_top or not len(self.tree.top):
            return found
        numbers = np.frombuffer(out, f"u{self.tree.width}", count).copy()
        absent = found.is_null().to_numpy(zero_copy_only=False)
        return self._with_top(numbers, absent, tops if mask is None else mask_and(mask, tops))

    def _with_top(self, numbers: Array, absent: Mask, tops: Mask) -> pa.Array:
        """Values, with those of the largest word filled in."""
        top = self.tree.top
        if len(top) and tops.any():
            numbers[tops] = top[-1 if self.duplicates == "last" else 0]
            absent = absent & ~tops
        return arrow_of(numbers, absent, self.value_type) if self.store is None else self.store.take(numbers, absent)

    def device_words(self, raw: Array, flip: int) -> tuple[Array, Finish]:
        """The words to search for a lookup, and the search in the leaf lines.

        The last of equal words is the one before the next larger word, so the search is for that one.
        """
        words = flipped(raw, flip)
        if not self._picks_last:
            return words, self.tree.leaf
        one = words.dtype.type(1)
        return np.where(words == words.dtype.type(self.tree.largest), words, words + one), self._last_positions

    def _last_positions(self, searched: Array, lines: Numbers) -> Positions:
        with helpers(self.tree.threads, len(lines)) as team:
            return last_positions(self.tree, lines, searched - searched.dtype.type(1), team)

    def device_values(self, raw: Array, flip: int, found: Positions, mask: Mask | None) -> pa.Array:
        """The values at the positions that the finish of `device_words` found."""
        tops = raw == raw.dtype.type(self.tree.largest ^ flip)
        absent = (found < 0) | tops
        if mask is not None:
            absent, tops = absent | ~mask, tops & mask
        return self._with_top(self.tree.values_at(np.where(absent, 0, found)), absent, tops)

    # Neighbours, and all keys.

    def at_most(self, words: Array) -> tuple[Array, Mask]:
        """The largest word not above each word, and a mask of those that there are."""
        most, one = words.dtype.type(self.tree.largest), words.dtype.type(1)
        tops = words == most
        found, there = self._neighbours(np.where(tops, most - one, words), before=True)
        return (np.where(tops, most, found), there | tops) if len(self.tree.top) else (found, there)

    def at_least(self, words: Array) -> tuple[Array, Mask]:
        """The smallest word not below each word, and a mask of those that there are."""
        most = words.dtype.type(self.tree.largest)
        found, there = self._neighbours(words, before=False)
        there &= words != most
        return (np.where(there, found, most), np.ones_like(there)) if len(self.tree.top) else (found, there)

    def _neighbours(self, words: Array, before: bool) -> tuple[Array, Mask]:
        words = np.ascontiguousarray(words)
        lines = self.tree.walk(words + words.dtype.type(1) if before else words, self.tree.levels)
        with helpers(self.tree.threads, len(words)) as team:
            positions = neighbour_positions(self.tree, lines, words, before, team)
        there = positions >= 0
        return self.tree.words_at(np.where(there, positions, 0)), there

    def words(self) -> Array:
        """All words in key order."""
        return self.tree.rows()[0]

    # Ranges.

    @property
    def range_finish(self) -> Finish:
        """Returns the leaf lines of the lower bounds themselves."""
        return _lines_as_positions

    def ranges(self, low: Array, high: Array, lines: Positions | None, valid: Mask) -> pa.ListArray:
        """Values from `low[i]` to `high[i]`; `lines`: the leaf lines of the lower bounds, if known."""
        most = high.dtype.type(self.tree.largest)
        low = np.ascontiguousarray(np.where(valid, low, low.dtype.type(1)))
        high = np.where(valid, high, high.dtype.type(0))
        tops = (high == most) & (low <= high)
        below = np.ascontiguousarray(np.where(high == most, most - high.dtype.type(1), high))
        found = self.tree.walk(low, self.tree.levels) if lines is None else lines.astype(np.uint32)
        with helpers(self.tree.threads, len(low)) as team:
            counts = count_ranges(self.tree, found, low, below, team)
            counts[tops] += len(self.tree.top)
            offsets = offsets_of(counts)
            out = pa.allocate_buffer(int(offsets[-1]) * self.tree.width)
            numbers = memory_of(out).view(f"u{self.tree.width}")
            copy_ranges(self.tree, found, low, below, offsets, numbers, team)
        for end in offsets[1:][tops].tolist() if len(self.tree.top) else []:
            numbers[end - len(self.tree.top) : end] = self.tree.top
        if self.store is None:
            values = pa.Array.from_buffers(self.value_type, len(numbers), [None, out], 0)
        else:
            values = self.store.take(numbers)
        return lists_of(offsets.astype(np.int32), values, valid)

    # Updates.

    def must_rebuild(self, update: Update) -> bool:
        """Whether an update must rebuild the tree instead of changing it in place."""
        if self.store is None and update.numbers is None:
            return True
        return len(update.batch) > LARGE_SHARE * len(self)

    def changes(self, update: Update) -> Changes:
        """The changes of an update for the tree; separate values get the row numbers that `with_update` will use."""
        if self.store is None:
            assert update.numbers is not None
            return update.batch.changes(update.numbers)
        rows = 0 if update.values is None else len(update.values)
        return update.batch.changes(np.arange(len(self.store), len(self.store) + rows, dtype=np.uint32))

    def with_update(self, update: Update) -> RegularRows:
        """The changed tree with the new separate values and counts."""
        store = self.store
        if store is not None and update.values is not None:
            store = store.grown(copied(update.values) if update.lent or is_part(update.values) else update.values)
        return replace(self, store=store, null_keys=self.null_keys + update.null_keys, next_row=update.next_row)

    @property
    def is_wasteful(self) -> bool:
        """Whether the tree should be rebuilt to save memory."""
        dead = 0 if self.store is None else len(self.store) - len(self)
        return self.tree.is_wasteful or dead > MAX_DEAD * len(self) + (1 << 10)

    def rebuilt(self, update: Update | None = None) -> RegularRows:
        """A new tree with the same rows, or with an update applied; the old one stays unchanged."""
        words, numbers = self.tree.rows()
        values = None if self.store is None else self.store.take(numbers)
        threads = self.tree.threads
        with helpers(threads, len(words)) as team:
            leaves, _ = fill(words, 0, numbers if values is None else None, team)
        about = self.kind, self.value_type, values, self.null_keys, self.numbered, self.next_row
        rows = Rows(leaves, *about, self.tree.has_equals)
        if update is not None:
            if values is None and update.numbers is None:
                rows = replace(rows, separate_values=rows.all_values())
            inline = update.numbers if rows.separate_values is None else None
            tree = HBTree(rows.leaves, "implicit", False, threads)
            rows = merge_rows(rows, update.batch, inline, update.values, tree, threads)
            rows = replace(rows, null_keys=self.null_keys + update.null_keys, next_row=update.next_row)
        return RegularRows.of(rows, self.duplicates, threads)


def _lines_as_positions(queries: Array, lines: Numbers) -> Positions:
    return lines.astype(np.int64)
