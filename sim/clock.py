"""The clock of a simulated board: time-outs of a link count it, so a busy or stopped machine causes none.

It advances with the simulated cycles, and while the board waits for its next request, by at most `STEP` seconds per
look: it stands still while the board's process is stopped. `Clock` writes it to a file that `hw/link.py` reads.
"""

from __future__ import annotations

import mmap
import struct
import time
from pathlib import Path

STEP = 0.05


class Clock:
    """The time of a board since it was powered on, in seconds; written by one thread."""

    def __init__(self, path: Path) -> None:
        """Create the file."""
        path.write_bytes(bytes(8))
        with path.open("r+b") as file:
            self._cell = mmap.mmap(file.fileno(), 8)
        self._seconds, self._seen = 0.0, time.monotonic()

    def add(self, seconds: float) -> None:
        """Advance by simulated work."""
        self._seconds += seconds
        self._cell[:8] = struct.pack("<d", self._seconds)
        self._seen = time.monotonic()

    def wait(self) -> None:
        """Advance by the time since the last call, at most by `STEP`."""
        self.add(min(STEP, time.monotonic() - self._seen))
