"""The search engine: inner segments of HB+-Trees that live on a device, and buckets of queries searched there.

A typed view on any device that offers `hb_search_implicit` or `hb_search_regular`, and all that the pipeline above it
knows of devices (thesis, appendix A, 5.2 to 5.5). A segment is sent once and stays. A *lane* holds the buffers of one
bucket; a bucket's queries may be in parts that begin at different levels, which are searched one after the other.

The device contract lets one thread at a time use a device, so lanes take turns at each call, waiting included. Two
optional abilities of a device, asked for by their methods, do better: `Lanes`, command queues beside each other, so
that sending, searching and receiving overlap; and `Staging`, host memory that it copies from and to faster (pinned or
mapped). Limit: a device with `memory` says no to a segment that does not fit in it beforehand; one without fails.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from millrace.host.base.errors import ArgumentError, DeviceFault, DeviceUnavailable
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
    """An optional ability of a device: several queues of commands that run beside each other."""

    def lane(self) -> Device:
        """Another queue on this device, for another thread: it takes this device's buffers, and closes on its own."""


@runtime_checkable
class Staging(Protocol):
    """An optional ability of a device: host memory that copies to and from it are fastest with."""

    def staging(self, size: int, dtype: np.dtype[Any]) -> Array:
        """Such an array; the device takes it back when nobody holds it any more, and makes the next one quickly."""

    def read_into(self, buffer: Buffer, offset: int, out: Array) -> None:
        """Copy elements of a buffer, from `offset` on, into an array."""


class Tree(Protocol):
    """What an engine sends of a tree."""

    @property
    def layout(self) -> Any:
        """`implicit` or `regular`."""

    @property
    def word(self) -> np.dtype[Any]:
        """The type of its words."""

    @property
    def fanout(self) -> int:
        """The children of a node."""

    @property
    def levels(self) -> int:
        """Its inner levels."""

    @property
    def nodes(self) -> Array:
        """The I-segment."""

    @property
    def offsets(self) -> Array:
        """The first node of each level; of an implicit tree."""

    @property
    def last(self) -> int:
        """Where the last inner level begins; of a regular tree."""


@runtime_checkable
class Pooled(Protocol):
    """A tree whose inner nodes lie in pools that grow: what is sent has room for new ones."""

    @property
    def node_words(self) -> int:
        """Words of the segment."""

    def node_pieces(self) -> list[tuple[int, Array]]:
        """What is in it: words, and from which word of the segment on."""


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
    """Queries of a bucket that begin at level `depth`, at the nodes `at`; at level 0 all begin at the root."""

    queries: Array
    at: Numbers | None
    depth: int


@dataclass
class Searching:
    """Queries under way through a segment."""

    lane: EngineLane
    size: int


class SearchEngine:
    """Segments on one device."""

    def __init__(self, device: Device, clock: Clock = WALL) -> None:
        """`device` offers at least one of `UNITS`."""
        self.device = device
        self.overlaps = isinstance(device, Lanes)
        """Whether lanes run beside each other."""
        self._turns: AbstractContextManager[object] = nullcontext() if self.overlaps else clock.lock()

    def load(self, tree: Tree) -> Segment:
        """Send a tree's inner nodes, or raise `DeviceUnavailable` if the device cannot take or walk them."""
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
                f"an implicit tree of fan-out {tree.fanout} is for the CPU alone; devices walk one of fan-out "
                f"{LINE // tree.word.itemsize}: build it as hybrid"
            )
        sent = _sent(tree)
        self._check_room(sum(size * dtype.itemsize for size, dtype, _ in sent))
        buffers: list[Buffer] = []
        with self._turns:
            try:
                for size, dtype, pieces in sent:
                    buffers.append(self.device.alloc(size, dtype))
                    for place, words in pieces:
                        self.device.write(buffers[-1], place, words)
            except BaseException:
                _free(self.device, buffers)
                raise
        scalars = (tree.levels,) if implicit else (tree.levels, tree.last)
        return Segment(unit, tuple(buffers), scalars, tree.levels, tree.word)

    def send(self, segment: Segment, place: int, words: Array) -> None:
        """Send words of a segment again, from word `place` on."""
        with self._turns:
            self.device.write(segment.buffers[0], place, words)

    def _check_room(self, wanted: int) -> None:
        room: int | None = getattr(self.device, "memory", None)
        if room is not None and wanted > room:
            raise DeviceUnavailable(
                f"the tree's inner nodes need {wanted:,} bytes on device {self.device.name!r}, which has {room:,}: "
                f"{wanted - room:,} too few; use device='cpu', or fallback='cpu' to go there by itself"
            )

    def lane(self, segment: Segment, size: int) -> EngineLane:
        """Room for one bucket of up to `size` queries at a time, for one thread."""
        device = self.device.lane() if isinstance(self.device, Lanes) else self.device
        return EngineLane(device, self._turns, segment, size, own=device is not self.device)

    def staging(self, size: int, dtype: np.dtype[Any]) -> Array:
        """An array for what comes from the device: in its own host memory where it has such."""
        if isinstance(self.device, Staging):
            with self._turns:
                return self.device.staging(size, dtype)
        return np.empty(size, dtype)

    def search(self, segment: Segment, queries: Array, at: Numbers | None = None, depth: int = 0) -> Searching:
        """Start searching queries from level `depth` on, where they are at nodes `at`."""
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
        """Wait for a search; the leaf line of each query."""
        searching.lane.wait()
        found: Numbers = np.empty(searching.size, NUMBER)
        searching.lane.receive([found])
        return found

    def forget(self, searching: Searching) -> None:
        """Give what a search held back."""
        searching.lane.close()

    def free(self, segment: Segment) -> None:
        """Give a segment back."""
        with self._turns:
            _free(self.device, segment.buffers, told=True)


