"""The `rtl` device: the device contract on the simulated engine, names and options, several devices at once."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pytest

import millrace as mr
from millrace.host.base.types import Array
from millrace.host.device.contract import Device
from millrace.host.join.panjoin.run_engine import RunEngine
from millrace.hw.command_queue import Command
from millrace.registry import join_pairs
from millrace.sim import build, rtl
from millrace.sim.build import Config
from millrace.sim.model import IDEAL_LATENCY, IDLE_CYCLES, TIMINGS, Timing
from tests.sim.devices import U32, check_band, check_memory, check_run_engine, send


@pytest.fixture
def device() -> Iterator[rtl.RtlDevice]:
    opened = rtl.open_device("rtl", None)
    yield opened
    opened.close()


def probed(device: Device, words: Array, bounds: Array, step: int = 8) -> tuple[Array, Array]:
    """Positions of bounds, through index and prober."""
    given, index = send(device, words), device.alloc(-(-len(words) // step), words.dtype)
    low, starts, ends = send(device, bounds), device.alloc(len(bounds), U32), device.alloc(len(bounds), U32)
    device.launch("bisort_indexer", [given, index], (len(words), step))
    scalars = (len(words), step, len(bounds))
    device.wait(device.launch("bisort_prober", [given, index, low, low, starts, ends], scalars))
    return device.read(starts, 0, len(bounds)), device.read(ends, 0, len(bounds))


def test_it_is_listed_and_runs_bisort() -> None:
    listed = {info.name: info for info in mr.devices()}
    assert listed["rtl"].available
    assert ("bisort", "rtl") in join_pairs()


@pytest.mark.parametrize("name", ["rtl:", "rtl:w3x", "rtl:ddr4", "rtl:w4,w4", "rtl:ideal,ddr3", "rtl0:w4"])
def test_a_malformed_name_says_how_they_look(name: str) -> None:
    with pytest.raises(mr.ArgumentError):
        rtl.open_device(name, None)


@pytest.mark.parametrize("name", ["rtl:w3", "rtl:n17", "rtl:m5"])
def test_options_out_of_limits_say_what_is_allowed(name: str) -> None:
    with pytest.raises(mr.ArgumentError, match="allowed are"):
        rtl.open_device(name, None)


def test_options_choose_the_engine() -> None:
    assert rtl.options("rtl") == (Config(), "ideal")
    assert rtl.options("rtl:ddr3,w1,n8,m16") == (Config(lanes=1, clusters=8, probers=16), "ddr3")


def test_nothing_is_built_before_the_first_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "library", lambda *_: pytest.fail("built"))
    opened = mr.device("rtl")
    check_memory(opened)
    opened.close()


@pytest.mark.parametrize("name", ["rtl", "rtl:ddr3", "rtl:w1", "rtl:shuffled"])
@pytest.mark.parametrize("dtype", [np.uint32, np.uint64])
def test_the_run_engine_works(name: str, dtype: type) -> None:
    counters = check_run_engine(name, dtype, "rtl")
    assert 0 < counters["bisort_merger_cycles"] < counters["rtl_cycles"]


def test_a_merge_may_give_the_index_too(device: rtl.RtlDevice) -> None:
    words, ids = np.arange(0, 400, 2, dtype=np.uint64), np.arange(200, dtype=np.uint32)
    run = [send(device, words), send(device, ids), send(device, words + np.uint64(1)), send(device, ids)]
    out = [device.alloc(400, words.dtype), device.alloc(400, U32), device.alloc(25, words.dtype)]
    assert device.wait(device.launch("bisort_merger", [*run, *out], (200, 200, 16)))["rows"] == 400
    np.testing.assert_array_equal(device.read(out[0], 0, 400), np.arange(400))
    np.testing.assert_array_equal(device.read(out[2], 0, 25), np.arange(0, 400, 16))


def test_a_band_is_made_on_the_device(device: rtl.RtlDevice) -> None:
    check_band(device)


def test_empty_launches_work(device: rtl.RtlDevice) -> None:
    none, out = send(device, np.zeros(0, np.uint32)), send(device, np.full(4, 9, np.uint32))
    also, more = send(device, np.zeros(0, np.uint32)), send(device, np.full(4, 9, np.uint32))
    third = send(device, np.full(4, 9, np.uint32))
    for unit, buffers, scalars in (
        ("bisort_merger", [none, none, none, none, out, more, third], (0, 0, 8)),
        ("bisort_indexer", [none, out], (0, 8)),
        ("bisort_prober", [none, also, none, none, out, more], (0, 8, 0)),
    ):
        assert device.wait(device.launch(unit, buffers, scalars)) == {"rows": 0, "cycles": 0}
    np.testing.assert_array_equal(device.read(out, 0, 4), [9] * 4)
    bounds = send(device, np.arange(4, dtype=np.uint32))
    device.wait(device.launch("bisort_prober", [none, also, bounds, bounds, out, more], (0, 8, 4)))
    np.testing.assert_array_equal(device.read(out, 0, 4), [0] * 4)


def test_an_index_buffer_that_is_written_again_is_loaded_again(device: rtl.RtlDevice) -> None:
    for shift in (0, 1000):
        words = np.arange(100, dtype=np.uint64) + np.uint64(shift)
        bounds = words[::9].copy()
        starts, ends = probed(device, words, bounds)
        np.testing.assert_array_equal(starts, np.arange(0, 100, 9))
        np.testing.assert_array_equal(ends, np.arange(1, 101, 9))


def test_what_does_not_fit_is_a_fault(device: rtl.RtlDevice) -> None:
    words = send(device, np.arange(100, dtype=np.uint64))
    index, small = device.alloc(13, words.dtype), device.alloc(1, words.dtype)
    for unit, buffers, scalars, why in (
        ("bisort_sorter", [words], (1,), "it has bisort_band_prober, bisort_indexer"),
        ("bisort_indexer", [words], (100, 8), "given 1 buffers and 2 scalars"),
        ("bisort_indexer", [words, small], (100, 8), "index has 1 elements, n=100, step=8 needs 13"),
        ("bisort_indexer", [words, words], (100, 8), "must be a buffer of its own"),
        ("bisort_indexer", [words, device.alloc(13, U32)], (100, 8), "index holds uint32, it must hold uint64"),
        ("bisort_indexer", [words, index], (2**31 + 1, 8), "n=2147483649, allowed are"),
    ):
        with pytest.raises(mr.DeviceFault, match=why):
            device.launch(unit, buffers, scalars)
    launch = device.launch("bisort_indexer", [words, device.alloc(50, words.dtype)], (100, 2))
    with pytest.raises(mr.DeviceFault, match="step=2"):
        device.wait(launch)
    with pytest.raises(mr.DeviceFault, match="elements 99 to 101"):
        device.read(words, 99, 2)
    device.free(words)
    with pytest.raises(mr.DeviceFault, match="freed already"):
        device.read(words, 0, 1)
    with pytest.raises(mr.DeviceFault, match="another device"):
        device.read(rtl.open_device("rtl", None).alloc(1, U32), 0, 1)


def test_a_closed_device_does_nothing_more(device: rtl.RtlDevice) -> None:
    buffer = device.alloc(3, U32)
    device.close()
    device.close()
    with pytest.raises(mr.DeviceFault, match="is closed"):
        device.read(buffer, 0, 1)


def test_a_hang_is_a_fault(device: rtl.RtlDevice) -> None:
    device.idle_cycles = 8
    words = send(device, np.arange(100, dtype=np.uint64))
    index = device.alloc(13, words.dtype)
    with pytest.raises(mr.DeviceFault, match=r"nothing moved for 8 cycles; the engine was reset and can be used again"):
        device.wait(device.launch("bisort_indexer", [words, index], (100, 8)))


def test_a_stalled_device_goes_on_after_a_reset(device: rtl.RtlDevice) -> None:
    words = send(device, np.arange(100, dtype=np.uint64))
    index, other = device.alloc(13, words.dtype), device.alloc(13, words.dtype)
    engine = device.engine(words.dtype)
    model = device._engines[64][0]
    model._idle = 8  # fewer cycles than the memory's latency: every command seems to hang
    first, second = (device.launch("bisort_indexer", [words, into], (100, 8)) for into in (index, other))
    for launch in (first, second):  # both were in flight
        with pytest.raises(mr.DeviceFault, match=r"nothing moved for 8 cycles; the engine was reset"):
            device.wait(launch)
    model._idle = IDLE_CYCLES
    before = engine.counters()
    device.wait(device.launch("bisort_indexer", [words, other], (100, 8)))
    assert device.read(other, 0, 13).tolist() == list(range(0, 100, 8))
    assert device.engine(words.dtype) is engine
    assert engine.counters()["indexer_rows"] - before["indexer_rows"] == 100


def test_an_engine_whose_memory_never_answers_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TIMINGS, "ideal", Timing(latency=1 << 31))
    device = rtl.open_device("rtl", None)
    words = send(device, np.arange(100, dtype=np.uint64))
    index = device.alloc(13, words.dtype)
    hung = device.engine(words.dtype)
    with pytest.raises(mr.DeviceFault, match=r"nothing moved for 20000 cycles$"):
        device.wait(device.launch("bisort_indexer", [words, index], (100, 8)))
    assert not hung.usable
    device._timing = Timing(IDEAL_LATENCY)
    device.wait(device.launch("bisort_indexer", [words, index], (100, 8)))
    assert device.read(index, 0, 13).tolist() == list(range(0, 100, 8))
    assert device.counters()["rtl_indexer_rows"] == 100
    device.close()


def test_several_commands_are_in_flight(device: rtl.RtlDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    words = send(device, np.arange(4000, dtype=np.uint64))
    indexes = [device.alloc(500, words.dtype) for _ in range(6)]
    engine = device.engine(words.dtype)
    rooms: list[int] = []
    finish = engine.finish

    def noted(begun: Sequence[Command]) -> int:
        rooms.append(engine.commands.room)
        return finish(begun)

    monkeypatch.setattr(engine, "finish", noted)
    launches = [device.launch("bisort_indexer", [words, index], (4000, 8)) for index in indexes]
    for launch in launches:
        device.wait(launch)
    assert min(rooms) < engine.shape.queue - 1, "no second command was queued behind the first"
    for index in indexes:
        assert device.read(index, 0, 500).tolist() == list(range(0, 4000, 8))


def test_several_devices_work_at_once() -> None:
    found: dict[int, bool] = {}

    def work(number: int) -> None:
        opened = rtl.open_device("rtl", None)
        words = np.arange(number, number + 3000, dtype=np.uint64)
        starts, _ = probed(opened, words, words[::7].copy())
        found[number] = bool((starts == np.arange(0, 3000, 7)).all())
        opened.close()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == dict.fromkeys(range(4), True)


def test_bytes_sent_do_not_grow_with_the_run(device: rtl.RtlDevice) -> None:
    sent = []
    engine = RunEngine(device)
    run = engine.run(np.arange(64, dtype=np.uint64), np.arange(64, dtype=np.uint32))
    for _ in range(4):
        before = device.counters()["bytes_in"]
        more = engine.run(np.arange(64, dtype=np.uint64), np.arange(64, dtype=np.uint32))
        run = engine.merge(run, more)
        sent.append(device.counters()["bytes_in"] - before)
    assert run.size == 320
    assert sent == [64 * 12] * 4


def test_a_stream_takes_no_more_memory_the_longer_it_runs() -> None:
    join = mr.WindowJoin(on="abs(r.x - s.x) <= 2", window="4000 rows", index="bisort", device="rtl", output="seqs")
    rng, tops = np.random.default_rng(3), []
    for turn in range(30):
        join.push("rs"[turn % 2], pa.table({"x": rng.integers(0, 4000, 1500)}))
        device = join._engine.device
        assert isinstance(device, rtl.RtlDevice)
        assert device._memory is not None
        tops.append(device._memory._top)
    assert tops[-1] == tops[len(tops) // 2]
    join.close()
