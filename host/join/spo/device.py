"""SPO-Join on a device with memory of its own: bit arrays of rectangle queries, made by the unit `spo_bits`.

The window of each side is a list of blocks (`device_window.py`). The host looks up the bounds of new tuples in each
block, which makes a rectangle of ranks and an interval of visible positions; the device compares all ranks of a block
with all rectangles, and returns bits or counts; the host writes the set bits as partners. Tables and streams take the
same way. Limit: a query compares all tuples of a block; the CPU's engines do not.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np

from millrace.host.base.errors import DeviceFault
from millrace.host.base.faults import fault_point
from millrace.host.base.types import SIDES, Array, Mask, Positions, Side
from millrace.host.device.contract import Buffer, Launch
from millrace.host.device.units import TILE_ROWS
from millrace.host.join.contract import IndexContext, Matches, ProbeBatch, SideProbes
from millrace.host.join.pair_memory import check_fits, fits
from millrace.host.join.spo.device_window import DeviceBlock, DeviceWindow

UNIT = "spo_bits"
SLICE_WORDS = 1 << 22
"""About how many words of bits a slice of queries makes in all blocks together."""
_WORD = 32
_U32 = np.dtype(np.uint32)
_NO_POSITIONS = np.zeros(0, np.int64)


@dataclass(frozen=True)
class PendingBits:
    """An unfinished launch for some queries, by their numbers, of a block."""

    block: DeviceBlock
    queries: Positions
    launch: Launch
    bits: Buffer
    counts: Buffer


class DeviceEngine:
    """The windows of both sides."""

    def __init__(self, context: IndexContext) -> None:
        """Two empty windows."""
        self._device, most = context.device, int(context.options["merge_rows"])
        self._windows = {side: DeviceWindow(context.device, context.team, most) for side in SIDES}
        self._static = context.static

    def load(self, side: Side, first: int, words: tuple[Array, ...], live: Mask) -> None:
        """Insert earlier tuples."""
        self._windows[side].append(first, words, live)

    def step(self, batch: ProbeBatch, want_positions: bool) -> tuple[Matches, Matches]:
        """Insert, probe, expire."""
        r, s = self._windows["r"], self._windows["s"]
        self._insert("r", batch.r, batch)
        self._insert("s", batch.s, batch)
        found = self._probe(s, batch.r, want_positions), self._probe(r, batch.s, want_positions)
        r.expire(batch.keep[0])
        s.expire(batch.keep[1])
        return found

    def _insert(self, side: Side, part: SideProbes, batch: ProbeBatch) -> None:
        """Insert the new tuples that a later tuple may see."""
        alone = len(batch.order) == len(part)
        skip = min(max(batch.keep[SIDES.index(side)] - part.first, 0), len(part)) if alone else 0
        self._windows[side].append(part.first + skip, tuple(one[skip:] for one in part.words), part.live[skip:])

    def _probe(self, window: DeviceWindow, part: SideProbes, want: bool) -> Matches:
        """The partners of one side's new tuples, a slice of them at a time."""
        counts = np.zeros(len(part), np.int64)
        positions = [_NO_POSITIONS]
        rows = sum(map(len, window.blocks))
        if want and self._static and not fits(len(part) * rows):  # counting takes no memory: do that first
            check_fits(int(self._probe(window, part, want=False).counts.sum()))
        if rows:
            size = max(1, SLICE_WORDS * (1 if want else TILE_ROWS // _WORD) * _WORD // rows)
            for start in range(0, len(part), size):
                positions += self._probe_slice(window, part, slice(start, start + size), want, counts)
        return Matches(counts, np.concatenate(positions) if want else None)

    def _probe_slice(
        self, window: DeviceWindow, part: SideProbes, queries: slice, want: bool, counts: Positions
    ) -> list[Positions]:
        """Add the counts of some queries, and return their partners, query by query, if these are wanted."""
        with ExitStack() as held:
            launched = [self._launch(block, part, queries, want, held) for block in window.blocks]
            pending = [one for one in launched if one is not None]
            if not want:
                for one in pending:
                    counts[one.queries] += self._counts(one)
                return []
            found = [self._partners(one) for one in pending]
        if not found:
            return []
        owners, partners = (np.concatenate([one[i] for one in found]) for i in range(2))
        if len(found) > 1:  # blocks are in order of position, and so are the partners of a query in each
            order = np.argsort(owners, kind="stable")
            owners, partners = owners[order], partners[order]
        counts += np.bincount(owners, minlength=len(counts))
        return [partners]

    def _launch(
        self, block: DeviceBlock, part: SideProbes, queries: slice, want: bool, held: ExitStack
    ) -> PendingBits | None:
        """Start to compare the queries that may have a partner in a block; None if there is none."""
        boxes = _boxes(block, part, queries)
        some = np.flatnonzero(
            (boxes[0] < boxes[1]) & (boxes[2] < boxes[3]) & (boxes[4] < boxes[5]) & part.live[queries]
        )
        m, n = len(some), len(block)
        if m == 0:
            return None
        sizes = (6 * m, -(-n // _WORD) * m if want else 0, -(-n // TILE_ROWS) * m)
        buffers = []
        for size in sizes:
            buffers.append(self._device.alloc(size, _U32))
            held.callback(self._device.free, buffers[-1])
        self._device.write(buffers[0], 0, boxes[:, some].astype(np.uint32).ravel())
        fault_point("spo.launch")
        launch = self._device.launch(UNIT, [block.ranks, *buffers], (n, m, int(want)))
        return PendingBits(block, some + queries.start, launch, buffers[1], buffers[2])

    def _counts(self, pending: PendingBits) -> Positions:
        """Wait for the counts of a launch, and add those of all tiles."""
        self._device.wait(pending.launch)
        tiles = self._device.read(pending.counts, 0, pending.counts.size).reshape(-1, len(pending.queries))
        if int(tiles.max()) > TILE_ROWS:
            raise self._fault(TILE_ROWS)
        total: Positions = tiles.sum(axis=0, dtype=np.int64)
        return total

    def _partners(self, pending: PendingBits) -> tuple[Positions, Positions]:
        """Wait for the bits of a launch; return the query and the position of each set bit, query by query."""
        self._device.wait(pending.launch)
        bits = self._device.read(pending.bits, 0, pending.bits.size).reshape(-1, len(pending.queries))
        by_query = np.ascontiguousarray(bits.T)
        lines, columns = np.nonzero(by_query)
        words = by_query[lines, columns].astype("<u4").view(np.uint8).reshape(-1, _WORD // 8)
        word, bit = np.nonzero(np.unpackbits(words, axis=1, bitorder="little"))
        found = columns[word] * _WORD + bit
        if len(found) and int(found.max()) >= len(pending.block):
            raise self._fault(len(pending.block))
        return pending.queries[lines[word]], found + pending.block.part.first

    def _fault(self, most: int) -> DeviceFault:
        """Kernels do not check their input: a faulty device must not crash this process."""
        return DeviceFault(f"device {self._device.name!r} found tuples beyond the {most} that it was given")

    def close(self) -> None:
        """Free all memory of the device."""
        for window in self._windows.values():
            window.close()

    def reason(self) -> str:
        """Which way is taken, and why."""
        blocks = {side: len(window.blocks) for side, window in self._windows.items()}
        return f"bit arrays on {self._device.name}: {blocks['r']} blocks of r, {blocks['s']} of s"

    def counters(self) -> dict[str, int]:
        """Blocks built and dropped (`boundaries`)."""
        return {"boundaries": sum(window.boundaries for window in self._windows.values())}


def _boxes(block: DeviceBlock, part: SideProbes, queries: slice) -> Array:
    """The bounds of queries in a block: ranks of A, ranks of B and positions, each from low to below high."""
    bounds: list[Array] = []
    for words, probe in zip(block.ascending, part.probes, strict=True):
        bounds.append(np.searchsorted(words, probe.low[0, queries], "left"))
        bounds.append(np.searchsorted(words, probe.high[0, queries], "right"))
    for positions in (part.begin, part.end):
        bounds.append(np.clip(positions[queries] - block.part.first, 0, len(block)))
    return np.stack(bounds)
