"""Bench `scalegate`: tuples per second from 4 sources through the gate to 2 readers, each of which gets every tuple.

- `batches-4x2`: the gate in compiled code. One thread generates: it appends batches of 256 tuples, source by source.
  A second thread reads for both readers, in copies of up to 1,024 tuples, and sums them up.
- `single-4x2`: the same, but every tuple is appended and read by a call of its own.
- `arrow-4x2-batch…`: `mr.ScaleGate`, from one Python thread: batches with a payload column come in, tables go out.

Beside them stand `numpy`, which sorts the same rows by time (stable, sources in order) without a gate, `bar`, the
project's target, and `paper`, the paper's rate on 48 cores. The compiled gate moves a time and a word per tuple, no
payload; generating times is not measured.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

import millrace as mr
from millrace.bench.harness import Answer, Case, Contender
from millrace.bench.options import Options
from millrace.host.runtime.intrinsics import address, load, store
from millrace.host.runtime.jit import inline, kernel
from millrace.host.runtime.thread_sleep import pause
from millrace.host.stream.scalegate import Gate
from millrace.host.stream.scalegate_kernel import FULL, append_one, append_sorted, read_ready

SOURCES, READERS = 4, 2
APPENDED, READ = 256, 1024
RING, LOG = 1 << 13, 1 << 13
ROWS, QUICK_ROWS = 1 << 20, 1 << 12
"""Tuples of each source in a step."""
ARROW_BATCHES = (1 << 10, 1 << 16)
BATCH_TARGET, SINGLE_TARGET, PAPER = 20e6, 3e6, 0.15e6
Longs = npt.NDArray[np.int64]


def cases(options: Options) -> Iterator[Case]:
    """All cases."""
    rows = QUICK_ROWS if options.quick else ROWS
    facts = {"sources": SOURCES, "readers": READERS, "rows": SOURCES * rows}
    for name, single, target in (("batches", False, BATCH_TARGET), ("single", True, SINGLE_TARGET)):
        ours = Contender("gate on cpu", partial(CompiledGate, rows, single), "gate", "cpu", "cpu")
        yield Case(f"{name}-{SOURCES}x{READERS}", "tuples/s", [ours, *_peers(rows, target)], facts)
    for batch in ARROW_BATCHES:
        size = min(batch, rows)
        gate = Contender("gate on cpu", partial(ArrowGate, rows, size), "gate", "cpu", "cpu")
        name = f"arrow-{SOURCES}x{READERS}-batch{batch}"
        yield Case(name, "tuples/s", [gate, *_peers(rows, BATCH_TARGET)], {**facts, "batch": size})


def _peers(rows: int, target: float) -> list[Contender]:
    return [
        Contender("numpy", partial(Sorted, rows)),
        Contender("bar", partial(FixedSpeed, rows, target), answers=False),
        Contender("paper", partial(FixedSpeed, rows, PAPER), answers=False),
    ]


def source_times(rows: int) -> Longs:
    """The times of each source: ascending, with ties within and between sources."""
    return np.cumsum(np.random.default_rng(7).integers(0, 4, (SOURCES, rows)), axis=1)


def checksum(times: Longs, sources: Longs, rows: Longs) -> Answer:
    """A sum that depends on the order of the tuples."""
    mixed = times * 31 + sources * 7 + rows
    return {"sum": np.array([(mixed * np.arange(1, len(mixed) + 1)).sum()])}


# The compiled gate.


@kernel
def _generate(gate: int, times: int, rows: int, batch: int) -> None:
    """Append all sources' tuples, batch by batch in turn."""
    for first in range(0, rows, batch):
        for source in range(SOURCES):
            done, count = 0, min(batch, rows - first)
            while done < count:
                here = times + 8 * (source * rows + first + done)
                more = append_sorted(gate, source, here, count - done)
                done += more
                if more == 0:
                    pause()


@kernel
def _generate_single(gate: int, times: int, rows: int, first_word: int) -> None:
    """Append all sources' tuples one by one, in turn."""
    for i in range(rows):
        for source in range(SOURCES):
            time_ = load(times, source * rows + i)
            while append_one(gate, source, time_, first_word + i) == FULL:
                pause()


@inline
def _consume(gate: int, reader: int, most: int, buffer: int, state: int) -> int:
    """Read up to `most` tuples and add them to the reader's checksum."""
    times, sources, words = buffer, buffer + 8 * READ, buffer + 16 * READ
    count = read_ready(gate, reader, most, times, sources, words)
    seen, total = load(state, 2 * reader), load(state, 2 * reader + 1)
    for i in range(count):
        total += (load(times, i) * 31 + load(sources, i) * 7 + load(words, i)) * (seen + i + 1)
    store(state, 2 * reader, seen + count)
    store(state, 2 * reader + 1, total)
    return count


