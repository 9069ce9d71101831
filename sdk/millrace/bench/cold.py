"""Bench `cold`: the first call of an operator in a fresh process, with an empty and with a warm kernel cache.

A step starts a Python process, imports everything, makes one call on three rows or a thousand keys, and ends; its time
is that of the whole process. `first-…-empty` gives each process a new cache folder, `first-…-warm` the user's own, in
which the first step, untimed, leaves the kernels. What a process compiles in the background is ended after its step.
Rows are made without `pa.array`, whose first call imports pandas. Beside each stands the floor `imports`: a process
that imports numba, pyarrow and sqlglot and does nothing.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial

from millrace.bench.entrants import Entrant
from millrace.bench.harness import Answer, Case, Contender
from millrace.bench.options import Options

CALLS = {
    "join": "mr.join(rows, rows, on='abs(r.x - s.x) <= 5')",
    "window_join": "j = mr.WindowJoin('abs(r.x - s.x) <= 5', window='1000 rows'); j.push('r', rows); j.push('s', rows)",
    "ordered_index": "mr.OrderedIndex(np.arange(1000)).lookup(np.array([3, 4]))",
}
SCRIPT = """
import numpy as np, pyarrow as pa, millrace as mr
columns = [pa.Array.from_buffers(pa.int64(), 3, [None, pa.py_buffer(np.arange(3) + i)]) for i in (0, 1)]
rows = pa.Table.from_arrays(columns, ["x", "v"])
{call}
from millrace.host.runtime import first_use
print(*first_use._started.values())
"""
FLOOR, FLOOR_SCRIPT = "imports", "import numba, pyarrow, sqlglot"
CACHE = "MILLRACE_CACHE_DIR"


def cases(options: Options) -> Iterator[Case]:
    """All cases."""
    for name, call in CALLS.items():
        for empty in (True, False):
            ours = Entrant("auto", "cpu", "cpu").contender(partial(FreshProcess, SCRIPT.format(call=call), empty))
            floor = Contender(FLOOR, partial(FreshProcess, FLOOR_SCRIPT, empty), answers=False)
            state = "empty" if empty else "warm"
            yield Case(
                f"first-{name}-{state}",
                "processes/s",
                [ours, floor],
                {"call": call, "cache": state},
                check_steps=0 if empty else 1,
                slice_share=0.01,
                step_unit="us",
            )


class FreshProcess:
    """Each step runs a script in a new process."""

    def __init__(self, script: str, empty: bool) -> None:
        """`empty`: every process gets its own cache folder."""
        self._script, self._empty = script, empty

    def step(self) -> tuple[float, float]:
        """Start the process and wait for its end."""
        environment = {name: value for name, value in os.environ.items() if name != "MILLRACE_COMPILE"}
        with tempfile.TemporaryDirectory(prefix="millrace-cold-", ignore_cleanup_errors=True) as folder:
            if self._empty:
                environment[CACHE] = folder
            start = time.perf_counter()
            ended = subprocess.run(
                [sys.executable, "-c", self._script], env=environment, capture_output=True, text=True, check=True
            )
            seconds = time.perf_counter() - start
            for process in ended.stdout.split() if self._empty else []:
                with suppress(OSError):
                    os.kill(int(process), signal.SIGKILL)
        return 1.0, seconds

    def answer(self) -> Answer:
        """Nothing to compare."""
        return {}

    def pause(self) -> None:
        """Nothing to free."""

    def close(self) -> None:
        """Nothing to release."""
