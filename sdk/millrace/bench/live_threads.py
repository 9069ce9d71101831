"""Cases of bench `live` with several threads (PIM-Tree, section 5.2), and what the machine can give at all.

- `threads-…`: `pim` on two threads against one. Beside it `compute on 1 thread` and `… on 2 threads`: a loop of shifts
  without memory. What two threads give there is the most that they can give anywhere on this machine.
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
from millrace.host.runtime.intrinsics import load, store
from millrace.host.runtime.jit import share
from millrace.host.runtime.team import Team

ONE = Engine("pim", "one thread")
TWO = Engine("pim", "two threads", threads=2)
SCAN, SCAN_TWO = Engine("scan", "one thread"), Engine("scan", "two stripes", threads=2)
TREE, TREE_TWO = Engine("btree"), Engine("btree", "two partitions", {"partitions": 2}, threads=2)
CONTROLLED = Engine("pim", "one worker", threads=2, alone=True)
ROUNDS = 1 << 22
UNIT = "rounds/s"


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
