"""Draws cases, runs each on every registered (index, device) pair, and counts what they cover.

`MILLRACE_CONFORMANCE_CASES` is the number of cases that every pair must support (default 1,000), and
`MILLRACE_CONFORMANCE_SEED` is the seed of the draw (default 0, so that two runs are equal).
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

MIN_SHARES = {"pairs": 0.60, "boundaries": 0.25, "late": 0.15, "edge": 0.15}
"""The share of cases that must yield pairs, cross a structural boundary, have late rows, tie at the edge."""
SHRINK_SECONDS = 40
SPARE_CASES = 8
ENFORCED_FROM = 200  # cases of a shard; with fewer the shares are not significant

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
    """Limits the search for a smaller failing shape: after a time, only shapes that failed before run again."""

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
    families: dict[Pair, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))

    def run(self, shape: Shape, pairs: Iterable[Pair], check: Check) -> None:
        """Runs one case: the oracle once, then each pair with its own number of threads and splits."""
        case = build(shape)
        expected = expect(case)
        boundaries = 0
        for pair in pairs:
            rng = Random(f"{shape.seed} {pair}")  # the same whichever pairs take part
            outcome = check(case, expected, *pair, rng.choice((1, 1, 2, 3)), rng.randrange(2**32))
            if outcome.served:
                self.served[pair] += 1
                self.families[pair][shape.family] += 1
                boundaries += outcome.boundaries
        self.cases += 1
        coverage = expected.coverage | {"boundaries": boundaries > 0}
        self.covered.update(name for name, hit in coverage.items() if hit)

    def report(self) -> dict[str, Any]:
        """Returns plain values, which xdist can send to the main process."""
        served = {f"{index} on {device}": count for (index, device), count in self.served.items()}
        return {"cases": self.cases, "covered": dict(self.covered), "served": served}


def run_shard(seed: int, quota: int, pairs: Sequence[Pair], check: Check) -> Tally:
    """Runs at least `quota` cases for every pair. An index that supports few families gets more cases of these."""
    tally = Tally()
    draw_cases(seed, quota, lambda shape: tally.run(shape, pairs, check))
    for pair in sorted(pairs, key=lambda one: tally.served[one]):
        for attempt in range(1, 5):
            if 0 < tally.served[pair] < quota:
                _top_up(tally, seed + attempt, quota, pair, pairs, check)
    return tally


def _top_up(tally: Tally, seed: int, quota: int, pair: Pair, pairs: Sequence[Pair], check: Check) -> None:
    """Runs more cases, as many as `pair` has too few; they do not count as coverage of the shard.

    Families are drawn as often as the index has supported a case of them, and a few cases more than are missing. All
    pairs that have too few take part, so that the oracle runs once for all of them.
    """
    more = Tally(served=tally.served, families=tally.families)
    families, missing = sorted(tally.families[pair].elements()), quota - tally.served[pair]

    def run(shape: Shape) -> None:
        short = [one for one in pairs if 0 < tally.served[one] < quota]
        if short:
            more.run(shape, short, check)

    draw_cases(seed, missing + SPARE_CASES, run, families)


def shortfalls(tally: Tally, quota: int, pairs: Sequence[Pair]) -> list[str]:
    """Returns which requirements a shard does not meet."""
    found = [f"{pair} served {tally.served[pair]} cases of {quota}" for pair in pairs if tally.served[pair] < quota]
    if tally.cases >= ENFORCED_FROM:
        shares = {name: tally.covered[name] / tally.cases for name in MIN_SHARES}
        found += [
            f"{share:.0%} of the cases have {name}, at least {MIN_SHARES[name]:.0%} must"
            for name, share in shares.items()
            if share < MIN_SHARES[name]
        ]
    return found
