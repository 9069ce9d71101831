"""Runs the examples of live joins as a user would, and compares what they print with a plain computation."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def output_of(name: str) -> str:
    done = subprocess.run([sys.executable, EXAMPLES / name], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_the_asyncio_example() -> None:
    asks = [100.0 + (i * 7 % 50) for i in range(300)]
    bids = [100.0 + (i * 7 % 50) + 0.25 for i in range(300)]
    pairs = sum(abs(ask - bid) <= 0.3 for ask in asks for bid in bids)
    assert output_of("live_asyncio.py") == f"600 rows, {pairs} pairs\n"


def test_the_socket_example() -> None:
    readings = [(10 * i + q, 20.0 + (i * 13 + q) % 10) for q in range(2) for i in range(200)]
    pairs = sum(abs(ts - at) <= 20 and warm > 25.0 for at in range(0, 2000, 500) for ts, warm in readings)
    assert output_of("live_socket.py") == f"400 readings, {pairs} warm readings near alarms\n"
