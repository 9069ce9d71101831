"""Files that every worker reads: an index or a table, saved once by the driver and memory-mapped by each worker.

A worker first looks at the path itself, for local mode and shared file systems; where it is not there, among the files
that Spark brought (`addArtifacts`). Which of the two is asked for is found by asking the workers (`workers.py`). Files
that we make live in a folder of the driver's process and go with it.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
import uuid
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pyarrow as pa
from pyspark import SparkFiles
from pyspark.sql import SparkSession

from millrace.errors import ArgumentError, StateError

_HEAD_BYTES = 64


@dataclass(frozen=True)
class Shipped:
    """A file by its path on the driver; its size and first bytes tell it from another that had or gets the same name.

    An index's first bytes hold the checksum of its header, and that holds those of all its parts.
    """

    path: str
    size: int
    head: str

    @property
    def name(self) -> str:
        """What Spark calls it where it brought it."""
        return Path(self.path).name

    def visible(self) -> str | None:
        """Where this process sees the file, if it does."""
        if self._is_at(Path(self.path)):
            return self.path
        try:
            brought = Path(SparkFiles.get(self.name))
        except Exception:  # outside of a task there is no such folder, and pyspark says so in several ways
            return None
        return str(brought) if self._is_at(brought) else None

    def locate(self) -> str:
        """The same, for a task that needs it."""
        found = self.visible()
        if found is None:
            raise StateError(
                f"this worker cannot see {self.path} ({self.size:,} bytes) as it was when the call was made, and Spark "
                f"has not brought it: put it on a file system that all workers share and make the call again if it was "
                f"saved anew, or give the index itself instead of its path"
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


def shipped(path: str | Path) -> Shipped:
    """A file that this process sees."""
    whole = Path(path).absolute()
    try:
        return Shipped(str(whole), *_size_and_head(whole))
    except OSError as error:
        raise ArgumentError(f"cannot open {whole}: {error.strerror}; give a file that can be read") from error


@cache
def folder() -> Path:
    """Where this process keeps what it makes for workers."""
    made = Path(tempfile.mkdtemp(prefix="millrace-spark-"))
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return made


def new_path(ending: str) -> Path:
    """A name that no other file has."""
    return folder() / f"{uuid.uuid4().hex}{ending}"


def save_table(table: pa.Table) -> Shipped:
    """A table as one batch in an Arrow IPC file."""
    path = new_path(".arrow")
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as file:
        file.write_table(table.combine_chunks(), max_chunksize=max(1, table.num_rows))
    return shipped(path)


def map_table(file: Shipped) -> pa.Table:
    """That table, mapped: its columns lie in the system's cache, once for all workers of a machine."""
    return pa.ipc.open_file(pa.memory_map(file.locate())).read_all()


def bring(spark: SparkSession, file: Shipped) -> None:
    """Have Spark copy a file to every worker, now and later."""
    spark.addArtifacts(file.path, file=True)
