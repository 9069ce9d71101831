"""Shows how the speed of two threads depends on how near their cores are: `python tools/core_distance.py [seconds]`.

Alternates between passing a cache line to and fro and a step of `pim` on two threads, windows of 2^20, and prints the
speeds of steps between two fast and between two slow passes. The host of a virtual machine moves its cores.
"""

from __future__ import annotations

import sys
import time

import numpy as np

from millrace.bench.live_threads import TWO, Exchange, start
from millrace.bench.live_workload import LiveWorkload

WINDOW, BATCH = 1 << 20, 1 << 16
NEAR, FAR = (0.0, 60.0), (110.0, 250.0)
"""Nanoseconds of one pass; more means that a thread was suspended."""
WARM_STEPS = 30


def measured(seconds: float) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """Nanoseconds of a pass before and after each step, and the million tuples/s of the step."""
    join, exchange = start(LiveWorkload(WINDOW, BATCH, "tuples"), TWO), Exchange()
    found: list[tuple[float, float, float]] = []
    end = time.monotonic() + seconds
    while time.monotonic() < end or len(found) <= WARM_STEPS:
        row = []
        for session, scale in ((exchange, 1e9), (join, 1e6), (exchange, 1e9)):
            work, spent = session.step()
            row.append(scale * spent / work if scale == 1e9 else work / spent / scale)
        found.append((row[0], row[2], row[1]))
    return np.array(found[WARM_STEPS:])


def main() -> None:
    """Write a line for near and one for far cores."""
    rows = measured(float(sys.argv[1]) if len(sys.argv) > 1 else 40.0)
    for name, (low, high) in (("near", NEAR), ("far", FAR)):
        chosen = rows[((rows[:, :2] > low) & (rows[:, :2] < high)).all(axis=1)]
        speeds = np.percentile(chosen[:, 2], [25, 50, 75]).round(2) if len(chosen) else "no step"
        sys.stdout.write(f"{name}: {len(chosen)} of {len(rows)} steps, million tuples/s (quartiles): {speeds}\n")


if __name__ == "__main__":
    main()
