"""Tests an open device with BI-Sort's units: compares merges and probes with NumPy, and measures them and transfers.

Times are measured on the host, one operation after another, and include the link. On a simulated or loopback board they
show the speed of the simulation, not of a board. Cycles are always counted by the engine.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from millrace.host.base.types import Array
from millrace.host.device.contract import Device
from millrace.host.join.panjoin.run_engine import RunEngine, SortedRun
from millrace.host.join.panjoin.subwindow import ID_PADDING

ROWS = 2000
CHECK_ROWS = 200


@dataclass(frozen=True)
class Measured:
    """The measured time of one stage."""

    stage: str
    rows: int
    ms: float
    rows_per_second: float
    cycles: int


def verify(device: Device, seed: int = 0) -> dict[str, bool]:
    """Whether merge, index and probe agree with NumPy, for both word widths."""
    found = {}
    for word in (np.dtype(np.uint32), np.dtype(np.uint64)):
        rng, engine = np.random.default_rng(seed), RunEngine(device)
        older, newer = (_tuples(rng, word, CHECK_ROWS, first) for first in (0, CHECK_ROWS))
        run = engine.merge(_run(engine, *older), _run(engine, *newer))
        words, ids = np.concatenate([older[0], newer[0]]), np.concatenate([older[1], newer[1]])
        order = np.lexsort((ids, words))
        merged, kept = device.view(run.words, run.size), device.view(run.ids, run.size)
        found[f"merge of {word}"] = bool((merged == words[order]).all() and (kept == ids[order]).all())
        sampled = device.view(run.index, run.index.size)
        found[f"index of {word}"] = bool((sampled == words[order][:: run.step]).all())
        low = np.sort(rng.integers(0, np.iinfo(word).max, CHECK_ROWS, word))
        high = np.maximum(low, np.sort(rng.integers(0, np.iinfo(word).max, CHECK_ROWS, word)))
        bounds = [engine.send(low.copy()), engine.send(high.copy())]
        starts, ends = engine.match_bounds(engine.probe(run, bounds[0], bounds[1], CHECK_ROWS))
        begin, end = np.searchsorted(words[order], low, "left"), np.searchsorted(words[order], high, "right")
        found[f"probe of {word}"] = bool((starts == begin).all() and (ends == end).all())
        engine.free(run)
        engine.free_bounds(bounds)
    return found


def measure(device: Device, rows: int | None = None) -> list[Measured]:
    """Time send, merge, probe and fetch with two runs of `rows` each, or fewer if memory is scarce."""
    limit = ROWS if device.most_rows is None else device.most_rows // 4
    count = min(rows or ROWS, limit)
    rng, engine, word = np.random.default_rng(1), RunEngine(device), np.dtype(np.uint64)
    older, newer = (_tuples(rng, word, count, first) for first in (0, count))
    found: list[Measured] = []
    runs: list[SortedRun] = []
    found.append(
        _timed(device, "send and index", 2 * count, lambda: runs.extend(_run(engine, *t) for t in (older, newer)))
    )
    merged: list[SortedRun] = []
    found.append(_timed(device, "merge", 2 * count, lambda: merged.append(engine.merge(*runs))))
    low = np.sort(rng.integers(0, np.iinfo(word).max, count, word))
    bounds = [engine.send(low), engine.send(low.copy())]
    probe: Callable[[], object] = lambda: engine.match_bounds(engine.probe(merged[0], bounds[0], bounds[1], count))  # noqa: E731
    found.append(_timed(device, "probe", count, probe))
    found.append(_timed(device, "fetch ids", 2 * count, lambda: engine.ids(merged[0])))
    return found


def _timed(device: Device, stage: str, rows: int, work: Callable[[], object]) -> Measured:
    before = device.counters().get("fpga_cycles", 0)
    begin = time.perf_counter()
    work()
    seconds = time.perf_counter() - begin
    cycles = device.counters().get("fpga_cycles", 0) - before
    return Measured(stage, rows, 1e3 * seconds, rows / seconds, cycles)


def _tuples(rng: np.random.Generator, word: np.dtype[np.unsignedinteger], size: int, first: int) -> tuple[Array, Array]:
    """Sorted words with duplicates, and ascending ids."""
    words = np.sort(rng.integers(0, np.iinfo(word).max, size, word))
    words[1::7] = words[:-1:7][: len(words[1::7])]
    return np.sort(words), np.arange(first, first + size, dtype=np.uint32)


def _run(engine: RunEngine, words: Array, ids: Array) -> SortedRun:
    spare = np.zeros(len(ids) + ID_PADDING, np.uint32)
    spare[: len(ids)] = ids
    return engine.run(words.copy(), spare[: len(ids)])
