"""A block: an immutable part of one side's window, sorted by both keys (SPO-Join, sections 3.3 and 3.4).

A block covers up to `MAX_ROWS` consecutive positions of one *cell*: positions from a multiple of the cell's size on. A
tuple's *id* is its position minus the cell's first position; ids and ranks have 16 bits. A block stores:

- the words of key A in ascending order, those of key B too, each with a search tree of fan-out 16 behind it;
- the ids in order of A and of B; the B ranks in order of A and the A ranks in order of B (the paper's permutation
  array, in both directions); both ranks in order of position, `NO_RANK` for positions without a live tuple;
- a table of counts: `table[j][i]` tuples have an A rank below `256 i` and a B rank below `256 j`.

The paper's offset arrays relate the blocks of both streams to each other. We search the bounds of a new tuple instead:
the search costs less than the scan after it, and a block needs to know nothing of the other side. The paper counts by
setting and scanning bits of all candidates; the table counts without enumerating. All memory of a block is one array.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from millrace.host.base.types import Array
from millrace.host.join.spo.block_search import CHUNK, VECTOR, BlockArgs
from millrace.host.runtime.allocator import allocate, free
from millrace.host.runtime.intrinsics import WIDE_LANES, address

MAX_ROWS = 1 << 16
"""The maximum number of positions of a cell, and so of a block."""
NO_RANK = 0xFFFF
"""The rank of a position without a live tuple. No tuple has it: a block with such a position has fewer tuples."""
_LINE_BYTES = 64


def _padded(count: int, to: int) -> int:
    return -(-count // to) * to


def level_sizes(count: int) -> tuple[int, int, int]:
    """The padded numbers of words of a key and of the two lower levels of its search tree; the highest has 16."""
    words = _padded(count, WIDE_LANES)
    lower = _padded(words // WIDE_LANES, WIDE_LANES)
    return words, lower, _padded(lower // WIDE_LANES, WIDE_LANES)


def table_stride(count: int) -> int:
    """The entries of a row of the table: one more than there are chunks of 256 ranks, padded to a vector."""
    return _padded(-(-count // CHUNK) + 1, VECTOR)


class Block:
    """The memory of a block of `size` live tuples at positions `first` to `end`; its builder fills it."""

    def __init__(
        self, size: int, cell: int, first: int, end: int, words: Sequence[np.dtype[np.unsignedinteger]]
    ) -> None:
        """Allocate a block; `cell` is the first position of its cell, `words` the types of the words of A and B."""
        self.size, self.cell, self.first, self.end = size, cell, first, end
        self.words = words
        tree = sum(level_sizes(size)) + WIDE_LANES
        stride, rows = table_stride(size), -(-size // CHUNK) + 1
        lengths = [tree * words[0].itemsize, tree * words[1].itemsize]
        lengths += [2 * size] * 4 + [2 * (end - first)] * 2 + [2 * stride * rows]
        starts = np.cumsum([0, *(_padded(length, _LINE_BYTES) for length in lengths)])
        # Kernels may read up to a chunk of ranks beyond the end of an array.
        self.memory = allocate(int(starts[-1]) + 2 * CHUNK, np.uint8)
        where = (address(self.memory) + starts[:-1]).tolist()
        self.given = BlockArgs.pack(
            **dict(zip(list(BlockArgs.__members__)[4:13], where, strict=True)),
            SIZE=size,
            BASE=cell,
            BEGIN=first - cell,
            END=end - cell,
            STRIDE=stride,
        )
        if size < end - first:
            self.memory[starts[6] : starts[8]] = 0xFF
        self._starts = starts

    def array(self, field: BlockArgs, count: int, dtype: np.dtype[np.unsignedinteger] | type) -> Array:
        """The first elements of an array of the block."""
        start = int(self._starts[field - BlockArgs.WORDS_A])
        return self.memory[start : start + count * np.dtype(dtype).itemsize].view(dtype)

    def __len__(self) -> int:
        """The number of positions."""
        return self.end - self.first

    def free(self) -> None:
        """Return the memory to the allocator."""
        free(self.memory)
