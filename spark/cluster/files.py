"""Files that every worker reads: an index or a table, saved once by the driver and memory-mapped by each worker.

A worker first tries the path itself (local mode, shared file systems), then the files that Spark copied to it
(`addArtifacts`). `workers.py` finds out whether a copy is needed. Files that this module creates are named by their
content, so calls with the same rows share one. A file is removed when no frame needs it any more (`lifetimes.py`), when
the session stops (it is in a folder of Spark's that is removed then), when the process ends, and after a kill by the
next process that saves one: a process holds a lock as long as it lives (`owned_folders.py`).
"""

from __future__ import annotations

import hashlib
import io
import os
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import SparkFiles
from pyspark.sql import SparkSession

from millrace.errors import ArgumentError, StateError
from millrace.spark.cluster.lifetimes import sweep, when_gone
from millrace.spark.cluster.owned_folders import folder

_HEAD_BYTES = 64


@dataclass(frozen=True)
class SharedFile:
    """A file by its path on the driver; size and first bytes detect another file of the same name.

    An index's first bytes hold the checksum of its header, which holds the checksums of all its parts.
    """

    path: str
    size: int
    head: str

    @property
    def name(self) -> str:
        """The name of the copy that Spark makes."""
        return Path(self.path).name

    def visible(self) -> str | None:
        """The path at which this process sees the file, or None."""
        if self._is_at(Path(self.path)):
            return self.path
        try:
            copied = Path(SparkFiles.get(self.name))
        except Exception:  # outside of a task pyspark has no such folder and raises several types
            return None
        return str(copied) if self._is_at(copied) else None

    def locate(self) -> str:
        """The same, but a missing file is a `StateError`."""
        found = self.visible()
        if found is None:
            raise StateError(
                f"this worker cannot see {self.path} ({self.size:,} bytes) as it was when the call was made, and Spark "
                f"has not copied it: put it on a file system that all workers share; if it was saved again, repeat the "
                f"call; or pass the index itself instead of its path"
            )
        return found

    def _is_at(self, path: Path) -> bool:
        try:
            return _size_and_head(path) == (self.size, self.head)
        except OSError:
            return False


def _size_and_head(path: Path) -> tuple[int, str]:
    with path.open("rb") as file:
        return os.fstat(file.fileno()).st_size, file.read(_HEAD_BYTES).hex()


def shared_file(path: str | Path) -> SharedFile:
    """Describe a file that this process sees."""
    absolute = Path(path).absolute()
    try:
        return SharedFile(str(absolute), *_size_and_head(absolute))
    except OSError as error:
        raise ArgumentError(f"cannot open {absolute}: {error.strerror}; name a file that can be read") from error


_users: Counter[str] = Counter()
"""How many frames need each file that this process made."""
_lock = threading.Lock()


def save_shared(write: Callable[[Path], None], ending: str) -> SharedFile:
    """Let `write` make a file, named by its content; it stays until `use_in` has told which frame needs it."""
    made = new_path(".unfinished")
    try:
        write(made)
        with made.open("rb") as file:
            content = hashlib.file_digest(file, "sha256").hexdigest()
        return _share(content, ending, lambda path: os.replace(made, path))
    finally:
        made.unlink(missing_ok=True)


def _share(content: str, ending: str, write: Callable[[Path], None]) -> SharedFile:
    """The file with this content, by its hash; `write` makes it if it is not there."""
    sweep()
    path = folder() / f"{content[:32]}{ending}"
    with _lock:
        _users[str(path)] += 1  # from now on nobody removes it
    try:
        if not path.exists():
            made = new_path(".unfinished")
            try:
                write(made)
                os.replace(made, path)
            finally:
                made.unlink(missing_ok=True)
        return shared_file(path)
    except BaseException:
        _release(str(path))
        raise


def use_in(file: SharedFile, function: Any) -> None:
    """Remove the file once the frames that run this function are gone (`lifetimes.py`), if this process made it."""
    if file.path in _users:
        when_gone(function, lambda: _release(file.path))


@contextmanager
def given_up_on_error(file: SharedFile) -> Iterator[None]:
    """If the block fails, no frame of its call needs the file."""
    try:
        yield
    except BaseException:
        if file.path in _users:
            _release(file.path)
        raise


def _release(path: str) -> None:
    with _lock:
        _users[path] -= 1
        if _users[path] <= 0:
            del _users[path]
            with suppress(OSError):
                os.unlink(path)


def new_path(ending: str) -> Path:
    """A unique path in this process's folder, for a file that stays until the session stops."""
    return folder() / f"{uuid.uuid4().hex}{ending}"


def save_table(table: pa.Table) -> SharedFile:
    """Save a table as one batch in an Arrow IPC file; nothing is written if there is such a file."""
    one = table.combine_chunks()

    def write(sink: pa.NativeFile) -> None:
        with sink, pa.ipc.new_file(sink, one.schema) as file:
            file.write_table(one, max_chunksize=max(1, one.num_rows))

    hashed = _HashSink()
    write(pa.PythonFile(hashed, "w"))
    return _share(hashed.hash.hexdigest(), ".arrow", lambda path: write(pa.OSFile(str(path), "wb")))


class _HashSink(io.RawIOBase):
    """A file that keeps only the hash of what is written."""

    def __init__(self) -> None:
        self.hash = hashlib.sha256()

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.hash.update(data)
        return len(data)


def map_table(file: SharedFile) -> pa.Table:
    """Memory-map a saved table; all workers of a machine share its pages."""
    return pa.ipc.open_file(pa.memory_map(file.locate())).read_all()


def copy_to_workers(spark: SparkSession, file: SharedFile) -> None:
    """Let Spark copy a file to every worker, including those that start later."""
    spark.addArtifacts(file.path, file=True)
