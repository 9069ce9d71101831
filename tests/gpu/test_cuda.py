"""The CUDA device: device list, names, cards, faults, forks; runs on the stand-in for CuPy."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import millrace as mr
from millrace.gpu import cuda, driver
from millrace.gpu.device import GpuBuffer
from millrace.host.planner import calibration
from tests.gpu.devices import sample, send
from tests.gpu.emulated import backend, standin
from tests.gpu.emulated.backend import EmulatedRuntime, emulated
from tests.gpu.emulated.standin import StandIn

U32, U64 = np.dtype(np.uint32), np.dtype(np.uint64)


@pytest.fixture
def device() -> Iterator[cuda.CudaDevice]:
    opened = emulated()
    yield opened
    opened.close()


@pytest.fixture
def not_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda.runtime, "held", None)


# --- listed devices ---


def refused(why: str) -> None:
    """Check that the device is listed as unavailable for this reason and cannot be opened."""
    (info,) = cuda.probe()
    assert (info.name, info.kind, info.available) == ("cuda", "cuda", False)
    assert why in info.detail
    assert "\n" not in info.detail
    for name in ("cuda", "cuda:0"):
        with pytest.raises(mr.DeviceUnavailable, match=rf"'{name}' cannot be used: .*"):
            cuda.open_device(name, None)
        with pytest.raises(mr.DeviceUnavailable, match=rf"'{name}' cannot be used: .*"):
            mr.device(name)
    assert mr.device("auto").kind != "cuda"


@pytest.mark.usefixtures("not_started")
def test_without_cupy_the_message_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "find_spec", lambda name: None)
    refused("CuPy is not installed: pip install '.[cuda13]'")


@pytest.mark.usefixtures("not_started")
def test_without_a_driver_the_reason_is_given_and_cupy_is_not_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "DRIVER", "libno-such-driver.so.1")
    monkeypatch.setattr(cuda, "import_module", None)
    refused("there is no NVIDIA driver (libno-such-driver.so.1: ")
    refused("install NVIDIA's driver, until `nvidia-smi` lists a card")


def install_fake_cupy(monkeypatch: pytest.MonkeyPatch, folder: Path, text: str) -> None:
    """Install a fake module `cupy` and a driver that loads."""
    (folder / "cupy.py").write_text(text)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace())  # recorded, so that monkeypatch restores it
    monkeypatch.delitem(sys.modules, "cupy")
    monkeypatch.setattr(cuda, "DRIVER", None)  # the process itself


@pytest.mark.usefixtures("not_started")
def test_a_cupy_that_does_not_import_says_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    install_fake_cupy(monkeypatch, tmp_path, "raise ImportError('libcublas.so:\\ncannot open')")
    refused("CuPy does not import (libcublas.so: cannot open): pip install '.[cuda13]'")


@pytest.mark.usefixtures("not_started")
@pytest.mark.parametrize("own", [True, False])
def test_cupy_is_imported_with_a_cache_that_can_be_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, own: bool
) -> None:
    install_fake_cupy(monkeypatch, tmp_path, "from tests.gpu.emulated.standin import StandIn\ncuda = StandIn().cuda\n")
    monkeypatch.setenv("MILLRACE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("CUPY_CACHE_DIR", "mine")
    if not own:
        monkeypatch.delenv("CUPY_CACHE_DIR")
    (info,) = cuda.probe()
    assert (info.name, info.kind, info.available) == ("cuda:0", "cuda", True)
    assert os.environ["CUPY_CACHE_DIR"] == ("mine" if own else str(tmp_path / "cache" / "cupy"))
    monkeypatch.setenv("CUPY_CACHE_DIR", "mine")  # so that monkeypatch restores it


def start(monkeypatch: pytest.MonkeyPatch, cupy: Any) -> None:
    monkeypatch.setattr(cuda.runtime, "held", None)
    monkeypatch.setattr(cuda, "_load", lambda: cupy)


def test_a_driver_without_cards_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    start(monkeypatch, StandIn(cards=0))
    refused("CUDA's driver finds no card: install NVIDIA's driver")


def test_a_driver_that_does_not_start_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> int:
        raise standin.CUDARuntimeError("cudaErrorInsufficientDriver:\ntoo old")

    cupy = StandIn()
    cupy.cuda.runtime.getDeviceCount = refuse
    start(monkeypatch, cupy)
    refused("CUDA does not start (cudaErrorInsufficientDriver: too old): install NVIDIA's driver")


def test_cards_are_numbered_and_described(monkeypatch: pytest.MonkeyPatch) -> None:
    start(monkeypatch, StandIn(cards=2, memory=3 << 30))
    infos = cuda.probe()
    assert [(info.name, info.kind, info.available) for info in infos] == [
        ("cuda:0", "cuda", True),
        ("cuda:1", "cuda", True),
    ]
    wanted = "stand-in: fibres on the CPU, compute capability 9.0, 1 multiprocessors, 3.0 GiB"
    assert infos[0].detail == wanted
    assert cuda.open_device("cuda", None).name == "cuda:0"
    opened = cuda.open_device("cuda:1", 3)
    assert (opened.name, opened.kind, opened.units) == ("cuda:1", "cuda", frozenset(driver.UNITS))
    assert cuda.open_device("cuda:1", None).units == opened.units
    with pytest.raises(mr.DeviceUnavailable, match="'cuda:2' cannot be used: there are cuda:0, cuda:1"):
        cuda.open_device("cuda:2", None)


def test_auto_takes_a_card_that_won_the_calibration(monkeypatch: pytest.MonkeyPatch) -> None:
    start(monkeypatch, StandIn())
    for won in ("cpu", "cuda:0"):
        measured = calibration.Calibration(device=won)
        monkeypatch.setattr(calibration, "calibration", lambda threads=None, measured=measured: measured)
        assert mr.device("auto").name == won


def test_auto_takes_no_other_card_than_the_calibrated_one(monkeypatch: pytest.MonkeyPatch) -> None:
    start(monkeypatch, StandIn(memory=3 << 30))
    (card,) = cuda.probe()
    for described, taken in ((card.detail, "cuda:0"), (card.detail.replace("3.0 GiB", "8.0 GiB"), "cpu")):
        measured = calibration.Calibration(device="cuda:0", described=described)
        monkeypatch.setattr(calibration, "calibration", lambda threads=None, measured=measured: measured)
        assert mr.device("auto").name == taken


def test_an_old_card_is_listed_and_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    start(monkeypatch, StandIn(capability=(7, 0)))
    (info,) = cuda.probe()
    assert not info.available
    assert "compute capability 7.0" in info.detail
    for name in ("cuda", "cuda:0"):
        with pytest.raises(mr.DeviceUnavailable, match=r"CUDA 13 compiles for 7\.5 and later: use it through OpenCL"):
            cuda.open_device(name, None)


@pytest.mark.parametrize("name", ["cuda:", "cuda:x", "cuda:-1", "cuda:01", "cuda:0:0", "cuda: 0"])
def test_a_malformed_name_shows_the_format(name: str) -> None:
    with pytest.raises(mr.ArgumentError, match=r"'cuda', 'cuda:0'"):
        mr.device(name)


# --- the stand-in is for tests ---


def test_the_stand_in_is_not_visible_to_users() -> None:
    assert not any("emulated" in info.name or "stand-in" in info.detail for info in mr.devices())
    with pytest.raises(mr.ArgumentError, match="'cuda-emulated' is unknown"):
        mr.device("cuda-emulated")
    assert not Path(standin.__file__).is_relative_to(Path(mr.__file__).resolve().parents[1])


def test_where_it_is_registered_it_must_be_named() -> None:
    with backend.registered():
        (info,) = [info for info in mr.devices() if info.name.startswith("cuda-emulated")]
        assert (info.name, info.kind, info.available) == ("cuda-emulated:0", "cuda-emulated", True)
        assert mr.device("cuda-emulated").name == "cuda-emulated:0"
        assert mr.device("auto").kind != "cuda-emulated"
    with pytest.raises(mr.ArgumentError):
        mr.device("cuda-emulated")


def test_what_the_stand_in_offers_is_what_cupy_offers() -> None:
    """Names only: without a driver CuPy cannot be called."""
    import cupy

    def compare(ours: Any, theirs: Any, path: str) -> None:
        for name in vars(ours):
            assert hasattr(theirs, name), f"cupy{path} has no {name}"
            if isinstance(getattr(ours, name), SimpleNamespace):
                compare(getattr(ours, name), getattr(theirs, name), f"{path}.{name}")

    compare(StandIn().cuda, cupy.cuda, ".cuda")
    methods = {
        cupy.cuda.Stream: ("synchronize", "__enter__", "__exit__"),
        cupy.cuda.Event: ("record", "synchronize", "done"),
        cupy.cuda.Device: ("__enter__", "__exit__"),
        cupy.cuda.MemoryPointer: ("copy_from_host_async", "copy_to_host_async", "ptr", "__add__"),
        cupy.cuda.MemoryPool: ("malloc", "free_bytes", "free_all_blocks"),
        cupy.RawModule: ("get_function",),
        cupy.RawKernel: ("__call__",),
        cupy: ("RawModule",),
    }
    for owner, names in methods.items():
        assert [name for name in names if not hasattr(owner, name)] == []
    arguments = {
        cupy.cuda.Stream: "non_blocking (bool)",
        cupy.cuda.Event: "block (bool)",
        cupy.cuda.MemoryPointer.copy_from_host_async: "(self, mem, size_t size, stream=None)",
        cupy.cuda.MemoryPointer.copy_to_host_async: "(self, mem, size_t size, stream=None)",
        cupy.RawModule: "options (tuple of str)",
        cupy.RawKernel.__call__: "(self, grid, block, args",
        cupy.cuda.get_elapsed_time: "(start_event, end_event)",
    }
    for owner, words in arguments.items():
        assert words in owner.__doc__


# --- cards and faults ---


def test_each_card_has_its_own_memory_and_kernels() -> None:
    """The stand-in refuses a launch in another card's stream, or with another card's memory."""
    runtime = EmulatedRuntime(StandIn(cards=2))
    for number in (0, 1, 0):
        device = cuda.CudaDevice(runtime, number)
        index, launch = sample(device)
        device.wait(launch)
        assert device.read(index, 0, 100).tolist() == list(range(0, 1000, 10))
    assert {key[0] for key in runtime._kernels} == {0, 1}


def test_memory_goes_back_to_the_pool(device: cuda.CudaDevice) -> None:
    pool = device._runtime.cupy.memory
    for _ in range(3):
        index, launch = sample(device)
        assert pool.used_bytes() > 0
        device.wait(launch)
        device.free(index)
        del index, launch
    device.close()
    assert pool.used_bytes() == 0
    assert pool.broken == 0, "a kernel wrote outside of its buffers"


def test_memory_that_was_freed_is_not_handed_to_other_code(device: cuda.CudaDevice) -> None:
    """The default pool is everybody's: what comes from it may be in use in the user's streams."""
    cupy = device._runtime.cupy
    buffer = send(device, np.arange(100, dtype=np.uint64))
    assert isinstance(buffer, GpuBuffer)
    address = buffer.memory.ptr
    device.free(buffer)
    theirs = [cupy.cuda.alloc(800) for _ in range(3)]
    assert address not in [memory.ptr for memory in theirs]
    again = send(device, np.arange(100, dtype=np.uint64))
    assert isinstance(again, GpuBuffer)
    assert again.memory.ptr == address  # it was kept for this device


def test_a_launch_keeps_memory_that_nobody_else_holds(device: cuda.CudaDevice) -> None:
    pool = device._runtime.cupy.memory
    sample(device)  # buffers and launch lose their references at once; nothing has run yet
    assert pool.used_bytes() > 0
    index, launch = sample(device)
    device.wait(launch)
    assert device.read(index, 0, 100).tolist() == list(range(0, 1000, 10))
    del index, launch
    device.close()
    assert pool.used_bytes() == 0


def test_full_memory_is_a_clean_fault_and_the_device_goes_on() -> None:
    device = emulated(standin=StandIn(memory=1000))
    assert device.memory == 1000
    kept = send(device, np.arange(50, dtype=np.uint64))
    assert device.memory == 600
    with pytest.raises(mr.DeviceFault, match=r"alloc of 800 bytes failed, out of memory \(Out of .*free buffers"):
        device.alloc(100, U64)
    assert device.read(kept, 0, 50).tolist() == list(range(50))
    device.free(kept)
    assert device.alloc(100, U64).size == 100


def test_a_fault_inside_a_kernel_comes_with_the_wait_and_stays(
    device: cuda.CudaDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    index, launch = sample(device)
    other = device.alloc(1, U64)
    monkeypatch.setattr(standin.CardMemory, "holds", lambda *_: False)
    with pytest.raises(mr.DeviceFault, match=r"'cuda-emulated:0': bisort_indexer failed: cudaErrorIllegalAddress"):
        device.wait(launch)
    uses: dict[str, Callable[[], object]] = {
        "read of 8 bytes": lambda: device.read(index, 0, 1),
        "write of 8 bytes": lambda: device.write(index, 0, np.zeros(1, np.uint64)),
        "launch of bisort_indexer": lambda: device.launch("bisort_indexer", [index, other], [1, 1]),
        "alloc of 8 bytes": lambda: device.alloc(1, U64),
        "bisort_indexer": lambda: device.wait(launch),
    }
    for what, use in uses.items():
        with pytest.raises(mr.DeviceFault, match=f"{what} failed: cudaErrorIllegalAddress"):
            use()
    device.close()


@pytest.mark.parametrize("error", [standin.CUDADriverError, standin.CUDARuntimeError])
def test_a_launch_that_is_refused_is_a_fault(
    device: cuda.CudaDevice, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    def refuse(*_: Any) -> None:
        raise error("no\nresources")

    monkeypatch.setattr(standin.RawKernel, "__call__", refuse)
    with pytest.raises(mr.DeviceFault, match="launch of bisort_indexer failed: no resources"):
        sample(device)


def test_a_stream_that_cannot_be_made_makes_the_device_unavailable() -> None:
    cupy = StandIn()
    cupy.broken = "cudaErrorDevicesUnavailable"
    with pytest.raises(mr.DeviceUnavailable, match="'cuda-emulated:0' does not open: cudaErrorDevicesUnavailable"):
        emulated(standin=cupy)


def test_a_kernel_that_does_not_build_is_a_fault_with_the_compilers_words(
    device: cuda.CudaDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "source", lambda unit: 'extern "C" void bisort_indexer() { no_such_name = 1; }')
    with pytest.raises(mr.DeviceFault, match=r"launch of bisort_indexer failed: .*no_such_name"):
        sample(device)


def test_both_ways_to_vote_are_built_from_one_text(monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[tuple[str, tuple[str, ...]]] = []
    module = standin.StandIn.RawModule

    def note(self: StandIn, *, code: str, options: tuple[str, ...]) -> Any:
        built.append((code, options))
        return module(self, code=code, options=options)

    monkeypatch.setattr(standin.StandIn, "RawModule", note)
    for votes in ("", driver.BARRIER):
        emulated(votes)._runtime.kernel(0, driver.UNITS["hb_lookup"], 64)
    (ballot, without), (text, defined) = built
    assert ballot == text
    assert set(defined) - set(without) == {"-DBARRIER_SEARCH=1"}


# --- processes ---


def test_a_forked_child_is_refused_and_not_hung() -> None:
    with backend.registered(), warnings.catch_warnings():
        device = backend.open_device("cuda-emulated", None)
        buffer = send(device, np.arange(4, dtype=np.uint64))
        warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn of a fork beside threads
        child = os.fork()
        if child == 0:
            code = 1
            try:
                (info,) = backend.probe()
                assert "does not survive a fork" in info.detail
                with pytest.raises(mr.DeviceFault, match="open it in the process that uses it"):
                    device.read(buffer, 0, 4)
                with pytest.raises(mr.DeviceUnavailable, match="spawn"):
                    mr.device("cuda-emulated")
                device.close()
                code = 0
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        assert device.read(buffer, 0, 4).tolist() == [0, 1, 2, 3]
