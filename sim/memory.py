"""The memory of simulated boards: a large address space without reserved pages, and an allocator of buffers in it.

Buffers begin at multiples of 128 bytes, a beat of the widest port. Sizes are rounded up to powers of two, so a freed
buffer can be reused for any later one of its size class without a search. Limit: adjacent free buffers are not joined.
"""

from __future__ import annotations

import mmap
from typing import Any

import numpy as np

from millrace.host.base.errors import DeviceFault
from millrace.host.base.types import Array

BYTES = 1 << 33
"""Two channels of 4 GiB, as on the paper's board."""
ALIGN = 128
_NORESERVE = 0x4000
"""MAP_NORESERVE of Linux, missing in Python's mmap: pages are allocated when they are touched."""


class Memory:
    """The bytes of a memory, and the allocator of its buffers."""

    def __init__(self, size: int = BYTES) -> None:
        """All memory is free; address 0 is never allocated."""
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NORESERVE
        self._map = mmap.mmap(-1, size, flags=flags)
        self.size = size
        self.cells: np.ndarray[Any, np.dtype[np.uint8]] = np.frombuffer(self._map, np.uint8)
        self._top = ALIGN
        self._free: dict[int, list[int]] = {}
        self._class: dict[int, int] = {}

    @property
    def pointer(self) -> int:
        """The address of the bytes in this process."""
        return int(self.cells.ctypes.data)

    def alloc(self, size: int) -> int:
        """Allocate `size` bytes and return their address."""
        rounded = max(ALIGN, 1 << (size - 1).bit_length())
        freed = self._free.get(rounded)
        if freed:
            address = freed.pop()
        elif self._top + rounded <= self.size:
            address, self._top = self._top, self._top + rounded
        else:
            raise DeviceFault(f"a buffer of {size} bytes does not fit: {self.size - self._top} are free; free buffers")
        self._class[address] = rounded
        return address

    def free(self, address: int) -> None:
        """Free what `alloc` returned."""
        self._free.setdefault(self._class.pop(address), []).append(address)

    def view(self, address: int, count: int, dtype: np.dtype[Any]) -> Array:
        """A view of elements, without a copy."""
        return self.cells[address : address + count * dtype.itemsize].view(dtype)
