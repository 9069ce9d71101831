"""The load balancer on a device with configured speeds, in virtual time: exact and reproducible."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from millrace.host.base.errors import ArgumentError
from millrace.host.device.virtual_clock import VirtualClock
from millrace.host.hybrid import lookup_runner
from millrace.host.hybrid.balance import (
    CostModel,
    Drift,
    Plan,
    Split,
    StageTimes,
    balance_of,
    best_bucket,
    check_split,
    discover,
)
from millrace.host.hybrid.lookup_runner import LookupRunner
from millrace.host.hybrid.paced_device import DevicePace, HostPace, PacedDevice, PacedTree
from millrace.host.hybrid.pipeline import DOUBLE_BUFFERED, LOAD_BALANCED, Bucket, Stage
from millrace.host.hybrid.search_engine import SearchEngine
from tests.host.stand_ins import FlatDevice, FlatTree, positions_of

BUCKET = 64
WORDS = np.unique(np.random.default_rng(5).integers(0, 1 << 40, 60).astype(np.uint64))
QUERIES = np.random.default_rng(6).choice(WORDS, 22 * BUCKET)
STEPS = 10
"""Shares that exhaustive search tries at each depth."""


@dataclass(frozen=True)
class Scene:
    """A host and a device: nanoseconds per query of each level on each, of a leaf, and what transfers cost."""

    host: tuple[float, ...]
    leaf: float
    device: tuple[float, ...]
    transfer: float = 0.0
    byte: float = 0.0
    launch: float = 0.0

    def runner(self, depth: int | None = None) -> tuple[LookupRunner, DevicePace, HostPace]:
        clock = VirtualClock()
        pace = DevicePace(self.transfer, self.byte, self.launch, self.device)
        mine = HostPace(self.host, self.leaf)
        engine = SearchEngine(PacedDevice(FlatDevice(), pace, clock), clock)
        tree = PacedTree(FlatTree(WORDS, len(self.host)), mine, clock)
        return LookupRunner(engine, tree, bucket=BUCKET, depth=depth, clock=clock), pace, mine


SCENES = {
    "fast": Scene((20.0,) * 4, 60.0, (2.0,) * 4),
    "equal": Scene((20.0,) * 4, 20.0, (20.0,) * 4),
    "slow": Scene((20.0,) * 4, 60.0, (300.0,) * 4),
    "a little slow": Scene((20.0,) * 4, 60.0, (50.0,) * 4),
    "levels that cost more further down": Scene((2.0, 5.0, 20.0, 60.0), 60.0, (10.0, 20.0, 40.0, 80.0)),
    "fast behind a slow link": Scene((20.0,) * 4, 20.0, (2.0,) * 4, transfer=500, byte=12.0),
    "fast behind a hopeless link": Scene((20.0,) * 4, 20.0, (2.0,) * 4, transfer=9000, byte=100.0),
    "slow behind a link": Scene((20.0,) * 4, 60.0, (120.0,) * 4, transfer=300, byte=1.0, launch=500),
    "dear launches": Scene((20.0,) * 4, 30.0, (20.0,) * 4, transfer=200, byte=0.5, launch=1500),
    "one level": Scene((30.0,), 30.0, (45.0,)),
    "one level, steep": Scene((1.0,), 1.0, (100.0,)),
    "one level, rather steep": Scene((5.0,), 1.0, (95.0,)),
    "six levels": Scene((8.0,) * 6, 30.0, (25.0,) * 6, transfer=100, byte=0.25, launch=200),
}


AT_DEPTH_2 = ("equal", "slow", "fast behind a slow link", "dear launches")
"""With one bucket on the device, where transfers are not hidden."""


def exhaustive(runner: LookupRunner, scene: Scene, steps: int = STEPS) -> float:
    levels = len(scene.host)
    splits = [Split(D, step / steps) for D in range(levels) for step in range(steps)]
    return max(runner.measure(QUERIES, split).speed for split in [*splits, Split(levels)])


@pytest.mark.parametrize(("name", "depth"), [*((name, None) for name in SCENES), *((name, 2) for name in AT_DEPTH_2)])
def test_the_discovered_plan_is_within_5_percent_of_the_best(name: str, depth: int | None) -> None:
    scene = SCENES[name]
    runner = scene.runner(depth)[0]
    plan = runner.tune(QUERIES)
    assert runner.plan is plan
    assert runner.depth == (depth or LOAD_BALANCED)
    assert runner.measure(QUERIES, plan.split).speed >= 0.95 * exhaustive(runner, scene)
    assert np.array_equal(runner.lookup(QUERIES), positions_of(WORDS, QUERIES))


@pytest.mark.parametrize("name", SCENES)
def test_the_prediction_is_what_is_measured(name: str) -> None:
    """In a long run very nearly, unless launches have a fixed cost: the model does not know of the second one."""
    scene = SCENES[name]
    runner = scene.runner()[0]
    plan = runner.tune(QUERIES)
    assert plan.predicted is not None
    assert plan.predicted == pytest.approx(plan.measured, rel=0.05)
    long = runner.measure(np.resize(QUERIES, 200 * BUCKET), plan.split).speed
    fixed_cost = bool(scene.transfer or scene.launch) and 0 < plan.R < 1
    assert plan.predicted == pytest.approx(long, rel=0.05 if fixed_cost else 0.02)


def test_where_the_host_is_the_slower_side_all_inner_levels_stay_on_the_device() -> None:
    plan = SCENES["fast"].runner()[0].tune(QUERIES)
    assert (plan.D, plan.R) == (0, 0)


def test_where_the_device_is_hopeless_the_host_does_nearly_all() -> None:
    assert SCENES["fast behind a hopeless link"].runner()[0].tune(QUERIES).split == Split(4)
    assert SCENES["slow"].runner()[0].tune(QUERIES).split.levels > 3.5


def test_the_search_over_depths_stops_at_the_trees_height() -> None:
    sampled = []

    class Hopeless:
        levels, depth, bucket = 3, 3, 8

        def sample(self, queries: Any, split: Split) -> StageTimes:
            sampled.append(check_split(split, self.levels))
            return StageTimes(0, 0, 1e9, 0, 1)

        def measure(self, queries: Any, split: Split) -> Any:
            return runner.measure(QUERIES, Split())

    runner = SCENES["fast"].runner()[0]
    discover(Hopeless(), QUERIES)
    assert Split(3) in sampled
    assert all(split.D <= 3 for split in sampled)


@pytest.mark.parametrize("seed", range(8))
def test_any_host_and_any_device(seed: int) -> None:
    rng = np.random.default_rng(seed)
    levels = int(rng.integers(1, 5))
    draw: Callable[[], tuple[float, ...]] = lambda: tuple(10 ** rng.uniform(0, 2, levels))  # noqa: E731
    scene = Scene(
        draw(), float(10 ** rng.uniform(0, 2)), draw(), *rng.choice([0, 1], 3) * rng.uniform(0, [400, 4, 400])
    )
    runner = scene.runner()[0]
    plan = runner.tune(QUERIES)
    assert runner.measure(QUERIES, plan.split).speed >= 0.95 * exhaustive(runner, scene, 8)


# --- the model ---


def test_equation_4() -> None:
    host, leaf, device, M = (2.0, 3.0, 5.0), 7.0, (11.0, 13.0, 17.0), 10
    times = {D: StageTimes(M * sum(host[:D]), 0, M * sum(device[D:]), 0, M * leaf) for D in range(4)}
    model = CostModel(times, M)
    for D in range(3):
        for R in (0.0, 0.25, 1.0):
            mine = leaf + sum(host[:D]) + R * host[D]
            theirs = (1 - R) * device[D] + sum(device[D + 1 :])
            assert model.cost(Split(D, R)) == pytest.approx(max(mine, theirs))
            assert model.speed(Split(D, R), 4) == pytest.approx(1e9 / max(mine, theirs, (mine + theirs) / 4))
    assert model.cost(Split(3)) == pytest.approx(leaf + sum(host))


def test_equation_3_is_equation_4_without_a_share() -> None:
    times = {0: StageTimes(0, 1, 30, 1, 4), 1: StageTimes(8, 1, 9, 1, 4), 2: StageTimes(16, 0, 0, 0, 4)}
    model = CostModel(times, 2)
    assert [model.cost(Split(D)) for D in range(3)] == [15, 6, 10]
    assert model.cost(Split(0, 1.0)) == model.cost(Split(1))


@pytest.mark.parametrize(
    ("split", "message"),
    [
        (Split(-1), "D=-1: the tree has 3 inner levels, so D is from 0 to 3"),
        (Split(4), "D=4"),
        (Split(1, -0.1), "R=-0.1: R is from 0 to 1"),
        (Split(1, 1.1), "R=1.1"),
        (Split(3, 0.5), "R=0.5: .* 0 where D is the tree's height, 3"),
        (Split(1, float("nan")), "R=nan"),
    ],
)
def test_a_split_that_cannot_be_is_refused(split: Split, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        check_split(split, 3)


def test_a_runner_takes_no_plan_that_cannot_be() -> None:
    runner = SCENES["fast"].runner()[0]
    with pytest.raises(ArgumentError, match="D=5"):
        LookupRunner(runner.engine, runner.tree, Plan(5))


def test_tuning_needs_queries() -> None:
    with pytest.raises(ArgumentError, match="tuning needs queries"):
        SCENES["fast"].runner()[0].tune(QUERIES[:0])


def test_few_queries_are_enough_to_tune_with() -> None:
    scene = SCENES["a little slow"]
    runner = scene.runner()[0]
    plan = runner.tune(QUERIES[:3])
    assert runner.measure(QUERIES, plan.split).speed >= 0.95 * exhaustive(runner, scene)


def test_the_repr_of_a_plan() -> None:
    assert repr(Plan()) == "Plan(D=0, R=0, not tuned)"
    text = repr(Plan(2, 0.34375, 12_345_678.0, 11_900_000.0))
    assert text == "Plan(D=2, R=0.344, predicted=12.3 M queries/s, measured=11.9 M queries/s)"
    assert Plan(1, 0.5, 1.0, 2.0, balance=3.0) == Plan(1, 0.5, 1.0, 2.0)


# --- drift ---


def test_a_new_plan_is_made_when_the_balance_drifts() -> None:
    scene = SCENES["a little slow"]
    runner, pace, _ = scene.runner()
    first = runner.tune(QUERIES)
    for _ in range(3):
        runner.lookup(QUERIES)
    assert (runner.plan, runner.retuned) == (first, 0)
    pace.levels = tuple(4 * cost for cost in pace.levels)
    runner.lookup(QUERIES)
    assert runner.retuned == 0
    assert np.array_equal(runner.lookup(QUERIES), positions_of(WORDS, QUERIES))
    assert runner.retuned == 1
    assert runner.plan.split.levels > first.split.levels
    assert runner.measure(QUERIES, runner.plan.split).speed >= 0.95 * exhaustive(runner, scene)
    for _ in range(3):
        runner.lookup(QUERIES)
    assert runner.retuned == 1


def test_a_host_that_got_slower_is_drift_too() -> None:
    scene = SCENES["a little slow"]
    runner, _, mine = scene.runner()
    first = runner.tune(QUERIES)
    mine.levels, mine.leaf = tuple(3 * cost for cost in mine.levels), 3 * mine.leaf
    for _ in range(3):
        runner.lookup(QUERIES)
    assert runner.retuned == 1
    assert runner.plan.split.levels < first.split.levels


def test_short_lookups_are_looked_at_together_and_tune_nothing_themselves() -> None:
    runner, pace, _ = SCENES["a little slow"].runner()
    runner.tune(QUERIES)
    pace.levels = tuple(4 * cost for cost in pace.levels)
    for _ in range(20):
        runner.lookup(QUERIES[: 2 * BUCKET])
    assert runner.retuned == 0
    runner.lookup(QUERIES)
    assert runner.retuned == 1


def test_a_plan_that_was_not_tuned_never_drifts() -> None:
    runner, pace, _ = SCENES["a little slow"].runner()
    runner.lookup(QUERIES)
    pace.levels = tuple(9 * cost for cost in pace.levels)
    for _ in range(3):
        runner.lookup(QUERIES)
    assert (runner.retuned, runner.plan, runner.depth) == (0, Plan(), DOUBLE_BUFFERED)


def test_each_retuning_needs_twice_as_many_buckets() -> None:
    runner, pace, _ = SCENES["a little slow"].runner()
    runner.tune(QUERIES)
    needed = []
    for factor in (4, 0.25, 4):
        pace.levels = tuple(factor * cost for cost in pace.levels)
        before = runner.retuned
        lookups = 0
        while runner.retuned == before:
            runner.lookup(QUERIES)
            lookups += 1
        needed.append(lookups)
    assert needed[0] <= needed[1] < needed[2] < 9


def test_buckets_that_are_not_full_say_nothing_about_the_balance() -> None:
    runner, pace, _ = SCENES["a little slow"].runner()
    runner.tune(QUERIES)
    pace.levels = tuple(4 * cost for cost in pace.levels)
    for _ in range(60):
        runner.lookup(QUERIES[: BUCKET - 1])
    runner.lookup(QUERIES)
    assert runner.retuned == 0


def buckets(host: int, search: int, count: int) -> list[Bucket]:
    made = [Bucket(number, 0, 1) for number in range(count)]
    for bucket in made:
        bucket.spans[Stage.SEARCH], bucket.spans[Stage.LEAVES] = (5, 5 + search), (9, 9 + host)
    return made


def test_drift_is_a_matter_of_many_buckets_and_of_a_third() -> None:
    plan = Plan(1, 0.5, 1.0, 1.0, balance=1.0)
    drift = Drift(10)
    assert not drift.drifted(plan, buckets(500, 100, 9))
    assert drift.drifted(plan, buckets(500, 100, 1))
    assert not drift.drifted(plan, buckets(125, 100, 10))
    assert drift.drifted(plan, buckets(100, 135, 10))
    assert not drift.drifted(plan, buckets(100, 100, 10))
    assert not Drift(10).drifted(Plan(), buckets(500, 1, 99))
    assert balance_of(StageTimes(1, 0, 0, 0, 1)) is None


@pytest.mark.parametrize(
    ("speeds", "best"),
    [
        ({64: 1.0, 128: 2.0, 256: 3.0, 512: 3.1}, 256),
        ({64: 1.0, 128: 0.9, 32: 1.5, 16: 1.6, 8: 1.0}, 16),
        ({64: 1.0, 128: 1.01, 32: 1.02}, 64),
        ({64: 1.0, 128: 2.0, 256: 3.0, 512: 9.0, 1024: 20.0}, 1024),
    ],
)
def test_buckets_grow_or_shrink_while_that_pays(speeds: dict[int, float], best: int) -> None:
    assert best_bucket(speeds.__getitem__, 64, 8, 1024) == (best, speeds[best])


@pytest.mark.parametrize(("launch", "larger"), [(8_000.0, True), (0.0, False)])
def test_tune_sizes_buckets_unless_the_caller_did(launch: float, larger: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup_runner, "BUCKET", BUCKET)
    monkeypatch.setattr(lookup_runner, "MIN_TUNED_BUCKET", BUCKET)
    scene = Scene((200.0,) * 3, 5.0, (20.0,) * 3, launch=launch)
    fixed, pace, mine = scene.runner()
    clock = VirtualClock()
    engine = SearchEngine(PacedDevice(FlatDevice(), pace, clock), clock)
    free = LookupRunner(engine, PacedTree(FlatTree(WORDS, 3), mine, clock), clock=clock)
    assert free.bucket == BUCKET
    plan = free.tune(QUERIES)
    assert fixed.tune(QUERIES).bucket is None
    assert fixed.bucket == BUCKET
    assert plan.bucket == free.bucket
    assert (free.bucket > BUCKET) == larger
    assert f"buckets of {free.bucket:,}" in repr(plan)
    np.testing.assert_array_equal(free.lookup(QUERIES), positions_of(WORDS, QUERIES))
