"""Helpers for tests of simulated devices: use the units through the device contract."""

from __future__ import annotations

import numpy as np

import millrace as mr
from millrace.host.base.types import Array
from millrace.host.device.contract import Buffer, Device
from millrace.host.join.panjoin.run_engine import RunEngine

U32 = np.dtype(np.uint32)


def send(device: Device, array: Array) -> Buffer:
    """Copy an array to the device's memory."""
    buffer = device.alloc(len(array), array.dtype)
    device.write(buffer, 0, array)
    return buffer


def check_memory(device: Device) -> None:
    """Data that were written can be read."""
    buffer = send(device, np.arange(9, dtype=np.uint64))
    np.testing.assert_array_equal(device.read(buffer, 3, 4), [3, 4, 5, 6])


def check_run_engine(name: str, dtype: type, prefix: str) -> dict[str, int]:
    """A merge of 1,600 tuples and a probe of 80 are correct and counted; returns the counters, also after close."""
    opened = mr.device(name)
    engine, rng = RunEngine(opened), np.random.default_rng(1)
    runs = []
    for size in (700, 900):
        words: Array = np.sort(rng.integers(0, 500, size).astype(dtype))
        runs.append((words, engine.run(words, np.arange(size, dtype=np.uint32))))
    merged = engine.merge(runs[0][1], runs[1][1])
    words = np.sort(np.concatenate([runs[0][0], runs[1][0]]))
    bounds: Array = np.sort(rng.integers(0, 520, 80).astype(dtype))
    starts, ends = engine.match_bounds(engine.probe(merged, engine.send(bounds), engine.send(bounds), 80))
    np.testing.assert_array_equal(starts, np.searchsorted(words, bounds, "left"))
    np.testing.assert_array_equal(ends, np.searchsorted(words, bounds, "right"))
    counters = opened.counters()
    assert counters[f"{prefix}_merger_rows"] == counters["bisort_merger_rows"] == 1600
    assert counters[f"{prefix}_low_rows"] == counters[f"{prefix}_high_rows"] == counters["bisort_prober_rows"] == 80
    opened.close()
    assert opened.counters() == counters
    return counters


def check_band(device: Device) -> None:
    """The device computes bounds from keys, also at both ends of the type."""
    words = np.arange(0, 1000, 3, dtype=np.uint64)
    given, index = send(device, words), send(device, words[::8].copy())
    keys, starts, ends = send(device, np.array([2, 500, 998], np.uint64)), device.alloc(3, U32), device.alloc(3, U32)
    scalars = (len(words), 8, 3, 10, 20, 0, 2**64 - 1)
    device.wait(device.launch("bisort_band_prober", [given, index, keys, starts, ends], scalars))
    np.testing.assert_array_equal(device.read(starts, 0, 3), np.searchsorted(words, [0, 490, 988], "left"))
    np.testing.assert_array_equal(device.read(ends, 0, 3), np.searchsorted(words, [22, 520, 1018], "right"))
