"""Large, long-lived arrays: memory from `mmap`, in huge pages where the system provides them.

A random read in a large array needs a TLB lookup; with pages of 2 MiB the entries stay in the TLB (thesis, appendix A,
section 4). The mapping is private: a forked child gets its own copy when it writes.
"""

from __future__ import annotations

import mmap as mmap_module
from mmap import mmap
from typing import Any

import numpy as np

from millrace.host.base.types import Array

_HUGE = 1 << 21
SPARE = 128
"""Bytes that can be read beyond the end: two cache lines."""
_PRIVATE: int = getattr(mmap_module, "MAP_PRIVATE", 0) | getattr(mmap_module, "MAP_ANONYMOUS", 0)


def huge_array(size: int, dtype: np.dtype[Any] | type) -> Array:
    """Return a zeroed array, aligned to a huge page, or to a page if it is smaller than a huge page."""
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
