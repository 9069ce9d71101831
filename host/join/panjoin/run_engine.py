"""The run engine: sorted runs in a device's memory, merged, sampled and probed there.

A typed interface to any device that offers the three units of BI-Sort (PanJoin, III-D and IV). BI-Sort uses devices
only through it. Runs persist between calls, so no run is sent twice. Ids stay on the device too; the host keeps a
mirror of them (as PanJoin's manager does), which is read when pairs are first wanted from a run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from millrace.host.base.errors import DeviceFault
from millrace.host.base.faults import ARMED, fault_point
from millrace.host.base.types import Array, Ids
from millrace.host.device.contract import Buffer, Device, Launch
from millrace.host.join.panjoin.subwindow import ID_PADDING, HostRun

UNITS = frozenset({"bisort_merger", "bisort_indexer", "bisort_prober"})
TRIMMER, BAND_PROBER = "bisort_trimmer", "bisort_band_prober"
STEPS = ((1 << 19, 8), (1 << 21, 16), (1 << 31, 32))
"""Words of a partition (between two samples of the index), for runs up to a size: one cache line of 64-bit words while
the index stays small compared to the batches that are merged with it, more in large runs. In host memory it is always
one line: an index is read in sequence, which costs less than reading the lines of a partition."""

DENSE = 4
"""Up to this many words of a run per probe, the words are searched directly, without the index."""


@dataclass
class SortedRun:
    """Tuples sorted by word (equal words by id), with their sampled index."""

    size: int
    words: Buffer
    ids: Buffer
    index: Buffer
    step: int
    mirror: Ids | None = None
    pending: PendingMerge | None = None
    """The merge that produces this run, if unfinished. The run must not be read before it is finished."""


@dataclass
class PendingMerge:
    """An unfinished merge."""

    launch: Launch
    older: SortedRun
    newer: SortedRun


@dataclass
class PendingProbe:
    """An unfinished probe of a run."""

    launch: Launch
    starts: Buffer
    ends: Buffer
    size: int
    rows: int
    """The size of the run."""


class RunEngine:
    """Runs on one device."""

    def __init__(self, device: Device) -> None:
        """`device` offers at least `UNITS`."""
        self.device = device

    def _step(self, size: int) -> int:
        """The words per partition in a run of a given size."""
        return STEPS[0][1] if self.in_host_memory else next(step for limit, step in STEPS if size <= limit)

    def _launch(self, unit: str, buffers: Sequence[Buffer], scalars: Sequence[int]) -> Launch:
        if ARMED:
            fault_point("bisort.launch")
        return self.device.launch(unit, buffers, scalars)

    def run(self, words: Array, ids: Ids) -> SortedRun:
        """Make a run of sorted tuples. Takes ownership of the arrays; `ID_PADDING` more ids must be readable."""
        return self._indexed(len(words), self.device.adopt(words), self.device.adopt(ids, ID_PADDING))

    def merge(self, older: SortedRun, newer: SortedRun) -> SortedRun:
        """Merge two runs into one and free them. In host memory the merge only starts; it is finished on first use."""
        size = older.size + newer.size
        words, ids = self.device.alloc(size, older.words.dtype), self.device.alloc(size + ID_PADDING, older.ids.dtype)
        step = self._step(size)
        index = self.device.alloc(-(-size // step), words.dtype)
        self._finish_merge(older)
        self._finish_merge(newer)
        buffers = [older.words, older.ids, newer.words, newer.ids, words, ids, index]
        launch = self._launch("bisort_merger", buffers, (older.size, newer.size, step))
        run = SortedRun(size, words, ids, index, step, pending=PendingMerge(launch, older, newer))
        return run if self.in_host_memory else self._finish_merge(run)

    def _finish_merge(self, run: SortedRun) -> SortedRun:
        """Wait for the merge that produces a run, if any, and return the run."""
        pending, run.pending = run.pending, None
        if pending is not None:
            self.device.wait(pending.launch)
            self.free(pending.older)
            self.free(pending.newer)
        return run

    @property
    def trims(self) -> bool:
        """Whether the device can `trim`."""
        return TRIMMER in self.device.units

    def trim(self, run: SortedRun, oldest: int) -> SortedRun:
        """Replace a run by its tuples from id `oldest` on."""
        self._finish_merge(run)
        words, ids = (
            self.device.alloc(run.size, run.words.dtype),
            self.device.alloc(run.size + ID_PADDING, run.ids.dtype),
        )
        launch = self._launch(TRIMMER, [run.words, run.ids, words, ids], (run.size, oldest))
        left = self.device.wait(launch)["rows"]
        self.free(run)
        return self._indexed(left, words, ids)

    def _indexed(self, size: int, words: Buffer, ids: Buffer) -> SortedRun:
        step = self._step(size)
        index = self.device.alloc(-(-size // step), words.dtype)
        self.device.wait(self._launch("bisort_indexer", [words, index], (size, step)))
        return SortedRun(size, words, ids, index, step)

    @property
    def in_host_memory(self) -> bool:
        """Whether the runs are in host memory."""
        return self.device.shares_host_memory

    def host_run(self, run: SortedRun, probes: int) -> HostRun:
        """A run for the host to probe directly, with `probes` probes."""
        self.device.count("bisort_prober", probes)
        host = self.host_words(run)
        return HostRun(host.words, host.words, run.size, 1) if run.size <= DENSE * probes else host

    def host_words(self, run: SortedRun) -> HostRun:
        """The words of a run in host memory, and their index."""
        self._finish_merge(run)
        words, index = self.device.view(run.words, run.size), self.device.view(run.index, run.index.size)
        return HostRun(words, index, run.size, run.step)

    def free(self, run: SortedRun) -> None:
        """Free a run."""
        self._finish_merge(run)
        for buffer in (run.words, run.ids, run.index):
            self.device.free(buffer)

    def send(self, bounds: Array) -> Buffer:
        """Send ascending bounds to the device. Takes ownership of the array."""
        return self.device.adopt(bounds)

    def free_bounds(self, bounds: list[Buffer]) -> None:
        """Free bounds that no unfinished probe needs. In host memory they still belong to the sender."""
        if not self.in_host_memory:
            for buffer in bounds:
                self.device.free(buffer)

    def probe(self, run: SortedRun, low: Buffer, high: Buffer, size: int) -> PendingProbe:
        """Start to look up `size` bounds in a run."""
        self._finish_merge(run)
        starts, ends = (self.device.alloc(size, np.dtype(np.uint32)) for _ in range(2))
        buffers = [run.words, run.index, low, high, starts, ends]
        launch = self._launch("bisort_prober", buffers, (run.size, run.step, size))
        return PendingProbe(launch, starts, ends, size, run.size)

    def probe_band(self, run: SortedRun, keys: Buffer, band: tuple[int, int], size: int) -> PendingProbe:
        """Start to look up the band around each of `size` ascending keys. The device computes the bounds."""
        self._finish_merge(run)
        starts, ends = (self.device.alloc(size, np.dtype(np.uint32)) for _ in range(2))
        scalars = (run.size, run.step, size, *band, 0, int(np.iinfo(run.words.dtype).max))
        launch = self._launch(BAND_PROBER, [run.words, run.index, keys, starts, ends], scalars)
        return PendingProbe(launch, starts, ends, size, run.size)

    def match_bounds(self, probing: PendingProbe) -> tuple[Ids, Ids]:
        """Wait for a probe. Returns where the partners of each bound begin and end in the run."""
        self.device.wait(probing.launch)
        starts, ends = self.device.view(probing.starts, probing.size), self.device.view(probing.ends, probing.size)
        if not self.in_host_memory and probing.size and max(int(starts.max()), int(ends.max())) > probing.rows:
            # Kernels do not check their input: a faulty device must not crash this process.
            raise DeviceFault(f"device {self.device.name!r} found tuples beyond the end of a run of {probing.rows}")
        return starts, ends

    def free_probe(self, probing: PendingProbe) -> None:
        """Free the results of a probe."""
        self.device.free(probing.starts)
        self.device.free(probing.ends)

    def ids(self, run: SortedRun) -> Ids:
        """The ids of a run, in its order. `ID_PADDING` more can be read."""
        if run.mirror is None:
            # The buffer has this padding, so the copy has it too.
            run.mirror = self.device.view(run.ids, run.size + ID_PADDING)
        return run.mirror
