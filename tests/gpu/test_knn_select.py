"""The unit `knn_select` on every GPU device: it selects the nearest points, up to the error that the host assumes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import millrace as mr
from millrace.gpu import driver
from millrace.host.base.types import Array
from millrace.host.device.null import NullBuffer
from millrace.host.device.units import BOX_FANOUT, POINT_BLOCK, box_counts
from millrace.host.knn.device_run import MARGIN, NO_POINT, DeviceRun
from millrace.host.knn.run import PointRun, Points
from millrace.host.runtime.team import Team
from tests.gpu.devices import GPUS, opened, run

SIZES = [1, 2, 31, 32, 33, 512, 513, 9000]
"""Parts of a block, a node, two levels, three levels."""
U32 = np.dtype(np.uint32)


class Checked:
    """Passes launches on to a device, with canaries behind the outputs and inputs that must not change."""

    def __init__(self, device: Any) -> None:
        self._device, self._found = device, list[Array]()

    def adopt(self, data: Array) -> Array:
        return data

    def alloc(self, size: int, dtype: Any) -> Array:
        return np.empty(size, dtype)

    def launch(self, unit: str, buffers: list[Array], scalars: tuple[int, ...]) -> None:
        outputs = [(len(one), np.uint32) for one in buffers[-2:]]
        found, rows = run(self._device, unit, buffers[:-2], outputs, list(scalars))
        assert rows == scalars[3]
        for to, one in zip(buffers[-2:], found, strict=True):
            to[:] = one

    def wait(self, launch: None) -> None:
        """Launches run at once."""

    def read(self, buffer: Array, offset: int, size: int) -> Array:
        return buffer[offset : offset + size]

    def free(self, buffer: Array) -> None:
        """Nothing to free."""


@pytest.fixture(scope="module")
def team() -> Iterator[Team]:
    team = Team(1)
    yield team
    team.close()


def distances(points: Array, queries: Array) -> Array:
    """The exact distance of each query (row) to each point (column)."""
    return np.asarray(np.sqrt(((points[:, None] - queries[:, :, None]) ** 2).sum(axis=0)))


def check(device: Any, team: Team, points: Array, queries: Array, spans: Array, limits: Array, want: int) -> None:
    """Run the unit. What it leaves out is at least as far as what it selects, up to the margin."""
    n, m = points.shape[1], queries.shape[1]
    made = PointRun(Points(list(points), np.arange(n), np.arange(n)), team)
    held = DeviceRun(made, Checked(device))  # type: ignore[arg-type]
    assert held.served
    found = held.select(queries, spans, limits, want)
    slots, squares = found.slots.reshape(want, m).astype(np.int64), found.squares.reshape(want, m)
    exact = distances(points, queries)[:, made.positions[:n]] * held.scale  # in the order of slots
    margin = MARGIN * (found.spread[:, None] + exact)
    number = np.arange(n)
    for q in range(m):
        mine = slots[:, q] != NO_POINT
        chosen = slots[mine, q]
        first, stop, begin, end = spans[:, q]
        position = made.positions[:n]
        seen = (number >= first) & (number < stop) & (position >= begin) & (position < end)
        assert len(set(chosen)) == len(chosen)
        assert seen[chosen].all()
        assert (np.abs(np.sqrt(squares[mine, q].astype(np.float64)) - exact[q, chosen]) <= margin[q, chosen]).all()
        assert (squares[0, q] >= squares[:, q]).all()
        others = seen.copy()
        others[chosen] = False
        reached = np.sqrt(float(squares[0, q])) if mine.all() else np.sqrt(limits[q]) * held.scale
        assert (exact[q, others] + margin[q, others] >= reached).all()
        assert mine.all() or (squares[~mine, q] == squares[0, q]).all()


@pytest.mark.parametrize("kind", GPUS)
def test_the_nearest_points_are_selected(kind: str, team: Team) -> None:
    with opened(kind) as device:
        for seed, n in enumerate(SIZES):
            rng = np.random.default_rng(seed)
            dims, m = int(rng.integers(2, 9)), 40
            points, queries = rng.normal(7, 3, (dims, n)), rng.normal(7, 3, (dims, m))
            slots, seen = (np.sort(rng.integers(0, n + 1, (2, m)), axis=0) for _ in range(2))
            everything = rng.random(m) < 0.5
            for span in (slots, seen):
                span[0, everything], span[1, everything] = 0, n
            limits = np.where(rng.random(m) < 0.6, np.inf, rng.random(m) * 20)
            for want in (1, 2, 17, 40):
                check(device, team, points, queries, np.concatenate([slots, seen]), limits, want)


@pytest.mark.parametrize("kind", ["opencl", "cuda-emulated, ballots"])
@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_points_that_float32_does_not_tell_apart(kind: str, offset: float, team: Team) -> None:
    rng = np.random.default_rng(3)
    points, queries = rng.random((2, 2000)) * 1e-7, rng.random((2, 20)) * 1e-7
    points[:, 0] = 1.0  # far away: the others are within the margin of each other
    spans = np.repeat(np.array([[0], [2000], [0], [2000]]), 20, axis=1)
    with opened(kind) as device:
        check(device, team, points + offset, queries + offset, spans, np.full(20, np.inf), 20)


def test_levels_and_sizes_are_checked() -> None:
    given = [NullBuffer(1 << 14, U32) for _ in driver.UNITS["knn_select"].slots]
    assert box_counts(POINT_BLOCK * BOX_FANOUT + 1) == [2 * BOX_FANOUT, BOX_FANOUT]
    assert driver.check("toy", "knn_select", given, (600, 2, 2, 9, 5)).rows == 9
    with pytest.raises(mr.DeviceFault, match="600 slots have 2 levels"):
        driver.check("toy", "knn_select", given, (600, 2, 1, 9, 5))
    with pytest.raises(mr.DeviceFault, match="want and dims must be at least 1"):
        driver.check("toy", "knn_select", given, (600, 2, 2, 9, 0))
    with pytest.raises(mr.DeviceFault, match="squares of 2147483649, at most 2147483648 are allowed"):
        driver.check("toy", "knn_select", given, (1, 1, 1, 3, 715827883))
