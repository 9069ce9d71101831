"""The performance model predicts the simulated cycles within 2%, and within 6% for probes on `ddr3`.

Probes cover a full grid of sizes. `sim/performance.py` explains the error on `ddr3`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest

from millrace.host.base.errors import ArgumentError
from millrace.hw.driver import BoundsBatch
from millrace.hw.transfers import IndexAt, RunAt
from millrace.sim import performance
from millrace.sim.performance import Engine
from tests.sim.engines import SHAPES, U32, Board

# Tests share engines and random generators: in one worker, the random rows are reproducible.
pytestmark = pytest.mark.xdist_group("performance")

WITHIN = 0.02
WITHIN_CONTENDED = 0.06
MERGES = [(16384, 16384, None), (50000, 50000, 8), (60000, 600, 64), (2048, 32768, None)]
INDEXES = [(100000, 8), (100000, 64)]
RUNS = [(1 << 16, 8), (1 << 16, 16), (1 << 18, 64)]
BOUNDS = [2048, 8192, 32768]


@dataclass
class Measured:
    """A simulated engine and its performance model."""

    board: Board
    model: Engine
    rng: np.random.Generator

    @property
    def keys(self) -> int:
        return 1 << (self.board.word.itemsize * 8 - 1)


@pytest.fixture(
    params=[(*shape, memory) for shape in SHAPES for memory in ("ideal", "ddr3")],
    ids="key{0[0]}-w{0[1]}-{0[2]}".format,
    scope="module",
)
def measured(request: pytest.FixtureRequest) -> Iterator[Measured]:
    key_bits, lanes, memory = request.param
    board = Board(key_bits, lanes, memory)
    model = performance.engine(f"rtl:w{lanes},{memory}", key_bits)
    yield Measured(board, model, np.random.default_rng(5))
    board.close()


def close(cycles: int, predicted: float, within: float = WITHIN) -> None:
    assert abs(cycles / predicted - 1) <= within, f"{cycles} cycles, {predicted:.0f} predicted"


@pytest.mark.parametrize(("a_n", "b_n", "step"), MERGES)
def test_merge(measured: Measured, a_n: int, b_n: int, step: int | None) -> None:
    board, size = measured.board, a_n + b_n
    runs = [board.run(measured.rng, n, measured.keys, first) for n, first in ((a_n, 0), (b_n, a_n))]
    a, b = (RunAt(board.put(words), board.put(ids), len(words)) for words, ids in runs)
    out = RunAt(board.marked_array(size, board.word), board.marked_array(size, U32), size)
    index = None if step is None else IndexAt(board.marked_array(size // step + 1, board.word), step)
    close(board.engine.merge(a, b, out, index), measured.model.merge(a_n, b_n, step))


@pytest.mark.parametrize(("size", "step"), INDEXES)
def test_index(measured: Measured, size: int, step: int) -> None:
    board = measured.board
    words = board.put(board.run(measured.rng, size, measured.keys)[0])
    cycles = board.engine.index(words, size, IndexAt(board.marked_array(size // step + 1, board.word), step))
    close(cycles, measured.model.index(size, step))


@pytest.mark.parametrize(("size", "step"), RUNS)
@pytest.mark.parametrize("bounds", BOUNDS)
def test_probe(measured: Measured, size: int, step: int, bounds: int) -> None:
    board, model = measured.board, measured.model
    words = board.run(measured.rng, size, measured.keys)[0]
    low = board.run(measured.rng, bounds, measured.keys)[0]
    at, index, low_at = board.put(words), IndexAt(board.put(words[::step].copy()), step), board.put(low)
    batch = BoundsBatch(bounds, low_at, low_at, board.marked_array(bounds, U32), board.marked_array(bounds, U32))
    before = np.searchsorted(words, low, "left").astype(np.int64) - 1
    halves = [len(np.unique(half[half >= 0] // step)) for half in np.split(before, 2)]
    within = WITHIN_CONTENDED if model.memory.channels else WITHIN
    for resident in (False, True):
        cycles = board.engine.probe(at, size, index, batch)
        close(cycles, model.probe(size, bounds, step, resident, halves), within)


def test_missing_partitions_are_those_of_random_bounds() -> None:
    model = performance.engine("rtl:w4,n2,m4", 64)
    size, step, bounds = 1 << 20, 16, 1 << 16
    even = [(performance.touched(size, bounds, step) + 1) / 2] * 2
    assert model.probe(size, bounds, step, True, even) == model.probe(size, bounds, step, True)
    uneven = [even[0] / 2, even[1] * 1.5]
    assert model.probe(size, bounds, step, True, uneven) > 1.3 * model.probe(size, bounds, step, True)


def test_bandwidth_is_that_of_the_channels_or_of_the_ports() -> None:
    assert performance.engine("rtl:w4,n2", 64).bytes_per_cycle == 2 * 64
    assert performance.engine("rtl:w4,n2,ddr3", 64).bytes_per_cycle == pytest.approx(2 * 8.5333e9 / 252.7e6, rel=1e-3)
    assert performance.engine("rtl:w1,n8", 64).tuples_per_cycle == 8


def test_an_unknown_device_is_refused() -> None:
    with pytest.raises(ArgumentError, match="options of rtl"):
        performance.engine("rtl:w4,sdram", 64)
