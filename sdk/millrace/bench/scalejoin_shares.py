"""How evenly ScaleJoin shares its comparisons among threads: the paper's three studies of rates (Figure 8).

Sources deliver tuples at constant, fluctuating or peaking rates, in periods of one second. They are merged by time, as
a gate does, and joined in a time window; each period's comparisons are counted per thread. The stripes of
`host/join/scalejoin` are used directly, because a join has no more threads than the machine has cores.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from millrace.host.base.types import Array
from millrace.host.join.contract import KeyProbe, SideProbes
from millrace.host.join.scalejoin.stripes import Stripes
from millrace.host.runtime.team import Team

PERIODS = 60
WINDOW_PERIODS = 10
WARM = WINDOW_PERIODS
"""Periods before the windows are full, which are not reported."""
SEED = 8
KEY_SPAN, WIDTH = 10_000, 10


@dataclass(frozen=True)
class Study:
    """Sources of both sides, and the rate of each in a period: tuples per second."""

    name: str
    threads: int
    r_sources: int
    s_sources: int
    rate: Callable[[int, int], float]
    """By source (those of r first) and period."""


@dataclass(frozen=True)
class Shares:
    """A period: tuples of r and of s, the mean comparisons of a thread, and how far the threads are from it."""

    period: int
    r_rate: int
    s_rate: int
    mean: float
    deviation: float
    """The standard deviation, as a share of the mean."""
    largest: float
    """The largest distance from the mean, as a share of it."""


def _constant(source: int, period: int) -> float:
    """One r source with 1,200 tuples per second, four s sources with 900 together."""
    return 1200.0 if source == 0 else (90.0, 180.0, 270.0, 360.0)[source - 1]


def _fluctuating(source: int, period: int) -> float:
    """Sine waves of different amplitude and length."""
    base, share, length = ((400, 0.5, 20), (300, 0.9, 7), (200, 0.3, 31), (500, 0.7, 13), (350, 0.95, 17))[source]
    return base * (1 + share * float(np.sin(2 * np.pi * period / length)))


def _peaks(source: int, period: int) -> float:
    """Constant rates, and for two seconds in eleven a source delivers ten times as much; each at another time."""
    return (250.0, 150.0, 100.0, 50.0, 300.0, 200.0)[source] * (10 if (period + 2 * source) % 11 < 2 else 1)


STUDIES = (
    Study("constant", 10, 1, 4, _constant),
    Study("fluctuating", 12, 3, 2, _fluctuating),
    Study("peaks", 14, 4, 2, _peaks),
)


def deviations(study: Study, periods: int = PERIODS) -> Iterator[Shares]:
    """Run a study; one line for each period with full windows."""
    rng = np.random.default_rng(SEED)
    team = Team(study.threads)
    sides = {side: _Side(team) for side in "rs"}
    before = np.zeros(study.threads, np.int64)
    for period in range(periods):
        rates = [round(study.rate(source, period)) for source in range(study.r_sources + study.s_sources)]
        counts = {"r": sum(rates[: study.r_sources]), "s": sum(rates[study.r_sources :])}
        for side in "rs":
            sides[side].receive(rng, period, counts[side])
        for side, other in (("r", "s"), ("s", "r")):
            sides[other].probe(sides[side], is_s=side == "s")
        for side in "rs":
            sides[side].expire(period)
        compared = np.array([side.stripes.compared for side in sides.values()]).sum(axis=0)
        done, before = compared - before, compared
        if period >= WARM:
            mean = float(done.mean())
            largest = float(np.abs(done - mean).max()) / mean
            yield Shares(period, counts["r"], counts["s"], mean, float(done.std()) / mean, largest)


class _Side:
    """One side's window: the times of its tuples, and their keys in stripes."""

    def __init__(self, team: Team) -> None:
        self.stripes = Stripes((np.dtype(np.uint32),), team)
        self.times: Array = np.zeros(0, np.float64)
        self.new_times, self.keys = self.times, np.zeros(0, np.uint32)
        self._first = 0

    def receive(self, rng: np.random.Generator, period: int, count: int) -> None:
        """Take a period's tuples, in order of time."""
        self.new_times = period + np.sort(rng.random(count))
        self.keys = rng.integers(WIDTH, KEY_SPAN, count).astype(np.uint32)
        self.stripes.append(self._first + len(self.times), (self.keys,), np.ones(count, np.bool_))
        self.times = np.concatenate([self.times, self.new_times])

    def probe(self, new: _Side, is_s: bool) -> None:
        """Compare the other side's new tuples with the tuples of this side that are visible to them."""
        times = new.new_times
        begin = self._first + np.searchsorted(self.times, times - WINDOW_PERIODS)
        end = self._first + np.searchsorted(self.times, times, side="right" if is_s else "left")
        probe = KeyProbe.of(new.keys[None] - np.uint32(WIDTH), new.keys[None] + np.uint32(WIDTH))
        part = SideProbes(0, np.ones(len(times), np.bool_), begin, end, (new.keys,), (probe,))
        self.stripes.probe(part, want_positions=False)

    def expire(self, period: int) -> None:
        """Drop the tuples that no later tuple sees."""
        gone = int(np.searchsorted(self.times, period + 1 - WINDOW_PERIODS))
        self.times, self._first = self.times[gone:], self._first + gone
        self.stripes.drop_before(self._first)
