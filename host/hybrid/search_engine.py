"""The search engine: keeps inner segments of HB+-Trees on a device, and searches buckets of queries there.

It is a typed interface to any device with the unit `hb_search_implicit` or `hb_search_regular`, and the only way the
pipeline uses devices (thesis, appendix A, 5.2 to 5.5). A segment is sent once and stays. A *lane* holds the buffers of
one bucket. A bucket may have several parts that start at different levels; they are searched one after the other.

The device contract allows one thread at a time, so lanes share a lock, which is also held while they wait. Two optional
abilities of a device, detected by their methods, do better: `Lanes`, parallel command queues, so that sending,
searching and receiving overlap; and `Staging`, host memory with faster copies (pinned or mapped). Limit: if the device
has the attribute `memory`, a segment that does not fit is refused before it is sent; otherwise the device fails.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from millrace.host.base.errors import ArgumentError, DeviceFault, DeviceUnavailable
from millrace.host.base.faults import fault_point
from millrace.host.base.types import Array
from millrace.host.device.contract import Buffer, Device, Launch
from millrace.host.runtime.clock import WALL, Clock

UNITS = {"implicit": "hb_search_implicit", "regular": "hb_search_regular"}
LINE = 64
"""Bytes of a line."""
NUMBER = np.dtype(np.uint32)
Numbers = npt.NDArray[np.uint32]


@runtime_checkable
class Lanes(Protocol):
    """An optional ability of a device: several parallel command queues."""

    def lane(self) -> Device:
        """Another queue on this device, for another thread: it uses the same buffers and is closed separately."""


@runtime_checkable
class Staging(Protocol):
    """An optional ability of a device: host memory with the fastest copies to and from it."""

    def staging(self, size: int, dtype: np.dtype[Any]) -> Array:
        """Such an array; the device reuses its memory when the array is garbage-collected."""

    def read_into(self, buffer: Buffer, offset: int, out: Array) -> None:
        """Copy elements of a buffer, from `offset` on, into an array."""


class Tree(Protocol):
    """The properties of a tree that an engine needs."""

    @property
    def layout(self) -> Any:
        """`implicit` or `regular`."""

    @property
    def word(self) -> np.dtype[Any]:
        """The word type."""

    @property
    def fanout(self) -> int:
        """Children per node."""

    @property
    def levels(self) -> int:
        """Number of inner levels."""

    @property
    def nodes(self) -> Array:
        """The I-segment."""

    @property
    def offsets(self) -> Array:
        """The first node of each level; only for an implicit tree."""

    @property
    def last(self) -> int:
        """Index in `nodes` of the last inner level; only for a regular tree."""


@runtime_checkable
class Pooled(Protocol):
    """A tree with inner nodes in pools: its segment has spare capacity for new nodes."""

    @property
    def node_words(self) -> int:
        """Capacity of the segment in words."""

    def node_pieces(self) -> list[tuple[int, Array]]:
        """Its contents as pieces: offset in the segment, and words."""


@dataclass(frozen=True)
class Segment:
    """The inner nodes of a tree on a device."""

    unit: str
    buffers: tuple[Buffer, ...]
    scalars: tuple[int, ...]
    levels: int
    word: np.dtype[Any]


@dataclass(frozen=True)
class Part:
    """Queries of a bucket that start at level `depth`, at the nodes `at`; at level 0 all start at the root."""

    queries: Array
    at: Numbers | None
    depth: int


@dataclass
class Searching:
    """A running search of queries in a segment."""

    lane: EngineLane
    size: int


class SearchEngine:
    """Segments on one device."""

    def __init__(self, device: Device, clock: Clock = WALL) -> None:
        """`device` has at least one of `UNITS`."""
        self.device = device
        self.overlaps = isinstance(device, Lanes)
        """Whether lanes run in parallel."""
        self._lock: AbstractContextManager[object] = nullcontext() if self.overlaps else clock.lock()

    def load(self, tree: Tree) -> Segment:
        """Send a tree's inner nodes, or raise `DeviceUnavailable` if the device cannot hold or walk them."""
        unit = UNITS[tree.layout]
        if unit not in self.device.units:
            able = [layout for layout, name in UNITS.items() if name in self.device.units]
            raise DeviceUnavailable(
                f"device {self.device.name!r} cannot search trees of layout {tree.layout!r} (it has no unit {unit}); "
                f"{f'it can search: {able[0]}' if able else 'it can search no trees: use another device'}"
            )
        implicit = tree.layout == "implicit"
        if implicit and tree.fanout != LINE // tree.word.itemsize:
            raise ArgumentError(
                f"an implicit tree of fan-out {tree.fanout} is for the CPU only; devices walk one of fan-out "
                f"{LINE // tree.word.itemsize}: build it as hybrid"
            )
        sent = _sent(tree)
        self._check_memory(sum(size * dtype.itemsize for size, dtype, _ in sent))
        buffers: list[Buffer] = []
        with self._lock:
            try:
                for size, dtype, pieces in sent:
                    buffers.append(self.device.alloc(size, dtype))
                    for offset, words in pieces:
                        self._write(buffers[-1], offset, words)
            except BaseException:
                _free(self.device, buffers)
                raise
        scalars = (tree.levels,) if implicit else (tree.levels, tree.last)
        return Segment(unit, tuple(buffers), scalars, tree.levels, tree.word)

    def send(self, segment: Segment, offset: int, words: Array) -> None:
        """Send words of a segment again, from word `offset` on."""
        with self._lock:
            self._write(segment.buffers[0], offset, words)

    def _write(self, buffer: Buffer, offset: int, words: Array) -> None:
        fault_point("index.send")
        self.device.write(buffer, offset, words)

    def _check_memory(self, wanted: int) -> None:
        available: int | None = getattr(self.device, "memory", None)
        if available is not None and wanted > available:
            raise DeviceUnavailable(
                f"the tree's inner nodes need {wanted:,} bytes on device {self.device.name!r}, which has "
                f"{available:,}: {wanted - available:,} too few; use device='cpu', or fallback='cpu' to continue there"
            )

    def lane(self, segment: Segment, size: int) -> EngineLane:
        """A lane for one bucket of up to `size` queries at a time, for one thread."""
        device = self.device.lane() if isinstance(self.device, Lanes) else self.device
        return EngineLane(device, self._lock, segment, size, own=device is not self.device)

    def staging(self, size: int, dtype: np.dtype[Any]) -> Array:
        """An array for results: in the device's staging memory, if it has any."""
        if isinstance(self.device, Staging):
            with self._lock:
                return self.device.staging(size, dtype)
        return np.empty(size, dtype)

    def search(self, segment: Segment, queries: Array, at: Numbers | None = None, depth: int = 0) -> Searching:
        """Start a search of queries from level `depth`, where they are at nodes `at`."""
        lane = self.lane(segment, len(queries))
        try:
            lane.send([Part(queries, at, depth)])
            lane.start()
        except BaseException:
            with suppress(DeviceFault):
                lane.close()
            raise
        return Searching(lane, len(queries))

    def leaves(self, searching: Searching) -> Numbers:
        """Wait for a search; return the leaf line of each query."""
        searching.lane.wait()
        found: Numbers = np.empty(searching.size, NUMBER)
        searching.lane.receive([found])
        return found

    def release(self, searching: Searching) -> None:
        """Free the buffers of a search."""
        searching.lane.close()

    def free(self, segment: Segment) -> None:
        """Free a segment."""
        with self._lock:
            _free(self.device, segment.buffers, raise_first=True)


