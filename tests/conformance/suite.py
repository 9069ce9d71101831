"""Draws cases, runs each on every registered (index, device) pair, and keeps count of what they covered.

`MILLRACE_CONFORMANCE_CASES` is the number of cases that every pair must serve (1,000 unless set) and
`MILLRACE_CONFORMANCE_SEED` the seed of the draw (0 unless set, so that two runs are alike).
"""

from __future__ import annotations

import os
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import hypothesis
from hypothesis import HealthCheck, Phase, settings

from tests.conformance.cases import Case, Shape, build, shapes
from tests.conformance.conditions import WEIGHTED_FAMILIES
from tests.conformance.expected import Expected, expect

CASES = int(os.environ.get("MILLRACE_CONFORMANCE_CASES", "1000"))
SEED = int(os.environ.get("MILLRACE_CONFORMANCE_SEED", "0"))

LEAST = {"pairs": 0.60, "boundaries": 0.25, "late": 0.15, "edge": 0.15}
"""The share of cases that must yield pairs, cross a structural boundary, have late rows, tie at the edge."""
SHRINK_SECONDS = 40
ENFORCED_FROM = 200  # cases of a shard; with fewer the shares say nothing

Pair = tuple[str, str]
Check = Callable[[Case, Expected, str, str, int, int], Any]


def draw_cases(seed: int, count: int, run: Callable[[Shape], None], families: Sequence[str] = ()) -> None:
    """Runs `count` drawn shapes; Hypothesis shrinks one that fails, for a limited time, and prints it."""
    limited = _Limited(run)

    @hypothesis.seed(seed)
    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=(Phase.generate, Phase.shrink),
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    @hypothesis.given(shape=shapes(families or WEIGHTED_FAMILIES))
    def one(shape: Shape) -> None:
        limited(shape)

    one()


class _Limited:
    """Ends the search for a smaller failing shape: after a time, only shapes that failed before are run again."""

    def __init__(self, run: Callable[[Shape], None]) -> None:
        self._run = run
        self._failed: set[Shape] = set()
        self._until = float("inf")

    def __call__(self, shape: Shape) -> None:
        if time.monotonic() > self._until and shape not in self._failed:
            return
        try:
            self._run(shape)
        except Exception:
            self._failed.add(shape)
            self._until = min(self._until, time.monotonic() + SHRINK_SECONDS)
            raise


@dataclass
class Tally:
    """Counts of one shard."""

    cases: int = 0
    covered: Counter[str] = field(default_factory=Counter)
    served: Counter[Pair] = field(default_factory=Counter)
    families: dict[Pair, set[str]] = field(default_factory=lambda: defaultdict(set))

    def run(self, shape: Shape, pairs: Iterable[Pair], check: Check) -> None:
        """One case on these pairs: the oracle once, then each pair with threads and splits of its own."""
        case = build(shape)
        expected = expect(case)
        rng = Random(shape.seed)
        boundaries = 0
        for pair in pairs:
            outcome = check(case, expected, *pair, rng.choice((1, 1, 2, 3)), rng.randrange(2**32))
            if outcome.served:
                self.served[pair] += 1
                self.families[pair].add(shape.family)
                boundaries += outcome.boundaries
        self.cases += 1
        coverage = expected.coverage | {"boundaries": boundaries > 0}
        self.covered.update(name for name, hit in coverage.items() if hit)

    def report(self) -> dict[str, Any]:
        """Plain values, which xdist can carry to the main process."""
        served = {f"{index} on {device}": count for (index, device), count in self.served.items()}
        return {"cases": self.cases, "covered": dict(self.covered), "served": served}


def run_shard(seed: int, quota: int, pairs: Sequence[Pair], check: Check) -> Tally:
    """At least `quota` cases for every pair. A pair that serves few families gets more cases of those."""
    tally = Tally()
    draw_cases(seed, quota, lambda shape: tally.run(shape, pairs, check))
    for pair in pairs:
        for attempt in range(1, 5):
            if 0 < tally.served[pair] < quota:
                _top_up(tally, seed + attempt, quota, pair, check)
    return tally


def _top_up(tally: Tally, seed: int, quota: int, pair: Pair, check: Check) -> None:
    """More cases for one pair, which do not count as coverage of the shard."""
    more = Tally(served=tally.served, families=tally.families)
    families = sorted(tally.families[pair])
    draw_cases(seed, quota - tally.served[pair], lambda shape: more.run(shape, [pair], check), families)


def shortfalls(tally: Tally, quota: int, pairs: Sequence[Pair]) -> list[str]:
    """What a shard promised and did not do."""
    found = [f"{pair} served {tally.served[pair]} cases of {quota}" for pair in pairs if tally.served[pair] < quota]
    if tally.cases >= ENFORCED_FROM:
        shares = {name: tally.covered[name] / tally.cases for name in LEAST}
        found += [
            f"{share:.0%} of the cases have {name}, at least {LEAST[name]:.0%} must"
            for name, share in shares.items()
            if share < LEAST[name]
        ]
    return found
