"""The one allocator of the library: keeps freed memory for reuse, and asks for huge pages.

New memory costs a page fault per page, often more than the work that is done in it. So freed blocks are kept by size
class, up to `MAX_KEPT` bytes in a process, and serve the next arrays of their class; blocks of classes that were not
used for longest are unmapped first. Random reads in large arrays need a TLB entry per page, so blocks of 2 MiB or more
are advised to be huge pages (thesis, appendix A, section 4).

- `allocate`: an uninitialised array. Its memory returns to the allocator when `free` is called, or when the last
  reference to it (the array, a view, an Arrow buffer) is gone. So the memory of a result that the user drops is
  reused, and a block is never free and in use at once.
- `result_array`: the same for arrays that users keep: small ones are plain NumPy arrays, without a page of their own.
- `huge_array`: a zeroed array for long-lived data; its memory returns to the system.

Guarantees: an array of `allocate` or `huge_array` begins at a page, `SPARE` bytes beyond its end can be read, and no
block is handed out twice: freeing an array again, or one from elsewhere, does nothing. All functions may be called from
any thread, and references may be dropped anywhere, also by the garbage collector. Mappings are private: a forked
child gets its own copy when it writes; it starts with no kept memory.
"""

from __future__ import annotations

import mmap as mmap_module
import threading
import weakref
from collections import deque
from mmap import mmap
from typing import Any

import numpy as np

from millrace.host.base.faults import ARMED, fault_point
from millrace.host.base.types import Array
from millrace.host.runtime.fork import reset_in_child

SPARE = 128
"""Bytes that can be read beyond the end of an array: two cache lines."""
MAX_KEPT = 1 << 29
"""The most bytes of freed blocks that a process keeps."""
MIN_RESULT = 1 << 16
"""Results of fewer bytes are plain NumPy arrays."""
_HUGE = 1 << 21
_MIN_BLOCK = 1 << 12
_STEPS = 4
"""Size classes per power of two: no block is more than a quarter larger than requested."""
_PRIVATE: int = getattr(mmap_module, "MAP_PRIVATE", 0) | getattr(mmap_module, "MAP_ANONYMOUS", 0)


def huge_array(size: int, dtype: np.dtype[Any] | type) -> Array:
    """Return a new zeroed array, aligned to a huge page, or to a page if it is smaller than a huge page."""
    kind = np.dtype(dtype)
    length = size * kind.itemsize
    if length < _HUGE:
        memory = mmap(-1, length + SPARE, flags=_PRIVATE)
        return np.frombuffer(memory, kind, size)
    memory = mmap(-1, length + SPARE + _HUGE, flags=_PRIVATE)
    advice = getattr(mmap_module, "MADV_HUGEPAGE", None)
    if advice is not None:
        memory.madvise(advice)
    begin = -np.frombuffer(memory, np.uint8).ctypes.data % _HUGE
    return np.frombuffer(memory, kind, size, begin)


def size_class(size: int) -> int:
    """Return the size of the block, in bytes, for a request of `size` bytes."""
    if size <= _MIN_BLOCK:
        return _MIN_BLOCK
    step = 1 << max((size - 1).bit_length() - 1 - (_STEPS.bit_length() - 1), 0)
    return -(-size // step) * step


class _Lease(weakref.ref[Array]):
    """A block in use. Refers to the array that all views of the block hold; its callback runs when that is gone."""

    __slots__ = ("block", "key")
    block: memoryview
    key: int


class Allocator:
    """Kept blocks by size class, and which blocks are in use."""

    def __init__(self, max_kept: int = MAX_KEPT) -> None:
        """An allocator that keeps nothing yet."""
        self._max_kept = max_kept
        self._leases: dict[int, _Lease] = {}
        self.reset_after_fork()
        reset_in_child(self)

    def reset_after_fork(self) -> None:
        """Keep nothing: another thread may have been changing the lists during the fork."""
        # Taken by `with` alone, which no signal can separate from the release. Re-entrant: a reference may be dropped
        # while this thread holds the lock; a block that is lost then is unmapped.
        self._lock = threading.RLock()
        self._returned: deque[memoryview] = deque()
        """Blocks that are not in `_free` yet."""
        self._free: dict[int, list[memoryview]] = {}
        """Blocks by size; the sizes in order of their last return."""
        self._kept = 0

    @property
    def kept(self) -> int:
        """The bytes of all kept blocks."""
        with self._lock:
            return sum(size * len(blocks) for size, blocks in self._free.items())

    @property
    def in_use(self) -> int:
        """The bytes of all blocks in use, for measurements."""
        return sum(len(lease.block) for lease in list(self._leases.values()))

    def allocate(self, size: int, dtype: np.dtype[Any] | type) -> Array:
        """Return an uninitialised array of `size` elements."""
        if ARMED:
            fault_point("memory.allocate")
        kind = np.dtype(dtype)
        length = size_class(size * kind.itemsize)
        with self._lock:
            blocks = self._free.get(length)
            block = blocks.pop() if blocks else None
            if block is not None:
                self._kept -= length
        if self._returned:
            self._store_returned()
        if block is None:
            block = huge_array(length, np.uint8).data
        # A new array over the block, of which every view holds a reference.
        root = np.frombuffer(block, kind, size or -1)
        lease = _Lease(root, self._dropped)
        lease.block, lease.key = block, id(root)
        self._leases[lease.key] = lease
        return root if size else root[:0]

    def free(self, array: Array) -> None:
        """Return the memory of an array, which must not be used any more; ignores arrays that are not in use here."""
        root = array.base if isinstance(array.base, np.ndarray) else array
        lease = self._leases.get(id(root))
        # `pop` decides between threads that free the same array.
        if lease is not None and lease() is root and self._leases.pop(lease.key, None) is lease:
            self._returned.append(lease.block)
            self._store_returned()

    def _dropped(self, lease: _Lease) -> None:
        """The last reference to an array is gone. Runs in any thread between any two bytecodes."""
        key = getattr(lease, "key", None)  # none if an interrupt came while the array was allocated
        if key is not None and self._leases.pop(key, None) is lease:
            self._returned.append(lease.block)
            self._store_returned()

    def _store_returned(self) -> None:
        """Add returned blocks to the free lists."""
        with self._lock:
            while self._returned:
                block = self._returned.popleft()
                size = len(block)
                blocks = self._free.pop(size, None) or []
                blocks.append(block)
                self._free[size] = blocks
                self._kept += size
                if self._kept > self._max_kept:
                    self._unmap()

    def _unmap(self) -> None:
        """Drop blocks until the limit holds."""
        # Counted anew: an interrupt may have come between a change of the lists and its count.
        self._kept = sum(size * len(blocks) for size, blocks in self._free.items())
        while self._kept > self._max_kept:
            size, blocks = next(iter(self._free.items()))
            if blocks:
                del blocks[0]
                self._kept -= size
            else:
                del self._free[size]


_allocator = Allocator()
allocate = _allocator.allocate
free = _allocator.free


def bytes_in_use() -> int:
    """Return the bytes of all arrays that are in use."""
    return _allocator.in_use


def result_array(size: int, dtype: np.dtype[Any] | type) -> Array:
    """Return an uninitialised array for a result; a small one has no `SPARE` bytes beyond its end."""
    if size * np.dtype(dtype).itemsize < MIN_RESULT:
        return np.empty(size, dtype)
    return _allocator.allocate(size, dtype)
