"""One side's window: blocks, oldest first, and the newest tuples in a raw tail (SPO-Join, sections 3.1 to 3.3).

The paper keeps the newest tuples (its mutable part) in B+-trees. Here a tail of a few thousand tuples is compared
word by word, which is faster up to that size, and costs nothing to insert. A full tail becomes a block. `FAN_OUT`
neighbouring blocks of similar size are merged, and all blocks of a cell once it is complete: so a tuple is merged a
logarithmic number of times. Blocks expire in one piece; probes check the visible interval where a block has expired in
part, so no expired tuple is ever returned (the paper's state management can return some, section 4.2).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from millrace.host.base.types import Array, Mask, Positions
from millrace.host.base.words import all_true
from millrace.host.join.spo.block import Block
from millrace.host.join.spo.block_merge import BlockMerge, sorted_block
from millrace.host.join.spo.block_search import TailArgs
from millrace.host.runtime.allocator import allocate
from millrace.host.runtime.team import Team

TAIL_ROWS = 1 << 11
"""The most tuples of a tail."""
TAIL_SHARE = 4
"""A tail has at most this part of a cell."""
FAN_OUT = 4
"""How many blocks of similar size are merged."""


class BlockWindow:
    """The tuples of one side that later tuples may still match."""

    def __init__(self, words: Sequence[np.dtype[np.unsignedinteger]], cell_rows: int, team: Team) -> None:
        """Empty; `words` are the types of the words of both keys."""
        self.cell_rows = cell_rows
        self.words = words
        self.team = team
        self.blocks: list[Block] = []
        self.merge: BlockMerge | None = None
        self.counts: Counter[str] = Counter()
        self.tail_size = 0
        self._tail_rows = max(min(TAIL_ROWS, cell_rows // TAIL_SHARE), 1)
        self._tail = [allocate(self._tail_rows, dtype) for dtype in (*words, np.dtype(np.int64))]
        self.tail_given = TailArgs.pack(SIZE=0, WORDS_A=self._tail[0], WORDS_B=self._tail[1], POSITIONS=self._tail[2])
        self._end = 0

    def append(self, first: int, words: Sequence[Array], live: Mask, most: int) -> None:
        """Append tuples from position `first` on; new blocks have at most `most` positions."""
        self._end = first + len(live)
        if all_true(live):
            positions: Positions = np.arange(first, self._end)
            fresh = [*words, positions]
        else:
            positions = np.flatnonzero(live) + first
            fresh = [*(one[live] for one in words), positions]
        size, more = self.tail_size, len(positions)
        if size + more <= self._tail_rows:
            for held, new in zip(self._tail, fresh, strict=True):
                held[size : size + more] = new
            self._set_tail(size + more)
            return
        if size:
            fresh = [np.concatenate([held[:size], new]) for held, new in zip(self._tail, fresh, strict=True)]
        self._set_tail(0)
        self._add_blocks(fresh[:2], fresh[2], most)

    def _set_tail(self, size: int) -> None:
        self.tail_size = size
        self.tail_given[TailArgs.SIZE] = size

    def _add_blocks(self, words: Sequence[Array], positions: Positions, most: int) -> None:
        """Turn tuples into blocks that do not cross a cell's end."""
        begin = 0
        while begin < len(positions):
            first = int(positions[begin])
            cell = first - first % self.cell_rows
            end = begin + int(np.searchsorted(positions[begin:], min(cell + self.cell_rows, first + most)))
            part = [one[begin:end] for one in words]
            self.blocks.append(sorted_block(cell, part, positions[begin:end], self.team))
            self.counts["built"] += 1
            begin = end

    def expire(self, oldest: int) -> None:
        """Drop blocks that are entirely below a position, and a tail that is."""
        if self.merge is not None and self.merge.result.end <= oldest:
            self._end_merge(self.merge).free()
        while self.blocks and self.blocks[0].end <= oldest:
            if self.merge is not None and self.blocks[0] is self.merge.blocks[0]:
                break  # its merge still reads it; the probes see that it has expired
            self.blocks.pop(0).free()
            self.counts["dropped"] += 1
        if self._end <= oldest:
            self._set_tail(0)

    def next_merge(self) -> BlockMerge | None:
        """Replace blocks by a merge that is done, and return the one to work on, if any."""
        if self.merge is not None and self.merge.done:
            merge = self.merge
            at = self.blocks.index(merge.blocks[0])
            self.blocks[at : at + len(merge.blocks)] = [self._end_merge(merge)]
            for block in merge.blocks:
                block.free()
            self.counts["merged"] += len(merge.blocks)
        if self.merge is None:
            due = self._due()
            if due:
                self.merge = BlockMerge(due)
        return self.merge

    def _end_merge(self, merge: BlockMerge) -> Block:
        merge.stop()
        self.merge = None
        return merge.result

    def _due(self) -> list[Block]:
        """The blocks to merge next, none if no merge is due."""
        begin, blocks = 0, self.blocks
        oldest_raw = int(self._tail[2][0]) if self.tail_size else self._end
        newest = oldest_raw - oldest_raw % self.cell_rows
        while begin < len(blocks):
            end = begin + 1
            while end < len(blocks) and blocks[end].cell == blocks[begin].cell:
                end += 1
            if end - begin > 1:
                complete = blocks[begin].cell < newest
                found = blocks[begin:end] if complete else self._similar(blocks[begin:end])
                if found:
                    return found
            begin = end
        return []

    def _similar(self, blocks: list[Block]) -> list[Block]:
        """The oldest `FAN_OUT` neighbours of the same level."""
        levels = [self._level(block) for block in blocks]
        for begin in range(len(blocks) - FAN_OUT + 1):
            if len(set(levels[begin : begin + FAN_OUT])) == 1:
                return blocks[begin : begin + FAN_OUT]
        return []

    def _level(self, block: Block) -> int:
        level, rows = 0, self._tail_rows * FAN_OUT
        while len(block) >= rows:
            level, rows = level + 1, rows * FAN_OUT
        return level

    def close(self) -> None:
        """Drop everything. Memory that a posted merge still uses is freed when that ends."""
        if self.merge is not None:
            self.merge.stop()
        self.merge, self.blocks, self._tail = None, [], []
        self._set_tail(0)
