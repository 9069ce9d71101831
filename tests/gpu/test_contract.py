"""The device contract on the GPU devices: buffers, launches, lanes, staging memory, counters and misuse.

The code is in `gpu/device.py`, so both APIs must behave the same: OpenCL on PoCL, CUDA on the stand-in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import numpy as np
import pytest

import millrace as mr
from millrace.gpu import opencl
from millrace.gpu.device import GpuDevice
from millrace.host.base.types import Array
from millrace.host.device.cpu import CpuDevice
from millrace.host.hybrid.search_engine import Lanes, Staging
from tests.gpu.devices import sample, send
from tests.gpu.emulated.backend import emulated

U32, U64 = np.dtype(np.uint32), np.dtype(np.uint64)


@pytest.fixture(params=["opencl", "cuda-emulated"])
def device(request: pytest.FixtureRequest) -> Iterator[GpuDevice]:
    opened = opencl.open_device("opencl", None) if request.param == "opencl" else emulated()
    yield opened
    opened.close()


@pytest.mark.parametrize("dtype", [np.uint32, np.uint64, np.int64])
def test_buffers_have_a_size_and_a_type(device: GpuDevice, dtype: type) -> None:
    buffer = device.alloc(10, np.dtype(dtype))
    assert (buffer.size, buffer.dtype) == (10, np.dtype(dtype))
    data: Array = np.arange(5, dtype=dtype)
    device.write(buffer, 3, data)
    data[:] = 99
    found = device.read(buffer, 3, 5)
    assert found.dtype == np.dtype(dtype)
    assert found.tolist() == [0, 1, 2, 3, 4]
    found[:] = 7
    assert device.read(buffer, 4, 2).tolist() == [1, 2]
    device.write(buffer, 0, np.arange(20, dtype=dtype)[::2])
    assert device.read(buffer, 0, 10).tolist() == list(range(0, 20, 2))
    size = np.dtype(dtype).itemsize
    assert device.counters() == {"bytes_in": 15 * size, "bytes_out": 17 * size}


def test_empty_buffers_work(device: GpuDevice) -> None:
    buffer = device.alloc(0, U64)
    assert buffer.size == 0
    device.write(buffer, 0, np.empty(0, np.uint64))
    assert device.read(buffer, 0, 0).shape == (0,)
    index = device.alloc(0, U64)
    assert device.wait(device.launch("bisort_indexer", [buffer, index], [0, 4]))["rows"] == 0
    device.free(buffer)


def test_counters_count_each_launch_once_and_outlive_the_device(device: GpuDevice) -> None:
    for _ in range(2):
        _, launch = sample(device)
        assert launch.unit == "bisort_indexer"
        first = device.wait(launch)
        assert first["rows"] == 100
        assert first["ns"] > 0
        assert device.wait(launch) == first
    device.close()
    device.close()
    counted = device.counters()
    assert counted["bisort_indexer_rows"] == 200
    assert counted["bisort_indexer_ns"] >= first["ns"]
    assert counted["bytes_in"] == 16_000


def test_a_buffer_may_be_freed_while_a_launch_uses_it(device: GpuDevice) -> None:
    words = send(device, np.arange(100_000, dtype=np.uint64))
    index = device.alloc(100_000, U64)
    launch = device.launch("bisort_indexer", [words, index], [100_000, 1])
    device.free(words)
    device.free(words)
    device.wait(launch)
    assert np.array_equal(device.read(index, 0, 100_000), np.arange(100_000))


def test_threads_may_work_on_lanes_of_one_device(device: GpuDevice) -> None:
    words = send(device, np.arange(1000, dtype=np.uint64))

    def work(number: int) -> bool:
        lane, good = device.lane(), True
        assert isinstance(lane, Lanes)
        assert isinstance(lane, Staging)
        for round_ in range(20):
            n, step = 100 * number + round_ + 1, number + 1
            index = lane.alloc(-(-n // step), U64)
            launch = lane.launch("bisort_indexer", [words, index], [n, step])
            lane.wait(launch)
            found = lane.staging(index.size, U64)
            lane.read_into(index, 0, found)
            good &= np.array_equal(found, np.arange(0, n, step))
            lane.free(index)
        lane.close()
        return good

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(work, range(4)))
    counted = device.counters()
    assert counted["bytes_in"] == 8000
    assert counted["bytes_out"] == 8 * counted["bisort_indexer_rows"]


def test_a_lane_ends_with_its_device_and_not_the_other_way_round(device: GpuDevice) -> None:
    first, second = device.lane(), device.lane()
    buffer = send(first, np.arange(4, dtype=np.uint64))
    first.close()
    first.close()
    with pytest.raises(mr.DeviceFault, match="is closed"):
        first.read(buffer, 0, 4)
    assert second.read(buffer, 0, 4).tolist() == [0, 1, 2, 3]
    assert device.counters() == {"bytes_in": 32, "bytes_out": 32}
    device.close()
    with pytest.raises(mr.DeviceFault, match="is closed"):
        second.read(buffer, 0, 4)
    with pytest.raises(mr.DeviceFault, match="is closed"):
        device.lane()
    assert device.counters() == {"bytes_in": 32, "bytes_out": 32}


def test_staging_memory_is_an_array_that_copies_go_through(device: GpuDevice) -> None:
    buffer = device.alloc(1000, U32)
    for size in (0, 1, 1000):
        there, back = device.staging(size, U32), device.staging(size, U32)
        assert there.shape == (size,)
        there[:] = np.arange(size)
        device.write(buffer, 0, there)
        device.read_into(buffer, 0, back)
        assert np.array_equal(back, np.arange(size))
    device.close()
    assert np.array_equal(back, np.arange(1000)), "staging memory may outlive its device"


def test_free_memory_shrinks_by_what_is_held(device: GpuDevice) -> None:
    before = device.memory
    assert before >= 1 << 26
    buffer = device.alloc(1 << 20, U32)
    assert device.held() == 1 << 22
    assert device.memory <= before
    device.free(buffer)
    assert device.held() == 0
    assert device.memory == before
    with pytest.raises(mr.DeviceFault, match=r"\d+ bytes"):
        device.alloc(1 << 40, U64)


def test_launches_of_one_device_take_effect_in_order(device: GpuDevice) -> None:
    """Without a wait between them; a read happens after all of them."""
    words = send(device, np.arange(1 << 12, dtype=np.uint64))
    for _ in range(6):
        half = device.alloc(words.size // 2, U64)
        device.launch("bisort_indexer", [words, half], [words.size, 2])
        device.free(words)
        words = half
    assert device.read(words, 0, words.size).tolist() == list(range(0, 1 << 12, 64))


# --- faults ---


def test_a_unit_that_a_device_lacks_is_a_fault_that_names_those_it_has(device: GpuDevice) -> None:
    with pytest.raises(mr.DeviceFault, match=r":0' has no unit 'scan_prober'.*bisort_merger"):
        device.launch("scan_prober", [], [])


def test_reading_and_writing_outside_of_a_buffer_is_a_fault(device: GpuDevice) -> None:
    buffer = device.alloc(4, U32)
    for offset, size in ((0, 5), (4, 1), (-1, 2)):
        with pytest.raises(mr.DeviceFault, match="of a buffer of 4"):
            device.read(buffer, offset, size)
        with pytest.raises(mr.DeviceFault, match="of a buffer of 4"):
            device.write(buffer, offset, np.zeros(size, np.uint32))
    with pytest.raises(mr.DeviceFault, match="write of int64 into a buffer of uint32"):
        device.write(buffer, 0, np.zeros(4, np.int64))
    with pytest.raises(mr.DeviceFault, match="read of int64 from a buffer of uint32"):
        device.read_into(buffer, 0, np.zeros(4, np.int64))
    with pytest.raises(mr.DeviceFault, match="array with gaps"):
        device.read_into(buffer, 0, np.zeros(8, np.uint32)[::2])


def test_foreign_and_freed_buffers_are_a_fault(device: GpuDevice) -> None:
    strangers = (CpuDevice(), emulated(), opencl.open_device("opencl", None))
    for foreign in (stranger.alloc(4, U32) for stranger in strangers):
        for use in (lambda b: device.read(b, 0, 1), device.free, lambda b: device.launch("bisort_indexer", [b, b], [])):
            with pytest.raises(mr.DeviceFault, match="belongs to another device"):
                use(foreign)
    buffer = device.alloc(4, U32)
    device.free(buffer)
    with pytest.raises(mr.DeviceFault, match="already freed"):
        device.read(buffer, 0, 1)
    with pytest.raises(mr.DeviceFault, match="already freed"):
        device.launch("bisort_indexer", [buffer, device.alloc(4, U32)], [4, 1])


def test_a_closed_device_does_nothing_more(device: GpuDevice) -> None:
    buffer, launch = sample(device)
    device.close()
    uses = (
        lambda: device.alloc(1, U32),
        lambda: device.read(buffer, 0, 1),
        lambda: device.launch("bisort_indexer", [buffer, buffer], [1, 1]),
        lambda: device.wait(launch),
    )
    for use in uses:
        with pytest.raises(mr.DeviceFault, match="is closed"):
            use()


@pytest.mark.parametrize(
    "opens", [lambda: opencl.open_device("opencl", None), emulated], ids=["opencl", "cuda-emulated"]
)
def test_a_process_keeps_to_its_share_of_the_memory(
    opens: Callable[[], GpuDevice], monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(opens()) as unlimited:
        share = 1000 / unlimited._total()
    monkeypatch.setenv("MILLRACE_DEVICE_SHARE", repr(share))
    with closing(opens()) as device:
        held = device.alloc(100, U64)
        assert 0 < device.memory <= 200
        with pytest.raises(mr.DeviceFault, match="MILLRACE_DEVICE_SHARE"):
            device.alloc(50, U64)
        device.free(held)
        device.alloc(100, U64)
    monkeypatch.setenv("MILLRACE_DEVICE_SHARE", "2")
    with pytest.raises(mr.ArgumentError, match="up to 1"):
        opens()
