"""Ctrl-C in the first call of a process, while modules are imported and kernels are loaded: later calls work."""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
import faulthandler, random, signal, sys
import millrace as mr
import pyarrow as pa

faulthandler.dump_traceback_later(900, exit=True)
rng, interrupts = random.Random(int(sys.argv[1])), 0

def job():
    join = mr.WindowJoin("abs(r.x - s.x) <= 1 and r.y < 3", window="10 rows", index="btree")
    join.push("r", pa.table({"x": [1, 5], "y": [1, 2]}))
    return join.push("s", pa.table({"x": [2, 9]})).to_pydict()["r_seq"]

while True:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        wait = rng.uniform(0.001, 0.3)
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        signal.setitimer(signal.ITIMER_REAL, wait if interrupts < 12 else 0)
        found = job()
        signal.signal(signal.SIGALRM, signal.SIG_IGN)
        break
    except KeyboardInterrupt:
        interrupts += 1
assert found == [0], found
print(interrupts)
"""


@pytest.mark.parametrize("seed", range(3))
def test_interrupts_of_the_first_call_break_nothing(seed: int) -> None:
    given = [sys.executable, "-c", SCRIPT, str(seed)]
    done = subprocess.run(given, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(done.stdout) > 0
    assert "ignored" not in done.stderr
