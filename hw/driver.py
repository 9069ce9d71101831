"""The driver of `bisort_engine`: runs commands through registers, over any transport (simulation or board).

The registers are those of `registers.py`. The host cuts a merge into slices by merge path, with a few small reads of
device memory (Odeh et al.'s diagonal search over the total order of words and ids), and a probe into equal numbers of
bounds. If an index has more samples than fit on the chip, the driver thins it out first. `begin_…` queues commands
without waiting for them (`command_queue.py`); a merge reads its runs when it begins, so what writes them must be
finished. Limits: one caller at a time; arrays begin at multiples of 128 bytes, so that a partition occupies few beats.
PanJoin, section IV.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from millrace.host.base.errors import DeviceFault
from millrace.hw import registers as reg
from millrace.hw.command_queue import Command, CommandQueue, Transport
from millrace.hw.transfers import IDS, IndexAt, RunAt, Transfer, merge_transfers, samples, transfer

MASK = 0xFFFFFFFF
MOST_COMMANDS = 2
"""Commands of one probe: with an index that must be thinned out first."""


@dataclass(frozen=True)
class Shape:
    """The parameters of an engine, read from its registers."""

    key_bits: int
    lanes: int
    index_depth: int
    clusters: int
    pairs: int
    queue: int
    build: int
    beat_bytes: int


@dataclass(frozen=True)
class BoundsBatch:
    """Bounds in memory, and where to write their positions. With `band` (below, above, least, most), `low` are keys."""

    size: int
    low: int
    high: int
    starts: int
    ends: int
    band: tuple[int, int, int, int] | None = None


class Engine:
    """One engine behind a transport."""

    def __init__(self, transport: Transport, scratch: int = 0, scratch_size: int = 0, *, sums: bool = False) -> None:
        """`scratch`: memory of `scratch_size` words for thinned-out indexes; without it, large indexes are refused.

        `sums`: read the checksums of all transfers with every result.
        """
        self._transport = transport
        self._scratch, self._scratch_size = scratch, scratch_size
        self._loaded: tuple[int, int, int] | None = None
        self.shape = self._identify()
        self.commands = CommandQueue(transport, self.shape.queue, self.shape.beat_bytes, sums)
        self._last: list[Command] = []
        self.word: np.dtype[Any] = np.dtype(np.uint32 if self.shape.key_bits == 32 else np.uint64)
        self._seen: dict[int, int] = {}
        self._totals: dict[str, int] = {}
        self._moved = True

    def _identify(self) -> Shape:
        names = (
            reg.REG_MAGIC,
            reg.REG_VERSION,
            reg.REG_BUILD_HASH,
            reg.REG_BUILD_HASH + 4,
            reg.REG_SHAPE,
            reg.REG_UNITS,
            reg.REG_PORT,
        )
        magic, version, build, build_high, shape, units, port = self._transport.read_regs(names)
        if magic != reg.MAGIC_VALUE:
            raise DeviceFault(f"no bisort engine found: MAGIC reads {magic:#010x}, not {reg.MAGIC_VALUE:#010x}")
        # Registers are only added within a major version.
        if version >> 16 != reg.VERSION_VALUE >> 16 or version < reg.VERSION_VALUE:
            raise DeviceFault(
                f"the engine has ABI {version >> 16}.{version & 0xFFFF}, this driver has "
                f"{reg.VERSION_VALUE >> 16}.{reg.VERSION_VALUE & 0xFFFF}: build them from the same sources"
            )
        depth = 1 << (shape >> 24)
        pairs, queue = units >> 8 & 255, units >> 24
        build = build_high << 32 | build
        return Shape(shape & 255, shape >> 16 & 255, depth, units & 255, pairs, queue, build, port & 0xFFFF)

    # Commands. Those that wait return the cycles they took.

    def merge(self, a: RunAt, b: RunAt, out: RunAt, index: IndexAt | None = None) -> int:
        """Merge two runs, at least one of them not empty, into `out`; with `index`, also build the index of `out`."""
        return self.finish(self.begin_merge(a, b, out, index))

    def index(self, words: int, size: int, index: IndexAt) -> int:
        """Build the index of a run of at least one word."""
        return self.finish(self.begin_index(words, size, index))

    def probe(self, words: int, size: int, index: IndexAt, batch: BoundsBatch) -> int:
        """Find the positions of bounds in a run; neither may be empty."""
        return self.finish(self.begin_probe(words, size, index, batch))

    def finish(self, begun: Sequence[Command]) -> int:
        """Wait for commands that were begun; returns their cycles or raises the engine's error."""
        try:
            cycles = sum([self.commands.finish(command) for command in begun])
        except DeviceFault:
            self._loaded = None
            raise
        self._last = list(begun)
        return cycles

    @property
    def usable(self) -> bool:
        """False if the engine hangs and could not be reset."""
        return self.commands.usable

    @property
    def can_begin(self) -> bool:
        """Whether a probe or an index can begin without a wait for earlier commands."""
        return self.commands.usable and self.commands.room >= MOST_COMMANDS

    def begin_merge(self, a: RunAt, b: RunAt, out: RunAt, index: IndexAt | None = None) -> list[Command]:
        """Queue a merge."""
        staged = {
            **_pointers(
                A_WORDS=a.words, A_IDS=a.ids, B_WORDS=b.words, B_IDS=b.ids, OUT_WORDS=out.words, OUT_IDS=out.ids
            ),
            reg.REG_A_COUNT: a.size,
            reg.REG_B_COUNT: b.size,
            reg.REG_FLAGS: 0,
        }
        if index is not None:
            staged |= _index(index) | {reg.REG_FLAGS: 1 << reg.FLAG_INDEX}
            self.forget(index.address)
        cuts = self._cuts(a, b)
        for slot, (a_end, b_end) in enumerate(cuts):
            staged |= _slot(slot, a_end, b_end)
        return [self._post(reg.OP_MERGE, staged, merge_transfers((a, b, out), cuts, self.word.itemsize, index))]

    def begin_index(self, words: int, size: int, index: IndexAt) -> list[Command]:
        """Queue the building of an index."""
        self.forget(index.address)
        staged = {**_pointers(A_WORDS=words), **_index(index), reg.REG_A_COUNT: size, reg.REG_FLAGS: 0}
        ends = _shares(size, self.shape.clusters, 16 * self.shape.lanes)
        for slot, end in enumerate(ends):
            staged |= _slot(slot, end, 0)
        bytes_ = self.word.itemsize
        moved = [
            transfer("A_WORDS", words, ends, bytes_),
            transfer("OUT_INDEX", index.address, samples(ends, index.step), bytes_),
        ]
        return [self._post(reg.OP_INDEX, staged, moved)]

    def begin_probe(self, words: int, size: int, index: IndexAt, batch: BoundsBatch) -> list[Command]:
        """Queue a probe; an index that does not fit on the chip is thinned out first."""
        first: list[Command] = []
        key = (index.address, index.samples(size), index.step)
        used, keep = index, key == self._loaded
        if index.samples(size) > self.shape.index_depth:
            used, first = self._thinned(index, size, keep)
        flags = (batch.band is not None) << reg.FLAG_BAND | keep << reg.FLAG_KEEP
        staged = {
            **_pointers(A_WORDS=words, B_WORDS=batch.low, B_IDS=batch.high, OUT_WORDS=batch.starts, OUT_IDS=batch.ends),
            **_index(used),
            reg.REG_A_COUNT: size,
            reg.REG_B_COUNT: batch.size,
            reg.REG_FLAGS: flags,
        }
        if batch.band is not None:
            staged |= _pointers(**dict(zip(("BELOW", "ABOVE", "LEAST", "MOST"), batch.band, strict=True)))
        ends = _shares(batch.size, self.shape.pairs, 64)
        for slot, end in enumerate(ends):
            staged |= _slot(slot, end, 0)
        moved = [transfer("LOW", batch.low, ends, self.word.itemsize)]
        if batch.band is None:
            moved.append(transfer("HIGH", batch.high, ends, self.word.itemsize))
        moved.append(transfer("STARTS", batch.starts, ends, IDS.itemsize))
        moved.append(transfer("ENDS", batch.ends, ends, IDS.itemsize))
        if used == index:  # a thinned-out index is no array of the host
            loaded = index.samples(size) * self.word.itemsize
            moved.append(Transfer("INDEX", ((reg.REG_INDEX_CRC, loaded, index.address + loaded),)))
        begun = [*first, self._post(reg.OP_PROBE, staged, moved)]
        self._loaded = key
        return begun

    def forget(self, address: int) -> None:
        """The memory at `address` is about to change: an index there must be loaded again."""
        if self._loaded is not None and self._loaded[0] == address:
            self._loaded = None

    def _thinned(self, index: IndexAt, size: int, keep: bool) -> tuple[IndexAt, list[Command]]:
        """A coarser index that fits on the chip: a sample of the index is a sample of the run with a larger step."""
        count = index.samples(size)
        step = 1 << reg.MIN_STEP_LOG2
        while -(-count // step) > self.shape.index_depth:
            step *= 2
        if -(-count // step) > self._scratch_size:
            raise DeviceFault(
                f"an index of {count} samples does not fit on the chip, which holds {self.shape.index_depth}: "
                f"use a step of at least {step * index.step}"
            )
        coarse = IndexAt(self._scratch, index.step * step)
        loaded = self._loaded
        first = [] if keep else self.begin_index(index.address, count, IndexAt(self._scratch, step))
        self._loaded = loaded
        return coarse, first

    def _post(self, opcode: int, staged: dict[int, int], moved: Sequence[Transfer]) -> Command:
        self._moved = True
        return self.commands.post(opcode, staged, moved)

    # Slices of a merge.

    def _cuts(self, a: RunAt, b: RunAt) -> list[tuple[int, int]]:
        """The ends of each cluster's slices of both runs: equal parts of the merged run, by merge path."""
        ends = _shares(a.size + b.size, self.shape.clusters, 16 * self.shape.lanes)
        return [self._cut(a, b, end) for end in ends]

    def _cut(self, a: RunAt, b: RunAt, end: int) -> tuple[int, int]:
        """How many tuples of each run are among the first `end` tuples of the merged run."""
        low, high = max(0, end - b.size), min(end, a.size)
        while low < high:
            middle = (low + high) // 2
            if self._before(a, middle, b, end - 1 - middle):
                low = middle + 1
            else:
                high = middle
        return low, end - low

    def _before(self, a: RunAt, i: int, b: RunAt, j: int) -> bool:
        """Whether tuple i of a precedes tuple j of b."""
        read, bytes_ = self._transport.read_mem, self.word.itemsize
        word = read(a.words + i * bytes_, 1, self.word)[0], read(b.words + j * bytes_, 1, self.word)[0]
        if word[0] != word[1]:
            return bool(word[0] < word[1])
        return bool(read(a.ids + 4 * i, 1, IDS)[0] < read(b.ids + 4 * j, 1, IDS)[0])

    # Checksums and counters.

    def sums(self) -> dict[str, int]:
        """The CRC-32 of each array that the last finished work moved, computed by the engine, by the array's name."""
        return self.commands.sums(self._last[-1])

    def use_scratch(self, address: int, size: int) -> None:
        """Memory of `size` words for thinned-out indexes."""
        self._scratch, self._scratch_size = address, size

    def counters(self) -> dict[str, int]:
        """The hardware counters since this driver was created, summed over all clusters and pairs.

        The hardware counters have 32 bits and wrap: call this at least once per 2**32 rows or beats.
        """
        offsets = {offset: name for name, offset in self._counted()} if self._moved and self.usable else {}
        self._moved = False
        for (offset, name), value in zip(offsets.items(), self._transport.read_regs(list(offsets)), strict=True):
            more = value - self._seen.get(offset, 0) & MASK
            self._seen[offset] = value
            self._totals[name] = self._totals.get(name, 0) + more
        return dict(self._totals)

    def _counted(self) -> list[tuple[str, int]]:
        found = [("commands", reg.REG_COMMANDS), ("cycles", reg.REG_CYCLES), ("index_rows", reg.REG_INDEX_ROWS)]
        for names, count in ((CLUSTER_COUNTERS, self.shape.clusters), (PAIR_COUNTERS, self.shape.pairs)):
            for name, (counter, first) in names.items():
                stride = reg.STRIDES[name]
                found += [(counter, first + k * stride) for k in range(count)]
        return found


CLUSTER_COUNTERS = {
    "MERGER_ROWS": ("merger_rows", reg.REG_MERGER_ROWS),
    "INDEXER_ROWS": ("indexer_rows", reg.REG_INDEXER_ROWS),
    "SAMPLES": ("samples", reg.REG_SAMPLES),
    "READ_BEATS": ("read_beats", reg.REG_READ_BEATS),
    "WRITE_BEATS": ("write_beats", reg.REG_WRITE_BEATS),
    "STARVED": ("starved", reg.REG_STARVED),
    "BLOCKED": ("blocked", reg.REG_BLOCKED),
    "PORT_WAITS": ("port_waits", reg.REG_PORT_WAITS),
}
PAIR_COUNTERS = {
    "LOW_ROWS": ("low_rows", reg.REG_LOW_ROWS),
    "HIGH_ROWS": ("high_rows", reg.REG_HIGH_ROWS),
    "LOW_PARTITIONS": ("partitions", reg.REG_LOW_PARTITIONS),
    "HIGH_PARTITIONS": ("partitions", reg.REG_HIGH_PARTITIONS),
    "LOW_STARVED": ("prober_starved", reg.REG_LOW_STARVED),
    "HIGH_STARVED": ("prober_starved", reg.REG_HIGH_STARVED),
}
"""Counter registers, and the names of their sums."""


def _pointers(**values: int) -> dict[int, int]:
    """Registers of 64 bits, by name, as two of 32."""
    staged = {}
    for name, value in values.items():
        offset: int = getattr(reg, f"REG_{name}")
        staged[offset], staged[offset + 4] = value & MASK, value >> 32
    return staged


def _index(index: IndexAt) -> dict[int, int]:
    step_log2 = index.step.bit_length() - 1
    if index.step != 1 << step_log2 or step_log2 < reg.MIN_STEP_LOG2:
        raise DeviceFault(f"step={index.step}: allowed are powers of two from {1 << reg.MIN_STEP_LOG2} on")
    return {**_pointers(INDEX=index.address), reg.REG_STEP_LOG2: step_log2}


def _slot(slot: int, a_end: int, b_end: int) -> dict[int, int]:
    return {
        reg.REG_SLOT_A + slot * reg.STRIDES["SLOT_A"]: a_end,
        reg.REG_SLOT_B + slot * reg.STRIDES["SLOT_B"]: b_end,
    }


def _shares(size: int, parts: int, min_size: int) -> list[int]:
    """The ends of equal parts of `size`; uses fewer parts if they would be smaller than `min_size`."""
    used = max(1, min(parts, size // min_size))
    return [size * min(part, used) // used for part in range(1, parts + 1)]
