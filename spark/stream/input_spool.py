"""Keeps packed batches that wait in a shard: in memory up to a limit, beyond it in a file that is mapped.

New rows of r wait until all new rows of s are stored, and Spark gives a shard both in any order. The file has no name,
so nothing stays of it, whatever process dies. It is in the folder that Spark gave the executor for spills.
"""

from __future__ import annotations

import mmap
import tempfile
from types import TracebackType
from typing import IO

import pyarrow as pa

from millrace.spark.stream.pair_files import spill_folder


class InputSpool:
    """The waiting packed batches of one shard in one micro-batch."""

    def __init__(self, max_bytes: int) -> None:
        """Keep up to `max_bytes` in memory."""
        self._remaining = max_bytes
        self._file: IO[bytes] | None = None
        self._end = 0

    def __enter__(self) -> InputSpool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()

    def keep(self, data: bytes) -> bytes | pa.Buffer:
        """The same bytes, in memory or mapped; in memory if there is no free space."""
        self._remaining -= len(data)
        if self._remaining >= 0:
            return data
        try:
            return self._mapped(data)
        except OSError:
            return data

    def _mapped(self, data: bytes) -> pa.Buffer:
        if self._file is None:
            self._file = tempfile.TemporaryFile(dir=spill_folder())  # noqa: SIM115 - closed with the spool
        start = self._end
        self._file.seek(start)
        self._file.write(data)
        self._file.flush()
        unit = mmap.ALLOCATIONGRANULARITY
        self._end = -(-(start + len(data)) // unit) * unit  # a mapping begins at a multiple of the page size
        return pa.py_buffer(mmap.mmap(self._file.fileno(), len(data), access=mmap.ACCESS_READ, offset=start))
