"""Files that every worker reads: an index or a table, saved once by the driver and memory-mapped by each worker.

A worker first looks at the path itself, for local mode and shared file systems; where it is not there, among the files
that Spark brought (`addArtifacts`). Which of the two is asked for is found by asking the workers (`workers.py`). Files
that we make live in a folder of the driver's process and go with it.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
import uuid
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pyarrow as pa
from pyspark import SparkFiles
from pyspark.sql import SparkSession

from millrace.errors import StateError


@dataclass(frozen=True)
class Shipped:
    """A file by its path on the driver and its size, which tells it from another of the same name."""

    path: str
    size: int

    @property
    def name(self) -> str:
        """What Spark calls it where it brought it."""
        return Path(self.path).name

    def visible(self) -> str | None:
        """Where this process sees the file, if it does."""
        if _is_it(Path(self.path), self.size):
            return self.path
        try:
            brought = Path(SparkFiles.get(self.name))
        except Exception:  # outside of a task there is no such folder, and pyspark says so in several ways
            return None
        return str(brought) if _is_it(brought, self.size) else None

    def locate(self) -> str:
        """The same, for a task that needs it."""
        found = self.visible()
        if found is None:
            raise StateError(
                f"this worker cannot see {self.path} ({self.size:,} bytes), and Spark has not brought it: put it on a "
                f"file system that all workers share, or give the index itself instead of its path"
            )
        return found


def _is_it(path: Path, size: int) -> bool:
    try:
        return path.stat().st_size == size
    except OSError:
        return False


def shipped(path: str | Path) -> Shipped:
    """A file that this process sees."""
    whole = Path(path).absolute()
    return Shipped(str(whole), whole.stat().st_size)


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
