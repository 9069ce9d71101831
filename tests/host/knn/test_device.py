"""The index with a device that selects candidates: equal to NumPy, bit for bit, and it says where it searched."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from millrace.gpu import opencl
from millrace.host.device.contract import Device
from millrace.host.knn.device import DevicePointIndex
from millrace.host.knn.index import PointIndex, PointQueries
from millrace.host.runtime.team import Team
from tests.gpu.emulated.backend import emulated
from tests.host.knn.test_index import SHAPES, as_lists, expected


@pytest.fixture
def team() -> Iterator[Team]:
    team = Team(2)
    team.acquire(1 << 20)
    yield team
    team.close()


@pytest.fixture(params=["opencl", "cuda-emulated"])
def device(request: pytest.FixtureRequest) -> Iterator[Device]:
    opened = opencl.open_device("opencl", None) if request.param == "opencl" else emulated()
    yield opened
    opened.close()


def on_host(index: PointIndex) -> int:
    return index.counters()["host_queries"]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dims", [2, 3, 8])
def test_points_of_every_shape(device: Device, team: Team, shape: str, dims: int) -> None:
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
        assert on_host(index) == 0
        assert index.counters()["device_queries"] == 4 * m
    if shape in ("equal", "tiny"):
        assert on_host(index) > 0
