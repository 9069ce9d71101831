"""The device `fpga`: runs BI-Sort's units on a board's engine, over any link.

An image has one word width. On an engine of 64 bits, 32-bit words are widened, which keeps order and equality. Whether
a buffer contains words or ids is known when a unit first uses it; until then its data stay on the host. One thread
executes the launches, so `launch` returns at once. While the engine works, the thread sends the data of the next launch
(double buffering) and queues it in the engine, if it is a probe or an index. If memory is scarce, bounds are sent in
pieces. Engine and host compute a CRC-32 of every transfer; a difference raises `DeviceFault`. Limit: the words that a
prober reads are checked when the engine indexes or merges them, not at each probe. PanJoin, section IV.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from time import perf_counter_ns
from typing import Any

import numpy as np

from millrace.host.base.errors import DeviceFault
from millrace.host.base.faults import fault_point
from millrace.host.base.types import Array
from millrace.host.device.contract import Buffer, Device, Launch, Tally
from millrace.host.device.units import Work, check
from millrace.host.runtime.critical import uninterrupted
from millrace.hw.crc import sum_of
from millrace.hw.driver import BoundsBatch
from millrace.hw.pieces import PIECE, Probed
from millrace.hw.shared_engine import EngineJob, SharedEngine, release_engine
from millrace.hw.transfers import IDS, IndexAt, RunAt


class BoardBuffer:
    """An array that stays on the host until a unit uses it, and then moves to the board."""

    def __init__(self, owner: BoardDevice, size: int, dtype: np.dtype[Any]) -> None:
        """Not allocated on the board, and without data."""
        self.owner, self.size, self.dtype = owner, size, dtype
        self.freed = False
        self.host_data: Array | None = None
        self.address: int | None = None
        self.stored = dtype
        self.sum: tuple[int, int] | None = None
        """A number of elements, from the first on, and their CRC-32."""


class BoardLaunch:
    """A unit that has been launched."""

    def __init__(self, unit: str, job: EngineJob) -> None:
        """`job` is queued or running."""
        self.unit, self.job = unit, job


class BoardDevice(Device):
    """A device on one engine of a board."""

    kind = "fpga"
    units = frozenset({"bisort_merger", "bisort_indexer", "bisort_prober", "bisort_band_prober"})

    def __init__(self, shared: SharedEngine) -> None:
        """One of the users of a shared engine."""
        self.name, self.most_rows = shared.name, shared.most_rows
        self._shared, self._engine, self._link = shared, shared.engine, shared.link
        self._pieces = shared.pieces
        self._tally, self._counted = Tally(), dict[str, int]()
        self._past = dict(shared.do(self._engine.counters))
        self._buffers: set[BoardBuffer] = set()
        self._open = True

    # Buffers.

    def alloc(self, size: int, dtype: np.dtype[Any]) -> BoardBuffer:
        """Memory on the board is allocated when a unit first uses the buffer."""
        self._check_open()
        fault_point("board.alloc")
        buffer = BoardBuffer(self, size, np.dtype(dtype))
        self._buffers.add(buffer)
        return buffer

    def write(self, buffer: Buffer, offset: int, data: Array) -> None:
        """Copy in, after all earlier launches."""
        into = self._mine(buffer)
        self._check_range("write", into, offset, len(data))
        if data.dtype != into.dtype:
            raise DeviceFault(f"device {self.name!r}: write of {data.dtype} into a buffer of {into.dtype}")
        fault_point("board.write")
        kept = data.copy()
        self._shared.do(lambda: self._put(into, offset, kept))
        self._tally.add(bytes_in=data.nbytes)

    def adopt(self, data: Array, spare: int = 0) -> BoardBuffer:
        """Use the array without a copy until it is sent to the board."""
        buffer = self.alloc(len(data) + spare, data.dtype)
        buffer.host_data = data
        self._tally.add(bytes_in=data.nbytes)
        return buffer

    def read(self, buffer: Buffer, offset: int, size: int) -> Array:
        """Copy out, after all earlier launches."""
        source = self._mine(buffer)
        self._check_range("read", source, offset, size)
        fault_point("board.read")
        data: Array = self._shared.do(lambda: self._get(source, offset, size))
        self._tally.add(bytes_out=data.nbytes)
        return data

    def free(self, buffer: Buffer) -> None:
        """Free the memory, after all earlier launches."""
        if isinstance(buffer, BoardBuffer) and buffer.freed:
            return
        mine = self._mine(buffer)
        self._shared.post(EngineJob(lambda: self._drop(mine)))
        mine.freed = True
        self._buffers.discard(mine)

    # Launches.

    def launch(self, unit: str, buffers: Sequence[Buffer], scalars: Sequence[int]) -> BoardLaunch:
        """Queue a unit."""
        mine = [self._mine(buffer) for buffer in buffers]
        work = check(self.name, self.units, unit, buffers, scalars)
        if work.word.itemsize > self._engine.word.itemsize:
            raise DeviceFault(f"device {self.name!r} has words of {self._engine.word}, keys of {work.word} do not fit")
        fault_point("board.launch")
        reads = [
            (buffer, slot.words)
            for slot, buffer in zip(work.unit.slots, mine, strict=True)
            if not slot.written and not (self._pieces and slot.name in ("low", "high", "keys"))
        ]
        ahead = (lambda: self._send(reads)) if work.rows else None
        # A merge is cut by reading its runs, which the job before may write; probes in pieces need the host in between.
        queues = work.rows and unit != "bisort_merger" and work.scalars["n"] and not self._pieces
        begin = partial(self._work, unit, work, mine)
        job = EngineJob(lambda: begin()(), ahead, begin if queues else None)
        self._shared.post(job)
        return BoardLaunch(unit, job)

    def wait(self, launch: Launch) -> Mapping[str, int]:
        """Wait for a launch; returns its rows and its time."""
        assert isinstance(launch, BoardLaunch)
        fault_point("board.wait")
        result: dict[str, int] = launch.job.wait()
        return result

    def counters(self) -> dict[str, int]:
        """Bytes in and out, rows and time per unit, and what the engine counted since this device was opened."""
        if self._open:
            with suppress(DeviceFault):  # a lost board cannot be read any more
                self._counted = self._shared.do(self._engine.counters)
        counted = {f"fpga_{name}": value - self._past.get(name, 0) for name, value in self._counted.items()}
        return self._tally.as_dict() | counted

    def close(self) -> None:
        """Free everything; counters can still be read."""
        uninterrupted(self._close)

    def _close(self) -> None:
        if not self._open:
            return
        self.counters()
        left, self._buffers = self._buffers, set()
        if self._shared.users > 1:  # another device of this process still uses the same memory
            with suppress(DeviceFault):
                self._shared.do(lambda: [self._drop(buffer) for buffer in left])
        self._open = False
        release_engine(self._shared)

    def _send(self, reads: Sequence[tuple[BoardBuffer, bool]]) -> None:
        """Send the inputs of a launch before its turn."""
        for buffer, words in reads:
            if buffer.address is None and buffer.host_data is not None and not buffer.freed:
                self._on_board(buffer, words)

    # Work; only the engine's thread runs this.

    def _work(self, unit: str, work: Work, buffers: Sequence[BoardBuffer]) -> Callable[[], dict[str, int]]:
        """Begin a launch; returns what waits for its end."""
        begin = {"bisort_merger": self._merge, "bisort_indexer": self._index}.get(unit, self._probe)
        end = begin(work.scalars, buffers) if work.rows else lambda: 0

        def finish() -> dict[str, int]:
            since = perf_counter_ns()
            counters = {"rows": work.rows, "cycles": end(), "ns": perf_counter_ns() - since}
            self._tally.add(**{f"{unit}_{name}": value for name, value in counters.items()})
            return counters

        return finish

    def _merge(self, given: Mapping[str, int], at: Sequence[BoardBuffer]) -> Callable[[], int]:
        a_n, b_n, step = given["a_n"], given["b_n"], given["step"]
        size = a_n + b_n
        a, b, out = self._run(at[0], at[1], a_n), self._run(at[2], at[3], b_n), self._run(at[4], at[5], size)
        begun = self._engine.begin_merge(a, b, out, IndexAt(self._on_board(at[6], True), step))

        def finish() -> int:
            cycles, sums = self._engine.finish(begun), self._engine.sums()
            for name, slot, count in (("A_WORDS", 0, a_n), ("A_IDS", 1, a_n), ("B_WORDS", 2, b_n), ("B_IDS", 3, b_n)):
                self._compare(at[slot], count, sums.get(name))
            for name, slot, count in (("OUT_WORDS", 4, size), ("OUT_IDS", 5, size), ("OUT_INDEX", 6, -(-size // step))):
                at[slot].sum = (count, sums[name])
            return cycles

        return finish

    def _index(self, given: Mapping[str, int], at: Sequence[BoardBuffer]) -> Callable[[], int]:
        words, index = self._on_board(at[0], True), self._on_board(at[1], True)
        begun = self._engine.begin_index(words, given["n"], IndexAt(index, given["step"]))

        def finish() -> int:
            cycles, sums = self._engine.finish(begun), self._engine.sums()
            self._compare(at[0], given["n"], sums["A_WORDS"])
            at[1].sum = (-(-given["n"] // given["step"]), sums["OUT_INDEX"])
            return cycles

        return finish

    def _probe(self, given: Mapping[str, int], at: Sequence[BoardBuffer]) -> Callable[[], int]:
        starts, ends = at[-2:]
        if given["n"] == 0:  # an empty run: every position is 0
            for found in (starts, ends):
                self._put(found, 0, np.zeros(given["m"], IDS))
            return lambda: 0
        band = None
        if "below" in given:
            band = given["below"], given["above"], given["least"], given["most"]
        run = Probed(self._on_board(at[0], True), given["n"], IndexAt(self._on_board(at[1], True), given["step"]), band)
        bounds = at[2:-2]
        if self._pieces:
            probed: Callable[[], int] = partial(self._probe_pieces, run, bounds, starts, ends, given["m"])
        else:
            probed = self._probe_at_once(run, bounds, starts, ends, given["m"])

        def finish() -> int:
            cycles = probed()
            self._compare(at[1], run.index.samples(run.size), self._engine.sums().get("INDEX"))
            return cycles

        return finish

    def _probe_at_once(
        self, run: Probed, bounds: Sequence[BoardBuffer], starts: BoardBuffer, ends: BoardBuffer, size: int
    ) -> Callable[[], int]:
        low, high = self._on_board(bounds[0], True), self._on_board(bounds[-1], True)
        batch = BoundsBatch(size, low, high, self._on_board(starts, False), self._on_board(ends, False), run.band)
        begun = self._engine.begin_probe(run.words, run.size, run.index, batch)

        def finish() -> int:
            cycles, sums = self._engine.finish(begun), self._engine.sums()
            self._compare(bounds[0], size, sums["LOW"])
            if run.band is None:
                self._compare(bounds[1], size, sums["HIGH"])
            starts.sum, ends.sum = (size, sums["STARTS"]), (size, sums["ENDS"])
            return cycles

        return finish

    def _probe_pieces(
        self, run: Probed, bounds: Sequence[BoardBuffer], starts: BoardBuffer, ends: BoardBuffer, size: int
    ) -> int:
        """Probe with two small buffers on the board in turn: one is filled while the engine works on the other."""
        arrays = [self._on_host(buffer) for buffer in bounds]
        found = np.empty((2, size), IDS)
        cycles, cuts = 0, list(range(0, size, PIECE))
        look_ahead, link = self._link.meanwhile, self._link
        self._pieces[0].fill(link, arrays, cuts[0])
        for turn, first in enumerate(cuts):
            piece, other = self._pieces[turn % 2], self._pieces[1 - turn % 2]
            count = min(PIECE, size - first)
            following = cuts[turn + 1] if turn + 1 < len(cuts) else None
            link.meanwhile = look_ahead if following is None else partial(other.fill, link, arrays, following)
            try:
                cycles += self._engine.probe(run.words, run.size, run.index, piece.batch(count, run.band))
            finally:
                link.meanwhile = look_ahead
            sums = self._engine.sums()
            self._match("bounds", sums["LOW"], piece.sums[0])
            if run.band is None:
                self._match("bounds", sums["HIGH"], piece.sums[1])
            for row, (address, name) in enumerate(zip(piece.found, ("STARTS", "ENDS"), strict=True)):
                data = link.read_mem(address, count, IDS)
                self._match("positions", sums[name], sum_of(data))
                found[row, first : first + count] = data
        self._put(starts, 0, found[0])
        self._put(ends, 0, found[1])
        return cycles

    def _run(self, words: BoardBuffer, ids: BoardBuffer, size: int) -> RunAt:
        return RunAt(self._on_board(words, True), self._on_board(ids, False), size)

    def _on_board(self, buffer: BoardBuffer, words: bool) -> int:
        """The address of a buffer on the board; allocates it and sends its data on first use."""
        if buffer.address is None:
            stored = self._engine.word if words else IDS
            buffer.address = self._link.alloc(max(1, buffer.size) * stored.itemsize)
            buffer.stored = stored
            self._engine.forget(buffer.address)
            if buffer.host_data is not None:
                data, buffer.host_data = buffer.host_data, None
                self._put(buffer, 0, data)
        elif words and buffer.stored != self._engine.word:
            raise DeviceFault(f"device {self.name!r}: a buffer of ids cannot be used for words of {self._engine.word}")
        return buffer.address

    def _put(self, buffer: BoardBuffer, offset: int, data: Array) -> None:
        if buffer.address is None:
            if offset or buffer.host_data is not None:
                data_so_far = self._on_host(buffer).copy()
                data_so_far[offset : offset + len(data)] = data
                data = data_so_far
            buffer.host_data = data
            return
        sent = np.ascontiguousarray(data, buffer.stored)
        self._engine.forget(buffer.address)
        self._link.write_mem(buffer.address + offset * buffer.stored.itemsize, sent)
        buffer.sum = (len(sent), sum_of(sent)) if offset == 0 else None

    def _get(self, buffer: BoardBuffer, offset: int, size: int) -> Array:
        if buffer.address is None:
            return self._on_host(buffer)[offset : offset + size].copy()
        raw = self._link.read_mem(buffer.address + offset * buffer.stored.itemsize, size, buffer.stored)
        if offset == 0 and buffer.sum is not None and buffer.sum[0] <= size:
            self._match("data", sum_of(raw[: buffer.sum[0]]), buffer.sum[1])
        return raw.astype(buffer.dtype)

    def _on_host(self, buffer: BoardBuffer) -> Array:
        """All elements of a buffer; those never written are zero."""
        if buffer.address is not None:
            return self._get(buffer, 0, buffer.size)
        host_data = buffer.host_data if buffer.host_data is not None else np.zeros(0, buffer.dtype)
        if len(host_data) < buffer.size:
            host_data = np.concatenate([host_data, np.zeros(buffer.size - len(host_data), buffer.dtype)])
        return host_data

    def _drop(self, buffer: BoardBuffer) -> dict[str, int]:
        buffer.host_data = None
        if buffer.address is not None:
            self._engine.forget(buffer.address)
            self._link.free(buffer.address)
            buffer.address = None
        return {}

    def _compare(self, buffer: BoardBuffer, count: int, crc: int | None) -> None:
        """Compare the engine's checksum of what it read with that of what was sent or written before."""
        if crc is not None and buffer.sum is not None and buffer.sum[0] == count:
            self._match("data", crc, buffer.sum[1])

    def _match(self, what: str, crc: int, known: int) -> None:
        if crc != known:
            raise DeviceFault(f"device {self.name!r}: {what} changed in transfer (CRC {crc:#010x}, not {known:#010x})")

    # Checks.

    def _check_open(self) -> None:
        if not self._open:
            raise DeviceFault(f"device {self.name!r} is closed; open it again")

    def _mine(self, buffer: Buffer) -> BoardBuffer:
        self._check_open()
        if not isinstance(buffer, BoardBuffer) or buffer.owner is not self:
            raise DeviceFault(f"device {self.name!r}: this buffer belongs to another device")
        if buffer.freed:
            raise DeviceFault(f"device {self.name!r}: this buffer was freed already")
        return buffer

    def _check_range(self, what: str, buffer: BoardBuffer, offset: int, size: int) -> None:
        if offset < 0 or size < 0 or offset + size > buffer.size:
            raise DeviceFault(
                f"device {self.name!r}: {what} of elements {offset} to {offset + size} of a buffer of {buffer.size}"
            )
