"""BI-Sort's units on the CPU, OpenCL and emulated CUDA: a stable merge, a sample, two searches."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest

from millrace.gpu import driver
from millrace.host.base.types import Array
from millrace.host.device.contract import Device
from tests.gpu import devices
from tests.gpu.devices import run, send

# One worker does all of it: on a cold cache PoCL builds each kernel once, not once per worker.
pytestmark = pytest.mark.xdist_group("opencl")

WIDTHS = (np.uint32, np.uint64)
TILE = driver.GROUP * driver.UNITS["bisort_merger"].items
SPREADS = ("few", "wide", "equal", "ends")


@pytest.fixture(scope="module", params=devices.KINDS)
def device(request: pytest.FixtureRequest) -> Iterator[Device]:
    with devices.opened(request.param) as opened:
        yield opened


def draw(rng: np.random.Generator, spread: str, size: int, dtype: Any) -> Array:
    """Sorted words; `few` and `ends` have many duplicates, `ends` are the smallest and the largest there are."""
    top = int(np.iinfo(dtype).max)
    match spread:
        case "few":
            words = rng.integers(0, 20, size).astype(dtype)
        case "wide":
            words = rng.integers(0, top, size, dtype=dtype, endpoint=True)
        case "equal":
            words = np.full(size, top // 3, dtype)
        case _:
            words = rng.choice(np.array([0, 1, top // 2, top - 1, top], dtype), size)
    return np.sort(words)


def check_merge(device: Device, a: Array, b: Array) -> None:
    a_ids = np.arange(len(a), dtype=np.uint32)
    b_ids = np.arange(len(b), dtype=np.uint32) + np.uint32(1 << 31)
    total = len(a) + len(b)
    step = 1 + total % 9
    outputs = [(total, a.dtype), (total, np.uint32), (-(-total // step), a.dtype)]
    (words, ids, index), rows = run(device, "bisort_merger", [a, a_ids, b, b_ids], outputs, [len(a), len(b), step])
    order = np.argsort(np.concatenate([a, b]), kind="stable")
    assert np.array_equal(words, np.concatenate([a, b])[order])
    assert np.array_equal(ids, np.concatenate([a_ids, b_ids])[order])
    assert np.array_equal(index, words[::step])
    assert rows == total


@pytest.mark.parametrize(
    ("a_n", "b_n"),
    [(0, 0), (0, 1), (1, 0), (0, 3000), (3000, 0), (1, 1), (2, 3), (1000, 1), (1, 1000), (5, 5000), (1777, 2311)],
)
def test_a_merge_is_stable(device: Device, a_n: int, b_n: int) -> None:
    rng = np.random.default_rng([a_n, b_n])
    for dtype, spread in product(WIDTHS, SPREADS):
        check_merge(device, draw(rng, spread, a_n, dtype), draw(rng, spread, b_n, dtype))


@pytest.mark.parametrize("total", [TILE - 1, TILE, TILE + 1, 2 * TILE, 2 * TILE + 1])
def test_a_merge_around_the_size_of_a_tile(device: Device, total: int) -> None:
    rng = np.random.default_rng(total)
    for a_n in (0, 1, total // 3, total - 1, total):
        check_merge(device, draw(rng, "few", a_n, np.uint64), draw(rng, "few", total - a_n, np.uint64))


@pytest.mark.parametrize("seed", range(6))
def test_merges_of_random_sizes(device: Device, seed: int) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(5):
        a_n, b_n = rng.integers(0, [40, 4000])[:: rng.choice([1, -1])]
        spread, dtype = str(rng.choice(SPREADS)), WIDTHS[rng.integers(2)]
        check_merge(device, draw(rng, spread, a_n, dtype), draw(rng, spread, b_n, dtype))


@pytest.mark.parametrize("runs", [("low", "high"), ("high", "low")])
def test_a_merge_of_runs_that_do_not_overlap(device: Device, runs: tuple[str, str]) -> None:
    parts = {"low": np.arange(2000, dtype=np.uint32), "high": np.arange(5000, 6500, dtype=np.uint32)}
    check_merge(device, parts[runs[0]], parts[runs[1]])


@pytest.mark.parametrize("dtype", WIDTHS)
def test_an_index_is_every_steps_word(device: Device, dtype: Any) -> None:
    for n, step in product([0, 1, 2, 63, 64, 65, 5000], [1, 2, 7, 64, 10_000, 1 << 31]):
        words = draw(np.random.default_rng(n), "wide", n, dtype)
        (index,), rows = run(device, "bisort_indexer", [words], [(-(-n // step), dtype)], [n, step])
        assert np.array_equal(index, words[::step]), (n, step)
        assert rows == len(index)


def check_probe(device: Device, words: Array, low: Array, high: Array, step: int) -> None:
    outputs = [(len(low), np.uint32), (len(low), np.uint32)]
    scalars = [len(words), step, len(low)]
    (starts, ends), rows = run(device, "bisort_prober", [words, words[::step].copy(), low, high], outputs, scalars)
    assert np.array_equal(starts, np.searchsorted(words, low, "left"))
    assert np.array_equal(ends, np.searchsorted(words, high, "right"))
    assert rows == len(low)


@pytest.mark.parametrize(("n", "m"), [(0, 0), (0, 5), (5, 0), (1, 300), (129, 1), (1000, 1000), (4099, 517)])
def test_a_probe_finds_both_ends(device: Device, n: int, m: int) -> None:
    rng = np.random.default_rng([n, m])
    for dtype, spread, step in product(WIDTHS, SPREADS, (1, 64, 5000)):
        words = draw(rng, spread, n, dtype)
        check_probe(device, words, draw(rng, spread, m, dtype), draw(rng, spread, m, dtype), step)


@pytest.mark.parametrize("dtype", WIDTHS)
def test_a_probe_at_and_beside_every_word(device: Device, dtype: Any) -> None:
    top = np.iinfo(dtype).max
    words = np.sort(np.array([3, 3, 3, 5, 9, 9, 200, top - 1, top, top], dtype))
    bounds = np.unique(np.concatenate([words - dtype(1), words, words[:-2] + dtype(1), np.array([0, top], dtype)]))
    for step in range(1, 12):
        check_probe(device, words, bounds, bounds, step)


def test_probes_of_random_steps(device: Device) -> None:
    rng = np.random.default_rng(5)
    for _ in range(15):
        n, m, step = rng.integers(1, [3000, 400, 300])
        spread, dtype = str(rng.choice(SPREADS)), WIDTHS[rng.integers(2)]
        words = draw(rng, spread, n, dtype)
        check_probe(device, words, draw(rng, spread, m, dtype), draw(rng, "wide", m, dtype), int(step))


def test_units_follow_each_other_without_a_wait_between(device: Device) -> None:
    """Merge, index and probe in one go: each launch sees what those before it wrote."""
    rng = np.random.default_rng(1)
    a, b, bounds = (draw(rng, "few", size, np.uint64) for size in (2500, 1300, 400))
    total, step, word, id_ = 3800, 64, np.dtype(np.uint64), np.dtype(np.uint32)
    a_ids, b_ids = (send(device, np.arange(size, dtype=np.uint32)) for size in (2500, 1300))
    out, ids, index = device.alloc(total, word), device.alloc(total, id_), device.alloc(-(-total // step), word)
    every = device.alloc(total, word)
    low, starts, ends = send(device, bounds), device.alloc(400, id_), device.alloc(400, id_)
    launches = [
        device.launch(
            "bisort_merger", [send(device, a), a_ids, send(device, b), b_ids, out, ids, every], [2500, 1300, 1]
        ),
        device.launch("bisort_indexer", [out, index], [total, step]),
        device.launch("bisort_prober", [out, index, low, low, starts, ends], [total, step, 400]),
    ]
    merged = np.sort(np.concatenate([a, b]))
    assert np.array_equal(device.read(starts, 0, 400), np.searchsorted(merged, bounds, "left"))
    assert np.array_equal(device.read(ends, 0, 400), np.searchsorted(merged, bounds, "right"))
    assert [device.wait(launch)["rows"] for launch in reversed(launches)] == [400, 60, 3800]
