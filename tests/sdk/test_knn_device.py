"""Nearest-neighbour joins on named devices: faults, fallbacks, restored joins, explanations and refusals."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

import millrace as mr
from millrace.gpu.device import GpuDevice
from tests.sdk.knn_cases import as_arrow, random_rows

ON: dict[str, Any] = {"on": ("a", "b"), "k": 3}


def tables() -> tuple[pa.Table, pa.Table]:
    rng = random.Random(1)
    r, s = (as_arrow(random_rows(rng, n, 2, "uniform"), 2) for n in (50, 900))
    return r, s


def break_launches(patch: pytest.MonkeyPatch, after: int) -> None:
    """Make the launches after the first ones fail."""
    launch, seen = GpuDevice.launch, iter(range(1000))

    def fail(self: GpuDevice, *given: Any) -> Any:
        if next(seen) >= after:
            raise mr.DeviceFault("lost")
        return launch(self, *given)

    patch.setattr(GpuDevice, "launch", fail)


def test_a_fault_of_a_table_join_is_raised_or_falls_back(monkeypatch: pytest.MonkeyPatch) -> None:
    r, s = tables()
    wanted = mr.knn_join(r, s, **ON)
    assert mr.knn_join(r, s, **ON, device="opencl", fallback="cpu").equals(wanted)
    break_launches(monkeypatch, 0)
    with pytest.raises(mr.DeviceFault, match="lost"):
        mr.knn_join(r, s, **ON, device="opencl")
    with pytest.warns(RuntimeWarning, match=r"mr\.knn_join fell back, opencl:0 -> cpu: lost"):
        assert mr.knn_join(r, s, **ON, device="opencl", fallback="cpu").equals(wanted)


def test_a_fault_of_a_stream_join_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    r, s = tables()
    arguments = {**ON, "window": "700 rows", "device": "opencl"}
    join, other = mr.KnnJoin(**arguments), mr.KnnJoin(**{**arguments, "device": "cpu"})
    for one in (join, other):
        one.push("s", s)
    with monkeypatch.context() as patch:
        break_launches(patch, 0)
        with pytest.raises(mr.DeviceFault, match="lost"):
            join.push("r", r)
    assert join.stats.rows == {"r": 0, "s": 900}
    assert join.push("r", r).equals(other.push("r", r))
    assert (join.stats.device, join.stats.fallback) == ("opencl:0", None)


def test_a_stream_join_falls_back_and_stays_there_when_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    r, s = tables()
    arguments = {**ON, "window": "700 rows", "device": "opencl", "fallback": "cpu"}
    join, other = mr.KnnJoin(**arguments), mr.KnnJoin(**{**arguments, "device": "cpu"})
    for one in (join, other):
        one.push("s", s)
    break_launches(monkeypatch, 1)
    for part in (r.slice(0, 20), r.slice(20)):
        assert join.push("r", part).equals(other.push("r", part))
    assert (join.stats.device, join.stats.fallback) == ("cpu", "opencl:0 -> cpu: lost")
    assert join.stats["knn_select_rows"] == join.stats["device_queries"] == 20
    assert join.explain().to_dict()["device"]["name"] == "cpu"
    assert join.explain().to_dict()["device"]["why"] == "opencl:0 -> cpu: lost"
    delta = join.state()
    again = mr.KnnJoin.restore(delta.manifest, delta.added, **arguments)
    assert again.stats.to_dict() == join.stats.to_dict()
    assert again.push("r", r).equals(join.push("r", r))


def test_a_restored_join_may_use_another_device() -> None:
    r, s = tables()
    arguments: dict[str, Any] = {**ON, "window": "700 rows"}
    join = mr.KnnJoin(**arguments, device="opencl")
    join.push("s", s)
    join.push("r", r)
    delta = join.state()
    again = mr.KnnJoin.restore(delta.manifest, delta.added, **arguments, device="opencl")
    assert again.stats.to_dict() == join.stats.to_dict()
    other = mr.KnnJoin.restore(delta.manifest, delta.added, **arguments, device="cpu")
    wanted = join.push("r", r)
    assert again.push("r", r).equals(wanted)
    assert other.push("r", r).equals(wanted)
    assert again.stats["device_queries"] == 100


def test_explanations_name_the_device() -> None:
    r, s = tables()
    for explained in (
        mr.explain("knn_join", r, s, **ON, device="opencl"),
        mr.explain("knn_join", **ON, window="5 rows", device="opencl"),
        mr.KnnJoin(**ON, window="5 rows", device="opencl").explain(),
    ):
        shown = explained.to_dict()
        assert shown["device"]["name"] == "opencl:0"
        assert shown["device"]["why"] == "the device was named"
        assert "opencl:0 selects candidates" in shown["index"]["why"]
    assert mr.explain("knn_join", r, s, **ON).to_dict()["device"]["name"] == "cpu"


def test_a_device_without_the_unit_is_refused() -> None:
    r, s = tables()
    wanted = r"device 'hls' cannot search nearest neighbours; it runs on cpu, opencl:0"
    with pytest.raises(mr.DeviceUnavailable, match=wanted):
        mr.knn_join(r, s, **ON, device="hls")
    with pytest.raises(mr.DeviceUnavailable, match=wanted):
        mr.explain("knn_join", r, s, **ON, device="hls")
    with pytest.raises(mr.DeviceUnavailable, match="searches one partition, but options has partitions=4"):
        mr.knn_join(r, s, **ON, device="opencl", options={"partitions": 4})
