"""The model name of the processor: measurements of one model do not hold on another."""

from __future__ import annotations

import platform
import re
from functools import cache
from pathlib import Path


@cache
def cpu_model() -> str:
    """The processor's model name; the architecture if the system does not say more."""
    try:
        found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        found = None
    return found[1].strip() if found else platform.processor() or platform.machine()
