"""Refuses a count window that cannot fit in the memory of the machine or of a device."""

from __future__ import annotations

from typing import Any

from millrace.host.base.errors import ArgumentError, DeviceUnavailable
from millrace.host.base.memory import memory, size_text
from millrace.host.device.contract import Device
from millrace.ingest.durations import WindowSpec

BYTES_PER_ROW = 25
"""Minimum size of a held row: its number (8), its key (4 or more), its index entry (12), its live flag (1)."""


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
