"""Bounds that pass through a scarce memory in pieces: two places on the board, filled and probed in turn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from millrace.host.base.types import Array
from millrace.hw.crc import sum_of
from millrace.hw.driver import Batch, IndexAt
from millrace.hw.link import Link

IDS = np.dtype(np.uint32)
PIECE = 512
"""Bounds of a piece."""


@dataclass(frozen=True)
class Probed:
    """What is probed: a run on the board, its index, and the band where the engine makes the bounds."""

    words: int
    size: int
    index: IndexAt
    band: tuple[int, int, int, int] | None


class Piece:
    """A place for bounds and for what is found, with the sums of what was sent there."""

    def __init__(self, link: Link, word: np.dtype[Any]) -> None:
        """Take the place on the board."""
        self._word = word
        self.size = PIECE * 2 * (word.itemsize + IDS.itemsize)
        self._bounds = [link.alloc(PIECE * word.itemsize) for _ in range(2)]
        self.found = [link.alloc(PIECE * IDS.itemsize) for _ in range(2)]
        self.sums: list[int] = []

    def fill(self, link: Link, arrays: Sequence[Array], first: int) -> None:
        """Send the bounds from number `first` on: lower and upper ones, or keys alone."""
        self.sums = []
        for place, array in zip(self._bounds, arrays, strict=False):
            sent = np.ascontiguousarray(array[first : first + PIECE], self._word)
            link.write_mem(place, sent)
            self.sums.append(sum_of(sent))

    def batch(self, size: int, band: tuple[int, int, int, int] | None) -> Batch:
        """What is here, for the engine."""
        low, high = self._bounds
        return Batch(size, low, low if band else high, self.found[0], self.found[1], band)
