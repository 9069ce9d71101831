"""Runs that the Python workers of an executor lend each other, as files that each maps into its memory.

Spark hands out idle workers in turn, so a place's next batch is mostly done by another worker than its last, whose own
cache (`run_cache.py`) lacks some of the runs. To read them from the state store again is a way through RocksDB, the JVM
and a socket; a mapped file is there at once, and once for all workers.

A cache like the other: a file's name tells its content, it is complete when it has its name, and whoever finds none
reads the state store. Files lie in the folder that Spark gave the executor for what it spills, and go with it.
"""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path

import pyarrow as pa

from millrace.spark.stream.pair_files import SPILL

MOST_BYTES = 1 << 30
"""Files of all places of an executor, about: the oldest leave."""
_FOLDER = "millrace-runs"
_unseen = 0
"""Bytes that this worker lent since it last looked how much room all files take."""


def lend(place: str, name: str, data: pa.Buffer | bytes) -> None:
    """Put a place's run where other workers find it; where there is no room for it they do without."""
    global _unseen
    folder = _folder(place)
    if folder is None:
        return
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        number, unfinished = tempfile.mkstemp(dir=folder)
        try:
            with os.fdopen(number, "wb") as file:
                file.write(data)
            os.replace(unfinished, folder / name)
        except OSError:
            os.unlink(unfinished)
            raise
        _unseen += len(data)


def borrow(place: str, name: str) -> pa.Buffer | None:
    """A run that some worker lent, if it is still there."""
    folder = _folder(place)
    if folder is None:
        return None
    try:
        with pa.memory_map(str(folder / name)) as file:
            return file.read_buffer()
    except OSError:
        return None


def prune(place: str, names: frozenset[str]) -> None:
    """Remove a place's files that its manifest does not name, and at times the oldest of all."""
    global _unseen
    folder = _folder(place)
    if folder is None or not folder.exists():
        return
    for path in folder.iterdir():
        if path.name not in names:
            path.unlink(missing_ok=True)
    if _unseen >= MOST_BYTES // 16:
        _unseen = 0
        _make_room(folder.parent)


def _make_room(folder: Path) -> None:
    found = []
    for path in folder.glob("*/*"):
        with suppress(OSError):  # another worker's, gone meanwhile
            found.append((path.stat().st_mtime_ns, path.stat().st_size, path))
    total = sum(size for _, size, _ in found)
    for _, size, path in sorted(found):
        if total <= MOST_BYTES:
            break
        path.unlink(missing_ok=True)
        total -= size


def _folder(place: str) -> Path | None:
    """Where a place's files are; nowhere outside of a Spark task."""
    given = os.environ.get(SPILL, "").split(",")[0]
    return Path(given, _FOLDER, place) if given else None
