"""`millrace calibrate`: compiles kernels and measures, once per machine, what `auto` should choose.

Two questions are measured with window joins through the public API. Up to which batch size is `wib` faster than
`bisort`? `index="auto"` uses the answer. Is another real device faster than the CPU? `device="auto"` then takes it.
Simulators, loopback boards and OpenCL on a CPU are never measured. Contenders take turns, so that other programs on
the machine disturb all of them. The result is one file in the cache folder (`host/planner/calibration.py`).
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import asdict
from statistics import median
from typing import cast

import numpy as np
import pyarrow as pa
import typer

from millrace.cli.screen import print_table, progress, remark
from millrace.errors import MillraceError
from millrace.host.planner.calibration import CPU, MAX_SMALL_BATCH, MIN_SMALL_BATCH, Calibration, crossover, keep
from millrace.ingest.arguments import pairs_for
from millrace.ingest.choices import OUTPUTS, IndexName
from millrace.registry import device_info, real_devices
from millrace.table_join import join
from millrace.window_join import WindowJoin

WINDOW = 1 << 16
DOMAIN = 1 << 40
ON = f"abs(r.x - s.x) <= {DOMAIN // WINDOW}"
"""Two partners per tuple in a full window."""
STRUCTURES = ("wib", "bisort")
SIZES = tuple(1 << power for power in range(MIN_SMALL_BATCH.bit_length() - 1, MAX_SMALL_BATCH.bit_length() - 1))
DEVICE_BATCH = 1 << 14
TURNS, SLICE_SECONDS = 5, 0.06
COMPILE_ROWS = (3, 1 << 14)
"""Batches of a few rows and of many take different kernels."""
Report = Callable[[str, float], None]


def run_calibration(as_json: bool) -> None:
    """Measure, store and print."""
    with progress() as report:
        measured = measure(report)
    if not keep(measured):
        remark("the cache folder cannot be written: nothing was stored (MILLRACE_CACHE_DIR sets another folder)")
    if as_json:
        typer.echo(json.dumps(asdict(measured)))
        return
    rows = [[size, *(f"{speed:,.0f}" for speed in speeds.values())] for size, speeds in measured.batches.items()]
    print_table(("batch (tuples/s)", *STRUCTURES), rows, right=frozenset(STRUCTURES))
    print_table(
        ("device", "tuples/s"),
        [[name, f"{speed:,.0f}"] for name, speed in measured.devices.items()],
        right=frozenset({"tuples/s"}),
    )
    typer.echo(f'index="auto": wib for batches below {measured.small_batch:,} tuples, else bisort')
    typer.echo(f'device="auto": {measured.device}')


def measure(report: Report) -> Calibration:
    """Compile, then measure batch sizes and devices."""
    compile_kernels(report)
    speeds = {}
    for number, size in enumerate(SIZES):
        report(f"measuring batches of {size} tuples", 0.3 + 0.5 * number / len(SIZES))
        speeds[size] = _race({name: (cast(IndexName, name), CPU) for name in STRUCTURES}, size)
    devices = measure_devices(report)
    report("calibrated", 1.0)
    best = max(devices, key=lambda name: devices[name])
    return Calibration(
        small_batch=crossover(speeds),
        device=best,
        described=device_info(best).detail,
        batches={str(size): by_index for size, by_index in speeds.items()},
        devices=devices,
    )


def compile_kernels(report: Report) -> None:
    """Run every index of the CPU that serves a band with every kind of output, and a join of two tables."""
    indexes = [index for index, device in pairs_for(ON) if device == CPU]
    for number, index in enumerate(indexes):
        report(f"compiling {index}", 0.3 * number / len(indexes))
        for output in OUTPUTS:
            made = WindowJoin(on=ON, window="100 rows", index=index, device=CPU, output=output)
            for rows in COMPILE_ROWS:
                for side in ("r", "s"):
                    made.push(side, next(_batches(rows)))
            made.close()
    r, s = (next(_batches(max(COMPILE_ROWS))) for _ in "rs")
    join(r, s, on=ON, device=CPU)


def measure_devices(report: Report) -> dict[str, float]:
    """Tuples per second of the same window join on the CPU and on every other real device that can run it."""
    names, usable = real_devices(), [CPU]
    for name in names:
        report(f"trying {name}", 0.8)
        try:
            _race({name: ("auto", name)}, DEVICE_BATCH, turns=1)
        except MillraceError as error:
            remark(f"{name} is left out: {error}")
        else:
            usable.append(name)
    report("measuring devices", 0.9)
    return _race({name: ("auto", name) for name in usable}, DEVICE_BATCH)


def _race(contenders: dict[str, tuple[IndexName, str]], batch: int, turns: int = TURNS) -> dict[str, float]:
    """Tuples per second of each (index, device): the median over slices that take turns."""
    speeds: dict[str, list[float]] = {name: [] for name in contenders}
    with ExitStack() as opened:
        runners = {}
        for name, (index, device) in contenders.items():
            runners[name] = _Runner(index, device, batch)
            opened.callback(runners[name].close)
            runners[name].fill()
        for _ in range(turns):
            for name, runner in runners.items():
                speeds[name].append(runner.slice())
    return {name: median(values) for name, values in speeds.items()}


class _Runner:
    """A window join that is pushed batches of one size, r and s alternating."""

    def __init__(self, index: IndexName, device: str, batch: int) -> None:
        self._join = WindowJoin(on=ON, window=f"{WINDOW} rows", index=index, device=device, output="seqs")
        self._batch, self._batches = batch, _batches(batch)

    def fill(self) -> None:
        """Fill the windows, half of them in batches of the measured size."""
        full = _batches(WINDOW)
        for side in ("r", "s"):
            self._join.push(side, next(full))
        for _ in range(WINDOW // 2 // self._batch):
            self._push_pair()

    def slice(self) -> float:
        """Push for a while; returns tuples per second."""
        tuples, start = 0, time.perf_counter()
        while (took := time.perf_counter() - start) < SLICE_SECONDS or not tuples:
            self._push_pair()
            tuples += 2 * self._batch
        return tuples / took

    def close(self) -> None:
        """Close the join."""
        self._join.close()

    def _push_pair(self) -> None:
        for side in ("r", "s"):
            self._join.push(side, next(self._batches))


def _batches(rows: int) -> Iterator[pa.Table]:
    """Batches of random keys, made in advance in turns of a few so that making them hardly counts."""
    rng = np.random.default_rng(rows)
    made = [pa.table({"x": rng.integers(0, DOMAIN, rows)}) for _ in range(max(2, min(64, (1 << 18) // rows)))]
    while True:
        yield from made
