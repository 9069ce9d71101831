"""The index with a device that selects candidates: equal to NumPy, bit for bit, and it says where it searched."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import millrace as mr
from millrace.gpu import opencl
from millrace.gpu.device import GpuDevice
from millrace.host.base.types import Array
from millrace.host.device.cpu import CpuDevice
from millrace.host.knn import device as module
from millrace.host.knn.device import DevicePointIndex, describe_selection
from millrace.host.knn.index import PointIndex, PointQueries
from millrace.host.knn.join_core import PointShape
from millrace.host.knn.partitioned import Partitioning, open_index
from millrace.host.runtime.team import Team
from tests.gpu.emulated.backend import emulated
from tests.host.knn.test_index import SHAPES, as_lists, check_sliding, expected


@pytest.fixture
def team() -> Iterator[Team]:
    team = Team(2)
    team.acquire(1 << 20)
    yield team
    team.close()


@pytest.fixture(params=["opencl", "cuda-emulated"])
def device(request: pytest.FixtureRequest) -> Iterator[GpuDevice]:
    opened = opencl.open_device("opencl", None) if request.param == "opencl" else emulated()
    yield opened
    opened.close()


def on_host(index: PointIndex) -> dict[str, int]:
    """The reasons for which queries were searched on the host, and how many."""
    return {name: count for name, count in index.counters().items() if name.startswith("host") and count}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dims", [2, 3, 8])
def test_points_of_every_shape(device: GpuDevice, team: Team, shape: str, dims: int) -> None:
    rng = np.random.default_rng(dims)
    n, m = 3000, 90
    points, queries = SHAPES[shape](rng, n, dims), SHAPES[shape](rng, m, dims)
    queries[0, 5] = np.nan
    index = DevicePointIndex(device, dims, team)
    index.insert(list(points))
    everything = np.ones((m, n), np.bool_)
    everything[5] = False
    for k in (1, 9, 100):
        found = as_lists(index.query(PointQueries(list(queries)), k))
        assert found == expected(points, queries, everything, np.arange(n), k, np.inf)
    own = rng.integers(0, n, m)
    apart = np.ones((m, n), np.bool_)
    apart[np.arange(m), own] = False
    found = as_lists(index.query(PointQueries(list(points[:, own]), own=own), 5, 0.3))
    assert found == expected(points, points[:, own], apart, np.arange(n), 5, 0.3)
    if shape == "uniform":
        assert on_host(index) == {}
        assert index.counters()["device_queries"] == 4 * m
    reasons = {"equal": {"host_close"}, "tiny": {"host_scale"}, "outliers": {"host_scale"}}
    assert set(on_host(index)) >= reasons.get(shape, set())
    index.close()
    assert device.held() == 0


@pytest.mark.parametrize("seed", range(4))
def test_a_sliding_window(device: GpuDevice, team: Team, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several runs, points that expire, keys for ties, groups, NaN, limits, and slices of queries."""
    monkeypatch.setattr(module, "SLICE_POINTS", 700)
    rng = np.random.default_rng(seed)
    grouped, tied, whole_numbers = bool(seed % 2), bool(seed & 2), seed == 3
    index = DevicePointIndex(device, 3, team, 7, grouped, tied)

    def draw(count: int) -> Array:
        made: Array = rng.random((3, count)) * 30
        return np.floor(made) if whole_numbers else made

    check_sliding(index, rng, draw, grouped, tied)
    answered = index.counters()
    assert answered["builds"] > 5
    assert answered["device_queries"] > 0
    assert whole_numbers or not on_host(index)
    index.expire(index.end)
    assert device.held() == 0


def test_what_the_host_searches_is_counted_with_a_reason(device: GpuDevice, team: Team) -> None:
    rng = np.random.default_rng(1)
    points = rng.random((2, 3000))
    queries = np.array([[0.5, 1e30, -1e300], [0.5, 0.1, 0.2]])
    index = DevicePointIndex(device, 2, team)
    assert describe_selection("d", {}) == ""
    index.insert(list(points))
    everything = np.ones((3, 3000), np.bool_)
    for k in (3, 2000):
        found = as_lists(index.query(PointQueries(list(queries)), k))
        assert found == expected(points, queries, everything, np.arange(3000), k, np.inf)
    limits = np.array([0.001, np.inf, 0.0])
    found = as_lists(index.query(PointQueries(list(queries), limits=limits), 2))
    with np.errstate(over="ignore"):
        within = np.sum((points[:, None] - queries[:, :, None]) ** 2, axis=0) <= limits[:, None]
    assert found == expected(points, queries, within, np.arange(3000), 2, np.inf)
    assert on_host(index) == {"host_far": 4, "host_many": 3}
    assert describe_selection("d", index.counters()) == (
        "d selected the candidates of 2 queries; the host searched for 4 (far from all points), "
        "3 (more than 1024 points to select)"
    )


def test_a_slot_beyond_the_points_is_a_fault(device: GpuDevice, team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    read = GpuDevice.read
    monkeypatch.setattr(GpuDevice, "read", lambda *given: np.where(read(*given) < 50, np.uint32(50), read(*given)))
    index = DevicePointIndex(device, 2, team)
    index.insert([np.arange(50.0), np.zeros(50)])
    with pytest.raises(mr.DeviceFault, match="selected points beyond the 50"):
        index.query(PointQueries([np.zeros(1), np.zeros(1)]), 3)


def test_no_points_and_no_queries(device: GpuDevice, team: Team) -> None:
    index = open_index(Partitioning(), PointShape(2), team, device=device)
    assert isinstance(index, DevicePointIndex)
    assert index.query(PointQueries([np.zeros(3), np.zeros(3)]), 2).counts.tolist() == [0, 0, 0]
    index.insert([np.full(5, np.nan), np.zeros(5)])
    assert index.query(PointQueries([np.zeros(3), np.zeros(3)]), 2).counts.tolist() == [0, 0, 0]
    assert len(index.query(PointQueries([np.zeros(0), np.zeros(0)]), 2).counts) == 0
    assert type(open_index(Partitioning(), PointShape(2), team, device=CpuDevice(team=team))) is PointIndex
