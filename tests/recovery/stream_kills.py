"""Kills processes of a streaming job by SIGKILL at seeded moments: `stream_kills.py SEED FOLDER`.

It kills a Python worker, then an executor, then the driver with all its processes. Then it restarts the job on another
number of cores; the job must end by itself. A moment is a number of committed batches plus a fraction of a second.
Prints the kills and how the output differs from an uninterrupted run.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tests.recovery.kills import victims
from tests.spark import stream_cases as sc
from tests.spark.sessions import set_up
from tests.watchdog import WATCHDOG

JOB = Path(__file__).with_name("stream_job.py")
BATCHES = 9
VICTIMS = ("worker", "executor", "driver")


def job(seed: int) -> tuple[sc.Streams, dict[str, Any]]:
    """Streams and their distribution for a seed; the newest time of every batch is newer than all before."""
    streams = sc.draw(seed, batches=BATCHES, rows=400, watermark=("min", "max")[seed % 2])
    return streams, {"splits": [60, 120]} if seed % 3 == 0 else {"shards": 3}


def start(folder: Path, master: str) -> subprocess.Popen[bytes]:
    """Start the job in its own process group."""
    with (folder / "log").open("ab") as log:
        command = [sys.executable, str(JOB), str(folder), master]
        return subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)


def committed(folder: Path) -> int:
    """The number of committed batches."""
    commits = folder / "checkpoint" / "commits"
    return sum(path.name.isdigit() for path in commits.iterdir()) if commits.exists() else 0


def kill(victim: str, running: subprocess.Popen[bytes], rng: random.Random) -> bool:
    """Kill one process of a kind; False if there is none."""
    if victim == "driver":
        os.killpg(running.pid, signal.SIGKILL)
        running.wait(WATCHDOG)
        return True
    candidates = victims(victim)
    if not candidates:
        return False
    os.kill(rng.choice(candidates), signal.SIGKILL)
    return True


def wait(folder: Path, running: subprocess.Popen[bytes], batches: int) -> None:
    """Wait until `batches` batches are committed or the job has ended."""
    deadline = time.monotonic() + WATCHDOG
    while committed(folder) < batches and running.poll() is None:
        if time.monotonic() > deadline:
            raise TimeoutError(f"only {committed(folder)} batches after {WATCHDOG} s")
        time.sleep(0.05)


def run(seed: int, folder: Path) -> dict[str, Any]:
    """Run a complete job with its kills."""
    rng = random.Random(f"kills {seed}")
    streams, _ = job(seed)
    sc.write(streams, folder)
    (folder / "seed").write_text(str(seed))
    running = start(folder, "local-cluster[2,1,1024]")
    kills = []
    moments = sorted(rng.sample(range(1, BATCHES - 1), len(VICTIMS)))
    try:
        for victim, batches in zip(VICTIMS, moments, strict=True):
            wait(folder, running, batches)
            after = rng.uniform(0.0, 1.0)
            time.sleep(after)
            at = committed(folder)
            done = running.poll() is None and kill(victim, running, rng)
            kills.append({"seed": seed, "victim": victim, "batches": at, "seconds": round(after, 2), "killed": done})
        again = start(folder, f"local[{rng.choice([1, 3])}]")
        running = again
        code = running.wait(WATCHDOG)
    finally:
        if running.poll() is None:
            os.killpg(running.pid, signal.SIGKILL)
    wanted, found = sc.as_read(streams, folder).wanted(), sc.found(folder)
    return {
        "kills": kills,
        "code": code,
        "log": (folder / "log").read_text(errors="replace")[-3000:] if code else "",
        "pairs": sum(found.values()),
        "missing": sum((wanted - found).values()),
        "extra": sum((found - wanted).values()),
    }


def main() -> None:
    set_up()
    print(json.dumps(run(int(sys.argv[1]), Path(sys.argv[2]))))  # noqa: T201 - what the test reads


if __name__ == "__main__":
    main()
