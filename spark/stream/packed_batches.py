"""Packed batches: many rows of a stream travel to their shard as one row that holds Arrow's bytes.

Spark passes rows to a stateful Python operator one at a time, through pandas. That costs more than the join and turns
integers with nulls into floats. A packed batch pays this cost once for 2**17 rows, or fewer if they are wide, and uses
Arrow's own bytes, which a shard stores as they are (`EncodedRows`). One `mapInArrow` packs rows before the shuffle,
another unpacks pairs after the join.

*Routed* rows go only to the shards that routing found for them (`routing.py`), and are kept there. *Broadcast* rows go
to every shard: a packed batch has a part for each shard, which keeps that one and searches with all. Parts depend only
on the row and its partition, so a task that runs again gives the same parts. A packed batch carries the newest time of
its rows, which is all that Spark's watermark needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from pyspark.sql import types as ty

from millrace.spark.cluster.gc_freeze import freeze_loaded_objects
from millrace.spark.cluster.task import reporting
from millrace.spark.exec.batch_bytes import BatchLimits
from millrace.spark.exec.join_rows import merge_batches
from millrace.spark.exec.row_bytes import cut_rows
from millrace.spark.stream.pair_files import read_and_remove
from millrace.spark.stream.plan import US_PER_MS, Longs, Side, StreamPlan, watermark_ms
from millrace.spark.stream.state import decode_rows, unpack_rows
from millrace.spark.stream.task import ShardInput

PACK_ROWS = 1 << 17
"""About how many rows are packed at once, if they are not wide."""
SHARD, FIRST = "__millrace_shard", "__millrace_first"
"""The columns before a side's own: a row's shard (by number), and whether that shard counts the row."""
_MAX_US = 2**62
PACKED_SCHEMA = pa.schema(
    [
        pa.field("shard", pa.int32()),
        pa.field("of_s", pa.bool_()),
        pa.field("time", pa.timestamp("us", "UTC")),
        pa.field("data", pa.binary()),
        pa.field("own", pa.int32()),
        pa.field("counted", pa.int32()),
    ]
)
PACKED_TYPE = ty.StructType(
    [
        ty.StructField("shard", ty.IntegerType()),
        ty.StructField("of_s", ty.BooleanType()),
        ty.StructField("time", ty.TimestampType()),
        ty.StructField("data", ty.BinaryType()),
        ty.StructField("own", ty.IntegerType()),
        ty.StructField("counted", ty.IntegerType()),
    ]
)
Batches = Iterable[pa.RecordBatch]


@dataclass(frozen=True)
class Packing:
    """How rows of a side are packed. `keys`: the grouping key of each shard; `broadcast`: every shard gets all rows."""

    name: str
    side: Side
    keys: tuple[int, ...]
    broadcast: bool
    integer: bool
    limits: BatchLimits
    lateness: int = 0
    """Ticks by which packed times are below the newest, for integer times; Spark subtracts it from others."""


def packer(packing: Packing) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    """The function that tasks run on a side's rows, whose first columns are `SHARD` and `FIRST`."""

    def pack(batches: Batches) -> Iterator[pa.RecordBatch]:
        freeze_loaded_objects()
        for bulk in merge_batches(batches, PACK_ROWS, packing.limits.bytes):
            yield from _packed_batches(packing, bulk)

    return reporting(pack)


def marker(packing: Packing, idle: int) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    """The function that makes rows without data of a side's times, `idle` ticks behind.

    They move the watermark of the other side, so that it does not stay further behind than that while it is idle.
    """
    behind = replace(packing, lateness=packing.lateness + idle) if packing.integer else packing
    only_time = pa.schema([packing.side.schema.field(packing.side.time)])

    def mark(batches: Batches) -> Iterator[pa.RecordBatch]:
        for bulk in merge_batches(batches, PACK_ROWS, packing.limits.bytes):
            newest = _newest(behind, bulk.cast(only_time)) - (0 if packing.integer else idle)
            values = [packing.keys[0], False, newest, None, 0, 0]
            yield pa.record_batch(
                [pa.array([one], field.type) for one, field in zip(values, PACKED_SCHEMA, strict=True)],
                schema=PACKED_SCHEMA,
            )

    return mark


