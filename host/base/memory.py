"""How much memory this process may use, how much of it is free, and sizes as text for error messages."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB")
_ROOTS = ("/sys/fs/cgroup", "/sys/fs/cgroup/memory")
"""Where control groups of version 2 and of version 1 are mounted."""
_FILES = (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes"))
"""The limit and the usage of a group, for each version."""
_GROUPS = "/proc/self/cgroup"
_MEMINFO = "/proc/meminfo"
_KIB = 1 << 10


def memory() -> int:
    """The bytes that this process may use: the machine's memory, or the limit of its control group if lower."""
    available = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for limit, _ in _limit_files():
        try:
            available = min(available, int(limit.read_text()))
        except (OSError, ValueError):  # no limit ("max")
            continue
    return available


@cache
def _limit_files() -> list[tuple[Path, Path]]:
    """The files with limit and usage of this process's control group and of those around it, which count as well.

    They are found once: a process that is moved to another group later keeps the limits of the first.
    """
    found = []
    for root, (limit, usage), path in zip(map(Path, _ROOTS), _FILES, _group_paths(), strict=True):
        inner = root / path.strip("/")
        for group in (inner, *inner.parents):
            if group.is_relative_to(root) and (group / limit).exists():
                found.append((group / limit, group / usage))
    return found


def _group_paths() -> tuple[str, str]:
    """The path of this process's control group below the mounts of both versions; empty where it is not known."""
    unified, memory = "", ""
    try:
        lines = [line.split(":", 2) for line in Path(_GROUPS).read_text().splitlines()]
    except OSError:
        lines = []
    for number, controllers, path in lines:
        if number == "0":
            unified = path
        elif "memory" in controllers.split(","):
            memory = path
    return unified, memory


def free_bytes() -> int:
    """The part of `memory()` that is free now, with what the system can take back from its caches."""
    free = memory()
    machine = _numbers(Path(_MEMINFO))
    if "MemAvailable:" in machine:
        free = min(free, _KIB * (machine["MemAvailable:"] + machine.get("SwapFree:", 0)))
    for limit_file, usage_file in _limit_files():
        try:
            limit, used = int(limit_file.read_text()), int(usage_file.read_text())
        except (OSError, ValueError):
            continue
        cached = _numbers(limit_file.with_name("memory.stat"))
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
