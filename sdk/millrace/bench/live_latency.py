"""Cases `latency-…` of bench `live`: microseconds from ring to ring at 100,000 tuples/s, while merges happen.

One compiled thread generates: it puts one tuple every 10 µs, of both sides in turn, into the ring of a live join
(`host/live`). Two workers join them. One compiled thread reads the pairs, and notes for each tuple when all of its
pairs were there. The latency of a tuple counts from the moment when it was due, also if the generator was late. A
round is long enough for a merge of each side. All four threads share the machine's cores.

- `pim on cpu, ring to ring`: merges in two phases, while the other worker goes on.
- `blocking merge`: all workers merge together, and tuples wait meanwhile.
- `pass-through`: the same rings and threads, but no tuple can match, so none is searched for or inserted.

Percentiles are over single tuples. The speed of a contender is the inverse of its mean latency.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from millrace.bench.harness import Answer, Case, Contender
from millrace.host.base.types import Array
from millrace.host.join.pimtree.control_block import Control
from millrace.host.join.pimtree.pair_ring import PairRing
from millrace.host.join.pimtree.sides import MergeSide
from millrace.host.live.ring_engine import RingEngine
from millrace.host.live.ring_kernel import put_tuples, take_pairs
from millrace.host.runtime.intrinsics import address, atomic_load, load, store
from millrace.host.runtime.jit import kernel
from millrace.host.runtime.thread_sleep import await_event, now, pause

GAP = 10_000
"""Nanoseconds from tuple to tuple."""
MATCHES = 2
MERGE_RATIO = 1 / 8
TASK_ROWS = 8
WORKERS = 2
BUFFER = 1 << 12
WORD = np.dtype(np.uint32)


def cases(windows: tuple[int, ...]) -> Iterator[Case]:
    """One case per window."""
    for window in windows:
        tuples = int(2.5 * MERGE_RATIO * window)
        contenders = [
            Contender("pim on cpu, ring to ring", partial(Latency, window, tuples), "pim", "cpu", "cpu"),
            Contender("blocking merge", partial(Latency, window, tuples, blocking=True), answers=False),
            Contender("pass-through", partial(Latency, window, tuples, passing=True), answers=False),
        ]
        facts = {"window": window, "tuples_per_second": 1e9 / GAP, "workers": WORKERS, "match_rate": MATCHES}
        name = f"latency-2^{window.bit_length() - 1}"
        yield Case(name, "1/s", contenders, facts, check_steps=0, round=tuples, warm_work=tuples, step_unit="us")


@kernel
def _generate(control: int, source: int, count: int, due: int, like: Any) -> None:
    """Put tuples, one every `GAP` nanoseconds."""
    start = now() + GAP
    for n in range(count):
        store(due, n, start + n * GAP)
        while now() < start + n * GAP:
            pause()
        while put_tuples(control, n & 1, source, n, 1, like) == 0:
            pause()


@kernel
def _read(control: int, first: int, count: int, due: int, latencies: int, buffer: int) -> None:
    """Take pairs until `count` tuples after the first `first` are done; note the latency of each."""
    ring, n = load(control, Control.RING), 0
    while n < count:
        seen = atomic_load(ring + 8 * PairRing.PROGRESS)
        take_pairs(control, buffer, BUFFER)
        done = atomic_load(ring + 8 * PairRing.TUPLES) - first
        if done > n:
            time = now()
            for k in range(n, done):
                store(latencies, k, time - load(due, k))
            n = done
        else:
            await_event(ring + 8 * PairRing.PROGRESS, seen, 50_000_000)


class Latency:
    """An engine with full windows; each step is one tuple of the last round."""

    def __init__(self, window: int, tuples: int, blocking: bool = False, passing: bool = False) -> None:
        """Fill both windows with uniform keys."""
        self._rng = np.random.default_rng(7)
        sides = [MergeSide(WORD, window, TASK_ROWS, MERGE_RATIO, None) for _ in "rs"]
        for side in sides:
            side.load_live(0, self._keys(window), np.ones(window, np.bool_))
        width = MATCHES * 2**32 // (2 * window)
        self._engine = RingEngine((sides[0], sides[1]), ((width, width),) * 2, threads=WORKERS, blocking=blocking)
        self._live = np.full(tuples, int(not passing), np.uint8)
        self._due, self._times = np.zeros(tuples, np.int64), np.zeros(tuples, np.int64)
        self._buffer = np.zeros((BUFFER, 2), np.int64)
        self._latencies: list[float] = []

    def _keys(self, count: int) -> Array:
        return self._rng.integers(0, 2**32, count, dtype=np.uint32)

    def step(self) -> tuple[float, float]:
        """The latency of the next tuple; at the end of a round, run another one."""
        if not self._latencies:
            self._run()
        return 1.0, self._latencies.pop()

    def _run(self) -> None:
        count, control = len(self._times), address(self._engine.control)
        words = self._keys(count)
        source = np.array([address(words), address(self._live), 0, 0], np.int64)
        given = (control, self._engine.arrived, count, address(self._due), address(self._times), address(self._buffer))
        reader = threading.Thread(target=_read, args=given, daemon=True)
        reader.start()
        _generate(control, address(source), count, address(self._due), WORD.type(0))
        reader.join()
        self._latencies = (self._times * 1e-9).tolist()

    def answer(self) -> Answer:
        """Not compared: `tests/host/live` compares the pairs."""
        return {}

    def pause(self) -> None:
        """Begin the next slice with a new round."""
        self._latencies = []

    def close(self) -> None:
        """Stop the workers."""
        self._engine.close()
