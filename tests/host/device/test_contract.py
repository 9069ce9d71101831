"""Devices: the registry and its messages, third parties' entry points, `auto`, and the device contract itself."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import millrace as mr
from millrace import registry
from millrace.host.device import cpu as cpu_module
from millrace.host.device.contract import DeviceInfo
from millrace.host.device.cpu import CpuDevice
from millrace.host.device.null import NullDevice
from millrace.host.join.registry import INDEXES
from millrace.host.planner import calibration
from millrace.host.planner.choice import IndexChoice

PLUGIN = '''
"""A third party's backend."""
from millrace.host.device import cpu as cpu_module
from millrace.host.device.contract import DeviceInfo
from millrace.host.device.null import NullDevice

opened = 0

def probe():
    return [DeviceInfo("toy:0", "{kind}", True, "a toy"), DeviceInfo("toy:1", "{kind}", False, "unplugged: plug it in")]

def open_device(name, threads):
    global opened
    opened += 1
    {open}
    device = NullDevice()
    device.name = name
    return device
'''


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Installs a distribution that offers a backend through the entry-point group."""

    def install(kind: str = "toy", open_line: str = "pass", text: str | None = None, family: str = "toy") -> None:
        module = f"toy_backend_{kind.replace('-', '_')}"
        (tmp_path / f"{module}.py").write_text(PLUGIN.format(kind=kind, open=open_line) if text is None else text)
        info = tmp_path / "toy-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: toy\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[millrace.devices]\n{family} = {module}\n")
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.delitem(sys.modules, module, raising=False)

    return install


def by_name() -> dict[str, DeviceInfo]:
    return {info.name: info for info in mr.devices()}


def test_all_known_kinds_are_listed_with_a_reason_where_they_cannot_be_used() -> None:
    found = mr.devices()
    families = {info.name.partition(":")[0] for info in found}
    assert {"cpu", "opencl", "cuda", "hls", "rtl", "fpga", "null"} <= families
    for info in found:
        assert isinstance(info, mr.DeviceInfo)
        assert [f.name for f in dataclasses.fields(info)] == ["name", "kind", "available", "detail"]
        assert info.detail
        assert "\n" not in info.detail


def test_the_cpu_and_the_do_nothing_device_are_always_there() -> None:
    found = by_name()
    assert found["cpu"].available
    assert "cores" in found["cpu"].detail
    assert found["null"].available
    assert mr.device("cpu").name == "cpu"
    assert mr.device("null").kind == "null"


def test_a_device_is_opened_afresh_each_time() -> None:
    assert mr.device("cpu") is not mr.device("cpu")


@pytest.mark.parametrize("name", ["gpu", "", "CPU", "opencl0", None, 5, ("cpu",)])
def test_an_unknown_name_is_refused_with_a_list_of_known_names(name: object) -> None:
    with pytest.raises(mr.ArgumentError) as caught:
        mr.device(name)  # type: ignore[arg-type]
    message = str(caught.value)
    assert repr(name) in message
    for known in ("auto", "cpu", "opencl", "cuda", "hls", "rtl", "fpga"):
        assert known in message


@pytest.mark.parametrize("name", ["cpu:1", "null:0"])
def test_a_device_that_has_no_number_takes_none(name: str) -> None:
    with pytest.raises((mr.ArgumentError, mr.DeviceUnavailable), match=name):
        mr.device(name)


def test_every_unavailable_device_says_why_how_to_fix_it_and_what_is_usable() -> None:
    missing = [info for info in mr.devices() if not info.available]
    for info in missing:
        with pytest.raises(mr.DeviceUnavailable) as caught:
            mr.device(info.name)
        message = str(caught.value)
        assert info.name in message
        assert info.detail in message
        assert "usable here: " in message
        assert "cpu" in message.partition("usable here: ")[2]


def test_a_backend_that_this_version_lacks_says_so_and_what_is_usable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry.BACKENDS, "future", "millrace.host.no_such_module")
    assert not by_name()["future"].available
    with pytest.raises(mr.DeviceUnavailable, match=r"'future:0'.*has no future backend.*usable here: .*cpu"):
        mr.device("future:0")


def test_a_third_partys_device_is_found_by_its_entry_point(plugin) -> None:
    plugin()
    found = by_name()
    assert found["toy:0"].available
    assert not found["toy:1"].available
    device = mr.device("toy:0")
    assert device.name == "toy:0"
    with pytest.raises(mr.DeviceUnavailable, match="unplugged: plug it in"):
        mr.device("toy:1")
    with pytest.raises(mr.ArgumentError, match="toy"):
        mr.device("unknown")


def test_listing_devices_opens_none(plugin) -> None:
    plugin()
    assert by_name()["toy:0"].available
    assert sys.modules["toy_backend_toy"].opened == 0


def test_a_third_party_cannot_replace_a_known_device(plugin) -> None:
    plugin(family="cpu")
    assert isinstance(mr.device("cpu"), CpuDevice)


def test_a_third_party_whose_import_fails_hides_no_other_device(plugin) -> None:
    plugin(kind="broken", text="raise RuntimeError('half installed')")
    found = by_name()
    assert not found["toy"].available
    assert "half installed" in found["toy"].detail
    assert found["cpu"].available
    assert mr.device("auto").name == "cpu"


def test_naming_a_third_party_whose_import_fails_is_a_typed_error(plugin) -> None:
    plugin(kind="broken", text="raise RuntimeError('half installed')")
    with pytest.raises(mr.DeviceUnavailable, match="half installed"):
        mr.device("toy")


def test_a_third_party_whose_device_does_not_open_hides_no_other_device(plugin) -> None:
    plugin(kind="stuck", open_line="raise RuntimeError('cable loose')")
    assert ("scan", "cpu") in registry.join_pairs()
    assert registry.device_for(IndexChoice(("scan",), (), ""), "auto", None)[1].name == "cpu"
    table = pa.table({"x": [1]})
    assert mr.join(table, table, on="r.x = s.x").num_rows == 1
    with pytest.raises(mr.DeviceUnavailable, match="cpu"):
        mr.join(table, table, on="r.x = s.x", device="null")


BUILT_IN = '''
"""A built-in backend, for tests."""
from millrace.host.device.cpu import CpuDevice
from millrace.host.device import cpu as cpu_module
from millrace.host.device.contract import DeviceInfo

