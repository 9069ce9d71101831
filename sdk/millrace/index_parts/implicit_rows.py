"""The rows of an ordered index of the implicit layout: read by position; an update builds new rows.

A position is the rank of a row in key order. Values are inline, or in a separate array in the same order, or equal to
the positions. (Thesis, appendix A, 4.) Limit: 2**31 keys.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa

from millrace.host.base.columns import column_of
from millrace.host.base.types import Array, Mask
from millrace.host.base.words import KeyType
from millrace.host.hbtree import plain
from millrace.host.hbtree import search as hs
from millrace.host.hbtree import search_args as ha
from millrace.host.hbtree.build import fill
from millrace.host.hbtree.tree import HBTree, Positions, helpers
from millrace.host.hbtree.update_batch import ChangeBatch
from millrace.host.hbtree.values import gather, spread
from millrace.host.hybrid.lookup_runner import Finish
from millrace.index_parts.results import (
    arrow_of,
    flipped,
    lists_of,
    memory_of,
    offsets_of,
    search_values,
    take_values,
)
from millrace.index_parts.rows import Rows, with_numbers
from millrace.index_parts.update_input import Update


class ImplicitRows:
    """Rows and their tree."""

    def __init__(self, rows: Rows, duplicates: str, hybrid: bool, threads: int, nodes: Array | None = None) -> None:
        """`hybrid`: devices can walk the tree too; `nodes`: the I-segment if it exists already."""
        self.rows, self.duplicates, self._threads = rows, duplicates, threads
        self.tree = HBTree(rows.leaves, "implicit", hybrid, threads, nodes)

    def __len__(self) -> int:
        """Number of rows."""
        return self.rows.leaves.size

    @property
    def kind(self) -> KeyType:
        """Key type."""
        return self.rows.kind

    @property
    def value_type(self) -> pa.DataType:
        """Value type."""
        return self.rows.value_type

    @property
    def wanted_type(self) -> pa.DataType | None:
        """The type of new values; None if values are row numbers."""
        return self.rows.wanted_type

    @property
    def null_keys(self) -> int:
        """Number of rows left out because of null keys."""
        return self.rows.null_keys

    @property
    def next_row(self) -> int:
        """The row number of the next upsert."""
        return self.rows.next_row

    @property
    def nbytes(self) -> int:
        """Bytes of keys, values and inner nodes."""
        return self.tree.nbytes + self.rows.nbytes

    @property
    def inner_nbytes(self) -> int:
        """Bytes of the inner nodes."""
        return int(self.tree.nodes.nbytes)

    def sample(self, count: int) -> Array:
        """Random words of the index."""
        words = self.rows.leaves.words
        return words[np.random.default_rng(0).integers(0, len(words), count)]

    # Lookups.

    def lookup(self, raw: Array, flip: int, mask: Mask | None) -> pa.Array:
        """Look up on the CPU only."""
        masked = None if mask is None else np.ascontiguousarray(mask).view(np.uint8)
        share = hs.search_64 if raw.dtype.itemsize == 8 else hs.search_32
        last = self.duplicates == "last"
        if plain.without_kernels(len(self), len(raw)):
            found = plain.find(self.rows.leaves, flipped(raw, flip), last)
            return self._values_at(found if mask is None else np.where(mask, found, -1))
        if self.rows.separate_values is not None:
            positions = np.empty(len(raw), np.int64)
            self.tree.run(
                share,
                raw,
                flip,
                MASK=0 if masked is None else masked,
                OUT=positions,
                MODE=ha.LAST if last else ha.FIRST,
            )
            return self._values_at(positions)
        count, width = len(raw), self.rows.leaves.width or 8
        out = pa.allocate_buffer(count * width)
        bits = pa.allocate_buffer(-(-count // ha.BLOCK) * ha.BLOCK // 8)
        hits = search_values(self.tree, share, raw, flip, masked, out, bits, ha.LAST_VALUES if last else ha.VALUES)
        validity = None if hits == count else bits
        return pa.Array.from_buffers(self.rows.value_type, count, [validity, out], count - hits)

    def device_words(self, raw: Array, flip: int) -> tuple[Array, Finish]:
        """The words to send to the device for a lookup, and the search in the leaf lines."""
        finish: Finish = partial(self.tree.leaf, last=True) if self.duplicates == "last" else self.tree.leaf
        return flipped(raw, flip), finish

    def device_values(self, raw: Array, flip: int, found: Positions, mask: Mask | None) -> pa.Array:
        """The values at the positions that the finish of `device_words` found."""
        return self._values_at(found if mask is None else np.where(mask, found, -1))

    def _values_at(self, positions: Positions) -> pa.Array:
        """The values at positions, null at -1."""
        absent = positions < 0
        if self.rows.separate_values is not None:
            return take_values(self.rows.separate_values, column_of(positions, absent))
        numbers = gather(self.rows.leaves, np.where(absent, 0, positions)) if len(self) else positions
        return arrow_of(numbers, absent, self.rows.value_type)

    # Neighbours, and all keys.

    def at_most(self, words: Array) -> tuple[Array, Mask]:
        """The largest word not above each word, and a mask of those that there are."""
        return self._words_at(self.tree.range(words, words)[1] - 1)

    def at_least(self, words: Array) -> tuple[Array, Mask]:
        """The smallest word not below each word, and a mask of those that there are."""
        return self._words_at(self.tree.range(words, words)[0])

    def _words_at(self, positions: Positions) -> tuple[Array, Mask]:
        there = (positions >= 0) & (positions < len(self))
        if not len(self):
            return np.zeros(len(positions), self.kind.word), there
        return self.rows.leaves.words_at(np.where(there, positions, 0)), there

    def words(self) -> Array:
        """All words in key order."""
        return self.rows.leaves.words

    # Ranges.

    @property
    def range_finish(self) -> Finish:
        """The search for lower bounds in the device's leaf lines."""
        return self.tree.lower

    def ranges(self, low: Array, high: Array, starts: Positions | None, valid: Mask) -> pa.ListArray:
        """Values from `low[i]` to `high[i]`; `starts`: the results of `range_finish`, if a device was used."""
        if starts is None:
            starts, ends = self.tree.range(low, high)
        else:
            ends = self.tree.ends(low, high, starts)
        offsets = offsets_of(np.where(valid, ends - starts, 0))
        total, offsets_32 = int(offsets[-1]), offsets.astype(np.int32)
        if self.rows.separate_values is not None or plain.without_kernels(total):
            positions = np.repeat(starts - offsets[:-1], np.diff(offsets)) + np.arange(total)
            values = self._values_at(positions)
        else:
            out = pa.allocate_buffer(total * (self.rows.leaves.width or 8))
            with helpers(self._threads, len(starts)) as team:
                spread(self.rows.leaves, starts, offsets_32, memory_of(out), team)
            values = pa.Array.from_buffers(self.rows.value_type, total, [None, out], 0)
        return lists_of(offsets_32, values, valid)

    # Updates.

    def rebuilt(self, update: Update) -> ImplicitRows:
        """New rows with an update applied; the old ones stay unchanged."""
        with helpers(self._threads, len(self)) as team:
            rows = with_numbers(self.rows, team)
        numbers = update.numbers if rows.separate_values is None else None
        if rows.separate_values is None and numbers is None:
            rows = replace(rows, separate_values=rows.all_values())
        merged = merge_rows(rows, update.batch, numbers, update.values, self.tree, self._threads)
        merged = replace(merged, null_keys=rows.null_keys + update.null_keys, next_row=update.next_row)
        return ImplicitRows(merged, self.duplicates, self.tree.hybrid, self._threads)


