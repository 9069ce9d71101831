"""How much memory this process may use, how much of it is free, and sizes as text for error messages."""

from __future__ import annotations

import os
from pathlib import Path

_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB")
_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
_USAGES = ("memory.current", "memory.usage_in_bytes")
_MEMINFO = "/proc/meminfo"
_KIB = 1 << 10


def memory() -> int:
    """The bytes that this process may use: the machine's memory, or the limit of its control group if lower."""
    available = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for name in _LIMITS:
        try:
            available = min(available, int(Path(name).read_text()))
        except (OSError, ValueError):  # no such control group, or no limit ("max")
            continue
    return available


def free_bytes() -> int:
    """The part of `memory()` that is free now, with what the system can take back from its caches."""
    free = memory()
    machine = _numbers(Path(_MEMINFO))
    if "MemAvailable:" in machine:
        free = min(free, _KIB * (machine["MemAvailable:"] + machine.get("SwapFree:", 0)))
    for name, usage in zip(_LIMITS, _USAGES, strict=False):
        try:
            limit, used = int(Path(name).read_text()), int((Path(name).parent / usage).read_text())
        except (OSError, ValueError):
            continue
        cached = _numbers(Path(name).parent / "memory.stat")
        files = cached.get("active_file", 0) + cached.get("inactive_file", 0)
        free = min(free, max(limit - used + files, 0))
    return free


def _numbers(path: Path) -> dict[str, int]:
    """The lines `name number …` of a system file; none if there is no such file."""
    try:
        lines = [line.split() for line in path.read_text().splitlines()]
        return {line[0]: int(line[1]) for line in lines if len(line) > 1}
    except (OSError, ValueError):
        return {}


def size_text(count: float) -> str:
    """A number of bytes in a readable unit."""
    unit = 0
    while count >= 1024 and unit < len(_UNITS) - 1:
        count, unit = count / 1024, unit + 1
    return f"{count:,.1f} {_UNITS[unit]}"
