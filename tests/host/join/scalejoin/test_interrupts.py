"""Ctrl-C at any moment of a push on several threads: nothing hangs, and the join goes on with the right pairs.

An earlier `scan` ran on a `ThreadPoolExecutor`, whose queue stayed locked when an interrupt came at the wrong moment.
"""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import faulthandler, random, signal, threading
import numpy as np, pyarrow as pa
import millrace as mr

faulthandler.dump_traceback_later(500, exit=True)  # a hang ends with all stacks
rng, numpy_rng = random.Random(1), np.random.default_rng(1)
arguments = dict(on="abs(r.x - s.x) <= 3", window="20000 rows", index="scan", output="count")
join = mr.WindowJoin(threads=2, **arguments)
rows = pa.table({"x": numpy_rng.integers(0, 1 << 20, 512).astype(np.int32)})
for side in "rs" * 20:
    join.push(side, rows)

class Interrupt(BaseException):
    pass

def interrupt(*_):
    raise Interrupt

signal.signal(signal.SIGALRM, interrupt)
interrupts = pushes = 0
while interrupts < 300:
    pushes += 1
    try:
        signal.setitimer(signal.ITIMER_REAL, rng.uniform(1e-5, 2e-3))
        join.push("rs"[pushes % 2], rows)
        signal.setitimer(signal.ITIMER_REAL, 0)
    except Interrupt:
        interrupts += 1
signal.setitimer(signal.ITIMER_REAL, 0)
delta = join.state()
spared = mr.WindowJoin.restore(delta.manifest, delta.added, **{**arguments, "index": "btree"})
for side in "rs" * 3:
    found, wanted = (one.push(side, rows) for one in (join, spared))
    assert found.equals(wanted) and wanted["count"].to_numpy().sum() > 0
names = sorted(thread.name for thread in threading.enumerate())
assert all(name == "MainThread" or name.startswith("millrace-") for name in names), names
print("interrupts", interrupts)
"""


def test_interrupts_of_a_push_on_two_threads_hang_nothing() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.strip() == "interrupts 300"
