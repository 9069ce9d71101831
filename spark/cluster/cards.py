"""Locks that share a card between the processes of one machine.

Spark assigns card addresses, but each local worker counts from 0, so two executors may get the same card. A card
therefore has lock files, one for each task that may use it at once (`slots`). The operating system releases a lock when
its process ends for any reason. With several slots a task may use only its share of the card's memory:
`MILLRACE_DEVICE_SHARE` passes that share to the GPU devices, which are opened after the fork. `MILLRACE_LOCK_DIR` sets
the folder of the locks (default: `millrace-locks` in the system's temporary folder). Limit: processes that use a card
without a lock are not detected.
"""

from __future__ import annotations

import fcntl
import os
import re
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

SHARE = "MILLRACE_DEVICE_SHARE"
_WAIT_SECONDS = 0.02


@contextmanager
def card_lock(card: str, slots: int = 1) -> Iterator[None]:
    """Hold a slot of a card; wait until one is free."""
    handle = _take(card, slots)
    before = os.environ.get(SHARE)
    if slots > 1:
        os.environ[SHARE] = repr(1 / slots)
    try:
        yield
    finally:
        if slots > 1:
            os.environ.pop(SHARE)
            if before is not None:
                os.environ[SHARE] = before
        os.close(handle)


def _take(card: str, slots: int) -> int:
    """Lock the first free slot; return its open file."""
    names = [lock_folder() / f"{re.sub(r'[^A-Za-z0-9_.-]', '_', card)}.{slot}" for slot in range(slots)]
    handles = [_open(name) for name in names]
    while True:
        for handle in handles:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            for other in handles:
                if other != handle:
                    os.close(other)
            return handle
        time.sleep(_WAIT_SECONDS)


def _open(path: Path) -> int:
    """Open a lock file for every user; in a sticky folder Linux lets only the owner open it with `O_CREAT`."""
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
    while True:
        with suppress(FileNotFoundError):
            return os.open(path, flags)
        with suppress(FileExistsError):  # another process created it first
            handle = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o666)
            os.fchmod(handle, 0o666)  # regardless of the umask
            return handle


def lock_folder() -> Path:
    """The folder of the locks, shared by all users of a machine; an existing one keeps its permissions."""
    path = Path(os.environ.get("MILLRACE_LOCK_DIR") or Path(tempfile.gettempdir()) / "millrace-locks")
    with suppress(FileExistsError):
        path.mkdir(parents=True)
        path.chmod(0o1777)
    return path
