"""Pairs on their way from the stateful operator to the step that opens them: as a file, past the JVM.

Both steps belong to one task, so their Python workers are on one machine, with nothing but Spark's filter between them.
What is handed over is the file's path; a parcel of pairs itself would be copied through pandas, two sockets and Spark's
rows. A file lies in the folder that Spark gave the executor for what it spills, and is removed as it is opened, mostly
before it has reached a disk. What a place finds beyond `MOST_BYTES` travels in parcels, as does everything where there
is no such folder or no room in it.
"""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress

import pyarrow as pa

from millrace.spark.stream.state import pack_rows, write_rows

MOST_BYTES = 1 << 28
"""Pairs of one place and batch that lie in files: the step that opens them may begin late."""
SPILL = "SPARK_LOCAL_DIRS"
"""The variable in which Spark names an executor's folders to Python workers."""


class Handing:
    """How one place's pairs of one batch are handed over."""

    def __init__(self) -> None:
        """Nothing yet."""
        self._room = MOST_BYTES

    def give(self, pairs: pa.Table) -> dict[str, object]:
        """What Spark is to carry: a `path`, or the `data`."""
        self._room -= pairs.nbytes
        path = _written(pairs) if self._room >= 0 else None
        return {"data": pack_rows(pairs)} if path is None else {"path": path}


def taken(path: str) -> pa.Buffer:
    """The parcel in a file, which is gone afterwards."""
    with pa.memory_map(path) as file:
        data = file.read_buffer()
    os.unlink(path)
    return data


def _written(pairs: pa.Table) -> str | None:
    folder = os.environ.get(SPILL, "").split(",")[0]
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
