"""cocotb bench of `bisort_prober`: positions, one request per partition, no words left over, cycles."""

from __future__ import annotations

import random
from collections import deque
from typing import Any

import cocotb
import numpy as np

from tests.hw.reference import Beat, Words, from_beats, partitions, positions, some_words, to_beats
from tests.hw.simulate import SMALL
from tests.hw.streams import KEY_W, MATRIX, Bench, Sink, Source, W, lasts

PART_W = SMALL["PART_W"]


class Memory:
    """Sends the words of each requested partition, some cycles later."""

    def __init__(self, requests: Sink, words: Source, latency: int) -> None:
        self.requests, self.words, self.latency = requests, words, latency
        self.run: Words = np.empty(0, np.uint64)
        self.step = 8
        self._due: deque[int] = deque()
        self._seen = 0

    def clock(self) -> None:
        """One cycle: records requests and sends the partitions that are due."""
        new = len(self.requests.beats) - self._seen
        self._due.extend([self.latency] * new)
        for _ in range(len(self._due)):
            self._due.append(self._due.popleft() - 1)
        while self._due and self._due[0] <= 0:
            self._due.popleft()
            first = self.requests.beats[len(self.requests.beats) - len(self._due) - 1].data * self.step
            part = [int(word) for word in self.run[first : first + self.step]]
            self.words.send(to_beats(part, KEY_W, W))
        self._seen += new


def _bound_beats(bounds: Words, found: list[int | None]) -> list[Beat]:
    users = [1 << PART_W if part is None else part for part in found]
    beats = to_beats([int(bound) for bound in bounds], KEY_W, 1)
    return [beat._replace(user=user) for beat, user in zip(beats, users or [0], strict=True)]


class Probe:
    """The prober between its bounds, its memory and its positions."""

    def __init__(self, dut: Any, idle: str, words_idle: str, pressure: str, latency: int) -> None:
        self.bench = Bench(dut, "bisort_prober")
        self.bounds = self.bench.source("s_axis", idle)
        self.requests = self.bench.sink("m_req", idle)
        self.words = self.bench.source("s_words", words_idle)
        self.sink = self.bench.sink("m_axis", pressure)
        self.memory = Memory(self.requests, self.words, latency)
        self.beats = 0

    async def look_up(self, run: Words, step_log2: int, bounds: Words, upper: bool) -> int:
        """Sends a stream of bounds and checks the positions; returns the cycles."""
        found = partitions(run[:: 1 << step_log2], bounds, upper)
        self.bench.set(upper=int(upper), step_log2=step_log2)
        self.memory.run, self.memory.step = run, 1 << step_log2
        self.bounds.send(_bound_beats(bounds, found))
        first, requested, streams = len(self.sink.beats), len(self.requests.beats), lasts(self.sink)
        cycles = await self.bench.run(lambda: lasts(self.sink) > streams, self.memory.clock)
        assert from_beats(self.sink.beats[first:], 32, 1) == [positions(run, bounds, upper)]
        wanted = sorted({part for part in found if part is not None})
        assert [beat.data for beat in self.requests.beats[requested:]] == wanted
        self.beats += sum(-(-len(run[p << step_log2 : (p + 1) << step_log2]) // W) for p in wanted)
        assert self.words.moved == self.beats
        return cycles


@cocotb.test()
@cocotb.parametrize(idle=MATRIX, words_idle=MATRIX, pressure=MATRIX)
async def finds_positions(dut: Any, idle: str, words_idle: str, pressure: str) -> None:
    """Runs with a short last partition, many equal words, bounds before, between, equal to and behind them."""
    rng = np.random.default_rng(random.getrandbits(32))
    probe = Probe(dut, idle, words_idle, pressure, latency=random.choice([1, 7, 40]))
    await probe.bench.start()
    for n, m in ((1, 3), (random.randrange(2, 200), 0), (0, 5), (random.randrange(2, 300), 40), (130, 12)):
        run = some_words(rng, n, KEY_W)
        bounds = some_words(rng, m, KEY_W)
        if n:
            bounds = np.sort(np.where(rng.random(m) < 0.5, rng.choice(run, size=m), bounds))
        await probe.look_up(run, random.choice([3, 4, 5]), bounds, random.random() < 0.5)
    await probe.bench.idle(8)


@cocotb.test()
async def costs_its_beats(dut: Any) -> None:
    """A partition costs as many cycles as it has beats; bounds in the same beat one more each."""
    run = np.arange(0, 10 * 640, 10, dtype=np.uint64)
    probe = Probe(dut, "always", "always", "always", latency=4)
    await probe.bench.start()
    step = 16
    one_each = run[::step] + np.uint64(95)
    assert await probe.look_up(run, 4, one_each, False) <= len(one_each) * step // W + 20
    dense = np.sort(np.repeat(run[::step], 24)) + np.uint64(5)
    assert await probe.look_up(run, 4, dense, True) <= len(dense) + len(run) // W + 20
