"""The streams of the benches: int64 keys from a distribution, and a band with a given number of matches per tuple.

A turn's rows depend only on the seed and the turn's number, so every contender gets the same rows. In `batches` arrival
batches of r and s alternate; in `tuples` arrival single tuples of both sides are interleaved in random order.
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
"""The keys of a window span about this range."""
CELLS = 1 << 10
"""Skewed keys: number of equal parts of the domain; the k-th most frequent has a share proportional to 1 / k."""
HEAVY_VALUES = 8
"""Skewed keys: number of single values that repeat often."""
DRIFT = 0.25
"""Drifting keys: the range moves by this part of its width per window."""
JITTER = 1 / 256
"""Increasing keys: a key may be late by up to this part of a window."""
SAMPLE = 1 << 15
"""Keys per side in the sample that determines the band width."""
Longs = npt.NDArray[np.int64]
Arrival = Literal["batches", "tuples"]
Output = Literal["seqs", "pairs", "count"]
Distribution = Literal["uniform", "skewed", "drifting", "increasing"]
DISTRIBUTIONS: tuple[Distribution, ...] = get_args(Distribution)


def answer_columns(output: Output) -> list[str]:
    """The columns of a contender's result, in order."""
    if output == "count":
        return ["seq", "count"]
    return ["r_seq", "s_seq"] + (["r_x", "r_v", "s_x", "s_v"] if output == "pairs" else [])


@dataclass(frozen=True)
class Rows:
    """Rows of one side: the key `x`, and a payload `v` that the condition does not use."""

    x: Longs
    v: npt.NDArray[np.float64]

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.x)


@dataclass(frozen=True)
class Turn:
    """One push: in `batches` arrival one of the sides is empty and `order` is constant."""

    r: Rows
    s: Rows
    order: npt.NDArray[np.uint8]

    def __len__(self) -> int:
        """Number of tuples of both sides."""
        return len(self.order)


@dataclass(frozen=True)
class Workload:
    """Two streams. `window`: rows per side; `batch`: tuples per push; `rate`: matches per tuple."""

    window: int
    batch: int
    arrival: Arrival
    output: Output = "seqs"
    rate: float = 2.0
    seed: int = 20_240
    distribution: Distribution = "uniform"

    @property
    def eps(self) -> int:
        """The half-width of the band. A uniform key of the window matches with probability 2 eps / DOMAIN."""
        if self.distribution == "uniform":
            return round(self.rate * DOMAIN / (2 * self.window))
        return sampled_eps(self)

    @property
    def on(self) -> str:
        """The condition in our syntax."""
        return f"abs(r.x - s.x) <= {self.eps}"

    @property
    def facts(self) -> dict[str, Any]:
        """What a result line reports about the work."""
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
        """The keys of the tuples with arrival numbers `at` of their side."""
        return _DRAW[self.distribution](self, rng, at)

    def _rows(self, rng: np.random.Generator, first: int, count: int) -> Rows:
        return Rows(self.keys(rng, np.arange(first, first + count)), rng.random(count))


def _uniform(workload: Workload, rng: np.random.Generator, at: Longs) -> Longs:
    return rng.integers(0, DOMAIN, len(at), dtype=np.int64)


def _skewed(workload: Workload, rng: np.random.Generator, at: Longs) -> Longs:
    """Zipf-distributed cells scattered over the domain, plus frequent single values that cause few of the matches."""
    rank = np.searchsorted(_zipf(), rng.random(len(at)))
    x: Longs = rank * 397 % CELLS * (DOMAIN // CELLS) + rng.integers(0, DOMAIN // CELLS, len(at), dtype=np.int64)
    # Equal values give window * share^2 / HEAVY_VALUES matches per tuple: at most a quarter of all.
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
    """Uniform keys in a range that moves with time."""
    return at * round(DRIFT * DOMAIN / workload.window) + rng.integers(0, DOMAIN, len(at), dtype=np.int64)


def _increasing(workload: Workload, rng: np.random.Generator, at: Longs) -> Longs:
    """Like ids or timestamps: one step per tuple, some tuples slightly late."""
    step = DOMAIN // workload.window
    return at * step - rng.integers(0, max(1, round(JITTER * DOMAIN)), len(at), dtype=np.int64)


_DRAW: dict[Distribution, Callable[[Workload, np.random.Generator, Longs], Longs]] = {
    "uniform": _uniform,
    "skewed": _skewed,
    "drifting": _drifting,
    "increasing": _increasing,
}


@cache
def sampled_eps(workload: Workload) -> int:
    """The narrowest band with `rate` matches of a new tuple in a full window, counted on samples of both."""
    rng = np.random.default_rng([workload.seed, 2])
    new = np.sort(workload.keys(rng, np.full(SAMPLE, workload.window)))
    held = np.sort(workload.keys(rng, rng.integers(0, workload.window, SAMPLE)))
    wanted = workload.rate / workload.window * SAMPLE * SAMPLE
    low, high = 0, 2 * DOMAIN
    while low < high:
        eps = (low + high) // 2
        found = int((np.searchsorted(held, new + eps, "right") - np.searchsorted(held, new - eps, "left")).sum())
        low, high = (low, eps) if found >= wanted else (eps + 1, high)
    return low
