"""The host pipeline: order, back-pressure, effect of depth, faults, cancellation, threads. Times are virtual."""

from __future__ import annotations

import os
import signal
import threading
import warnings
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from millrace.host.base.errors import ArgumentError, DeviceFault
from millrace.host.device.virtual_clock import VirtualClock
from millrace.host.hybrid import pipeline
from millrace.host.hybrid.balance import Split, StageTimes
from millrace.host.hybrid.lookup_runner import LookupRunner
from millrace.host.hybrid.paced_device import DevicePace, PacedDevice
from millrace.host.hybrid.pipeline import Bucket, Stage, cut_buckets
from millrace.host.hybrid.search_engine import SearchEngine
from millrace.host.runtime.clock import WALL, Clock
from tests.host.stand_ins import FlatDevice, FlatTree, positions_of
from tests.watchdog import WATCHDOG

LEVELS = 3
WORDS = np.unique(np.random.default_rng(3).integers(0, 1 << 40, 3000).astype(np.uint64))
DEPTHS = (1, 2, 3, 4, 7)


class Paced:
    """A job whose stages take set times: one link in, one out, one search at a time, one host."""

    device = "paced"

    def __init__(self, times: StageTimes, clock: Clock) -> None:
        self.times, self.clock = times, clock
        self.free = [0] * len(Stage)
        self.order: list[tuple[Stage, int]] = []
        self.in_flight: set[int] = set()
        self.max_in_flight = self.max_on_device = self.on_device = self.opened = self.closed = 0

    def pass_by(self, stage: Stage, bucket: Bucket) -> int:
        self.order.append((stage, bucket.number))
        took = int(self.times.all()[stage])
        self.free[stage] = max(self.clock.now(), self.free[stage]) + took
        self.clock.sleep_until(self.free[stage])
        return took

    def open_lane(self, bucket: Bucket) -> Paced:
        self.opened += 1
        return self

    def walk(self, bucket: Bucket) -> None:
        self.in_flight.add(bucket.number)
        self.max_in_flight = max(self.max_in_flight, len(self.in_flight))
        self.pass_by(Stage.WALK, bucket)

    def send(self, bucket: Bucket) -> None:
        self.on_device += 1
        self.max_on_device = max(self.max_on_device, self.on_device)
        self.pass_by(Stage.SEND, bucket)

    def search(self, bucket: Bucket) -> int:
        return self.pass_by(Stage.SEARCH, bucket)

    def receive(self, bucket: Bucket) -> None:
        self.pass_by(Stage.RECEIVE, bucket)
        self.on_device -= 1

    def leaves(self, bucket: Bucket) -> None:
        self.pass_by(Stage.LEAVES, bucket)
        self.in_flight.remove(bucket.number)

    def close(self) -> None:
        self.closed += 1


def paced(times: StageTimes, count: int, depth: int) -> tuple[Paced, list[Bucket]]:
    clock = VirtualClock()
    job, buckets = Paced(times, clock), cut_buckets(10 * count, 10)
    pipeline.run(job, buckets, depth, clock)
    return job, buckets


@pytest.fixture(autouse=True)
def no_lane_is_left() -> Iterator[None]:
    yield
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("millrace-lane")]


# --- buckets ---


@pytest.mark.parametrize(("size", "sizes"), [(0, []), (1, [1]), (4, [4]), (5, [4, 1]), (12, [4, 4, 4])])
def test_buckets_are_cut_in_order_and_none_is_empty(size: int, sizes: list[int]) -> None:
    buckets = cut_buckets(size, 4)
    assert [bucket.size for bucket in buckets] == sizes
    assert [bucket.number for bucket in buckets] == list(range(len(sizes)))
    assert [query for bucket in buckets for query in range(size)[bucket.part]] == list(range(size))


