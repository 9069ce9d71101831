"""Whether a count window fits in memory, the machine's and a device's: one that never could is refused."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from millrace.host.base.errors import ArgumentError, DeviceUnavailable
from millrace.host.device.contract import Device
from millrace.ingest.durations import WindowSpec

BYTES_PER_ROW = 25
"""What a held row takes at least: its number (8), its key (4 or more), its index entry (12), and whether it is live."""
_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB")
_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def check_room(window: WindowSpec, given: Any) -> None:
    """Raise an `ArgumentError` if the windows' rows alone take more than the memory there is."""
    if not window.counts:
        return
    rows, most = window.r.length + window.s.length, memory()
    if rows * BYTES_PER_ROW > most:
        raise ArgumentError(
            f"window={given!r} does not fit in memory: {window.r.length:,} r rows and {window.s.length:,} s rows of at "
            f"least {BYTES_PER_ROW} bytes are {_size(rows * BYTES_PER_ROW)}, and there are {_size(most)}; allowed are "
            f"windows of up to {most // BYTES_PER_ROW // 2:,} rows each (fewer with payload): take a smaller one, or a "
            f"length of time with time="
        )


def check_device_room(window: WindowSpec, given: Any, device: Device) -> None:
    """Raise a `DeviceUnavailable` if the windows' rows do not fit into a device whose memory is scarce."""
    most = device.most_rows
    if most is None or not window.counts or window.r.length + window.s.length <= most:
        return
    raise DeviceUnavailable(
        f"window={given!r} does not fit on device {device.name!r}, which holds {most:,} rows of both sides together: "
        f"take a window of up to {most // 2:,} rows each, or another device, as device='cpu'"
    )


def memory() -> int:
    """The bytes that this process may use: the machine's, or less where its group has a limit."""
    most = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for name in _LIMITS:
        try:
            most = min(most, int(Path(name).read_text()))
        except (OSError, ValueError):  # no such group, or no limit ("max")
            continue
    return most


def _size(count: float) -> str:
    """Bytes for people."""
    unit = 0
    while count >= 1024 and unit < len(_UNITS) - 1:
        count, unit = count / 1024, unit + 1
    return f"{count:,.1f} {_UNITS[unit]}"
