"""How much memory this process may use, and sizes as text for error messages."""

from __future__ import annotations

import os
from pathlib import Path

_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB")
_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def memory() -> int:
    """The bytes that this process may use: the machine's memory, or the limit of its control group if lower."""
    available = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for name in _LIMITS:
        try:
            available = min(available, int(Path(name).read_text()))
        except (OSError, ValueError):  # no such control group, or no limit ("max")
            continue
    return available


def size_text(count: float) -> str:
    """A number of bytes in a readable unit."""
    unit = 0
    while count >= 1024 and unit < len(_UNITS) - 1:
        count, unit = count / 1024, unit + 1
    return f"{count:,.1f} {_UNITS[unit]}"
