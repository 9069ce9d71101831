"""The streams that benches push: int64 keys of a distribution, a band that gives a wanted number of matches a tuple.

A turn's rows depend on the seed and the turn's number alone, so every contender is given the same rows. In `batches`
arrival whole batches of r and s alternate; in `tuples` arrival single tuples of both sides come in random order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from math import sqrt
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

DOMAIN = 1 << 40
"""Keys of the tuples in a window spread over about this width."""
CELLS = 1 << 10
"""Skewed keys: this many equal parts of the domain, the k-th most frequent with a share proportional to 1 / k."""
HEAVY_VALUES = 8
"""Skewed keys: single values that come again and again."""
DRIFT = 0.25
"""Drifting keys: by how much of its width the range moves while a window passes."""
JITTER = 1 / 256
"""Increasing keys: a key may be as much too late as this part of a window."""
SAMPLE = 1 << 15
"""Keys of each side that the band's width is measured on."""
Longs = npt.NDArray[np.int64]
Arrival = Literal["batches", "tuples"]
Output = Literal["seqs", "pairs", "count"]
Distribution = Literal["uniform", "skewed", "drifting", "increasing"]
DISTRIBUTIONS: tuple[Distribution, ...] = get_args(Distribution)


def answer_columns(output: Output) -> list[str]:
    """The columns that a contender's answer has, in order."""
    if output == "count":
        return ["seq", "count"]
    return ["r_seq", "s_seq"] + (["r_x", "r_v", "s_x", "s_v"] if output == "pairs" else [])


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
    distribution: Distribution = "uniform"

    @property
    def eps(self) -> int:
        """The half-width of the band. Of even keys each of the window is in reach with chance 2 eps / DOMAIN."""
        if self.distribution == "uniform":
            return round(self.rate * DOMAIN / (2 * self.window))
        return _sampled_eps(self)

    @property
    def on(self) -> str:
        """The condition, as our own joins take it."""
        return f"abs(r.x - s.x) <= {self.eps}"

    @property
    def facts(self) -> dict[str, Any]:
        """What a result line says of the work."""
        return {
            "arrival": self.arrival,
            "window": self.window,
            "batch": self.batch,
            "output": self.output,
            "selectivity": self.rate,
            "distribution": self.distribution,
        }

    def fill(self) -> tuple[Rows, Rows]:
        """A full window of each side."""
        rng = np.random.default_rng([self.seed, 0])
        return self._rows(rng, 0, self.window), self._rows(rng, 0, self.window)

    def turn(self, number: int) -> Turn:
        """The rows of a turn, from number 0 on."""
        rng = np.random.default_rng([self.seed, 1, number])
        if self.arrival == "batches":
            order = np.full(self.batch, number % 2, np.uint8)
            first = self.window + number // 2 * self.batch
        else:
            order = rng.integers(0, 2, self.batch, dtype=np.uint8)
            first = self.window + number * self.batch // 2
        s_rows = int(order.sum())
        return Turn(self._rows(rng, first, self.batch - s_rows), self._rows(rng, first, s_rows), order)

    def keys(self, rng: np.random.Generator, at: Longs) -> Longs:
        """The keys of the tuples that come as the `at`-th of their side."""
        return _DRAW[self.distribution](self, rng, at)

    def _rows(self, rng: np.random.Generator, first: int, count: int) -> Rows:
        return Rows(self.keys(rng, np.arange(first, first + count)), rng.random(count))


def _uniform(workload: Workload, rng: np.random.Generator, at: Longs) -> Longs:
    return rng.integers(0, DOMAIN, len(at), dtype=np.int64)


def _skewed(workload: Workload, rng: np.random.Generator, at: Longs) -> Longs:
    """Zipf's law over cells scattered in the domain, and values as heavy as leaves other matches the larger part."""
    rank = np.searchsorted(_zipf(), rng.random(len(at)))
    x: Longs = rank * 397 % CELLS * (DOMAIN // CELLS) + rng.integers(0, DOMAIN // CELLS, len(at), dtype=np.int64)
    # Equal values alone give window * share^2 / HEAVY_VALUES matches a tuple: at most a quarter of all.
    share = min(0.5, sqrt(HEAVY_VALUES * workload.rate / (4 * workload.window)))
    heavy = np.flatnonzero(rng.random(len(at)) < share)
    x[heavy] = (2 * rng.integers(0, HEAVY_VALUES, len(heavy)) + 1) * (DOMAIN // (2 * HEAVY_VALUES))
    return x


@cache
def _zipf() -> npt.NDArray[np.float64]:
    shares = np.cumsum(1 / np.arange(1, CELLS + 1))
    edges: npt.NDArray[np.float64] = shares[:-1] / shares[-1]
    return edges


def _drifting(workload: Workload, rng: np.random.Generator, at: Longs) -> Longs:
    """Even keys in a range that moves with time."""
    return at * round(DRIFT * DOMAIN / workload.window) + rng.integers(0, DOMAIN, len(at), dtype=np.int64)


def _increasing(workload: Workload, rng: np.random.Generator, at: Longs) -> Longs:
    """Like ids or timestamps: one step a tuple, and some come a little late."""
    step = DOMAIN // workload.window
    return at * step - rng.integers(0, max(1, round(JITTER * DOMAIN)), len(at), dtype=np.int64)


_DRAW: dict[Distribution, Callable[[Workload, np.random.Generator, Longs], Longs]] = {
    "uniform": _uniform,
    "skewed": _skewed,
    "drifting": _drifting,
    "increasing": _increasing,
}


@cache
def _sampled_eps(workload: Workload) -> int:
    """The least band in which a newcomer meets `rate` tuples of a full window, counted on samples of both."""
    rng = np.random.default_rng([workload.seed, 2])
    new = np.sort(workload.keys(rng, np.full(SAMPLE, workload.window)))
    held = np.sort(workload.keys(rng, rng.integers(0, workload.window, SAMPLE)))
    wanted = workload.rate / workload.window * SAMPLE * SAMPLE
    least, most = 0, 2 * DOMAIN
    while least < most:
        eps = (least + most) // 2
        found = int((np.searchsorted(held, new + eps, "right") - np.searchsorted(held, new - eps, "left")).sum())
        least, most = (least, eps) if found >= wanted else (eps + 1, most)
    return least
