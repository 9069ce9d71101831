"""The ring-to-ring engine gives the pairs of a nested loop, in order, while merges happen and rings are full."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from itertools import pairwise
from random import Random
from typing import Any

import numpy as np
import pytest

from millrace.host.base.types import Array
from millrace.host.join.pimtree.sides import MergeSide
from millrace.host.live.ring_engine import RingEngine
from tests.watchdog import WATCHDOG


def engine(windows: tuple[int, int], word: str = "uint32", **more: Any) -> RingEngine:
    """An empty engine that joins keys which differ by at most 2, with a merge per tenth of a window."""
    r, s = (MergeSide(np.dtype(word), rows, 8, 0.1, None) for rows in windows)
    return RingEngine((r, s), ((2, 2), (2, 2)), **more)


def expected(arrivals: Array, keys: Array, live: Array, windows: tuple[int, int], width: int) -> Array:
    """All pairs in order, by comparing everything."""
    seen: tuple[list[int], list[int]] = ([], [])
    found: list[tuple[int, int]] = []
    for side, key, alive in zip(arrivals.tolist(), keys.tolist(), live.tolist(), strict=True):
        other = seen[1 - side]
        if alive:
            first = max(len(other) - windows[1 - side], 0)
            part = np.array(other[first:], np.int64)
            own = len(seen[side]) * 2 + side
            found += [(own, first + int(p)) for p in np.flatnonzero(np.abs(part - key) <= width)]
        seen[side].append(key if alive else -(1 << 40))
    return np.array(found, np.int64).reshape(-1, 2)


def feed(one: RingEngine, arrivals: Array, keys: Array, live: Array, rng: Random, helping: bool) -> None:
    """Put runs of tuples of one side; wait while the rings are full."""
    cuts = [0, *(np.flatnonzero(np.diff(arrivals)) + 1).tolist(), len(arrivals)]
    for first, stop in pairwise(cuts):
        while first < stop:
            seen, last = one.progress, min(stop, first + rng.choice((1, 3, 100, 1000)))
            taken = one.put(int(arrivals[first]), keys[first:last].astype(one.word), live[first:last])
            first += taken
            if helping and rng.random() < 0.5:
                one.help()
            if not taken:
                one.wait(seen)


def collect(one: RingEngine, tuples: int) -> Array:
    """Take all pairs of so many tuples."""
    found = []
    while True:
        seen, done = one.progress, one.done
        pairs = one.take()
        found.append(pairs)
        if len(pairs) == 0:
            if done == tuples:
                return np.concatenate(found)
            one.wait(seen)


def run(one: RingEngine, arrivals: Array, keys: Array, live: Array, helping: bool = False) -> Array:
    feeder = threading.Thread(target=feed, args=(one, arrivals, keys, live, Random(1), helping))
    feeder.start()
    try:
        return collect(one, len(arrivals))
    finally:
        feeder.join(WATCHDOG)
        one.close()


@pytest.mark.parametrize(
    ("word", "threads", "windows", "tuples", "pairs", "blocking"),
    [
        ("uint32", 1, (50, 300), 64, 16, False),
        ("uint32", 2, (2000, 2000), 4096, 1024, False),
        ("uint64", 2, (500, 3000), 1024, 4096, False),
        ("uint64", 3, (3000, 100), 256, 64, False),
        ("uint32", 2, (1000, 1000), 1024, 1024, True),
    ],
)
@pytest.mark.parametrize("helping", [False, True])
def test_pairs_equal_those_of_a_nested_loop(
    word: str, threads: int, windows: tuple[int, int], tuples: int, pairs: int, blocking: bool, helping: bool
) -> None:
    rng = np.random.default_rng([threads, tuples, blocking])
    count = 6000
    bursts = np.repeat(rng.integers(0, 2, count), rng.choice([1, 1, 5, 200], count))[:count]
    keys, live = rng.integers(10, 3000, count), (rng.random(count) < 0.95).astype(np.uint8)
    one = engine(windows, word, threads=threads, tuples=tuples, pairs=pairs, blocking=blocking)
    found = run(one, bursts, keys, live, helping)
    assert np.array_equal(found, expected(bursts, keys, live, windows, 2))
    assert one.merges > 4


def test_one_tuple_may_have_more_partners_than_the_ring_has_room() -> None:
    arrivals = np.repeat([0, 1], [400, 4])
    keys, live = np.full(404, 7), np.ones(404, np.uint8)
    found = run(engine((400, 400), tuples=512, pairs=16), arrivals, keys, live)
    assert np.array_equal(found, expected(arrivals, keys, live, (400, 400), 2))


def test_idle_workers_sleep() -> None:
    """Workers that have nothing to do use no processor time."""
    one = engine((100, 100))
    one.put(0, np.ones(1, np.uint32), np.ones(1, np.uint8))
    while one.done < 1:
        one.wait(one.progress)
    threading.Event().wait(0.05)  # they spin for some microseconds first
    before = os.times()
    threading.Event().wait(0.5)
    after = os.times()
    one.close()
    assert (after.user + after.system) - (before.user + before.system) < 0.3


def test_a_full_ring_takes_nothing_and_loses_nothing() -> None:
    one = engine((1000, 1000), tuples=64, pairs=16)
    same, live = np.full(64, 7, np.uint32), np.ones(64, np.uint8)
    put = one.put(0, same, live)
    while one.done < put:
        one.wait(one.progress)
    taken = 0
    for _ in range(50):
        taken += one.put(1, same, live)
        threading.Event().wait(0.002)
    assert taken <= 64
    found = collect(one, put + taken)
    assert len(found) == put * taken
    one.close()


SCRIPT = """
import os, sys, numpy as np
from tests.host.live.test_ring_engine import engine
one = engine((1000, 1000), threads=2)
one.put(0, np.arange(500, dtype=np.uint32), np.ones(500, np.uint8))
if sys.argv[1] == "fork":
    child = os.fork()
    if child == 0:
        assert not one.is_here
        one.close()
        sys.exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
if sys.argv[1] == "interrupt":
    import signal
    signal.raise_signal(signal.SIGINT)
"""


@pytest.mark.parametrize(("how", "code"), [("exit", 0), ("fork", 0), ("interrupt", -2)])
def test_the_process_ends_with_workers_at_work(how: str, code: int) -> None:
    start = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    ended = subprocess.run([sys.executable, "-c", start + SCRIPT, how], timeout=WATCHDOG, capture_output=True)
    assert ended.returncode == code, ended.stderr.decode()
