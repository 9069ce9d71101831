"""Passes pairs from the stateful operator to the step that unpacks them through files, not through the JVM.

Both steps belong to one task, so their Python workers are on one machine, with only Spark's filter between them. Spark
carries the path of the file; a packed batch of pairs would be copied through pandas, two sockets and Spark's rows. The
file is in the folder that Spark gave the executor for spills, and is removed when it is opened, usually before it is
written to disk. Pairs of a shard beyond `MAX_BYTES` travel as packed batches, and so do all pairs if there is no such
folder or no free space in it.
"""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress

import pyarrow as pa

from millrace.spark.stream.state import pack_rows, write_rows

MAX_BYTES = 1 << 28
"""Maximum bytes in files for one shard and micro-batch, because the step that opens them may start late."""
SPILL_DIRS = "SPARK_LOCAL_DIRS"
"""The variable that names an executor's spill folders to Python workers."""


class PairOutput:
    """The output of one shard's pairs in one micro-batch."""

    def __init__(self) -> None:
        """No bytes are used yet."""
        self._remaining = MAX_BYTES

    def add(self, pairs: pa.Table) -> dict[str, object]:
        """The columns that Spark carries: the `path` of a file with the pairs, or the `data` itself."""
        self._remaining -= pairs.nbytes
        path = _write_file(pairs) if self._remaining >= 0 else None
        return {"data": pack_rows(pairs)} if path is None else {"path": path}


def read_and_remove(path: str) -> pa.Buffer:
    """Map a file's content and remove the file."""
    with pa.memory_map(path) as file:
        data = file.read_buffer()
    os.unlink(path)
    return data


def _write_file(pairs: pa.Table) -> str | None:
    folder = os.environ.get(SPILL_DIRS, "").split(",")[0]
    if not folder:
        return None
    with suppress(OSError):
        number, path = tempfile.mkstemp(prefix="millrace-pairs-", dir=folder)
        try:
            with os.fdopen(number, "wb") as file:
                write_rows(pairs, file)
        except OSError:
            os.unlink(path)
            raise
        return path
    return None