class EngineLane:
    """Buffers for one bucket, and its running launches."""

    def __init__(
        self, device: Device, turns: AbstractContextManager[object], segment: Segment, size: int, own: bool
    ) -> None:
        """`size`: maximum number of queries; `own`: the device is used by this lane only and is closed with it."""
        self._device, self._lock, self._segment, self._size, self._own = device, turns, segment, size, own
        self._sets: list[tuple[Buffer, Buffer, Buffer]] = []
        self._stage: Array | None = None
        self._parts: list[Part] = []
        self._launches: list[Launch] = []

    def send(self, parts: Sequence[Part]) -> None:
        """Copy queries and their start nodes to the device."""
        self._parts = list(parts)
        for number, part in enumerate(self._parts):
            queries, at, _ = self._set(number)
            self._write(queries, part.queries)
            if part.depth > 0:
                assert part.at is not None
                self._write(at, part.at)

    def start(self) -> None:
        """Launch the search of all parts that were sent, without waiting."""
        segment = self._segment
        self._launches = []
        for number, part in enumerate(self._parts):
            scalars = (len(part.queries), part.depth, *segment.scalars)
            fault_point("index.search")
            with self._lock:
                launch = self._device.launch(segment.unit, [*segment.buffers, *self._set(number)], scalars)
            self._launches.append(launch)

    def wait(self) -> int | None:
        """Wait for the search; return the device's working time in nanoseconds, if it reports it."""
        worked = []
        for launch in self._launches:
            with self._lock:
                worked.append(self._device.wait(launch).get("ns"))
        self._launches = []
        return None if None in worked else sum(filter(None, worked))

    def receive(self, out: Sequence[Numbers]) -> None:
        """Copy the leaf lines of each part into an array of its size."""
        for number, found in enumerate(out):
            leaves = self._set(number)[2]
            with self._lock:
                if isinstance(self._device, Staging):
                    self._device.read_into(leaves, 0, found)
                else:
                    found[:] = self._device.read(leaves, 0, len(found))

    def close(self) -> None:
        """Wait for running launches and free all buffers; raise the first fault of freeing at the end."""
        launches, self._launches = self._launches, []
        sets, self._sets, self._stage = self._sets, [], None
        with self._lock:
            for launch in launches:
                with suppress(DeviceFault):  # it was raised by `wait` already, or it does not matter any more
                    self._device.wait(launch)
            _free(self._device, [buffer for buffers in sets for buffer in buffers], raise_first=True)
            if self._own:
                self._device.close()

    def _set(self, number: int) -> tuple[Buffer, Buffer, Buffer]:
        """Buffers of a part: queries, nodes, leaves. Allocated on first use, since most buckets have one part."""
        while len(self._sets) <= number:
            made: list[Buffer] = []
            with self._lock:
                try:
                    for dtype in (self._segment.word, NUMBER, NUMBER):
                        made.append(self._device.alloc(self._size, dtype))
                except BaseException:
                    _free(self._device, made)
                    raise
            self._sets.append((made[0], made[1], made[2]))
        return self._sets[number]

    def _write(self, buffer: Buffer, data: Array) -> None:
        with self._lock:
            self._device.write(buffer, 0, self._staged(data))

    def _staged(self, data: Array) -> Array:
        """The data in the device's staging memory, if it has any."""
        if not isinstance(self._device, Staging):
            return data
        if self._stage is None:
            self._stage = self._device.staging(self._size * self._segment.word.itemsize, np.dtype(np.uint8))
        held: Array = self._stage[: data.nbytes].view(data.dtype)
        held[:] = data
        return held


def _sent(tree: Tree) -> list[tuple[int, np.dtype[Any], list[tuple[int, Array]]]]:
    """The buffers of a tree: size, type, and pieces with their offsets."""
    if isinstance(tree, Pooled):
        return [(tree.node_words, tree.word, tree.node_pieces())]
    arrays = [tree.nodes, tree.offsets.astype(NUMBER)] if tree.layout == "implicit" else [tree.nodes]
    return [(len(array), array.dtype, [(0, array)]) for array in arrays]


def _free(device: Device, buffers: Sequence[Buffer], raise_first: bool = False) -> None:
    """Free all buffers, even if one fails; then raise the first fault if `raise_first`."""
    first: Exception | None = None
    for buffer in buffers:
        try:
            device.free(buffer)
        except Exception as fault:  # a device may raise any exception; the other buffers must still be freed
            first = first or fault
    if raise_first and first is not None:
        raise first
