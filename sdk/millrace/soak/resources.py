"""What a process holds (memory, descriptors, threads), and whether that grows: a robust line through the samples."""

from __future__ import annotations

import ctypes
import gc
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from millrace.memory import trim

LIMIT = 0.01
"""The largest growth per 100 turnovers, as a share of the value."""
MIN_TURNOVERS = 200.0
"""Over fewer turnovers a slope says nothing."""
FITTED_SHARE = 0.5
"""The part of the samples, from the end, through which the line is laid."""
MOST_SAMPLES = 1000
"""Of more, some are left out: a slope is taken of each pair."""


def held_resources() -> dict[str, float]:
    """Megabytes in memory after freed memory was returned, open descriptors, and threads."""
    gc.collect()
    trim()
    return_heap = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if return_heap is not None:
        return_heap(0)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return {
        "memory (MB)": pages * os.sysconf("SC_PAGE_SIZE") / 1e6,
        "descriptors": float(len(os.listdir("/proc/self/fd"))),
        "threads": float(len(os.listdir("/proc/self/task"))),
    }


def growth(turnovers: Sequence[float], values: Sequence[float]) -> float | None:
    """Growth per 100 turnovers as a share of the median: the median slope of all pairs of samples (Theil-Sen)."""
    first = int(len(values) * (1 - FITTED_SHARE))
    step = -(-(len(values) - first) // MOST_SAMPLES)
    x, y = np.array(turnovers[first::step]), np.array(values[first::step])
    if len(x) < 8 or x[-1] - x[0] < MIN_TURNOVERS:
        return None
    i, j = np.triu_indices(len(x), 1)
    apart = x[j] - x[i] > 0
    slopes = (y[j] - y[i])[apart] / (x[j] - x[i])[apart]
    middle = float(np.median(y))
    return 100 * float(np.median(slopes)) / middle if middle else 0.0