@pytest.mark.parametrize("bucket", [0, -1, (1 << 24) + 1])
def test_a_bucket_that_cannot_be_is_refused(bucket: int) -> None:
    with pytest.raises(ArgumentError, match=f"bucket={bucket}: a bucket has from 1 to 16777216 queries"):
        cut_buckets(5, bucket)


@pytest.mark.parametrize("depth", [0, -1, 17])
def test_a_depth_that_cannot_be_is_refused_with_those_that_can(depth: int) -> None:
    with pytest.raises(ArgumentError, match=rf"depth={depth}: from 1 to 16 .*1 sequential, 2 pipelined, 3 double"):
        paced(StageTimes(1, 1, 1, 1, 1), 2, depth)


# --- what depth means, in virtual time ---


@pytest.mark.parametrize("depth", DEPTHS)
def test_never_more_buckets_are_in_flight_than_the_depth_and_one_less_on_the_device(depth: int) -> None:
    lanes = max(depth - 1, 1)
    for times in (StageTimes(0, 1, 50, 1, 3), StageTimes(3, 1, 5, 1, 50), StageTimes(9, 9, 9, 9, 9)):
        job, buckets = paced(times, 30, depth)
        assert job.max_in_flight == depth
        assert job.max_on_device <= lanes
        assert job.max_on_device == lanes or times.search < 50
        assert job.opened == job.closed <= lanes
        assert all(bucket.lane < job.opened for bucket in buckets)


@pytest.mark.parametrize("depth", DEPTHS)
def test_every_bucket_passes_all_stages_in_order(depth: int) -> None:
    job, buckets = paced(StageTimes(2, 3, 7, 1, 5), 20, depth)
    for bucket in buckets:
        assert all(end <= start for (_, end), (start, _) in pairwise(bucket.spans))
    for stage in Stage:
        assert [number for passed, number in job.order if passed is stage] == list(range(20))
    assert job.in_flight == set()


def test_one_bucket_needs_no_lane() -> None:
    before = threading.active_count()

    class Counting(Paced):
        def search(self, bucket: Bucket) -> int:
            assert threading.active_count() == before
            return super().search(bucket)

    pipeline.run(Counting(StageTimes(1, 1, 1, 1, 1), WALL), cut_buckets(1, 10), 4)


@pytest.mark.parametrize("seed", range(40))
def test_a_bucket_takes_what_the_model_says(seed: int) -> None:
    """Between the buckets that fill the pipeline and those that drain it, to the nanosecond."""
    rng = np.random.default_rng(seed)
    times = StageTimes(*(int(t) for t in rng.integers(0, 1000, 5) * rng.integers(0, 2, 5) + 1))
    depth, count = int(rng.integers(1, 6)), 150
    _, buckets = paced(times, count, depth)
    # After many buckets, because a schedule may take long to repeat, and over full rounds of lanes and depth.
    rounds = 60
    assert rounds % depth == 0
    assert rounds % max(depth - 1, 1) == 0
    ends = [bucket.spans[Stage.LEAVES][1] for bucket in buckets]
    assert ends[80 + rounds] - ends[80] == pytest.approx(rounds * times.period(depth), rel=1e-9)


@pytest.mark.parametrize("times", [(0, 2, 10, 2, 10), (0, 4, 10, 5, 3), (0, 3, 4, 3, 10), (0, 9, 10, 0, 10)])
def test_the_papers_strategies(times: tuple[int, ...]) -> None:
    """T_S is the sum; pipelined max(T1 + T2 + T3, T4); double-buffered max(T2, T4) if transfers take less."""
    _, T1, T2, T3, T4 = times
    stages = StageTimes(*times)
    assert stages.period(pipeline.SEQUENTIAL) == T1 + T2 + T3 + T4
    assert stages.period(pipeline.PIPELINED) == max(T1 + T2 + T3, T4)
    assert max(T2, T4) > T1 + T3
    assert stages.period(pipeline.DOUBLE_BUFFERED) == max(T2, T4)
    assert stages.period(pipeline.LOAD_BALANCED) == max(T2, T4)


