"""A window join in a process that is killed and started again: `python -m millrace.soak.killed FOLDER SEED STEPS`.

Every step pushes rows that the seed and the step's number decide, writes the pairs to a file of that number, and stores
the state. After a kill the next process goes on from the stored state. `run_killed` starts the processes, kills them by
a fault point or from outside, and compares the pairs of all steps with the brute force.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from millrace.soak.base import SoakFailure, table_of
from millrace.soak.reference import KINDS, Longs, ReferenceJoin
from millrace.window_join import WindowJoin

KILL_POINTS = ("window.extend", "window.evict", "bisort.step", "state.write", "manifest.write", "output.gather")
WINDOW = 150
MOST_STARTS = 50


def rows_of(seed: int, step: int) -> tuple[int, Longs]:
    """The side and the rows (time, x, y) of a step."""
    rng = np.random.default_rng([seed, step])
    count = int(rng.integers(1, 60))
    times = 30 * step + np.arange(count) + rng.integers(-4, 5, count)
    return int(rng.integers(0, 2)), np.stack([times, rng.integers(0, 300, count), rng.integers(0, 300, count)])


def arguments_of(seed: int) -> dict[str, Any]:
    """The join."""
    given: dict[str, Any] = {"on": KINDS["band"][0], "window": f"{WINDOW} rows", "index": "bisort", "output": "seqs"}
    return given | ({"window": str(WINDOW), "time": "ts", "lateness": 3} if seed % 2 else {})


def run_killed(rng: Random, steps: int, folder: Path) -> tuple[int, str]:
    """Run all steps in processes that are killed; compare the output; return the kills and what was done."""
    seed, starts, killed = rng.randrange(1 << 30), 0, 0
    command = [sys.executable, "-m", "millrace.soak.killed", str(folder), str(seed), str(steps)]
    while True:
        starts += 1
        if starts > MOST_STARTS:
            raise SoakFailure(f"a killed join of seed {seed} does not come to its end")
        by_point = rng.random() < 0.7 and starts < MOST_STARTS // 2
        rule = f"{rng.choice(KILL_POINTS)}={rng.randrange(1, 40)}+1*kill" if by_point else ""
        child = subprocess.Popen(command, env={**os.environ, "MILLRACE_FAULTS": rule})
        if not by_point and starts < MOST_STARTS // 2:
            time.sleep(rng.uniform(1.0, 4.0))
            child.kill()
        code = child.wait()
        if code == 0:
            break
        if code > 0:
            raise SoakFailure(f"the process of a killed join ended with code {code}: seed {seed}, {rule}")
        killed += 1
    _compare(seed, steps, folder)
    return killed, f"{steps} steps in {starts} processes, {killed} of them killed"


def _compare(seed: int, steps: int, folder: Path) -> None:
    reference = ReferenceJoin("band", WINDOW, bool(seed % 2), 3 if seed % 2 else 0)
    for step in range(steps):
        wanted, found = reference.push(*rows_of(seed, step)), np.load(folder / f"{step}.npy")
        if found.shape != wanted.shape or (found != wanted).any():
            raise SoakFailure(f"step {step} of a killed join of seed {seed}: {found.shape[1]} pairs differ")


def work(folder: Path, seed: int, steps: int) -> None:
    """The process: go on from what is stored."""
    arguments, first, runs = arguments_of(seed), 0, folder / "runs"
    runs.mkdir(exist_ok=True)
    manifests = sorted(folder.glob("manifest-*"), key=lambda path: int(path.name.partition("-")[2]))
    if manifests:
        stored = {path.name: path.read_bytes() for path in runs.iterdir() if not path.name.endswith(".part")}
        join = WindowJoin.restore(manifests[-1].read_bytes(), stored, **arguments)
        first = int(manifests[-1].name.partition("-")[2])
    else:
        join = WindowJoin(**arguments)
    for step in range(first, steps):
        side, rows = rows_of(seed, step)
        pairs = join.push("rs"[side], table_of(rows))
        found = np.stack([pairs.column(name).to_numpy() for name in ("r_seq", "s_seq")])
        with (folder / f"{step}.npy").open("wb") as file:
            np.save(file, found)
        delta = join.state()
        for name, data in delta.added.items():
            _write(runs / name, data)
        _write(folder / f"manifest-{step + 1}", delta.manifest)
        (folder / f"manifest-{step}").unlink(missing_ok=True)
        for name in delta.removed:
            (runs / name).unlink(missing_ok=True)


def _write(path: Path, data: bytes) -> None:
    """Write a file that is either there or not."""
    part = path.with_name(path.name + ".part")
    part.write_bytes(data)
    part.replace(path)


if __name__ == "__main__":
    work(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
