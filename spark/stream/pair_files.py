"""Passes pairs from the stateful operator to the step that unpacks them through files, not through the JVM.

Both steps belong to one task, so their Python workers are on one machine, with only Spark's filter between them. Spark
carries the path of the file; a packed batch of pairs would be copied through pandas, two sockets and Spark's rows. The
file is in the folder that Spark gave the executor for spills, and is removed when it is opened, usually before it is
written to disk. Pairs of a shard beyond `MAX_BYTES` travel as packed batches, and so do all pairs if there is no such
folder or no free space in it.

If a task dies between the steps, its files stay. A file's name says which task wrote it, so a later task of the query
knows what it may remove (`remove_leftovers`): files of earlier batches, and those of other attempts at its own work.
Files of queries that do not run any more are removed by age. A file that is missing fails the task; no pair is lost.
"""

from __future__ import annotations

import itertools
import os
import re
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext

from millrace.faults import fault_point
from millrace.spark.stream.state import pack_rows, write_rows

MAX_BYTES = 1 << 28
"""Maximum bytes in files for one shard and micro-batch, because the step that opens them may start late."""
MAX_AGE_SECONDS = 3600
"""Files of this age belong to a query that does not run any more."""
SPILL_DIRS = "SPARK_LOCAL_DIRS"
"""The variable that names an executor's spill folders to Python workers."""
_PREFIX = "millrace-pairs"
_NAME = re.compile(_PREFIX + r"\.(\d+)\.(\d+)\.(\d+)\.([0-9a-z-]*)\.([0-9a-z-]*)\.\d+")
_numbers = itertools.count()


@dataclass(frozen=True)
class Writer:
    """The task that writes files: its micro-batch, partition and attempt, the query, and the operator in its stage."""

    batch: int
    partition: int
    attempt: int
    query: str
    operator: str

    @staticmethod
    def of_task(operator: str) -> Writer:
        """The running task; `operator` tells the joins of a query apart, and the stage two copies of one join."""
        task = TaskContext.get()
        if task is None:
            return Writer(0, 0, os.getpid(), "", operator)
        query = task.getLocalProperty("sql.streaming.queryId") or ""
        batch = int(task.getLocalProperty("streaming.sql.batchId") or 0)
        return Writer(batch, task.partitionId(), task.taskAttemptId(), query, f"{operator}-{task.stageId()}")

    @staticmethod
    def of_file(name: str) -> Writer | None:
        """The task that wrote a file; None if the name is not of this form."""
        found = _NAME.fullmatch(name)
        return None if found is None else Writer(int(found[1]), int(found[2]), int(found[3]), found[4], found[5])

    def new_path(self, folder: Path) -> Path:
        """The path of a new file; numbers differ within a process, and one process runs one attempt."""
        parts = (_PREFIX, self.batch, self.partition, self.attempt, self.query, self.operator, next(_numbers))
        return folder / ".".join(str(part) for part in parts)

    def replaces(self, other: Writer) -> bool:
        """Whether files of `other`, a task of the same query, are leftovers.

        A query runs one batch at a time. An executor runs one attempt at a partition at a time: the state store of that
        partition is locked while a task uses it.
        """
        if other.batch != self.batch:
            return other.batch < self.batch
        same_work = (other.operator, other.partition) == (self.operator, self.partition)
        return same_work and other.attempt != self.attempt


class PairOutput:
    """The output of one shard's pairs in one micro-batch."""

    def __init__(self, writer: Writer) -> None:
        """No bytes are used yet."""
        self._writer = writer
        self._remaining = MAX_BYTES

    def add(self, pairs: pa.Table) -> dict[str, object]:
        """The columns that Spark carries: the `path` of a file with the pairs, or the `data` itself."""
        self._remaining -= pairs.nbytes
        path = _write_file(pairs, self._writer) if self._remaining >= 0 else None
        return {"data": pack_rows(pairs)} if path is None else {"path": str(path)}


def read_and_remove(path: str) -> pa.Buffer:
    """Map a file's content and remove the file."""
    fault_point("spark.pair_read")
    with pa.memory_map(path) as file:
        data = file.read_buffer()
    os.unlink(path)
    return data


def remove_leftovers(writer: Writer) -> None:
    """Remove files that nobody will open; call it when a task starts."""
    folder = spill_folder()
    if folder is None:
        return
    for path in folder.glob(f"{_PREFIX}.*"):
        with suppress(OSError):  # another task has opened or removed it
            if _left_over(path, writer):
                path.unlink()


def _left_over(path: Path, writer: Writer) -> bool:
    other = Writer.of_file(path.name)
    if other is not None and other.query == writer.query:
        return writer.replaces(other)
    return path.stat().st_mtime < time.time() - MAX_AGE_SECONDS


def spill_folder() -> Path | None:
    """The first spill folder of this executor; None outside of a Spark task."""
    given = os.environ.get(SPILL_DIRS, "").split(",")[0]
    return Path(given) if given else None


def _write_file(pairs: pa.Table, writer: Writer) -> Path | None:
    folder = spill_folder()
    if folder is None:
        return None
    path = writer.new_path(folder)
    try:
        with path.open("xb") as file:
            fault_point("spark.pair_write")
            write_rows(pairs, file)
    except OSError:
        path.unlink(missing_ok=True)
        return None
    return path