def test_a_search_is_shown_as_long_as_the_device_worked_and_not_as_long_as_it_waited() -> None:
    _, buckets = paced(StageTimes(0, 1, 50, 1, 1), 10, 4)
    spans = [bucket.spans[Stage.SEARCH] for bucket in buckets]
    assert all(end - start == 50 for start, end in spans)
    assert all(first[1] <= second[0] for first, second in pairwise(spans))


def test_threads_that_wait_for_each_other_are_found_out_by_the_virtual_clock() -> None:
    with pytest.raises(RuntimeError, match="wait for each other"):
        VirtualClock().monitor().wait_for(lambda: False)


# --- lookups through an engine that allows one thread at a time, by the wall clock ---


def queries_of(size: int, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    there, not_there = rng.choice(WORDS, size), rng.integers(0, 1 << 41, size).astype(np.uint64)
    return np.where(rng.random(size) < 0.5, there, not_there)


def runner_on(device: FlatDevice, depth: int = 3, **more: Any) -> LookupRunner:
    return LookupRunner(SearchEngine(device), FlatTree(WORDS, LEVELS + 1), bucket=100, depth=depth, **more)


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("size", [0, 1, 99, 100, 101, 1234])
def test_positions_are_right_and_in_order_and_buffers_are_freed(depth: int, size: int) -> None:
    device = FlatDevice()
    runner = runner_on(device, depth)
    queries = queries_of(size)
    for split in (Split(), Split(0, 0.5), Split(1, 0.25), Split(2, 1.0), Split(3, 0.3), Split(4)):
        found = runner._run(queries, split, depth).positions
        assert found.dtype == np.int64
        assert np.array_equal(found, positions_of(WORDS, queries))
        assert len(device.live) == 2
    runner.close()
    assert device.live == set()


def test_with_all_levels_on_the_host_the_device_is_left_alone() -> None:
    device = FlatDevice()
    runner = runner_on(device)
    before = dict(device.calls)
    runner._run(queries_of(500), Split(LEVELS + 1), 3)
    runner._run(queries_of(500), Split(LEVELS, 1.0), 3)
    assert device.calls == before


@pytest.mark.parametrize("share", [0.0, 0.25, 1.0])
def test_the_host_sends_only_what_the_device_has_to_search(share: float) -> None:
    device = FlatDevice()
    runner = runner_on(device)
    rows: list[int] = []
    wait = device.wait
    device.wait = lambda launch: rows.append(launch.scalars[0]) or wait(launch)  # type: ignore
    runner._run(queries_of(400), Split(LEVELS, share), 3)
    assert sum(rows) == round(400 * (1 - share))


def test_a_run_reports_its_stats() -> None:
    device = FlatDevice()
    runner = runner_on(device, 2)
    runner.lookup(queries_of(250))
    assert runner.last is not None
    stats = runner.last.stats()
    assert [stats[name] for name in ("queries", "buckets", "depth", "D", "R")] == [250, 3, 2, 0, 0.0]
    assert all(stats[f"T{number}_ns"] >= 0 for number in range(5))
    for bucket in runner.last.buckets:
        assert all(bucket.spans[stage][1] >= bucket.spans[stage][0] > 0 for stage in Stage)
    runner.lookup(queries_of(0))
    assert runner.last.stats()["buckets"] == 0


def test_bad_queries_and_closed_runners_are_refused() -> None:
    device = FlatDevice()
    runner = runner_on(device)
    with pytest.raises(ArgumentError, match="queries are int64; the tree's words are uint64"):
        runner.lookup(np.arange(3))
    runner.close()
    runner.close()
    with pytest.raises(ArgumentError, match="closed"):
        runner.lookup(queries_of(3))


# --- faults ---


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("call", ["alloc", "write", "launch", "wait", "read"])
def test_a_failing_bucket_is_one_fault_that_names_it_and_the_device_can_be_used_again(call: str, depth: int) -> None:
    device = FlatDevice()
    runner = runner_on(device, depth)
    queries = queries_of(950)
    device.fail[call] = 1 if call == "alloc" else 4
    with pytest.raises(
        DeviceFault, match=rf"bucket \d of 10 \(queries \d+ to \d+\) .* 'flat': lost its {call}"
    ) as caught:
        runner.lookup(queries)
    if depth == 1 and call != "alloc":
        assert "bucket 3 of 10 (queries 300 to 399)" in str(caught.value)
    assert isinstance(caught.value.__cause__, DeviceFault)
    assert len(device.live) == 2
    assert runner.last is None
    assert np.array_equal(runner.lookup(queries), positions_of(WORDS, queries))
    runner.close()
    assert device.live == set()


@pytest.mark.parametrize("depth", DEPTHS)
def test_whatever_a_device_raises_is_a_fault(depth: int) -> None:
    device = FlatDevice()
    runner = runner_on(device, depth)
    device.fail["wait"], device.error = 2, ZeroDivisionError
    with pytest.raises(DeviceFault, match="ZeroDivisionError: lost its wait"):
        runner.lookup(queries_of(500))


@pytest.mark.parametrize("depth", DEPTHS)
def test_a_device_that_is_lost_for_good_is_one_fault(depth: int) -> None:
    class Lost(FlatDevice):
        lost = False

        def wait(self, launch: Any) -> Any:
            self.lost = self.lost or self.calls["wait"] > 3
            return super().wait(launch) if not self.lost else self._gone()

        def free(self, buffer: Any) -> None:
            if self.lost:
                self._gone()
            super().free(buffer)

        def _gone(self) -> Any:
            raise DeviceFault("fell off the bus")

    runner = runner_on(Lost(), depth)
    with pytest.raises(DeviceFault, match=r"bucket \d of 10 .*fell off the bus"):
        runner.lookup(queries_of(1000))


@pytest.mark.parametrize("depth", DEPTHS)
def test_buffers_that_cannot_be_freed_are_a_fault_and_the_others_are_freed(depth: int) -> None:
    device = FlatDevice()
    runner = runner_on(device, depth)
    device.fail["free"] = 1
    with pytest.raises(DeviceFault, match="'flat' failed to free buffers: lost its free"):
        runner.lookup(queries_of(950))
    assert len(device.live) == 2


# --- cancellation ---


class Stubborn(FlatTree):
    """Raises something at a certain bucket."""

    error: BaseException | None = None
    stage = "leaf"
    left = 3

    def _may_raise(self, stage: str) -> None:
        if stage == self.stage and self.error is not None:
            self.left -= 1
            if self.left == 0:
                raise self.error

    def walk(self, queries: Any, depth: int, at: Any = None, start: int = 0) -> Any:
        self._may_raise("walk")
        return super().walk(queries, depth, at, start)

    def leaf(self, queries: Any, leaves: Any) -> Any:
        self._may_raise("leaf")
        return super().leaf(queries, leaves)


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("stage", ["walk", "leaf"])
@pytest.mark.parametrize("error", [KeyboardInterrupt(), MemoryError("no memory"), SystemExit(3)])
def test_an_exception_of_a_host_stage_stops_the_run_and_frees_all_buffers(
    depth: int, stage: str, error: BaseException
) -> None:
    device, tree = FlatDevice(), Stubborn(WORDS, LEVELS + 1)
    tree.error, tree.stage = error, stage
    runner = LookupRunner(SearchEngine(device), tree, bucket=100, depth=depth)
    queries = queries_of(5000)
    with pytest.raises(type(error)):
        runner._run(queries, Split(1), depth)
    assert device.calls["wait"] <= 2 + depth
    assert len(device.live) == 2
    tree.error = None
    assert np.array_equal(runner.lookup(queries), positions_of(WORDS, queries))


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """Ctrl-C interrupts, even where a shell started the tests in the background with SIGINT ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_ctrl_c_while_the_host_waits_for_the_device(ctrl_c: None) -> None:
    waiting, go_on = threading.Event(), threading.Event()

    class Slow(FlatDevice):
        def wait(self, launch: Any) -> Any:
            waiting.set()
            assert go_on.wait(WATCHDOG)
            return super().wait(launch)

    def press() -> None:
        waiting.wait(WATCHDOG)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        go_on.set()

    device = Slow()
    runner = runner_on(device)
    finger = threading.Thread(target=press)
    finger.start()
    with pytest.raises(KeyboardInterrupt):
        runner.lookup(queries_of(5000))
    finger.join()
    assert len(device.live) == 2
    queries = queries_of(300)
    assert np.array_equal(runner.lookup(queries), positions_of(WORDS, queries))


# --- threads and forks ---


def test_a_runner_may_be_used_from_several_threads() -> None:
    device = FlatDevice()
    runner = runner_on(device)
    wrong: list[int] = []

    def look_up(seed: int) -> None:
        for turn in range(5):
            queries = queries_of(700, 10 * seed + turn)
            if not np.array_equal(runner.lookup(queries), positions_of(WORDS, queries)):
                wrong.append(seed)

    threads = [threading.Thread(target=look_up, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert len(device.live) == 2


def test_a_child_forked_in_the_middle_of_a_run_makes_a_runner_of_its_own() -> None:
    waiting, go_on = threading.Event(), threading.Event()

    class Slow(FlatTree):
        def leaf(self, queries: Any, leaves: Any) -> Any:
            waiting.set()
            assert go_on.wait(WATCHDOG)
            return super().leaf(queries, leaves)

    runner = LookupRunner(SearchEngine(FlatDevice()), Slow(WORDS, LEVELS + 1), bucket=100, depth=3)
    queries = queries_of(1000)
    working = threading.Thread(target=runner.lookup, args=(queries,))
    working.start()
    assert waiting.wait(WATCHDOG)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn of a fork with threads
        child = os.fork()
    if child == 0:
        signal.alarm(WATCHDOG)
        right = np.array_equal(runner_on(FlatDevice()).lookup(queries), positions_of(WORDS, queries))
        os._exit(0 if right else 1)
    go_on.set()
    working.join()
    assert os.waitpid(child, 0)[1] == 0


# --- a device with lanes and staging, by the wall clock ---


@pytest.mark.parametrize("depth", DEPTHS)
def test_parallel_lanes_of_a_device_give_the_same_positions(depth: int) -> None:
    inner = FlatDevice()
    engine = SearchEngine(PacedDevice(inner, DevicePace(levels=(0.0,) * 4), WALL))
    assert engine.overlaps
    runner = LookupRunner(engine, FlatTree(WORDS, LEVELS + 1), bucket=64, depth=depth)
    queries = queries_of(3000)
    for split in (Split(), Split(0, 0.5), Split(2, 0.25), Split(3, 0.9), Split(4)):
        assert np.array_equal(runner._run(queries, split, depth).positions, positions_of(WORDS, queries))
    inner.fail["wait"] = 5
    with pytest.raises(DeviceFault, match=r"bucket \d+ of 47 .* 'paced': lost its wait"):
        runner.lookup(queries)
    assert len(inner.live) == 2
    assert np.array_equal(runner.lookup(queries), positions_of(WORDS, queries))


def test_the_depth_is_what_the_device_can_overlap_unless_given() -> None:
    device = FlatDevice()
    tree = FlatTree(WORDS, LEVELS + 1)
    assert LookupRunner(SearchEngine(device), tree).depth == pipeline.PIPELINED
    lanes = SearchEngine(PacedDevice(device, DevicePace(levels=(0.0,) * 4), WALL))
    assert LookupRunner(lanes, tree).depth == pipeline.DOUBLE_BUFFERED
    assert LookupRunner(lanes, tree, depth=7).depth == 7
