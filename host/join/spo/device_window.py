"""One side's window as blocks in a device's memory, for the unit `spo_bits` (SPO-Join, sections 3.3 and 3.4).

A block covers consecutive positions. The device holds the ranks of both keys, packed in one number per position; the
host holds the words in ascending order, in which it looks up the bounds of queries, and the words by position, from
which it sorts neighbouring blocks again when they are merged. Neighbours of similar size are merged, so there are few
blocks, and so few launches. Limit: a block has at most 65,536 positions, as ranks have 16 bits.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from millrace.host.base.types import Array, Mask
from millrace.host.device.contract import Buffer, Device
from millrace.host.device.units import BLOCK_ROWS
from millrace.host.kernels.word_sorter import sort_words
from millrace.host.runtime.team import Team

NO_RANK = 0xFFFF
"""The rank of a position without a live tuple. No tuple has it: a block with such a position has fewer tuples."""


@dataclass(frozen=True)
class Part:
    """Consecutive tuples by position: the words of both keys, and which tuples can match."""

    first: int
    words: tuple[Array, ...]
    live: Mask

    @property
    def end(self) -> int:
        """The position after the last one."""
        return self.first + len(self.live)

    def slice(self, start: int, stop: int) -> Part:
        """The tuples from one position to another."""
        cut = slice(start - self.first, stop - self.first)
        return Part(start, tuple(one[cut] for one in self.words), self.live[cut])


@dataclass(frozen=True)
class DeviceBlock:
    """A block: its tuples, their words of each key in ascending order, and their ranks on the device."""

    part: Part
    ascending: tuple[Array, ...]
    ranks: Buffer

    def __len__(self) -> int:
        """The number of positions."""
        return len(self.part.live)


class DeviceWindow:
    """The tuples of one side that later tuples may still match."""

    def __init__(self, device: Device, team: Team, most: int) -> None:
        """Empty; a block has at most `most` positions."""
        self.blocks: list[DeviceBlock] = []
        self.boundaries = 0
        """How often blocks were built or dropped."""
        self._device, self._team, self._most = device, team, min(most, BLOCK_ROWS)
        self._oldest = 0

    def append(self, first: int, words: tuple[Array, ...], live: Mask) -> None:
        """Append tuples from position `first` on."""
        new = Part(first, words, live)
        for start in range(first, new.end, self._most):
            self._add(new.slice(start, min(start + self._most, new.end)))

    def _add(self, newest: Part) -> None:
        """Make a block of new tuples and of the blocks before them that are not much larger."""
        parts, rows = [newest], len(newest.live)
        while self.blocks and self._merges(self.blocks[-1].part, parts[0].first, rows):
            older = self.blocks[-1].part
            older = older.slice(min(max(older.first, self._oldest), older.end), older.end)
            parts.insert(0, older)
            rows += len(older.live)
            self._drop(-1)
        words = tuple(np.concatenate([part.words[key] for part in parts]) for key in range(2))
        live = np.concatenate([part.live for part in parts])
        self.blocks.append(self._block(Part(parts[0].first, words, live)))
        self.boundaries += 1

    def _merges(self, older: Part, first: int, rows: int) -> bool:
        size = len(older.live)
        return older.end == first and size <= 2 * rows and size + rows <= self._most

    def _block(self, part: Part) -> DeviceBlock:
        """Sort tuples by both keys and send their ranks."""
        rows, ascending = np.flatnonzero(part.live), []
        packed = np.zeros(len(part.live), np.uint32)
        for key, words in enumerate(part.words):
            in_order, order = sort_words(words[rows], self._team)
            ranks = np.full(len(part.live), NO_RANK, np.uint32)
            ranks[rows[order]] = np.arange(len(order), dtype=np.uint32)
            packed |= ranks << np.uint32(16 * key)
            ascending.append(in_order)
        return DeviceBlock(part, tuple(ascending), self._device.adopt(packed))

    def expire(self, oldest: int) -> None:
        """Drop blocks that are entirely below a position."""
        self._oldest = oldest
        while self.blocks and self.blocks[0].part.end <= oldest:
            self._drop(0)
            self.boundaries += 1

    def _drop(self, number: int) -> None:
        self._device.free(self.blocks.pop(number).ranks)

    def close(self) -> None:
        """Free all memory of the device."""
        while self.blocks:
            self._drop(-1)
