"""The cases `csim-…` of bench `hardware`: the device `hls`, HLS C++ run by g++, in tuples per second of this machine.

- `csim-merge-w…`: a batch into a run, and one run into another as long, the index made on the way.
- `csim-probe-w…`: a batch in a run whose index is on the chip, and a batch as long as the run; a tuple is a lower and
  an upper bound.

C simulation has no clock: these numbers tell how much can be tested in a second, and nothing of hardware. The peers are
`bar`, the 8 million tuples a second that were promised, and `numpy`, which does the same by sorting and by searching.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial

from millrace.bench.engine_work import Merging, Probing, Work, least_step, power
from millrace.bench.harness import Answer, Case, Contender, PeerMissing
from millrace.errors import DeviceUnavailable
from millrace.registry import device

LANES = (1, 4, 8)
BAR = 8e6
"""Tuples a second."""


def cases(size: int, batch: int, parts: int) -> Iterator[Case]:
    """For each number of lanes: merging and probing, by small and by large batches."""
    for lanes in LANES:
        name = f"hls:w{lanes}"
        for short in (batch, size):
            work = Merging(name, size, short, least_step(size + short, parts))
            yield _case(f"csim-merge-w{lanes}-{power(size)}-batch{short}", work)
        for asking in (batch, size):
            probing = Probing(name, size, asking, least_step(size, parts), resident=True)
            yield _case(f"csim-probe-w{lanes}-{power(size)}-batch{asking}", probing)


def _case(name: str, work: Work) -> Case:
    contenders = [
        Contender(f"bisort on {work.device}", partial(Simulated, work), "bisort", work.device, "hls"),
        Contender("bar", partial(Bar, work), answers=False),
        Contender("numpy", partial(InNumpy, work)),
    ]
    return Case(name, "tuples/s", contenders, work.facts, check_steps=1)


class Simulated:
    """The C simulation: every step launches the same again."""

    def __init__(self, work: Work) -> None:
        """Builds it if this shape was never built before."""
        try:
            self._device = device(work.device)
        except DeviceUnavailable as reason:
            raise PeerMissing(str(reason)) from reason
        self._rows, self._job = work.rows, work.job(self._device, work.make())

    def step(self) -> tuple[float, float]:
        """One launch, until it has ended."""
        start = time.perf_counter()
        self._job.run()
        return self._rows, time.perf_counter() - start

    def answer(self) -> Answer:
        """Out of the device's memory."""
        return self._job.answer()

    def pause(self) -> None:
        """Buffers stay where they are."""

    def close(self) -> None:
        """Close the device."""
        self._device.close()


class InNumpy:
    """NumPy at the same work."""

    def __init__(self, work: Work) -> None:
        """Makes the data."""
        self._work, self._made = work, work.make()
        self._answer: Answer = {}

    def step(self) -> tuple[float, float]:
        """One call."""
        start = time.perf_counter()
        self._answer = self._work.expected(self._made)
        return self._work.rows, time.perf_counter() - start

    def answer(self) -> Answer:
        """The last one."""
        return self._answer

    def pause(self) -> None:
        """Forget it."""
        self._answer = {}

    def close(self) -> None:
        """Nothing is open."""


class Bar:
    """A contender that always does what was promised."""

    def __init__(self, work: Work) -> None:
        """As much work as the others."""
        self._rows = work.rows

    def step(self) -> tuple[float, float]:
        """In no time, but told as the promise has it."""
        return self._rows, self._rows / BAR

    def answer(self) -> Answer:
        """None."""
        return {}

    def pause(self) -> None:
        """Nothing to let go."""

    def close(self) -> None:
        """Nothing is open."""