def merge_rows(
    rows: Rows, batch: ChangeBatch, numbers: Array | None, values: pa.Array | None, tree: HBTree, threads: int
) -> Rows:
    """Rows after a batch of changes: either `numbers` become inline values, or `values` are stored separately."""
    starts, ends = tree.range(batch.words, batch.words)
    gone = offsets_of(ends - starts)
    keep = np.ones(rows.leaves.size, np.bool_)
    keep[np.repeat(starts - gone[:-1], ends - starts) + np.arange(int(gone[-1]))] = False
    added = np.flatnonzero(batch.upserts)
    insert_at, taken = (starts - gone[:-1])[added], batch.rows[added]
    words = np.insert(rows.leaves.words[keep], insert_at, batch.words[added])
    inline, separate_values = None, None
    if numbers is not None:
        inline = np.insert(rows.leaves.values[keep], insert_at, numbers[taken])
    else:
        assert rows.separate_values is not None
        new = pa.nulls(0, rows.value_type) if values is None else values
        order = np.insert(np.flatnonzero(keep), insert_at, rows.leaves.size + taken)
        separate_values = pa.concat_arrays([rows.separate_values, new]).take(column_of(order))
    with helpers(threads, len(words)) as team:
        leaves, _ = fill(words, 0, inline, team)
    return replace(rows, leaves=leaves, separate_values=separate_values)