@kernel
def _consume_all(gate: int, wanted: int, most: int, buffer: int, state: int) -> None:
    """Read for all readers in turn until each has got `wanted` tuples."""
    while load(state, 0) < wanted or load(state, 2) < wanted:
        count = 0
        for reader in range(READERS):
            count += _consume(gate, reader, most, buffer, state)
        if count == 0:
            pause()


class CompiledGate:
    """Two threads in compiled code: one appends to all sources, one reads for all readers."""

    def __init__(self, rows: int, single: bool) -> None:
        """A gate whose last tuples are always held back: a step ends with the tuples that are ready."""
        self._rows, self._single = rows, single
        self._times = source_times(rows)
        self._state = np.zeros(2 * READERS, np.int64)
        self._buffer = np.zeros(3 * READ, np.int64)

    def step(self) -> tuple[float, float]:
        """Pass all tuples through a new gate."""
        gate = Gate(SOURCES, READERS, RING, LOG)
        self._state[:] = 0
        wanted = SOURCES * self._rows
        given = (gate.address, wanted, 1 if self._single else READ, address(self._buffer), address(self._state))
        reading = threading.Thread(target=_consume_all, args=given, daemon=True)
        start = time.perf_counter()
        reading.start()
        if self._single:
            _generate_single(gate.address, address(self._times), self._rows, 0)
        else:
            _generate(gate.address, address(self._times), self._rows, APPENDED)
        for source in range(SOURCES):
            gate.close(source)
        reading.join()
        return wanted, time.perf_counter() - start

    def answer(self) -> Answer:
        """The checksum of the second reader."""
        return {"sum": self._state[-1:].copy()}

    def pause(self) -> None:
        """Keeps its memory."""

    def close(self) -> None:
        """Nothing is open."""


class ArrowGate:
    """`mr.ScaleGate` with a payload column, driven by one thread."""

    def __init__(self, rows: int, batch: int) -> None:
        """Make all batches."""
        self._rows = rows
        times = source_times(rows)
        self._batches = [
            (source, pa.table({"ts": times[source, first : first + batch], "v": np.arange(first, first + batch)}))
            for first in range(0, rows, batch)
            for source in range(SOURCES)
        ]
        self._got: list[list[pa.Table]] = []

    def step(self) -> tuple[float, float]:
        """Add all batches to a new gate, and read after each round of the sources."""
        gate = mr.ScaleGate(sources=SOURCES, readers=READERS, time="ts")
        got: list[list[pa.Table]] = [[] for _ in range(READERS)]
        start = time.perf_counter()
        for number, (source, batch) in enumerate(self._batches):
            gate.add(source, batch)
            if number % SOURCES == SOURCES - 1:
                self._read(gate, got)
        for source in range(SOURCES):
            gate.close(source)
        self._read(gate, got)
        seconds = time.perf_counter() - start
        self._got = got
        return SOURCES * self._rows, seconds

    def _read(self, gate: mr.ScaleGate, got: list[list[pa.Table]]) -> None:
        for reader in range(READERS):
            got[reader].append(gate.ready(reader))

    def answer(self) -> Answer:
        """The checksum of the second reader."""
        table = pa.concat_tables(self._got[-1])
        columns = (table[name].to_numpy().astype(np.int64) for name in ("ts", "source", "seq"))
        return checksum(*columns)

    def pause(self) -> None:
        """Free the last result."""
        self._got = []

    def close(self) -> None:
        """Nothing is open."""


class Sorted:
    """All rows at once, sorted by time with NumPy; the sort is stable, and sources stand in order."""

    def __init__(self, rows: int) -> None:
        """Generate the times."""
        self._rows, self._times = rows, source_times(rows)
        self._merged: tuple[Any, ...] = ()

    def step(self) -> tuple[float, float]:
        """Sort once, and gather for every reader."""
        start = time.perf_counter()
        times = self._times.ravel()
        order = np.argsort(times, kind="stable")
        for _ in range(READERS):
            self._merged = times[order], order // self._rows, order % self._rows
        return SOURCES * self._rows, time.perf_counter() - start

    def answer(self) -> Answer:
        """The checksum."""
        return checksum(*self._merged)

    def pause(self) -> None:
        """Free the last result."""
        self._merged = ()

    def close(self) -> None:
        """Nothing is open."""


class FixedSpeed:
    """A contender that always reports a given speed."""

    def __init__(self, rows: int, speed: float) -> None:
        """The same amount of work as the others."""
        self._work, self._speed = SOURCES * rows, speed

    def step(self) -> tuple[float, float]:
        """Do nothing; report the time that the speed allows."""
        return self._work, self._work / self._speed

    def answer(self) -> Answer:
        """No result."""
        return {}

    def pause(self) -> None:
        """Nothing to release."""

    def close(self) -> None:
        """Nothing is open."""
