"""The one allocator of the library: keeps freed memory for reuse, and asks for huge pages.

New memory costs a page fault per page, often more than the work that is done in it. So freed blocks are kept by size
class, and serve the next arrays of their class: up to `MAX_KEPT` bytes in a process, and beyond that up to a quarter of
the memory as blocks that the system can take back at any time (`MADV_FREE`). Blocks of classes that were not used for
longest are lent to the system, or unmapped, first. What is kept is unmapped by `trim`, or after `IDLE_SECONDS` without
an allocation. Random reads in large arrays need a TLB entry per page, so blocks of 2 MiB or more are advised to be huge
pages (thesis, appendix A, section 4).

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

import _thread
import mmap as mmap_module
import threading
import time
import weakref
from collections import deque
from contextlib import suppress
from mmap import mmap
from typing import Any

import numpy as np

from millrace.host.base.faults import ARMED, fault_point
from millrace.host.base.memory import memory as process_memory
from millrace.host.base.types import Array
from millrace.host.runtime.fork import reset_in_child
from millrace.host.runtime.kept_blocks import KeptBlocks, lend

SPARE = 128
"""Bytes that can be read beyond the end of an array: two cache lines."""
MAX_KEPT = 1 << 29
"""The most bytes of freed blocks that a process keeps for itself."""
LENT_SHARE = 4
"""Blocks of up to one part in so many of the memory are kept beyond that, and the system can take them back."""
MIN_PROMPT = 1 << 26
"""Blocks of so many bytes return as soon as no reference is left; smaller ones with the next call."""
IDLE_SECONDS = 30.0
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

    def __init__(self, max_kept: int = MAX_KEPT, max_lent: int | None = None, idle: float = IDLE_SECONDS) -> None:
        """An allocator that keeps nothing yet. `max_lent`: default by `LENT_SHARE`; `idle`: seconds until it trims."""
        self._max_kept, self._idle_seconds = max_kept, idle
        self._max_lent = process_memory() // LENT_SHARE if max_lent is None else max_lent
        self._leases: dict[int, _Lease] = {}
        self._allocations = 0
        self._returned: deque[memoryview | _Lease] = deque()
        """Blocks that are not kept yet, and leases of arrays that are gone."""
        self.reset_after_fork()
        reset_in_child(self)

    def reset_after_fork(self) -> None:
        """Keep nothing: another thread may have been changing the lists during the fork."""
        # Taken by `with` alone, which no signal can separate from the release. Re-entrant: a reference may be dropped
        # while this thread holds the lock; a block that is lost then is unmapped.
        self._lock = threading.RLock()
        self._returned.clear()
        self._own, self._lent = KeptBlocks(), KeptBlocks()
        """Kept blocks, and those that the system can take back."""
        self._trimmer: int | None = None

    @property
    def kept(self) -> int:
        """The bytes of all kept blocks."""
        self._store_returned()
        with self._lock:
            return self._own.count() + self._lent.count()

    @property
    def in_use(self) -> int:
        """The bytes of all blocks in use, for measurements."""
        self._store_returned()
        return sum(len(lease.block) for lease in list(self._leases.values()))

    def allocate(self, size: int, dtype: np.dtype[Any] | type) -> Array:
        """Return an uninitialised array of `size` elements."""
        if ARMED:
            fault_point("memory.allocate")
        kind = np.dtype(dtype)
        length = size_class(size * kind.itemsize)
        self._allocations += 1
        if self._returned:
            self._store_returned()
        with self._lock:
            block = self._own.take(length) or self._lent.take(length)
        new = block is None
        if block is None:
            block = huge_array(length, np.uint8).data
        # A new array over the block, of which every view holds a reference.
        root = np.frombuffer(block, kind, size or -1)
        # The callback is of C where it can be: an interrupt in one of Python would be lost.
        lease = _Lease(root, self._dropped if length >= MIN_PROMPT else self._returned.append)
        lease.block, lease.key = block, id(root)
        self._leases[lease.key] = lease
        if new and length >= _HUGE and self._trimmer is None:
            self._start_trimmer()
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
        """The last reference to a large array is gone. Runs in any thread between any two bytecodes."""
        self._returned.append(lease)
        self._store_returned()

    def _store_returned(self) -> None:
        """Keep returned blocks."""
        with self._lock:
            while self._returned:
                one = self._returned.popleft()
                if isinstance(one, _Lease):
                    if not hasattr(one, "key"):  # an interrupt came while the array was allocated
                        continue
                    if self._leases.get(one.key) is one:  # otherwise a new array has the same id already
                        del self._leases[one.key]
                    one = one.block
                self._own.add(one)
            for block in self._own.shrink(self._max_kept):
                if lend(block):
                    self._lent.add(block)
            self._lent.shrink(self._max_lent)

    def trim(self) -> int:
        """Return all kept memory to the system; returns its bytes."""
        self._store_returned()
        with self._lock:
            removed = self._own.shrink(0) + self._lent.shrink(0)
        return sum(len(block) for block in removed)

    def _start_trimmer(self) -> None:
        with self._lock, suppress(RuntimeError):  # no more threads: then only `trim` returns memory
            if self._trimmer is None:
                # Not by `threading.Thread`, whose `start` waits in Python, where a signal may leave its lock locked.
                self._trimmer = _thread.start_new_thread(self._trim_when_idle, ())

    def _trim_when_idle(self) -> None:
        """Trim after a time without an allocation. Ends when no block is left; the next new block starts it again."""
        while True:
            before = self._allocations
            time.sleep(self._idle_seconds)
            if self._allocations != before:
                continue
            self.trim()
            with self._lock:
                if not self._leases:
                    self._trimmer = None
                    return


_allocator = Allocator()
allocate = _allocator.allocate
free = _allocator.free
trim = _allocator.trim


def bytes_in_use() -> int:
    """Return the bytes of all arrays that are in use."""
    return _allocator.in_use


def result_array(size: int, dtype: np.dtype[Any] | type) -> Array:
    """Return an uninitialised array for a result; a small one has no `SPARE` bytes beyond its end."""
    if size * np.dtype(dtype).itemsize < MIN_RESULT:
        return np.empty(size, dtype)
    return _allocator.allocate(size, dtype)
