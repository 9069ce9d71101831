"""Drives and monitors AXI4-Streams in cocotb: sources, sinks, their rhythms, and the bench that clocks them.

One coroutine clocks all streams of a bench, because a coroutine per stream would make cocotb several times slower.
Sinks also check the protocol: an offered beat must stay unchanged until it is accepted. Limit: a bench without progress
stops after `PATIENCE` cycles.
"""

from __future__ import annotations

import itertools
import os
import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from cocotb.clock import Clock
from cocotb.triggers import RisingEdge

from tests.hw.reference import Beat

PATIENCE = 2000
VARIANT = os.environ["UNITS_VARIANT"]
KEY_W, W = int(os.environ["UNITS_KEY_W"]), int(os.environ["UNITS_W"])
"""Set by `simulate.py` for the process that a bench runs in."""

Rhythm = Callable[[], Iterator[bool]]


def _random() -> Iterator[bool]:
    while True:
        yield random.random() < 0.5


RHYTHMS: dict[str, Rhythm] = {
    "always": lambda: itertools.repeat(True),
    "random": _random,
    # Long enough for every queue in the units to run empty or full.
    "bursts": lambda: itertools.cycle([True] * 23 + [False] * 23),
}
"""When a stream may move."""
MATRIX = os.environ["UNITS_RHYTHMS"].split(",")
"""The rhythms of the matrix of idle and back-pressure patterns."""


class Stream:
    """The signals of one stream; missing signals are None."""

    def __init__(self, dut: Any, name: str, rhythm: Iterator[bool]) -> None:
        self.valid = getattr(dut, f"{name}_tvalid")
        self.ready = getattr(dut, f"{name}_tready")
        self.data = getattr(dut, f"{name}_tdata")
        self.keep = getattr(dut, f"{name}_tkeep", None)
        self.last = getattr(dut, f"{name}_tlast", None)
        self.user = getattr(dut, f"{name}_tuser", None)
        self.rhythm = rhythm
        self.moved = 0


class Source(Stream):
    """Sends beats, in order, when its rhythm allows."""

    def __init__(self, dut: Any, name: str, rhythm: Iterator[bool]) -> None:
        super().__init__(dut, name, rhythm)
        self.waiting: deque[Beat] = deque()
        self._offered = False
        self.valid.value = 0

    def send(self, beats: Iterable[Beat]) -> None:
        """Appends beats to the queue."""
        self.waiting.extend(beats)

    def clock(self) -> None:
        """One cycle: records an accepted beat and offers the next one."""
        was_offered = self._offered
        if was_offered and self.ready.value:
            self._offered = False
            self.moved += 1
        if self._offered:
            return
        if len(self.waiting) > 0 and next(self.rhythm):
            self._drive(self.waiting.popleft())
            self._offered = True
        if self._offered != was_offered:
            self.valid.value = int(self._offered)

    def _drive(self, beat: Beat) -> None:
        self.data.value = beat.data
        for signal, value in ((self.keep, beat.keep), (self.last, int(beat.last)), (self.user, beat.user)):
            if signal is not None:
                signal.value = value


class Sink(Stream):
    """Accepts beats when its rhythm allows, and stores them."""

    def __init__(self, dut: Any, name: str, rhythm: Iterator[bool]) -> None:
        super().__init__(dut, name, rhythm)
        self.beats: list[Beat] = []
        self._refused: Beat | None = None
        self._taking = False
        self.ready.value = 0

    def clock(self) -> None:
        """One cycle: stores an accepted beat, and decides whether to accept the next."""
        if self.valid.value:
            beat = self._read()
            assert self._refused in (None, beat), "an offered beat changed before it was accepted"
            self._refused = None if self._taking else beat
            if self._taking:
                self.beats.append(beat)
                self.moved += 1
        else:
            assert self._refused is None, "an offered beat was withdrawn"
        taking = next(self.rhythm)
        if taking != self._taking:
            self._taking = taking
            self.ready.value = int(taking)

    def _read(self) -> Beat:
        keep = 1 if self.keep is None else int(self.keep.value)
        last = False if self.last is None else bool(self.last.value)
        # The data of an empty beat may be undefined.
        user = 0 if self.user is None or not keep else int(self.user.value)
        return Beat(int(self.data.value) if keep else 0, keep, last, user)


class Bench:
    """A unit, in this process's variant, with all its streams, clocked together."""

    def __init__(self, dut: Any, unit: str) -> None:
        self.dut = dut
        self.prefix = f"{VARIANT}_{unit}"
        self.streams: list[Source | Sink] = []
        self.cycles = 0

    def source(self, name: str, rhythm: str) -> Source:
        """Drives an input."""
        stream = Source(self.dut, f"{self.prefix}_{name}", RHYTHMS[rhythm]())
        self.streams.append(stream)
        return stream

    def sink(self, name: str, rhythm: str) -> Sink:
        """Monitors an output."""
        stream = Sink(self.dut, f"{self.prefix}_{name}", RHYTHMS[rhythm]())
        self.streams.append(stream)
        return stream

    def signal(self, name: str) -> Any:
        """A port that is not a stream."""
        return getattr(self.dut, f"{self.prefix}_{name}")

    def set(self, **values: int) -> None:
        """Drives inputs that are not streams."""
        for name, value in values.items():
            self.signal(name).value = value

    async def start(self) -> None:
        """Starts the clock and resets the design."""
        Clock(self.dut.clk, 10, "ns").start()
        self.dut.rst.value = 1
        for _ in range(3):
            await RisingEdge(self.dut.clk)
        self.dut.rst.value = 0
        await RisingEdge(self.dut.clk)

    async def run(self, done: Callable[[], bool], each: Callable[[], None] | None = None) -> int:
        """Clocks until done, calling `each` after every cycle; returns the number of cycles."""
        first = self.cycles
        moved, since = -1, 0
        while not done():
            await RisingEdge(self.dut.clk)
            self.cycles += 1
            for stream in self.streams:
                stream.clock()
            if each is not None:
                each()
            now = sum(stream.moved for stream in self.streams)
            since = since + 1 if now == moved else 0
            moved = now
            assert since < PATIENCE, f"no stream moved for {PATIENCE} cycles"
        return self.cycles - first

    async def idle(self, cycles: int) -> None:
        """Clocks further cycles, to check that no more beats are output."""
        end = self.cycles + cycles
        await self.run(lambda: self.cycles >= end)


def lasts(sink: Sink) -> int:
    """How many streams have ended in a sink."""
    return sum(beat.last for beat in sink.beats)
