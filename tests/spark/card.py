"""A device for tests, installed like a third party's: the CPU as a card, `card:0`, of kind `card`.

It is opened by one process at a time, if locks work: it writes a line into `$MILLRACE_TEST_CARD/log` when it is
opened and when it is closed. While `$MILLRACE_TEST_CARD/faulty` is there, the process that first claims it fails in
every launch. Each probe waits `$MILLRACE_TEST_CARD_SLOW` seconds, so that tasks overlap if nothing stops them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

from millrace.host.base.errors import DeviceFault
from millrace.host.device.contract import Buffer, DeviceInfo, Launch
from tests.host.faults import FaultyDevice


def folder() -> Path:
    return Path(os.environ["MILLRACE_TEST_CARD"])


def install(at: Path) -> dict[str, str]:
    """Make the device known below a folder; the environment that workers need."""
    about = at / "millrace_test_card-1.0.dist-info"
    about.mkdir(parents=True, exist_ok=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: millrace-test-card\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[millrace.devices]\ncard = tests.spark.card\n")
    return {"PYTHONPATH": str(at), "MILLRACE_TEST_CARD": str(at), "MILLRACE_LOCK_DIR": str(at / "locks")}


class Card(FaultyDevice):
    """The CPU, with a log of the processes that opened and closed it."""

    kind = "card"

    def __init__(self) -> None:
        super().__init__()
        self.name = "card:0"
        self._note("open")

    def _note(self, what: str) -> None:
        with (folder() / "log").open("a") as log:
            log.write(f"{time.monotonic_ns()} {what} {os.getpid()}\n")

    def launch(self, unit: str, buffers: Sequence[Buffer], scalars: Sequence[int]) -> Launch:
        if (folder() / "faulty").exists() and _claimed():
            raise DeviceFault("the card has lost power")
        time.sleep(float(os.environ.get("MILLRACE_TEST_CARD_SLOW", "0")))
        return super().launch(unit, buffers, scalars)

    def close(self) -> None:
        self._note("close")


def _claimed() -> bool:
    """Whether this process is the one that fails."""
    claim = folder() / "claim"
    try:
        with claim.open("x") as file:
            file.write(str(os.getpid()))
    except FileExistsError:
        return claim.read_text() == str(os.getpid())
    return True


def holders(log: str) -> tuple[int, int]:
    """How many processes have had the card, and how many at most at once."""
    held: dict[str, int] = {}
    most = 0
    processes = set()
    for line in sorted(log.splitlines(), key=lambda line: int(line.split()[0])):
        _, what, process = line.split()
        processes.add(process)
        held[process] = held.get(process, 0) + (1 if what == "open" else -1)
        most = max(most, sum(count > 0 for count in held.values()))
    return len(processes), most


def left_open(log: str) -> int:
    """How many handles have been opened and not closed."""
    notes = [line.split()[1] for line in log.splitlines()]
    return notes.count("open") - notes.count("close")


def probe() -> list[DeviceInfo]:
    """Always there."""
    return [DeviceInfo("card:0", "card", True, "a card for tests")]


def open_device(name: str, threads: int | None) -> Card:
    """A fresh handle."""
    return Card()
