"""Refuses work that cannot fit in the memory of the machine or of a device, before it starts, with the arithmetic.

The estimates are minimums: what needs less may still not fit, with payload for example. `mr.limits()` shows them; the
estimate of a result is in `host/base/memory.py`, where the indexes use it.
"""

from __future__ import annotations

from typing import Any

from millrace.host.base.errors import ArgumentError, DeviceUnavailable
from millrace.host.base.memory import memory, size_text
from millrace.host.device.contract import Device
from millrace.host.hbtree.layout import MAX_KEYS
from millrace.ingest.durations import WindowSpec

BYTES_PER_ROW = 25
"""Minimum size of a held row: its number (8), its key (4 or more), its index entry (12), its live flag (1)."""
BYTES_PER_KEY = 8
"""Minimum size of a 64-bit key in an index: its word (a 32-bit key has 4). Values, and sorting, take more."""
BYTES_PER_SOURCE = 400
"""Size of a source: its clock, its next seq and its name, in the join and in a call's copy."""
MAX_SOURCES = 1 << 20
"""Every call looks at all clocks, so that more would make it slow."""


def check_memory(window: WindowSpec, given: Any) -> None:
    """Raise an `ArgumentError` if the windows' rows alone need more memory than there is."""
    if not window.counts:
        return
    rows, available = window.r.length + window.s.length, memory()
    if rows * BYTES_PER_ROW > available:
        raise ArgumentError(
            f"window={given!r} does not fit in memory: {window.r.length:,} r rows and {window.s.length:,} s rows of at "
            f"least {BYTES_PER_ROW} bytes are {size_text(rows * BYTES_PER_ROW)}, and there are {size_text(available)}; "
            f"allowed are windows of up to {available // BYTES_PER_ROW // 2:,} rows each (fewer with payload): use "
            f"a smaller window, or a length of time with time="
        )


def check_device_memory(window: WindowSpec, given: Any, device: Device) -> None:
    """Raise a `DeviceUnavailable` if the windows' rows exceed the row limit of a device."""
    most = device.most_rows
    if most is None or not window.counts or window.r.length + window.s.length <= most:
        return
    raise DeviceUnavailable(
        f"window={given!r} does not fit on device {device.name!r}, which holds {most:,} rows of both sides together: "
        f"use a window of up to {most // 2:,} rows each, or another device such as device='cpu'"
    )


def max_sources() -> int:
    """The number of sources that a join or gate may have."""
    return min(MAX_SOURCES, memory() // BYTES_PER_SOURCE)


def check_sources(count: int, given: Any) -> None:
    """Raise an `ArgumentError` if there are too many sources."""
    most = max_sources()
    if count > most:
        raise ArgumentError(
            f"sources={given!r}: {count:,} sources of {BYTES_PER_SOURCE} bytes are "
            f"{size_text(count * BYTES_PER_SOURCE)}, and there are {size_text(memory())}; allowed are {most:,} sources "
            f"in all, since every call looks at all of their clocks: let several producers share a source"
        )


def check_index_memory(keys: Any, width: int = 4) -> None:
    """Raise an `ArgumentError` if an index cannot hold so many keys of `width` bytes, before any of them is copied."""
    try:
        count, available = len(keys), memory()
    except TypeError:  # a stream: its length is known when it was read
        return
    if count > MAX_KEYS:
        raise ArgumentError(f"keys has {count:,} rows; allowed are {MAX_KEYS:,}: split them by range")
    if count * width > available:
        raise ArgumentError(
            f"keys does not fit in memory: {count:,} keys of at least {width} bytes are "
            f"{size_text(count * width)}, and there are {size_text(available)}; allowed are up to "
            f"{available // width:,} keys: split them by range"
        )
