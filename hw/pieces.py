"""Buffers for probing in pieces if board memory is scarce: two of them, filled and probed in turn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from millrace.host.base.types import Array
from millrace.hw.crc import sum_of
from millrace.hw.driver import BoundsBatch
from millrace.hw.link import Link
from millrace.hw.transfers import IDS, IndexAt

PIECE = 512
"""The number of bounds of a piece."""


@dataclass(frozen=True)
class Probed:
    """What is probed: a run on the board, its index, and the band if the engine computes the bounds."""

    words: int
    size: int
    index: IndexAt
    band: tuple[int, int, int, int] | None


class Piece:
    """Board memory for bounds and positions, with the checksums of the bounds sent."""

    def __init__(self, link: Link, word: np.dtype[Any]) -> None:
        """Allocate the memory on the board."""
        self._word = word
        self.size = PIECE * 2 * (word.itemsize + IDS.itemsize)
        self._bounds = [link.alloc(PIECE * word.itemsize) for _ in range(2)]
        self.found = [link.alloc(PIECE * IDS.itemsize) for _ in range(2)]
        self.sums: list[int] = []

    def fill(self, link: Link, arrays: Sequence[Array], first: int) -> None:
        """Send the bounds from number `first` on: lower and upper ones, or keys only."""
        self.sums = []
        for address, array in zip(self._bounds, arrays, strict=False):
            sent = np.ascontiguousarray(array[first : first + PIECE], self._word)
            link.write_mem(address, sent)
            self.sums.append(sum_of(sent))

    def batch(self, size: int, band: tuple[int, int, int, int] | None) -> BoundsBatch:
        """The description of this piece for the driver."""
        low, high = self._bounds
        return BoundsBatch(size, low, low if band else high, self.found[0], self.found[1], band)
