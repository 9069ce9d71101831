"""The streams that `window_join` benches push: random int64 keys, a band that gives a wanted number of matches a tuple.

A turn's rows depend on the seed and the turn's number alone, so every contender is given the same rows. In `batches`
arrival whole batches of r and s alternate; in `tuples` arrival single tuples of both sides come in random order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

DOMAIN = 1 << 40
"""Keys are drawn evenly from 0 .. DOMAIN."""
Longs = npt.NDArray[np.int64]
Arrival = Literal["batches", "tuples"]
Output = Literal["seqs", "pairs"]


@dataclass(frozen=True)
class Rows:
    """Rows of one side: the key `x`, and a payload `v` that no condition reads."""

    x: Longs
    v: npt.NDArray[np.float64]

    def __len__(self) -> int:
        """How many."""
        return len(self.x)


@dataclass(frozen=True)
class Turn:
    """What is pushed at once: in `batches` arrival one of the sides is empty and `order` is constant."""

    r: Rows
    s: Rows
    order: npt.NDArray[np.uint8]

    def __len__(self) -> int:
        """How many tuples of both sides."""
        return len(self.order)


@dataclass(frozen=True)
class Workload:
    """Two streams. `window` is each side's, in rows; `batch` tuples are pushed at once; `rate` matches per tuple."""

    window: int
    batch: int
    arrival: Arrival
    output: Output = "seqs"
    rate: float = 2.0
    seed: int = 20_240

    @property
    def eps(self) -> int:
        """The half-width of the band: a tuple meets `window` keys, each in reach with chance 2 eps / DOMAIN."""
        return round(self.rate * DOMAIN / (2 * self.window))

    @property
    def on(self) -> str:
        """The condition, as our own joins take it."""
        return f"abs(r.x - s.x) <= {self.eps}"

    def fill(self) -> tuple[Rows, Rows]:
        """A full window of each side."""
        rng = np.random.default_rng([self.seed, 0])
        return _rows(rng, self.window), _rows(rng, self.window)

    def turn(self, number: int) -> Turn:
        """The rows of a turn, from number 0 on."""
        rng = np.random.default_rng([self.seed, 1, number])
        if self.arrival == "batches":
            order = np.full(self.batch, number % 2, np.uint8)
        else:
            order = rng.integers(0, 2, self.batch, dtype=np.uint8)
        s_rows = int(order.sum())
        return Turn(_rows(rng, self.batch - s_rows), _rows(rng, s_rows), order)


def _rows(rng: np.random.Generator, count: int) -> Rows:
    return Rows(rng.integers(0, DOMAIN, count, dtype=np.int64), rng.random(count))