def probe():
    return [{infos}]

def open_device(name, threads):
    device = CpuDevice(threads)
    device.name = name
    device.kind = {{info.name: info.kind for info in probe()}}[name]
    return device
'''


@pytest.fixture
def built_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Installs a built-in backend; its devices are given as (name, kind, available)."""
    monkeypatch.syspath_prepend(tmp_path)

    def install(family: str, *infos: tuple[str, str, bool]) -> None:
        text = ", ".join(f"DeviceInfo({n!r}, {k!r}, {a}, 'a test: fix it')" for n, k, a in infos)
        module = f"built_in_{family}"
        (tmp_path / f"{module}.py").write_text(BUILT_IN.format(infos=text))
        monkeypatch.delitem(sys.modules, module, raising=False)
        importlib.invalidate_caches()
        monkeypatch.setitem(registry.BACKENDS, family, module)

    return install


@pytest.fixture
def calibrated(monkeypatch: pytest.MonkeyPatch):
    """`calibrated(name)`: the device that won `millrace calibrate`."""

    def set_winner(name: str) -> None:
        monkeypatch.setattr(calibration, "calibration", lambda threads=None: calibration.Calibration(device=name))

    return set_winner


def test_auto_is_the_cpu_unless_another_real_device_won_the_calibration(built_in, calibrated) -> None:
    built_in("cuda", ("cuda:0", "cuda", False), ("cuda:1", "cuda", True))
    built_in("opencl", ("opencl:0", "opencl-cpu", True), ("opencl:1", "opencl-gpu", True))
    for family in ("hls", "rtl"):
        built_in(family, (family, family, True))
    built_in("fpga", ("fpga:loopback", "loopback", True), ("fpga:card", "fpga", True))
    calibrated("cpu")
    assert mr.device("auto").name == "cpu"
    for name in ("opencl:1", "cuda:1", "fpga:card"):
        calibrated(name)
        assert mr.device("auto").name == mr.device().name == name
    for name in ("cuda:0", "cuda:7", "opencl:0", "hls", "rtl", "fpga:loopback", "null", "toy:0", "nonsense"):
        calibrated(name)
        assert mr.device("auto").name == "cpu", name
    assert registry.real_devices() == ["opencl:1", "cuda:1", "fpga:card"]


def test_auto_takes_the_cpu_where_the_winner_cannot_run_the_operator(built_in, calibrated) -> None:
    built_in("cuda", ("cuda:0", "cuda", True))
    calibrated("cuda:0")
    assert registry.device_for(IndexChoice(("btree",), (), ""), "auto", None)[1].name == "cpu"


def test_auto_takes_the_cpu_where_the_winner_does_not_open(built_in, calibrated, monkeypatch) -> None:
    built_in("cuda", ("cuda:0", "cuda", True))
    calibrated("cuda:0")
    mr.device("auto")

    def refuse(name: str, threads: int | None) -> None:
        raise mr.DeviceUnavailable(f"device {name!r} is in use")

    monkeypatch.setattr(sys.modules["built_in_cuda"], "open_device", refuse)
    assert mr.device("auto").name == "cpu"


def test_where_nothing_suits_auto_says_where_to_look(built_in) -> None:
    for family in ("cpu", "cuda", "opencl"):
        built_in(family, (family, "opencl-cpu", True))
    with pytest.raises(mr.DeviceUnavailable, match="millrace devices"):
        mr.device("auto")


@pytest.mark.parametrize("kind", ["toy", "opencl-cpu", "rtl", "null"])
def test_auto_never_takes_a_device_of_another_kind(plugin, kind: str) -> None:
    plugin(kind=kind)
    assert mr.device("auto").name in ("cpu", "cuda:0", "opencl:0", "opencl:1")
    assert mr.device("auto").kind in ("cpu", "cuda", "opencl-gpu")


def test_a_named_device_that_cannot_run_an_index_lists_those_that_can() -> None:
    with pytest.raises(mr.DeviceUnavailable) as caught:
        registry.device_for(IndexChoice(("scan",), (), ""), "null", None)
    message = str(caught.value)
    assert "'null'" in message
    assert "'scan'" in message
    assert "cpu" in message


def test_every_index_runs_on_the_cpu_and_none_on_the_do_nothing_device() -> None:
    pairs = registry.join_pairs()
    for index in INDEXES:
        assert (index, "cpu") in pairs
        assert (index, "null") not in pairs


# --- the device contract ---


@pytest.mark.parametrize("name", ["null", "cpu"])
@pytest.mark.parametrize("dtype", [np.uint32, np.uint64, np.int64])
def test_buffers_have_a_size_and_a_type(name: str, dtype: type) -> None:
    device = mr.device(name)
    buffer = device.alloc(10, np.dtype(dtype))
    assert buffer.size == 10
    assert buffer.dtype == np.dtype(dtype)
    device.write(buffer, 2, np.arange(3, dtype=dtype))
    found = device.read(buffer, 2, 3)
    assert found.dtype == np.dtype(dtype)
    assert found.shape == (3,)
    device.free(buffer)
    size = np.dtype(dtype).itemsize * 3
    assert device.counters()["bytes_in"] == size
    assert device.counters()["bytes_out"] == size


def test_the_do_nothing_device_logs_launches_in_order_and_reads_zeros() -> None:
    device = NullDevice()
    buffer = device.alloc(4, np.dtype(np.uint64))
    device.write(buffer, 0, np.arange(4, dtype=np.uint64))
    first = device.launch("some_unit", [buffer], [1, 2])
    second = device.launch("other_unit", [], [])
    assert dict(device.wait(first)) == {"rows": 0, "ns": 0}
    device.wait(second)
    assert [(entry.unit, entry.buffers, entry.scalars) for entry in device.log] == [
        ("some_unit", (buffer,), (1, 2)),
        ("other_unit", (), ()),
    ]
    assert device.read(buffer, 0, 4).tolist() == [0, 0, 0, 0]
    assert device.counters()["launches"] == 2
    assert "no units" in repr(device)


def test_the_cpu_reads_what_was_written_and_returns_copies() -> None:
    device = CpuDevice()
    data = np.arange(5, dtype=np.uint64)
    buffer = device.alloc(8, np.dtype(np.uint64))
    device.write(buffer, 3, data)
    data[:] = 99
    found = device.read(buffer, 3, 5)
    assert found.tolist() == [0, 1, 2, 3, 4]
    found[:] = 7
    assert device.read(buffer, 3, 5).tolist() == [0, 1, 2, 3, 4]
    assert "scan_prober" in repr(device)


def test_the_scan_unit_counts_and_finds() -> None:
    device = CpuDevice()
    rng = np.random.default_rng(2)
    words = rng.integers(0, 50, 200).astype(np.uint64)
    begin = rng.integers(0, 100, 30)
    end = begin + rng.integers(0, 100, 30)
    low = rng.integers(0, 50, (2, 30)).astype(np.uint64)
    high = low + np.uint64(3)
    low[1], high[1] = high[0] + np.uint64(1), high[0] + np.uint64(4)
    low[:, 0], high[:, 0] = 1, 0

    def send(array: Any) -> Any:
        buffer = device.alloc(len(array), array.dtype)
        device.write(buffer, 0, array)
        return buffer

    inputs = [send(a) for a in (words, begin, end, low.ravel(), high.ravel())]
    counts, none = device.alloc(30, np.dtype(np.int64)), device.alloc(0, np.dtype(np.int64))
    launched = device.launch("scan_prober", [*inputs, counts, none, none], (30, 2, 0))
    assert launched.unit == "scan_prober"
    assert device.wait(launched)["rows"] == 30
    wanted = [
        [p for p in range(b, e) if any(low[k, i] <= words[p] <= high[k, i] for k in range(2))]
        for i, (b, e) in enumerate(zip(begin, end, strict=True))
    ]
    counted = device.read(counts, 0, 30)
    assert counted.tolist() == [len(w) for w in wanted]
    offsets, found = send(np.cumsum(counted) - counted), device.alloc(int(counted.sum()), np.dtype(np.int64))
    device.wait(device.launch("scan_prober", [*inputs, counts, offsets, found], (30, 2, 1)))
    assert device.read(found, 0, found.size).tolist() == [p for w in wanted for p in w]
    assert device.counters()["scan_prober_rows"] == 60
    assert device.counters()["scan_prober_ns"] > 0


def test_a_unit_that_a_device_lacks_is_a_fault_that_names_those_it_has() -> None:
    with pytest.raises(mr.DeviceFault, match=r"no_such_unit.*scan_prober"):
        CpuDevice().launch("no_such_unit", [], [])


def test_only_a_device_that_shares_host_memory_has_a_team() -> None:
    cpu, null = CpuDevice(), NullDevice()
    assert cpu.shares_host_memory
    assert cpu.team is not None
    assert not null.shares_host_memory
    assert null.team is None
    cpu.close()


def test_no_library_code_asks_for_the_class_of_a_device() -> None:
    """It asks the contract: `shares_host_memory`, `units`."""
    root = Path(__file__).resolve().parents[3]
    files = [path for room in ("host", "sdk", "gpu", "sim", "hw", "spark") for path in (root / room).rglob("*.py")]
    assert len(files) > 100
    assert [str(path) for path in files if re.search(r"isinstance\([^)]*CpuDevice", path.read_text())] == []


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_an_interrupt_of_a_launch_is_raised_at_once_and_an_error_at_its_wait(
    error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    def unit(arrays: object, scalars: object, team: object) -> int:
        raise error

    monkeypatch.setattr(cpu_module, "_unit", lambda name: (unit, None))
    device = CpuDevice(1)
    buffer = device.alloc(8, np.dtype(np.int64))
    launch = device.launch("scan_prober", [], ())
    with contextlib.nullcontext() if error is ValueError else pytest.raises(KeyboardInterrupt):
        device.read(buffer, 0, 8)  # executes the queue; nobody waits for the launch
    with pytest.raises(ValueError if error is ValueError else mr.DeviceFault):
        device.wait(launch)
    device.close()
