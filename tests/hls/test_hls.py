"""The `hls` device: the contract of devices on the C simulation, names and options, several at once."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest

import millrace as mr
from millrace.cli import health
from millrace.host.base.types import Array
from millrace.registry import join_pairs
from millrace.sim import hls, hls_build, tools
from tests.sim.devices import U32, check_band, check_memory, check_run_engine, send


@pytest.fixture
def device() -> Iterator[hls.HlsDevice]:
    opened = hls.open_device("hls", None)
    yield opened
    opened.close()


def test_it_is_listed_as_what_it_is_and_runs_bisort() -> None:
    listed = {info.name: info for info in mr.devices()}
    assert listed["hls"].available
    assert "C simulation" in listed["hls"].detail
    assert ("bisort", "hls") in join_pairs()


def test_without_a_compiler_the_fix_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools, "CXX", "no-such-compiler")
    (info,) = hls.probe()
    assert not info.available
    assert health._device_fix(info) == "sudo apt-get install g++"
    with pytest.raises(mr.DeviceUnavailable, match=r"g\+\+"):
        mr.device("hls")
    with pytest.raises(mr.DeviceUnavailable, match=r"cannot be built: the C\+\+ compiler g\+\+ is not installed"):
        hls_build.library(hls_build.Shape())


@pytest.mark.parametrize("name", ["hls:", "hls:4", "hls:w4,ddr3", "hls:n2", "hls0"])
def test_a_malformed_name_says_how_they_look(name: str) -> None:
    with pytest.raises(mr.ArgumentError, match="'hls:w<lanes>'"):
        hls.open_device(name, None)


def test_lanes_out_of_limits_say_what_is_allowed() -> None:
    assert [hls.lanes(name) for name in ("hls", "hls:w1", "hls:w8")] == [4, 1, 8]
    with pytest.raises(mr.ArgumentError, match="lanes=3, allowed are 1, 2, 4, 8"):
        mr.device("hls:w3")


def test_nothing_is_built_before_the_first_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hls_build, "library", lambda *_: pytest.fail("built"))
    opened = mr.device("hls")
    check_memory(opened)
    opened.close()


@pytest.mark.parametrize("name", ["hls", "hls:w1", "hls:w8"])
@pytest.mark.parametrize("dtype", [np.uint32, np.uint64])
def test_the_run_engine_works(name: str, dtype: type) -> None:
    counters = check_run_engine(name, dtype, "hls")
    assert counters["bisort_merger_ns"] > 0
    # There is no clock, so nothing is said of cycles.
    assert not [counter for counter in counters if "cycles" in counter or "starved" in counter]


def test_a_band_is_made_on_the_device(device: hls.HlsDevice) -> None:
    check_band(device)


def test_the_same_rows_as_on_the_cpu() -> None:
    rng = np.random.default_rng(0)
    tables = [pa.table({"x": rng.integers(0, 1 << 16, 3000)}) for _ in range(4)]

    def joined(name: str) -> list[pa.Table]:
        join = mr.WindowJoin(on="abs(r.x - s.x) <= 30", window="8000 rows", index="bisort", device=name)
        found = [join.push(side, table) for side, table in zip("rsrs", tables, strict=True)]
        join.close()
        return found

    assert joined("hls") == joined("cpu")


def test_several_devices_work_at_once() -> None:
    found: dict[int, bool] = {}

    def work(number: int) -> None:
        opened = hls.open_device("hls", None)
        words = np.arange(number, number + 30_000, dtype=np.uint64)
        given, index = send(opened, words), opened.alloc(3750, words.dtype)
        bounds: Array = words[::7].copy()
        low, out = send(opened, bounds), [opened.alloc(len(bounds), U32) for _ in range(2)]
        good = True
        for _ in range(20):
            opened.launch("bisort_indexer", [given, index], (len(words), 8))
            scalars = (len(words), 8, len(bounds))
            opened.wait(opened.launch("bisort_prober", [given, index, low, low, *out], scalars))
            good = good and bool((opened.read(out[0], 0, len(bounds)) == np.arange(0, 30_000, 7)).all())
        found[number] = good
        opened.close()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == dict.fromkeys(range(4), True)
