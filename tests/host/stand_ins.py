"""A tree and a device in plain NumPy, for tests of the search engine, the pipeline and the load balance.

`searchsorted` finds a query's leaf line, and a division the node above it in any level; so the device can check every
node that the host sends. The device counts its live buffers and can inject faults.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from millrace.host.base.errors import DeviceFault
from millrace.host.base.types import Array
from millrace.host.device.contract import Buffer, Device, Launch

FANOUT = 8


class FlatTree:
    """Sorted uint64 words below `levels` levels; the I-segment is the words themselves."""

    layout = "implicit"
    word = np.dtype(np.uint64)
    fanout = FANOUT
    last = 0

    def __init__(self, words: Array, levels: int) -> None:
        assert -(-len(words) // FANOUT) <= FANOUT**levels
        self.nodes, self.levels = words, levels
        self.offsets = np.arange(levels, dtype=np.uint32)

    def walk(self, queries: Array, depth: int, at: Array | None = None, start: int = 0) -> Array:
        if start:
            assert np.array_equal(at, nodes_of(self.nodes, queries, start, self.levels))  # type: ignore[arg-type]
        return nodes_of(self.nodes, queries, depth, self.levels)

    def leaf(self, queries: Array, leaves: Array) -> Array:
        assert np.array_equal(leaves, nodes_of(self.nodes, queries, self.levels, self.levels))
        return positions_of(self.nodes, queries)


def nodes_of(words: Array, queries: Array, depth: int, levels: int) -> Array:
    """Return the node, in level `depth`, above the line where each query is or would be."""
    lines: Array = np.minimum(np.searchsorted(words, queries), max(len(words) - 1, 0)) // FANOUT
    nodes: Array = (lines // FANOUT ** (levels - depth)).astype(np.uint32)
    return nodes


def positions_of(words: Array, queries: Array) -> Array:
    """Return the position of each query among sorted words, -1 if it is absent."""
    positions = np.searchsorted(words, queries)
    found = np.append(words, np.zeros(1, words.dtype))[positions] == queries
    return np.where(found & (positions < len(words)), positions, -1)


class FlatBuffer:
    """An array."""

    def __init__(self, size: int, dtype: np.dtype[Any]) -> None:
        self.array: Array = np.zeros(size, dtype)
        self.size, self.dtype = size, np.dtype(dtype)


class FlatLaunch:
    """A launch that is executed by `wait`."""

    def __init__(self, unit: str, buffers: Sequence[Buffer], scalars: Sequence[int]) -> None:
        self.unit, self.buffers, self.scalars = unit, buffers, scalars


class FlatDevice(Device):
    """Searches FlatTrees; `fail["wait"] = 3` makes the third wait from now on raise `error`."""

    kind = "flat"
    units = frozenset({"hb_search_implicit"})

    def __init__(self) -> None:
        self.name = "flat"
        self.live: set[Buffer] = set()
        self.calls: Counter[str] = Counter()
        self.fail: dict[str, int] = {}
        self.error: type[BaseException] = DeviceFault
        self._using = threading.Lock()

    @contextmanager
    def _call(self, name: str) -> Iterator[None]:
        """Check that one thread uses the device at a time, as the device contract requires."""
        assert self._using.acquire(blocking=False), "two threads use the device at a time"
        try:
            self.calls[name] += 1
            if name in self.fail:
                self.fail[name] -= 1
                if self.fail[name] == 0:
                    del self.fail[name]
                    raise self.error(f"lost its {name}")
            yield
        finally:
            self._using.release()

    def alloc(self, size: int, dtype: np.dtype[Any]) -> FlatBuffer:
        with self._call("alloc"):
            buffer = FlatBuffer(size, dtype)
            self.live.add(buffer)
            return buffer

    def write(self, buffer: Buffer, offset: int, data: Array) -> None:
        with self._call("write"):
            assert offset + len(data) <= buffer.size
            _array(self, buffer)[offset : offset + len(data)] = data

    def read(self, buffer: Buffer, offset: int, size: int) -> Array:
        with self._call("read"):
            return _array(self, buffer)[offset : offset + size].copy()

    def free(self, buffer: Buffer) -> None:
        _array(self, buffer)
        self.live.remove(buffer)  # after a fault in `free` the buffer counts as freed too
        with self._call("free"):
            pass

    def launch(self, unit: str, buffers: Sequence[Buffer], scalars: Sequence[int]) -> FlatLaunch:
        with self._call("launch"):
            return FlatLaunch(unit, buffers, scalars)

    def wait(self, launch: Launch) -> Mapping[str, int]:
        with self._call("wait"):
            assert isinstance(launch, FlatLaunch)
            words, _, queries, at, leaves = (_array(self, buffer) for buffer in launch.buffers)
            m, start, levels = launch.scalars
            assert m > 0
            assert start < levels
            if start:
                assert np.array_equal(at[:m], nodes_of(words, queries[:m], start, levels))
            leaves[:m] = nodes_of(words, queries[:m], levels, levels)
            return {"rows": m, "ns": 1}

    def counters(self) -> dict[str, int]:
        return dict(self.calls)


def _array(device: FlatDevice, buffer: Buffer) -> Array:
    assert isinstance(buffer, FlatBuffer)
    assert buffer in device.live
    return buffer.array
