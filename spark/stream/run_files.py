"""Files through which the Python workers of an executor share runs; each worker maps them into its memory.

Spark assigns idle workers in turn, so a shard's next batch usually runs in another worker, whose own cache
(`run_cache.py`) lacks some of the runs. Reading them from the state store again goes through RocksDB, the JVM and a
socket; a mapped file is available at once, and one copy serves all workers.

It is only a cache: a file's name identifies its content, a file is complete once it has its name, and a worker that
finds no file reads the state store. The files are in the folder that Spark gave the executor for spills; Spark removes
it with the executor.
"""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path

import pyarrow as pa

from millrace.faults import fault_point
from millrace.spark.stream.pair_files import spill_folder

MAX_BYTES = 1 << 30
"""Approximate maximum bytes of all files of an executor; the oldest are removed."""
_FOLDER = "millrace-runs"
_unchecked_bytes = 0
"""Bytes that this worker wrote since it last checked the total size of all files."""


def publish(shard: str, name: str, data: pa.Buffer | bytes) -> None:
    """Write a shard's run to a file for other workers; do nothing if there is no free space."""
    global _unchecked_bytes
    folder = _folder(shard)
    if folder is None:
        return
    with suppress(OSError):
        fault_point("spark.run_write")
        folder.mkdir(parents=True, exist_ok=True)
        number, unfinished = tempfile.mkstemp(dir=folder)
        try:
            with os.fdopen(number, "wb") as file:
                file.write(data)
            os.replace(unfinished, folder / name)
        except OSError:
            os.unlink(unfinished)
            raise
        _unchecked_bytes += len(data)


def fetch(shard: str, name: str) -> pa.Buffer | None:
    """A run that some worker published, or None."""
    folder = _folder(shard)
    if folder is None:
        return None
    try:
        fault_point("spark.run_read")
        with pa.memory_map(str(folder / name)) as file:
            return file.read_buffer()
    except OSError:
        return None


def prune(shard: str, names: frozenset[str]) -> None:
    """Remove a shard's files that its manifest does not name and, from time to time, the oldest files of all shards."""
    global _unchecked_bytes
    folder = _folder(shard)
    if folder is None or not folder.exists():
        return
    for path in folder.iterdir():
        if path.name not in names:
            path.unlink(missing_ok=True)
    if _unchecked_bytes >= MAX_BYTES // 16:
        _unchecked_bytes = 0
        _remove_oldest(folder.parent)


def _remove_oldest(folder: Path) -> None:
    found = []
    for path in folder.glob("*/*"):
        with suppress(OSError):  # another worker has removed it
            found.append((path.stat().st_mtime_ns, path.stat().st_size, path))
    total = sum(size for _, size, _ in found)
    for _, size, path in sorted(found):
        if total <= MAX_BYTES:
            break
        path.unlink(missing_ok=True)
        total -= size


def _folder(shard: str) -> Path | None:
    """The folder of a shard's files; None outside of a Spark task."""
    folder = spill_folder()
    return None if folder is None else folder / _FOLDER / shard
