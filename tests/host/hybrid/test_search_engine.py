"""The search engine and lookups through it: small trees of both layouts and widths, on CPU units and on OpenCL."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import millrace as mr
from millrace.host.base.errors import ArgumentError, DeviceFault, DeviceUnavailable
from millrace.host.device.contract import Device
from millrace.host.device.cpu import CpuDevice
from millrace.host.device.null import NullDevice
from millrace.host.hbtree.layout import LAYOUTS, LayoutName
from millrace.host.hbtree.tree import HBTree
from millrace.host.hybrid.balance import Plan, Split
from millrace.host.hybrid.lookup_runner import LookupRunner
from millrace.host.hybrid.paced_device import DevicePace, PacedDevice
from millrace.host.hybrid.search_engine import SearchEngine
from millrace.host.runtime.clock import WALL
from tests.host.stand_ins import FlatDevice, FlatTree

WIDTHS: tuple[type, ...] = (np.uint32, np.uint64)
SIZES = (0, 1, 7, 8, 9, 65, 600, 5000)


@pytest.fixture(scope="module", params=["cpu", "opencl"])
def device(request: pytest.FixtureRequest) -> Iterator[Device]:
    opened = mr.device(request.param)
    yield opened
    opened.close()


def words_of(size: int, width: type, seed: int = 0) -> Any:
    """Sorted, distinct, with both ends of the type in every second set."""
    rng = np.random.default_rng([seed, size])
    top = int(np.iinfo(width).max)
    words = set(rng.integers(0, top, 3 * size, dtype=np.uint64).tolist()[:size])
    if seed % 2 and size > 1:
        words |= {0, top}
    return np.array(sorted(words)[:size] if top not in words else sorted(words)[-size:], width)


def queries_of(words: Any, size: int, width: type) -> Any:
    """Present ones, their neighbours, random ones and the ends of the type."""
    rng = np.random.default_rng(size)
    top = int(np.iinfo(width).max)
    pool = [0, top, top - 1, *rng.integers(0, top, 50, dtype=np.uint64).tolist()]
    for word in rng.choice(words, 50).tolist() if len(words) else []:
        pool += [word, max(word - 1, 0), min(word + 1, top)]
    return np.array([pool[i] for i in rng.integers(0, len(pool), size)], width)


def expected(words: Any, queries: Any) -> list[int]:
    positions = {word: position for position, word in enumerate(words.tolist())}
    return [positions.get(query, -1) for query in queries.tolist()]


def splits(levels: int) -> list[Split]:
    return [*(Split(D, R) for D in range(levels) for R in (0.0, 0.01, 0.3, 0.5, 1.0)), Split(levels)]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("size", SIZES)
def test_lookups_are_right_for_every_split_and_depth(
    device: Device, layout: LayoutName, width: type, size: int
) -> None:
    words = words_of(size, width, seed=1)
    tree = HBTree.of(words, layout, hybrid=True)
    runner = LookupRunner(SearchEngine(device), tree, bucket=64)
    queries = queries_of(words, 300, width)
    wanted = expected(words, queries)
    for number, split in enumerate(splits(tree.levels)):
        assert runner._run(queries, split, 1 + number % 5).positions.tolist() == wanted
    runner.close()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("width", WIDTHS)
def test_a_search_may_begin_at_any_level(device: Device, layout: LayoutName, width: type) -> None:
    words = words_of(5000, width)
    tree = HBTree.of(words, layout, hybrid=True)
    engine = SearchEngine(device)
    segment = engine.load(tree)
    queries = queries_of(words, 500, width)
    lines = np.minimum(np.searchsorted(words, queries), len(words) - 1) // tree.per_line
    for depth in range(tree.levels + 1):
        at = tree.walk(queries, depth) if depth else None
        searching = engine.search(segment, queries, at, depth)
        assert engine.leaves(searching).tolist() == lines.tolist()
        engine.release(searching)
    engine.free(segment)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_leaves_can_be_searched_for_lower_bounds(device: Device, layout: LayoutName) -> None:
    words = words_of(700, np.uint64)
    tree = HBTree.of(words, layout, hybrid=True)
    runner = LookupRunner(SearchEngine(device), tree, Plan(1), bucket=64)
    queries = queries_of(words, 500, np.uint64)
    assert runner.lookup(queries, finish=tree.lower).tolist() == np.searchsorted(words, queries).tolist()
    runner.close()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_runner_on_a_real_device_may_be_used_from_several_threads(device: Device, layout: LayoutName) -> None:
    words = words_of(3000, np.uint64)
    tree = HBTree.of(words, layout, hybrid=True)
    runner = LookupRunner(SearchEngine(device), tree, Plan(1, 0.5), bucket=128, depth=4)
    wrong: list[int] = []

    def look_up(size: int) -> None:
        queries = queries_of(words, size, np.uint64)
        for _ in range(4):
            if runner.lookup(queries).tolist() != expected(words, queries):
                wrong.append(size)

    threads = [threading.Thread(target=look_up, args=(size,)) for size in (1, 100, 900, 2000)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    runner.close()


def test_tuning_on_a_real_device_gives_a_plan_and_changes_no_result(device: Device) -> None:
    words = words_of(5000, np.uint64)
    runner = LookupRunner(SearchEngine(device), HBTree.of(words, "implicit", hybrid=True), bucket=256)
    queries = queries_of(words, 2000, np.uint64)
    before = runner.lookup(queries)
    plan = runner.tune(queries)
    assert 0 <= plan.D <= runner.levels
    assert plan.measured is not None
    assert plan.measured > 0
    assert np.array_equal(runner.lookup(queries), before)
    runner.close()


def test_what_is_sent_per_bucket_does_not_grow_with_the_tree() -> None:
    sent = []
    for size in (1000, 50_000):
        device = CpuDevice()
        words = words_of(size, np.uint64)
        runner = LookupRunner(SearchEngine(device), HBTree.of(words, "implicit", hybrid=True), bucket=100)
        before = device.counters()["bytes_in"]
        runner.lookup(queries_of(words, 1000, np.uint64))
        sent.append(device.counters()["bytes_in"] - before)
        assert device.counters()["hb_search_implicit_rows"] == 1000
    assert sent == [8000, 8000]


# --- staging, lanes, memory ---


def test_a_device_with_staging_gets_and_gives_its_own_memory() -> None:
    made: list[Any] = []

    class Staged(PacedDevice):
        def staging(self, size: int, dtype: Any) -> Any:
            made.append(np.zeros(size, dtype))
            return made[-1]

        def lane(self) -> PacedDevice:
            return self

        def write(self, buffer: Any, offset: int, data: Any) -> None:
            assert len(tree.nodes) == len(data) or any(np.shares_memory(data, array) for array in made)
            super().write(buffer, offset, data)

        def read_into(self, buffer: Any, offset: int, out: Any) -> None:
            assert any(np.shares_memory(out, array) for array in made)
            super().read_into(buffer, offset, out)

        def close(self) -> None:
            raise AssertionError("the device itself is not closed with a lane")

    words = words_of(600, np.uint64)
    tree = HBTree.of(words, "regular", hybrid=True)
    device = Staged(CpuDevice(1), DevicePace(levels=(0.0,) * tree.levels), WALL)
    runner = LookupRunner(SearchEngine(device), tree, bucket=50, depth=3)
    queries = queries_of(words, 1000, np.uint64)
    assert runner._run(queries, Split(1, 0.5), 3).positions.tolist() == expected(words, queries)
    assert len(made) <= 3 + 2


def test_each_lane_is_opened_and_closed_once_per_run() -> None:
    opened: list[Any] = []
    closed: list[Any] = []

    class Laned(PacedDevice):
        def lane(self) -> PacedDevice:
            lane = Laned(self._inner, self.pace, self._clock, self._timetable)
            opened.append(lane)
            return lane

        def close(self) -> None:
            closed.append(self)

    inner = FlatDevice()
    device = Laned(inner, DevicePace(levels=(0.0,) * 3), WALL)
    runner = LookupRunner(SearchEngine(device), FlatTree(np.arange(100, dtype=np.uint64), 3), bucket=10, depth=4)
    runner.lookup(np.arange(100, dtype=np.uint64))
    assert 1 <= len(opened) <= 3
    assert set(opened) == set(closed)
    inner.fail["launch"] = 2
    with pytest.raises(DeviceFault):
        runner.lookup(np.arange(100, dtype=np.uint64))
    assert set(opened) == set(closed)


def test_a_segment_that_does_not_fit_is_refused_with_the_sum() -> None:
    device = FlatDevice()
    device.memory = 5000  # type: ignore[attr-defined]
    engine = SearchEngine(device)
    engine.free(engine.load(FlatTree(np.arange(600, dtype=np.uint64), 3)))
    with pytest.raises(DeviceUnavailable, match=r"need 5,612 bytes on device 'flat', which has 5,000: 612 too few"):
        engine.load(FlatTree(np.arange(700, dtype=np.uint64), 3))
    assert device.live == set()


@pytest.mark.parametrize("call", ["alloc", "write"])
@pytest.mark.parametrize("number", [1, 2])
def test_a_segment_that_cannot_be_sent_leaves_nothing_there(call: str, number: int) -> None:
    device = FlatDevice()
    device.fail[call] = number
    with pytest.raises(DeviceFault, match=f"lost its {call}"):
        SearchEngine(device).load(FlatTree(np.arange(100, dtype=np.uint64), 3))
    assert device.live == set()


def test_a_device_without_the_unit_is_refused_with_what_it_can_do() -> None:
    tree = HBTree.of(np.arange(10, dtype=np.uint64), "regular", hybrid=True)
    with pytest.raises(DeviceUnavailable, match=r"'null' cannot search trees of layout 'regular'.*no trees"):
        SearchEngine(NullDevice()).load(tree)
    with pytest.raises(DeviceUnavailable, match=r"hb_search_regular.*it can search: implicit"):
        SearchEngine(FlatDevice()).load(tree)


def test_a_tree_for_the_cpu_alone_is_refused() -> None:
    tree = HBTree.of(np.arange(1000, dtype=np.uint64), "implicit")
    with pytest.raises(ArgumentError, match="fan-out 9 is for the CPU only; devices walk one of fan-out 8"):
        SearchEngine(CpuDevice()).load(tree)


def test_a_search_that_does_not_start_leaves_nothing_there() -> None:
    device = FlatDevice()
    engine = SearchEngine(device)
    segment = engine.load(FlatTree(np.arange(100, dtype=np.uint64), 3))
    device.fail["launch"] = 1
    with pytest.raises(DeviceFault):
        engine.search(segment, np.arange(10, dtype=np.uint64))
    assert len(device.live) == 2
    engine.free(segment)
    assert device.live == set()