class EngineLane:
    """Buffers for one bucket, and whatever of it is under way."""

    def __init__(
        self, device: Device, turns: AbstractContextManager[object], segment: Segment, size: int, own: bool
    ) -> None:
        """`size`: the most queries; `own`: the device is this lane's alone and is closed with it."""
        self._device, self._turns, self._segment, self._size, self._own = device, turns, segment, size, own
        self._sets: list[tuple[Buffer, Buffer, Buffer]] = []
        self._stage: Array | None = None
        self._parts: list[Part] = []
        self._launches: list[Launch] = []

    def send(self, parts: Sequence[Part]) -> None:
        """Copy queries, and where they are, to the device."""
        self._parts = list(parts)
        for number, part in enumerate(self._parts):
            queries, at, _ = self._set(number)
            self._write(queries, part.queries)
            if part.depth > 0:
                assert part.at is not None
                self._write(at, part.at)

    def start(self) -> None:
        """Launch the search of all parts that were sent, and return."""
        segment = self._segment
        self._launches = []
        for number, part in enumerate(self._parts):
            scalars = (len(part.queries), part.depth, *segment.scalars)
            with self._turns:
                launch = self._device.launch(segment.unit, [*segment.buffers, *self._set(number)], scalars)
            self._launches.append(launch)

    def wait(self) -> int | None:
        """Wait for the search; the nanoseconds that the device worked, if it says so."""
        worked = []
        for launch in self._launches:
            with self._turns:
                worked.append(self._device.wait(launch).get("ns"))
        self._launches = []
        return None if None in worked else sum(filter(None, worked))

    def receive(self, out: Sequence[Numbers]) -> None:
        """Copy the leaf lines of each part into an array of its size."""
        for number, found in enumerate(out):
            leaves = self._set(number)[2]
            with self._turns:
                if isinstance(self._device, Staging):
                    self._device.read_into(leaves, 0, found)
                else:
                    found[:] = self._device.read(leaves, 0, len(found))

    def close(self) -> None:
        """Wait for what is under way, give the buffers back; a fault of either is told when all has been tried."""
        launches, self._launches = self._launches, []
        sets, self._sets, self._stage = self._sets, [], None
        with self._turns:
            for launch in launches:
                with suppress(DeviceFault):  # it was told when it was waited for, or nobody wants to know
                    self._device.wait(launch)
            _free(self._device, [buffer for buffers in sets for buffer in buffers], told=True)
            if self._own:
                self._device.close()

    def _set(self, number: int) -> tuple[Buffer, Buffer, Buffer]:
        """Queries, nodes and leaves of a part; made when first used, since most buckets have one part."""
        while len(self._sets) <= number:
            made: list[Buffer] = []
            with self._turns:
                try:
                    for dtype in (self._segment.word, NUMBER, NUMBER):
                        made.append(self._device.alloc(self._size, dtype))
                except BaseException:
                    _free(self._device, made)
                    raise
            self._sets.append((made[0], made[1], made[2]))
        return self._sets[number]

    def _write(self, buffer: Buffer, data: Array) -> None:
        with self._turns:
            self._device.write(buffer, 0, self._staged(data))

    def _staged(self, data: Array) -> Array:
        """The data in the device's own host memory, where it has such."""
        if not isinstance(self._device, Staging):
            return data
        if self._stage is None:
            self._stage = self._device.staging(self._size * self._segment.word.itemsize, np.dtype(np.uint8))
        held: Array = self._stage[: data.nbytes].view(data.dtype)
        held[:] = data
        return held


def _sent(tree: Tree) -> list[tuple[int, np.dtype[Any], list[tuple[int, Array]]]]:
    """The buffers of a tree: size, type, and what goes where."""
    if isinstance(tree, Pooled):
        return [(tree.node_words, tree.word, tree.node_pieces())]
    arrays = [tree.nodes, tree.offsets.astype(NUMBER)] if tree.layout == "implicit" else [tree.nodes]
    return [(len(array), array.dtype, [(0, array)]) for array in arrays]


def _free(device: Device, buffers: Sequence[Buffer], told: bool = False) -> None:
    """Give all buffers back, whatever happens to one of them; the first fault is told if it is wanted."""
    first: Exception | None = None
    for buffer in buffers:
        try:
            device.free(buffer)
        except Exception as fault:  # a device may raise anything, and the other buffers must be given back too
            first = first or fault
    if told and first is not None:
        raise first
