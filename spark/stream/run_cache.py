"""A Python worker's cache of runs: unpacked rows, their times, and a probe that has ordered them, kept between batches.

It is only a cache: a shard's manifest, which Spark's state store delivers with each batch, says which runs exist. A
run's name identifies its content, so an entry is valid for every batch. A task that runs again on a worker whose cache
is newer, older or empty takes the runs of the manifest from here, from another worker's file (`run_files.py`), or from
the store. After each batch the shard's entries are pruned to its manifest; entries of shards that this worker no longer
sees are evicted when the cache exceeds its limits. A forked process starts with an empty cache.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable

import pyarrow as pa

from millrace.join_parts.table_probe import TableProbe
from millrace.spark.cluster.task import TaskDevice
from millrace.spark.exec.row_bytes import RowBytes
from millrace.spark.plan.hows import other_side
from millrace.spark.stream import run_files
from millrace.spark.stream.plan import Flags, Longs, StreamPlan
from millrace.spark.stream.state import Manifest, StoredRun, unpack_rows

MAX_BYTES = 1 << 30
"""Maximum bytes of cached rows, most of them in mapped files; the probes have the keys in memory."""
MAX_PRIVATE_BYTES = 1 << 27
"""Maximum bytes of cached rows in this worker's own memory."""


class HeldRun:
    """A run's rows, their times and, after first use, a probe of them."""

    def __init__(
        self,
        plan: StreamPlan,
        run: StoredRun,
        table: pa.Table,
        times: Longs | None = None,
        temporary: bool = False,
    ) -> None:
        """Rows as stored: each has a time and its keys. `temporary`: used for one search, not cached."""
        self.run, self.table, self.temporary = run, table, temporary
        self.times: Longs = plan.side(run.side).times(table)[0] if times is None else times
        self.private = 0
        self._plan = plan
        self._sizes: RowBytes | None = None
        self._probe: tuple[str, TableProbe] | None = None

    def combined(self) -> HeldRun:
        """This run, with its rows in one chunk each column: a stored run has a chunk for each part that arrived."""
        if any(column.num_chunks > 1 for column in self.table.columns):
            self.table = self.table.combine_chunks()
            self.private = self.table.nbytes
        return self

    @property
    def sizes(self) -> RowBytes:
        """The bytes of each row."""
        if self._sizes is None:
            self._sizes = RowBytes.of(self.table)
        return self._sizes

    def probe(self, device: TaskDevice) -> TableProbe:
        """The probe on a device; made on first use."""
        if self._probe is None or self._probe[0] != device.name:
            self.close()
            self._probe = device.name, self._open(device)
        return self._probe[1]

    def _open(self, device: TaskDevice) -> TableProbe:
        plan, side = self._plan, self.run.side
        own, other = plan.side(side), plan.side(other_side(side))
        held = self.table.select(list(own.used))
        probing = pa.schema([other.schema.field(name) for name in other.used])
        fallback = plan.device_request.fallback
        return TableProbe.of(plan.on, held, probing, side, "auto", device.name, device.threads, fallback)

    def close(self) -> None:
        """Close the probe, which frees its device."""
        probe, self._probe = self._probe, None
        if probe is not None:
            probe[1].close()

    def alive(self, watermark: int | None) -> Flags | None:
        """Which rows can still match; None if all can."""
        retention = self._plan.retention(self.run.side)
        if watermark is None or self.run.low + retention >= watermark:
            return None
        kept: Flags = self.times >= watermark - retention
        return kept


_kept: OrderedDict[tuple[str, str, str], HeldRun] = OrderedDict()
_process = os.getpid()


def _entries() -> OrderedDict[tuple[str, str, str], HeldRun]:
    """The entries of this process; empty after a fork."""
    global _process
    if _process != os.getpid():
        _kept.clear()
        _process = os.getpid()
    return _kept


def get_run(plan: StreamPlan, owner: str, run: StoredRun, read: Callable[[], bytes]) -> HeldRun:
    """A run from this cache, from another worker's file, or from `read`."""
    kept, key = _entries(), (plan.token, owner, run.name)
    if key not in kept:
        data = _read_shared(plan, owner, run.name, read)
        kept[key] = HeldRun(plan, run, unpack_rows(data))
        kept[key].private = len(data) if isinstance(data, bytes) else 0
    kept.move_to_end(key)
    return kept[key]


def _read_shared(plan: StreamPlan, owner: str, name: str, read: Callable[[], bytes]) -> pa.Buffer | bytes:
    if plan.empty:  # the baseline searches nothing, so it needs no files
        return read()
    folder = _folder(plan, owner)
    found = run_files.fetch(folder, name)
    if found is None:
        data = read()
        run_files.publish(folder, name, data)
        found = run_files.fetch(folder, name)  # mapped: not in this worker's own memory
        return data if found is None else found
    return found


def _folder(plan: StreamPlan, owner: str) -> str:
    return f"{plan.token}-{owner}"


def prune(plan: StreamPlan, manifest: Manifest) -> None:
    """Remove a shard's runs that its manifest does not name, then the least recently used beyond the limits."""
    kept, names = _entries(), manifest.names()
    for key in [key for key in kept if key[:2] == (plan.token, manifest.owner) and key[2] not in names]:
        kept.pop(key).close()
    total = sum(one.table.nbytes for one in kept.values())
    private = sum(one.private for one in kept.values())
    while kept and (total > MAX_BYTES or private > MAX_PRIVATE_BYTES):
        _, oldest = kept.popitem(last=False)
        total -= oldest.table.nbytes
        private -= oldest.private
        oldest.close()
    run_files.prune(_folder(plan, manifest.owner), names)


def cached() -> frozenset[str]:
    """The names of the cached runs, for tests."""
    return frozenset(name for _, _, name in _entries())
