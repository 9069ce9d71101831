"""`index="spo"` on devices with memory of their own: the same rows as on the CPU, memory freed, faults survived.

Random conditions and windows are in `tests/conformance`; here are blocks that merge, expire and are cut.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import millrace as mr
from millrace import registry
from millrace.gpu.device import GpuDevice
from millrace.host.join import pair_memory
from millrace.host.join.spo import device as engine
from millrace.host.join.spo.device_window import DeviceWindow
from millrace.host.runtime.team import Team
from millrace.join_parts import table_batches
from tests.gpu.emulated.backend import emulated, registered
from tests.host import faults

ON = "r.x < s.x AND abs(r.y - s.y) <= 400"
DEVICES = ["opencl:0", "cuda-emulated:0"]


@pytest.fixture(autouse=True)
def _emulated() -> Iterator[None]:
    with registered():
        yield


def rows(seed: int, count: int, dead: float = 0.05) -> pa.Table:
    rng = np.random.default_rng(seed)
    x, y = rng.integers(0, 2000, (2, count))
    return pa.table({"x": pa.array(x, mask=rng.random(count) < dead), "y": pa.array(y, mask=rng.random(count) < dead)})


@pytest.mark.parametrize("name", DEVICES)
@pytest.mark.parametrize("output", ["seqs", "count"])
def test_tables_of_several_blocks_and_slices(name: str, output: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "SLICE_WORDS", 1 << 12)
    r, s = rows(1, 700), rows(2, 3000)
    given: dict[str, Any] = {"on": ON, "index": "spo", "output": output}
    wanted = mr.join(r, s, device="cpu", **given)
    assert wanted.num_rows > 500
    assert mr.join(r, s, device=name, options={"merge_rows": 1024}, **given).equals(wanted)


@pytest.mark.parametrize("name", DEVICES)
def test_a_result_larger_than_memory_is_refused_counted_or_taken_in_parts(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pair_memory, "free_bytes", lambda: 1 << 20)
    monkeypatch.setattr(pair_memory, "SMALL", 0)
    same = pa.table({"x": np.zeros(400, np.int64), "y": np.zeros(400, np.int64)})
    given: dict[str, Any] = {"on": "r.x <= s.x AND r.y >= s.y", "index": "spo", "device": name}
    with pytest.raises(mr.ArgumentError, match=r"160,000 pairs of 16 bytes are 2\.4 MiB, .* are 1\.0 MiB.*batch_rows"):
        mr.join(same, same, output="seqs", **given)
    assert mr.join(same, same, output="count", **given)["count"].to_pylist() == [400] * 400
    monkeypatch.setattr(table_batches, "FIRST_PAIRS", 40_000)
    monkeypatch.setattr(table_batches, "PIECE_PAIRS", 40_000)
    parts = mr.join(same, same, output="seqs", batch_rows=10_000, **given)
    assert [part.num_rows for part in parts] == [10_000] * 16


@pytest.mark.parametrize("name", DEVICES)
@pytest.mark.parametrize("size", [7, 300])
def test_streams_whose_blocks_merge_and_expire(name: str, size: int) -> None:
    given: dict[str, Any] = {"on": ON, "window": "1500 rows", "index": "spo", "options": {"merge_rows": 1024}}
    hit, spared = mr.WindowJoin(device=name, **given), mr.WindowJoin(device="cpu", **given)
    for step in range(12):
        for side in ("r", "s"):
            new = rows(3 * step + (side == "s"), size)
            assert hit.push(side, new).equals(spared.push(side, new))
    assert hit.stats["pairs"] == spared.stats["pairs"] > 0
    assert hit.stats["boundaries"] > 0
    assert hit.stats["spo_bits_rows"] > 0


def test_neighbours_of_similar_size_merge_up_to_the_limit() -> None:
    with emulated() as device:
        window = DeviceWindow(device, Team(1), 64)
        words = np.arange(300, dtype=np.uint32)
        for first in range(0, 300, 5):
            new = words[first : first + 5]
            window.append(first, (new, new[::-1]), np.ones(5, np.bool_))
        assert window.blocks[0].part.first == 0
        assert [one.part.end for one in window.blocks[:-1]] == [one.part.first for one in window.blocks[1:]]
        assert sum(map(len, window.blocks)) == 300
        assert len(window.blocks) < 15
        assert max(map(len, window.blocks)) <= 64
        assert device.held() == 300 * 4
        window.expire(130)
        assert window.blocks[0].part.first <= 130 < window.blocks[0].part.end
        window.append(400, (words[:9], words[:9]), np.ones(9, np.bool_))
        assert window.blocks[-1].part.first == 400, "positions with a gap are not merged"
        window.close()
        assert device.held() == 0


def test_a_merge_drops_expired_tuples() -> None:
    with emulated() as device:
        window = DeviceWindow(device, Team(1), 64)
        for first in (0, 20):
            window.append(first, (np.arange(20, dtype=np.uint32),) * 2, np.ones(20, np.bool_))
        window.expire(35)
        window.append(40, (np.arange(20, dtype=np.uint32),) * 2, np.ones(20, np.bool_))
        assert [(block.part.first, len(block)) for block in window.blocks] == [(35, 25)]
        window.close()


@pytest.mark.parametrize("name", DEVICES)
def test_a_closed_join_frees_the_devices_memory(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[GpuDevice] = []
    original = registry.device

    def watch(*arguments: Any, **named: Any) -> Any:
        opened.append(original(*arguments, **named))  # type: ignore[arg-type]
        return opened[-1]

    monkeypatch.setattr(registry, "device", watch)
    join = mr.WindowJoin(on=ON, window="100 rows", index="spo", device=name)
    for side in ("r", "s"):
        join.push(side, rows(5, 50))
    assert opened[0].held() == 2 * 50 * 4
    join.close()
    assert not any(buffer.memory for buffer in opened[0]._alive)


CALLS = [("alloc", 1), ("alloc", 4), ("write", 1), ("write", 2), ("launch", 1), ("wait", 1), ("read", 1), ("free", 1)]


@pytest.mark.parametrize(("call", "number"), CALLS)
def test_a_fault_is_raised_or_the_cpu_goes_on(call: str, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry.BACKENDS, "faulty", faults.MODULE)
    given: dict[str, Any] = {"on": ON, "window": "60 rows", "index": "spo"}
    hit, backed = (mr.WindowJoin(device="faulty", fallback=way, **given) for way in (None, "cpu"))
    joins = (hit, backed, mr.WindowJoin(device="cpu", **given))
    for seed in range(4):
        for join in joins:
            join.push("s" if seed % 2 else "r", rows(seed, 25))
    wanted = joins[2].push("r", rows(4, 25))
    assert wanted.num_rows
    for join in (hit, backed):
        faults.arm(call, number)
        if join is hit:
            with pytest.raises(mr.DeviceFault, match=call):
                hit.push("r", rows(4, 25))
        assert join.push("r", rows(4, 25)).equals(wanted)
        assert not faults.disarm()
    assert backed.stats["device"] == "cpu"
    assert f"lost its {call}" in str(backed.stats["fallback"])


@pytest.mark.parametrize("output", ["seqs", "count"])
def test_a_device_that_finds_too_much_is_a_fault(output: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bits beyond the block, and counts beyond the tile, are not believed."""
    monkeypatch.setitem(registry.BACKENDS, "faulty", faults.MODULE)

    def all_ones(self: faults.FaultyDevice, buffer: Any, offset: int, size: int) -> Any:
        return np.full(size, 0xFFFFFFFF, np.uint32)

    monkeypatch.setattr(faults.FaultyDevice, "read", all_ones)
    with pytest.raises(mr.DeviceFault, match="beyond the"):
        mr.join(rows(1, 40), rows(2, 40), on=ON, index="spo", device="faulty", output=output)