def _packed_batches(packing: Packing, bulk: pa.Table) -> Iterator[pa.RecordBatch]:
    """The rows ordered by shard, one packed batch for each shard, even without rows; several in one Arrow batch."""
    shard, first = (bulk.column(name).to_numpy() for name in (SHARD, FIRST))
    order = np.argsort(shard.astype(np.int16) * 2 + ~first, kind="stable")
    rows = bulk.select(packing.side.schema.names).cast(packing.side.schema).take(pa.array(order)).combine_chunks()
    shards = len(packing.keys)
    sizes = np.bincount(shard, minlength=shards)
    starts = np.cumsum(sizes) - sizes
    (batch,) = rows.to_batches()
    parts = [memoryview(batch.slice(start, size).serialize()) for start, size in zip(starts, sizes, strict=True)]
    data = [b"".join(parts)] * shards if packing.broadcast else parts
    counted = np.bincount(shard[first], minlength=shards)
    newest = _newest(packing, rows)
    for start, stop in _groups([len(one) for one in data], packing.limits.bytes):
        own = range(start, stop) if packing.broadcast else [0] * (stop - start)
        columns = [
            pa.array(packing.keys[start:stop], pa.int32()),
            pa.array([packing.name == "s"] * (stop - start)),
            pa.array([newest] * (stop - start), PACKED_SCHEMA.field("time").type),
            pa.array(data[start:stop], pa.binary()),
            pa.array(own, pa.int32()),
            pa.array(counted[start:stop], pa.int32()),
        ]
        yield pa.record_batch(columns, schema=PACKED_SCHEMA)


def _groups(sizes: list[int], max_bytes: int) -> Iterator[tuple[int, int]]:
    """Consecutive packed batches that are at most `max_bytes` together, or one of them."""
    start, total = 0, 0
    for number, size in enumerate(sizes):
        if number > start and total + size > max_bytes:
            yield start, number
            start, total = number, 0
        total += size
    yield start, len(sizes)


def _newest(packing: Packing, rows: pa.Table) -> int:
    """The newest time in microseconds, for the watermark; 1970 if no row has a time."""
    times, known = packing.side.times(rows)
    if not known.any():
        return 0
    newest = int(times[known].max())
    if packing.integer:
        return max(0, watermark_ms(newest - packing.lateness)) * US_PER_MS
    return max(-_MAX_US, min(newest, _MAX_US))


def unpack_input(plan: StreamPlan, of_s: bool, data: bytes | pa.Buffer, own: int, counted: int) -> ShardInput:
    """Unpack a packed batch in its shard."""
    side = "s" if of_s else "r"
    return ShardInput(side, decode_rows(data, plan.side(side).schema), own, counted)


def unpacker(limits: BatchLimits) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    """The function that unpacks pairs from the packed batches of the shards, or from the files that they name."""

    def unpack(batches: Batches) -> Iterator[pa.RecordBatch]:
        freeze_loaded_objects()
        for batch in batches:
            for packed, path in zip(batch.column("data"), batch.column("path"), strict=True):
                data = packed.as_buffer() if packed.is_valid else read_and_remove(path.as_py())
                for rows in unpack_rows(data).to_batches():
                    yield from (rows.slice(*cut) for cut in cut_rows(rows, limits))

    return reporting(unpack)


# The partition that Spark's hash partitioning gives a key.

_CYCLE = 2**7 * 3**2 * 5**2 * 7
MAX_SHARDS = 1000


def shard_keys(shards: int) -> tuple[int, ...]:
    """Keys that Spark's hash partitioning distributes evenly: key i goes to partition `i % n`, if n divides `_CYCLE`.

    The usual numbers of partitions divide the cycle (4, 8, 48, 64, 200, …).
    """
    found = np.zeros(shards, np.int64)
    missing = np.ones(shards, np.bool_)
    numbers = np.arange(1 << 22)
    remainder = _murmur(numbers) % _CYCLE
    for number in np.flatnonzero(remainder < shards):
        at = remainder[number]
        if missing[at]:
            found[at], missing[at] = number, False
    assert not missing.any()
    return tuple(int(number) for number in found)


def _murmur(numbers: Longs) -> Longs:
    """Murmur3 of 32-bit integers with Spark's seed, 42, as signed numbers."""

    def rotated(x: np.ndarray[tuple[int], np.dtype[np.uint32]], by: int) -> np.ndarray[tuple[int], np.dtype[np.uint32]]:
        return (x << np.uint32(by)) | (x >> np.uint32(32 - by))

    k = numbers.astype(np.uint32) * np.uint32(0xCC9E2D51)
    h = np.uint32(42) ^ (rotated(k, 15) * np.uint32(0x1B873593))
    h = rotated(h, 13) * np.uint32(5) + np.uint32(0xE6546B64)
    h ^= np.uint32(4)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        h = (h ^ (h >> np.uint32(shift))) * np.uint32(factor)
    return (h ^ (h >> np.uint32(16))).astype(np.int32).astype(np.int64)
