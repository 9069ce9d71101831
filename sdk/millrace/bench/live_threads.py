"""Cases of bench `live` with several threads (PIM-Tree, section 5.2), and what the machine can give at all.

- `threads-…`: `pim` on two threads against one. Beside it `compute on 1 thread` and `… on 2 threads`: a loop of shifts
  without memory. What two threads give there is the most that they can give anywhere on this machine. And `exchange`:
  two threads pass a cache line to and fro. On a virtual machine this changes by a factor of six while it runs, as its
  host moves the cores under one L3 cache or under two, and the speed of two threads changes with it.
- `control-…`: the cost of concurrency control (Figure 12a): the protocol with one worker against none.
- `robin-…`: round-robin partitioning (Figure 8a) in the nested loop (ScaleJoin, two stripes) and in the index-based
  join (`btree`, two partitions), each on two threads, beside one thread, and `pim` on two threads.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np

from millrace.bench.harness import Answer, Case, Contender
from millrace.bench.live_workload import Engine, LiveSession, LiveWorkload
from millrace.bench.stream import Stream
from millrace.host.runtime.intrinsics import atomic_load, atomic_store, load, store
from millrace.host.runtime.jit import share
from millrace.host.runtime.kernel_args import in_own_lines
from millrace.host.runtime.team import Team

ONE = Engine("pim", "one thread")
TWO = Engine("pim", "two threads", threads=2)
SCAN, SCAN_TWO = Engine("scan", "one thread"), Engine("scan", "two stripes", threads=2)
TREE, TREE_TWO = Engine("btree"), Engine("btree", "two partitions", {"partitions": 2}, threads=2)
CONTROLLED = Engine("pim", "one worker", threads=2, alone=True)
ROUNDS = 1 << 22
UNIT = "rounds/s"
EXCHANGES, PATIENCE = 1 << 14, 1 << 20
"""Passes of the line in a step, and looks at it before a thread gives up: the other one may not have come."""


def cases(window: int, batch: int, slice_share: float) -> Iterator[Case]:
    """Two threads, then concurrency control."""
    work, size, warm = LiveWorkload(window, batch, "tuples"), window.bit_length() - 1, window / 2
    one = Contender("one thread", partial(start, work, ONE))
    ceiling = [
        Contender(
            f"compute on {threads} thread{'s' * (threads > 1)}",
            partial(Compute, threads),
            None,
            answers=False,
            unit=UNIT,
        )
        for threads in (1, 2)
    ]
    ceiling.append(Contender("exchange", Exchange, None, answers=False, unit="exchanges/s"))
    for name, engine, peers in (("threads", TWO, [one, *ceiling]), ("control", CONTROLLED, [one])):
        yield Case(
            f"{name}-2^{size}",
            "tuples/s",
            [ours(engine, work), *peers],
            work.facts,
            slice_share=slice_share,
            warm_work=warm,
        )


def round_robin(windows: Sequence[int], batch: int, slice_share: float) -> Iterator[Case]:
    """Round-robin partitioning in each window."""
    for window in windows:
        work = LiveWorkload(window, batch, "tuples")
        contenders = [ours(engine, work) for engine in (TREE, TREE_TWO, SCAN, SCAN_TWO, TWO)]
        name = f"robin-2^{window.bit_length() - 1}"
        yield Case(name, "tuples/s", contenders, work.facts, rivals=frozenset({"btree"}), slice_share=slice_share)


def ours(engine: Engine, work: LiveWorkload) -> Contender:
    """An engine as a contender of ours."""
    return Contender(engine.name, partial(start, work, engine), engine.index, "cpu", "cpu")


def start(work: LiveWorkload, engine: Engine) -> Stream:
    """A join with full windows."""
    return Stream(LiveSession(work, engine), work, ordered=True)


@share
def _shift(words: int, part: int, parts: int) -> None:
    """A chain of shifts, in registers."""
    word = load(words, 8 * part)
    for _ in range(ROUNDS):
        word ^= word << 13
        word ^= word >> 7
        word ^= word << 17
    store(words, 8 * part, word)


@share
def _exchange(words: int, part: int, parts: int) -> None:
    """Add 1 to a word whenever it is even (part 0) or odd (part 1)."""
    for n in range(part, EXCHANGES, 2):
        looks = 0
        while atomic_load(words) != n:
            looks += 1
            if looks == PATIENCE:
                return
        atomic_store(words, n + 1)


class Compute:
    """The loop on some threads; each has a cache line of its own."""

    def __init__(self, threads: int) -> None:
        """Take the helper threads at each step."""
        self._team, self._threads = Team(threads), threads
        self._words = np.arange(1, 8 * threads + 1)

    def step(self) -> tuple[float, float]:
        """Run the loop once on every thread."""
        self._team.acquire()
        try:
            begin = time.perf_counter()
            self._team.run(_shift, self._words, self._threads)
            return float(ROUNDS * self._threads), time.perf_counter() - begin
        finally:
            self._team.depth -= 1

    def answer(self) -> Answer:
        """Nothing to compare."""
        return {}

    def pause(self) -> None:
        """Nothing is held."""

    def close(self) -> None:
        """Return the helper threads."""
        self._team.close()


class Exchange(Compute):
    """Two threads that wait for each other."""

    def __init__(self) -> None:
        """A word in a cache line of its own."""
        super().__init__(2)
        self._words = in_own_lines(self._words[:1])

    def step(self) -> tuple[float, float]:
        """Pass the line to and fro; if a thread has not come, few passes are counted."""
        self._words[0] = 0
        self._team.acquire()
        try:
            begin = time.perf_counter()
            self._team.run(_exchange, self._words, 2)
            return float(max(self._words[0], 1)), time.perf_counter() - begin
        finally:
            self._team.depth -= 1
