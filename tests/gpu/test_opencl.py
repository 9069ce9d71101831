"""The OpenCL device: names, device list, faults, forks, read-only homes. The contract is in `test_contract.py`."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyopencl as cl
import pytest

import millrace as mr
from millrace import registry
from millrace.gpu import driver, opencl
from millrace.host.device.contract import Device
from tests.gpu.devices import sample, send
from tests.watchdog import WATCHDOG

U64 = np.dtype(np.uint64)


@pytest.fixture
def device() -> Iterator[opencl.OpenclDevice]:
    opened = opencl.open_device("opencl", None)
    yield opened
    opened.close()


# --- names ---


def listed() -> list[str]:
    return [info.name for info in mr.devices() if info.name.startswith("opencl")]


def test_each_device_is_listed_once_by_its_number() -> None:
    names = listed()
    assert names == [f"opencl:{number}" for number in range(len(names))]
    assert names, "PoCL is in the lock: an OpenCL device is always there"
    pairs = registry.join_pairs()
    assert len(set(pairs)) == len(pairs)
    assert {name for _, name in pairs if name.startswith("opencl")} <= set(names)


def test_the_bare_name_opens_the_first() -> None:
    opened = mr.device("opencl")
    assert opened.name == "opencl:0"
    assert opened.kind in {"opencl-cpu", "opencl-gpu", "opencl-accelerator"}
    assert opened.units == set(driver.UNITS)
    assert mr.device("opencl:0").kind == opened.kind


@pytest.mark.parametrize("name", ["opencl:", "opencl:x", "opencl:-1", "opencl:01", "opencl:0:0", "opencl: 0"])
def test_a_malformed_name_shows_the_format(name: str) -> None:
    with pytest.raises(mr.ArgumentError, match=r"opencl:0"):
        mr.device(name)


def test_a_number_that_is_not_there_lists_those_that_are() -> None:
    with pytest.raises(mr.DeviceUnavailable, match=r"'opencl:99'.*opencl:0"):
        mr.device("opencl:99")


# --- listed devices ---


@pytest.fixture
def not_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opencl.runtime, "held", None)


@pytest.mark.usefixtures("not_started")
def test_without_pyopencl_the_message_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyopencl", None)
    (info,) = opencl.probe()
    assert (info.name, info.available) == ("opencl", False)
    assert "pyopencl is not installed: pip install '.[opencl]'" in info.detail
    for name in ("opencl", "opencl:0"):
        with pytest.raises(mr.DeviceUnavailable, match=rf"'{name}'.*not installed.*pip install"):
            mr.device(name)
    assert mr.device("auto").kind != "opencl-gpu"


@pytest.mark.usefixtures("not_started")
def test_a_pyopencl_that_does_not_import_says_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "pyopencl.py").write_text("raise ImportError('libOpenCL.so.1:\\ncannot open')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "pyopencl")
    (info,) = opencl.probe()
    assert "libOpenCL.so.1: cannot open" in info.detail
    assert "pip install" in info.detail


class FakeError(Exception):
    """What a fake OpenCL raises."""


def fake_device(name: str, type_: int, **more: Any) -> Any:
    usual = {"available": True, "compiler_available": True, "endian_little": True, "profile": "FULL_PROFILE"}
    usual["version"] = "OpenCL 3.0"
    platform = SimpleNamespace(name=" A  driver\n")
    sizes = {"max_compute_units": 3, "global_mem_size": 1 << 31}
    return SimpleNamespace(name=name, type=type_, platform=platform, **{**usual, **sizes, **more})


def fake_opencl(monkeypatch: pytest.MonkeyPatch, *platforms: list[Any] | Exception | None) -> None:
    """A fake OpenCL with these devices per driver; None is a broken driver, an exception makes all calls fail."""

    def devices_of(devices: Any) -> Any:
        if devices is None:
            raise FakeError("DEVICE_NOT_FOUND")
        return devices

    def get_platforms() -> Any:
        for platform in platforms:
            if isinstance(platform, Exception):
                raise platform
        return [SimpleNamespace(get_devices=lambda d=devices: devices_of(d)) for devices in platforms]

    fake = SimpleNamespace(Error=FakeError, MemoryError=FakeError, get_platforms=get_platforms)
    monkeypatch.setattr(opencl.runtime, "held", None)
    monkeypatch.setattr(opencl, "_load", lambda: fake)


@pytest.mark.parametrize("compiles", [False, True])
def test_a_processor_that_pocl_does_not_know_is_listed_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, compiles: bool
) -> None:
    """PoCL 3.0, with LLVM 14, compiles nothing on an AMD processor of family 26: `unknown target CPU 'generic'`."""

    def build(cache_dir: bool) -> None:
        if not compiles:
            raise FakeError("BUILD_PROGRAM_FAILURE")

    version = "OpenCL 3.0 PoCL HSTR: pthread-x86_64-unknown-linux-gnu-generic"
    fake_opencl(monkeypatch, [fake_device("cpu", 2, version=version), fake_device("gpu", 4)])
    fake: Any = opencl._load()
    fake.Context = lambda devices: None
    fake.Program = lambda context, source: SimpleNamespace(build=build)
    assert [(info.kind, info.available) for info in opencl.probe()] == [("opencl-gpu", True), ("opencl-cpu", compiles)]
    if not compiles:
        with pytest.raises(mr.DeviceUnavailable, match="does not know this processor"):
            opencl.open_device("opencl:1", None)


@pytest.mark.parametrize("platforms", [(FakeError("PLATFORM_NOT_FOUND_KHR"),), (), ([], None)])
def test_without_a_driver_or_device_the_message_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, platforms: Any
) -> None:
    fake_opencl(monkeypatch, *platforms)
    (info,) = opencl.probe()
    assert (info.name, info.available) == ("opencl", False)
    assert "install the GPU's own driver" in info.detail
    assert "\n" not in info.detail
    with pytest.raises(mr.DeviceUnavailable, match="install the GPU's own driver"):
        mr.device("opencl:0")


def test_gpus_come_first_and_only_they_are_called_so(monkeypatch: pytest.MonkeyPatch) -> None:
    devices = [fake_device("cpu", 2 | 1), fake_device("fpga", 8)], None, [fake_device("gpu", 4), fake_device("odd", 16)]
    fake_opencl(monkeypatch, *devices)
    found = [(info.name, info.kind, info.detail.partition(",")[0]) for info in opencl.probe()]
    assert found == [
        ("opencl:0", "opencl-gpu", "gpu"),
        ("opencl:1", "opencl-cpu", "cpu"),
        ("opencl:2", "opencl-accelerator", "fpga"),
        ("opencl:3", "opencl-other", "odd"),
    ]
    assert opencl.probe()[0].detail == "gpu, A driver, 3 compute units, 2.0 GiB"


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"available": False}, "not available"),
        ({"compiler_available": False}, "no compiler"),
        ({"profile": "EMBEDDED_PROFILE"}, "64-bit"),
        ({"endian_little": False}, "little-endian"),
    ],
)
def test_a_device_that_cannot_run_the_kernels_says_why(monkeypatch: pytest.MonkeyPatch, more: Any, why: str) -> None:
    fake_opencl(monkeypatch, [fake_device("weak", 4, **more)])
    (info,) = opencl.probe()
    assert not info.available
    assert why in info.detail
    for name in ("opencl", "opencl:0"):
        with pytest.raises(mr.DeviceUnavailable, match=why):
            mr.device(name)


def test_kernels_are_built_once(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    device.wait(sample(device)[1])
    monkeypatch.setattr(opencl.Runtime, "_build", None)
    device.wait(sample(device)[1])
    other = opencl.open_device("opencl:0", 1)
    other.wait(sample(other)[1])


def test_threads_may_launch_the_same_unit_at_once() -> None:
    """On separately opened devices: they share the built kernel, which stores its arguments until it starts."""

    def work(number: int) -> bool:
        device = opencl.open_device("opencl", None)
        good = True
        for round_ in range(20):
            n, step = 100 * number + round_ + 1, number + 1
            index, launch = sample(device, n, step)
            device.wait(launch)
            good &= np.array_equal(device.read(index, 0, index.size), np.arange(0, n, step))
        device.close()
        return good

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(work, range(4)))


# --- faults ---


def error_of(kind: type[Exception], code: int) -> Exception:
    return kind(cl._cl._ErrorRecord("simulated\nfailure", code, "clSomething"))


def test_out_of_memory_is_a_fault(device: opencl.OpenclDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(mr.DeviceFault, match=r"a buffer of 8796093022208 bytes; \d+ are the most it allows"):
        device.alloc(1 << 40, U64)

    def refuse(*_: Any) -> Any:
        raise error_of(cl.MemoryError, cl.status_code.MEM_OBJECT_ALLOCATION_FAILURE)

    monkeypatch.setattr(cl, "Buffer", refuse)
    with pytest.raises(mr.DeviceFault, match=r"alloc of 80 bytes failed, out of memory.*free buffers"):
        device.alloc(10, U64)


def test_every_error_of_opencl_is_a_fault(device: opencl.OpenclDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    buffer, launch = sample(device)
    device.wait(launch)

    def refuse(*_: Any, **__: Any) -> Any:
        raise error_of(cl.RuntimeError, cl.status_code.OUT_OF_HOST_MEMORY)

    launch.counters, launch.event = None, SimpleNamespace(wait=refuse)
    with pytest.raises(mr.DeviceFault, match=r"'opencl:0': bisort_indexer failed: .*simulated failure"):
        device.wait(launch)
    monkeypatch.setattr(cl, "enqueue_copy", refuse)
    with pytest.raises(mr.DeviceFault, match="read of 8 bytes failed"):
        device.read(buffer, 0, 1)
    with pytest.raises(mr.DeviceFault, match="write of 16 bytes failed"):
        device.write(buffer, 0, np.zeros(2, np.uint64))
    monkeypatch.setattr(opencl.Kernel, "start", refuse)
    with pytest.raises(mr.DeviceFault, match="launch of bisort_indexer failed"):
        device.launch("bisort_indexer", [buffer, device.alloc(1, U64)], [1, 1])
    monkeypatch.setattr(cl, "CommandQueue", refuse)
    with pytest.raises(mr.DeviceUnavailable, match="'opencl:0' does not open"):
        opencl.open_device("opencl", None)


def test_a_kernel_that_does_not_build_is_a_fault_with_the_compilers_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "source", lambda unit: "__kernel void bisort_indexer(void) { no_such_name = 1; }")
    device = opencl.OpenclDevice(opencl.Runtime(), 0)
    with pytest.raises(mr.DeviceFault, match=r"launch of bisort_indexer failed: .*no_such_name"):
        sample(device)


# --- processes ---


def test_a_forked_child_is_refused_and_not_hung(device: opencl.OpenclDevice) -> None:
    buffer = send(device, np.arange(4, dtype=np.uint64))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn of a fork beside threads
        child = os.fork()
    if child == 0:
        code = 1
        try:
            (info,) = opencl.probe()
            assert not info.available
            assert "does not survive a fork" in info.detail
            with pytest.raises(mr.DeviceFault, match="open it in the process that uses it"):
                device.read(buffer, 0, 4)
            with pytest.raises(mr.DeviceUnavailable, match="spawn"):
                mr.device("opencl")
            assert not mr.device("auto").name.startswith("opencl")
            device.close()
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    assert device.read(buffer, 0, 4).tolist() == [0, 1, 2, 3]


FRESH = """
import os, sys
from pathlib import Path
import numpy as np
from millrace.gpu import opencl
assert "pyopencl" not in sys.modules and "POCL_CACHE_DIR" not in os.environ
child = os.fork()  # nothing was started before: the child may use OpenCL, and so may the parent later
device = opencl.open_device("opencl", None)
words, index = (device.alloc(n, np.dtype(np.uint32)) for n in (10, 4))
device.write(words, 0, np.arange(10, dtype=np.uint32))
device.wait(device.launch("bisort_indexer", [words, index], [10, 3]))
assert device.read(index, 0, 4).tolist() == [0, 3, 6, 9]
folder = Path(os.environ["POCL_CACHE_DIR"])
assert any(folder.iterdir())
sys.stdout.write(f"{folder}\\n")
sys.stdout.flush()
if child == 0:
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
"""


@pytest.mark.parametrize("own_cache", [True, False])
def test_a_read_only_home_and_a_fork_before_the_first_use(own_cache: bool, tmp_path: Path) -> None:
    unwanted = ("POCL_", "PYOPENCL_", "XDG_", "MILLRACE_")
    env = {name: value for name, value in os.environ.items() if not name.startswith(unwanted)}
    env |= {"HOME": "/proc/nowhere", "TMPDIR": str(tmp_path)}
    if own_cache:
        env["MILLRACE_CACHE_DIR"] = str(tmp_path / "mine")
    command = [sys.executable, "-W", "error", "-c", FRESH]
    done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=WATCHDOG, check=False)
    assert done.returncode == 0, done.stderr
    folders = [Path(line) for line in done.stdout.split()]
    assert len(folders) == 2
    for folder in folders:
        assert folder == tmp_path / "mine" / "pocl" if own_cache else folder.name.startswith("millrace-pocl-")


class FakeCompiler:
    """A fake OpenCL that notes the options of builds; `size`: the subgroup size that its kernels report."""

    command_queue_properties = SimpleNamespace()
    kernel_sub_group_info = SimpleNamespace(MAX_SUB_GROUP_SIZE_FOR_NDRANGE=1)
    Error = MemoryError = FakeError
    CompilerWarning = UserWarning
    enqueue_nd_range_kernel = None

    def __init__(self, device: Any, size: int, refuses: bool) -> None:
        self.device, self.size, self.refuses, self.built = device, size, refuses, list[list[str]]()

    def get_platforms(self) -> Any:
        return [SimpleNamespace(get_devices=lambda: [self.device])]

    def Context(self, devices: Any) -> Any:  # noqa: N802
        return devices

    def Program(self, context: Any, text: str) -> Any:  # noqa: N802
        return SimpleNamespace(build=self._build)

    def Kernel(self, program: Any, name: str) -> Any:  # noqa: N802
        return SimpleNamespace(get_sub_group_info=lambda device, wanted, group: self.size)

    def _build(self, options: list[str], devices: Any, cache_dir: bool) -> None:
        self.built.append(options)
        if self.refuses and "-DSUBGROUP_SEARCH=1" in options:
            raise FakeError("BUILD_PROGRAM_FAILURE")


@pytest.mark.parametrize(
    ("extensions", "size", "refuses", "standards"),
    [
        ("cl_khr_fp64", 32, False, ["-cl-std=CL1.2"]),
        ("cl_khr_fp64 cl_khr_subgroup_ballot", 32, False, ["-cl-std=CL3.0"]),
        ("cl_khr_subgroup_ballot", 8, False, ["-cl-std=CL3.0"]),
        ("cl_khr_subgroup_ballot", 4, False, ["-cl-std=CL3.0", "-cl-std=CL1.2"]),
        ("cl_khr_subgroup_ballot", 24, False, ["-cl-std=CL3.0", "-cl-std=CL1.2"]),
        ("cl_khr_subgroup_ballot", 256, False, ["-cl-std=CL3.0", "-cl-std=CL1.2"]),
        ("cl_khr_subgroup_ballot", 32, True, ["-cl-std=CL3.0", "-cl-std=CL1.2"]),
    ],
)
def test_teams_vote_by_subgroups_where_the_device_has_fitting_ones(
    monkeypatch: pytest.MonkeyPatch, extensions: str, size: int, refuses: bool, standards: list[str]
) -> None:
    versions = {"version": "OpenCL 3.0 A driver", "extensions": extensions, "max_work_group_size": 1024}
    fake = FakeCompiler(fake_device("gpu", 4, **versions), size, refuses)
    monkeypatch.setattr(opencl, "_load", lambda: fake)
    runtime = opencl.Runtime()
    runtime.kernel(0, driver.UNITS["hb_lookup"], 64)
    assert [options[0] for options in fake.built] == standards
    assert [("-DSUBGROUP_SEARCH=1" in options) for options in fake.built] == [s == "-cl-std=CL3.0" for s in standards]
    runtime.kernel(0, driver.UNITS["bisort_indexer"], 64)
    assert fake.built[-1][0] == "-cl-std=CL1.2"
