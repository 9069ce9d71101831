"""The run engine: sorted runs that live on a device, merged, sampled and probed there.

A typed view on any device that offers the three units of BI-Sort (PanJoin, III-D and IV), and all that the structure
above it knows of devices. Runs outlive a call, so what was sent once is never sent again. Ids stay on the device too;
the host keeps a mirror of them (as PanJoin's manager does), read when pairs are first wanted from a run.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from millrace.host.base.errors import DeviceFault
from millrace.host.base.types import Array, Ids
from millrace.host.device.contract import Buffer, Device, Launch
from millrace.host.device.cpu import CpuDevice
from millrace.host.join.panjoin.subwindow import PAD, HostRun

UNITS = frozenset({"bisort_merger", "bisort_indexer", "bisort_prober"})
TRIMMER, BAND_PROBER = "bisort_trimmer", "bisort_band_prober"
STEPS = ((1 << 19, 8), (1 << 21, 16), (1 << 31, 32))
"""Words of a partition, between two samples of the index, in runs up to a size: one cache line of 64-bit words while
the index stays small beside the batches that are merged with it, more in large runs. In the host's memory it is always
one line: an index is read in sequence, and costs less there than the lines of a partition do."""

DENSE = 4
"""Words of a run for each question, up to which its words are gone through by themselves, without the index."""


@dataclass
class Run:
    """Tuples sorted by word, equal words by id, with their sampled index."""

    size: int
    words: Buffer
    ids: Buffer
    index: Buffer
    step: int
    mirror: Ids | None = None
    making: Making | None = None
    """What is still under way; nothing of the run may be looked at before."""


@dataclass
class Making:
    """A merge under way."""

    launch: Launch
    older: Run
    newer: Run


@dataclass
class Probing:
    """Bounds under way through a run."""

    launch: Launch
    starts: Buffer
    ends: Buffer
    size: int
    rows: int
    """Of the run."""


class RunEngine:
    """Runs on one device."""

    def __init__(self, device: Device) -> None:
        """`device` offers at least `UNITS`."""
        self.device = device

    def _step(self, size: int) -> int:
        """Words of a partition in a run of that size."""
        return STEPS[0][1] if self.is_near else next(step for most, step in STEPS if size <= most)

    def run(self, words: Array, ids: Ids) -> Run:
        """A run of sorted tuples, whose arrays the caller gives up; `PAD` more ids can be read."""
        return self._indexed(len(words), self.device.adopt(words), self.device.adopt(ids, PAD))

    def merge(self, older: Run, newer: Run) -> Run:
        """One run of two, which are given up; in the host's memory it is begun, and finished when it is needed."""
        size = older.size + newer.size
        words, ids = self.device.alloc(size, older.words.dtype), self.device.alloc(size + PAD, older.ids.dtype)
        step = self._step(size)
        index = self.device.alloc(-(-size // step), words.dtype)
        self._made(older)
        self._made(newer)
        buffers = [older.words, older.ids, newer.words, newer.ids, words, ids, index]
        launch = self.device.launch("bisort_merger", buffers, (older.size, newer.size, step))
        run = Run(size, words, ids, index, step, making=Making(launch, older, newer))
        return run if self.is_near else self._made(run)

    def _made(self, run: Run) -> Run:
        """The run itself, once it is there."""
        making, run.making = run.making, None
        if making is not None:
            self.device.wait(making.launch)
            self.free(making.older)
            self.free(making.newer)
        return run

    @property
    def trims(self) -> bool:
        """Whether the device can `trim`."""
        return TRIMMER in self.device.units

    def trim(self, run: Run, oldest: int) -> Run:
        """The tuples of a run from id `oldest` on, in place of the run."""
        self._made(run)
        words, ids = self.device.alloc(run.size, run.words.dtype), self.device.alloc(run.size + PAD, run.ids.dtype)
        launch = self.device.launch(TRIMMER, [run.words, run.ids, words, ids], (run.size, oldest))
        left = self.device.wait(launch)["rows"]
        self.free(run)
        return self._indexed(left, words, ids)

    def _indexed(self, size: int, words: Buffer, ids: Buffer) -> Run:
        step = self._step(size)
        index = self.device.alloc(-(-size // step), words.dtype)
        self.device.wait(self.device.launch("bisort_indexer", [words, index], (size, step)))
        return Run(size, words, ids, index, step)

    @property
    def is_near(self) -> bool:
        """Whether runs lie in the host's own memory."""
        return isinstance(self.device, CpuDevice)

    def near(self, run: Run, questions: int) -> HostRun:
        """A run to be probed by the host itself, with so many questions."""
        assert isinstance(self.device, CpuDevice)
        self._made(run)
        self.device.count("bisort_prober", questions)
        words = self.device.view(run.words, run.size)
        if run.size <= DENSE * questions:
            return HostRun(words, words, run.size, 1)
        return HostRun(words, self.device.view(run.index, run.index.size), run.size, run.step)

    def free(self, run: Run) -> None:
        """Give a run back."""
        self._made(run)
        for buffer in (run.words, run.ids, run.index):
            self.device.free(buffer)

    def send(self, bounds: Array) -> Buffer:
        """Ascending bounds, to be probed with; their array is given up."""
        return self.device.adopt(bounds)

    def unsend(self, bounds: list[Buffer]) -> None:
        """Give bounds back that no probe under way needs; those in the host's memory are still the sender's."""
        if not self.is_near:
            for buffer in bounds:
                self.device.free(buffer)

    def probe(self, run: Run, low: Buffer, high: Buffer, size: int) -> Probing:
        """Start looking `size` bounds up in a run."""
        self._made(run)
        starts, ends = (self.device.alloc(size, np.dtype(np.uint32)) for _ in range(2))
        buffers = [run.words, run.index, low, high, starts, ends]
        launch = self.device.launch("bisort_prober", buffers, (run.size, run.step, size))
        return Probing(launch, starts, ends, size, run.size)

    def probe_band(self, run: Run, keys: Buffer, band: tuple[int, int], size: int) -> Probing:
        """Start looking up the ranges so far below and above `size` ascending keys; the device makes the bounds."""
        self._made(run)
        starts, ends = (self.device.alloc(size, np.dtype(np.uint32)) for _ in range(2))
        scalars = (run.size, run.step, size, *band, 0, int(np.iinfo(run.words.dtype).max))
        launch = self.device.launch(BAND_PROBER, [run.words, run.index, keys, starts, ends], scalars)
        return Probing(launch, starts, ends, size, run.size)

    def places(self, probing: Probing) -> tuple[Ids, Ids]:
        """Wait for a probe; where bound q's partners begin and end in the run."""
        self.device.wait(probing.launch)
        starts, ends = self.device.view(probing.starts, probing.size), self.device.view(probing.ends, probing.size)
        if not self.is_near and probing.size and max(int(starts.max()), int(ends.max())) > probing.rows:
            # Kernels trust what they are given: a device that has gone wrong must not take this process with it.
            raise DeviceFault(f"device {self.device.name!r} found tuples beyond the end of a run of {probing.rows}")
        return starts, ends

    def forget(self, probing: Probing) -> None:
        """Give what a probe found back."""
        self.device.free(probing.starts)
        self.device.free(probing.ends)

    def ids(self, run: Run) -> Ids:
        """The ids of a run, in its order; `PAD` more can be read."""
        if run.mirror is None:
            # The buffer is that much longer, so that the copy is too.
            run.mirror = self.device.view(run.ids, run.size + PAD)
        return run.mirror
