"""The `csim-…` cases of bench `hardware`: the device `hls` (HLS C++ compiled by g++), in tuples/s of this machine.

- `csim-merge-w…`: merges a batch into a run, and two runs of equal length; the merge also writes the sampled index.
- `csim-probe-w…`: probes a run whose index is on the chip with a batch, and with as many tuples as the run has. A
  tuple is a lower and an upper bound.

C simulation has no clock: these numbers say how much a test can simulate per second, nothing about hardware. The peers
are `bar`, the target of 8 million tuples/s, and `numpy`, which sorts and searches the same data.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial

from millrace.bench.engine_work import Merging, Probing, Work, min_step, power
from millrace.bench.harness import Answer, Case, Contender, PeerMissing
from millrace.errors import DeviceUnavailable
from millrace.registry import device

LANES = (1, 4, 8)
TARGET_SPEED = 8e6
"""Tuples per second."""


def cases(size: int, batch: int, parts: int) -> Iterator[Case]:
    """For each number of lanes: merging and probing, with small and large batches."""
    for lanes in LANES:
        name = f"hls:w{lanes}"
        for short in (batch, size):
            work = Merging(name, size, short, min_step(size + short, parts))
            yield _case(f"csim-merge-w{lanes}-{power(size)}-batch{short}", work)
        for probe_batch in (batch, size):
            probing = Probing(name, size, probe_batch, min_step(size, parts), resident=True)
            yield _case(f"csim-probe-w{lanes}-{power(size)}-batch{probe_batch}", probing)


def _case(name: str, work: Work) -> Case:
    contenders = [
        Contender(f"bisort on {work.device}", partial(Simulated, work), "bisort", work.device, "hls"),
        Contender("bar", partial(FixedSpeed, work), answers=False),
        Contender("numpy", partial(InNumpy, work)),
    ]
    return Case(name, "tuples/s", contenders, work.facts, check_steps=1)


class Simulated:
    """The C simulation: every step repeats the same launch."""

    def __init__(self, work: Work) -> None:
        """Builds the simulation on the first use of this shape."""
        try:
            self._device = device(work.device)
        except DeviceUnavailable as reason:
            raise PeerMissing(str(reason)) from reason
        self._rows, self._launch = work.rows, work.prepare(self._device, work.make())

    def step(self) -> tuple[float, float]:
        """Run one launch to its end."""
        start = time.perf_counter()
        self._launch.run()
        return self._rows, time.perf_counter() - start

    def answer(self) -> Answer:
        """The results, read from the device's memory."""
        return self._launch.answer()

    def pause(self) -> None:
        """Keeps its buffers."""

    def close(self) -> None:
        """Close the device."""
        self._device.close()


class InNumpy:
    """The same work in NumPy."""

    def __init__(self, work: Work) -> None:
        """Generate the data."""
        self._work, self._made = work, work.make()
        self._answer: Answer = {}

    def step(self) -> tuple[float, float]:
        """One NumPy call."""
        start = time.perf_counter()
        self._answer = self._work.expected(self._made)
        return self._work.rows, time.perf_counter() - start

    def answer(self) -> Answer:
        """The result of the last step."""
        return self._answer

    def pause(self) -> None:
        """Drop the last result."""
        self._answer = {}

    def close(self) -> None:
        """Nothing is open."""


class FixedSpeed:
    """A contender that always reports the target speed."""

    def __init__(self, work: Work) -> None:
        """The same amount of work as the others."""
        self._rows = work.rows

    def step(self) -> tuple[float, float]:
        """Do nothing; report the time that the target allows."""
        return self._rows, self._rows / TARGET_SPEED

    def answer(self) -> Answer:
        """No result."""
        return {}

    def pause(self) -> None:
        """Nothing to release."""

    def close(self) -> None:
        """Nothing is open."""
