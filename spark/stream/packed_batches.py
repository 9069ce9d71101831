"""Rows in parcels: many rows of a stream travel to their place as one row that holds an Arrow IPC stream.

Spark hands rows to a stateful Python operator one at a time, through pandas, which costs more than the join and turns
integers with nulls into floats. A parcel costs that once for 2**17 rows, and its bytes are those that Arrow has
anyway. Parcels are made before the shuffle and opened after the join, each by a `mapInArrow`.

Rows that are *spread* go to the one place, or the few, that routing found for them (`routing.py`), and are kept there.
Rows that are *dealt* go to every place, all in one parcel, and each place keeps a part of it; which one depends on the
row and its partition alone, so that a task that is run again deals alike. A parcel bears the newest time of its rows,
which is all that Spark's watermark needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark.sql import types as ty

from millrace.spark.exec.join_rows import OUT_ROWS, in_bulk
from millrace.spark.stream.gc_freeze import settle
from millrace.spark.stream.pair_files import taken
from millrace.spark.stream.plan import US_PER_MS, Longs, Side
from millrace.spark.stream.state import pack_rows, unpack_rows
from millrace.spark.stream.task import Share

PACK_ROWS = 1 << 17
"""About how many rows are packed at once."""
PLACE, FIRST = "__millrace_place", "__millrace_first"
"""The columns before a side's own: a row's place (by number), and whether it is counted there."""
_MOST_US = 2**62
PARCEL = pa.schema(
    [
        pa.field("place", pa.int32()),
        pa.field("of_s", pa.bool_()),
        pa.field("time", pa.timestamp("us", "UTC")),
        pa.field("data", pa.binary()),
        *(pa.field(name, pa.int32()) for name in ("own_from", "own_to", "counted_from", "counted_to")),
    ]
)
PARCEL_SPARK = ty.StructType(
    [
        ty.StructField("place", ty.IntegerType()),
        ty.StructField("of_s", ty.BooleanType()),
        ty.StructField("time", ty.TimestampType()),
        ty.StructField("data", ty.BinaryType()),
        *(ty.StructField(name, ty.IntegerType()) for name in ("own_from", "own_to", "counted_from", "counted_to")),
    ]
)
Batches = Iterable[pa.RecordBatch]


@dataclass(frozen=True)
class Packing:
    """How rows of a side are packed. `keys` are the places, as Spark's partitioning knows them."""

    name: str
    side: Side
    keys: tuple[int, ...]
    dealt: bool
    integer: bool


def packer(packing: Packing) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    """The function that tasks run on a side's rows: the place and the first flag, then its own columns."""

    def pack(batches: Batches) -> Iterator[pa.RecordBatch]:
        settle()
        for bulk in in_bulk(batches, PACK_ROWS):
            yield _parcels(packing, bulk)

    return pack


def _parcels(packing: Packing, bulk: pa.Table) -> pa.RecordBatch:
    """A bulk's rows in the order of their places, one parcel for each place, rows or not."""
    place, first = (bulk.column(name).to_numpy() for name in (PLACE, FIRST))
    order = np.argsort(place.astype(np.int16) * 2 + ~first, kind="stable")
    rows = bulk.select(packing.side.schema.names).cast(packing.side.schema).take(pa.array(order)).combine_chunks()
    places = len(packing.keys)
    ends = np.concatenate([[0], np.cumsum(np.bincount(place, minlength=places))])
    firsts = np.bincount(place[first], minlength=places)
    if packing.dealt:
        data = [pack_rows(rows)] * places
        ranges = [(ends[i], ends[i + 1], ends[i], ends[i + 1]) for i in range(places)]
    else:
        sizes = np.diff(ends)
        data = [pack_rows(rows.slice(ends[i], sizes[i])) for i in range(places)]
        ranges = [(0, sizes[i], 0, firsts[i]) for i in range(places)]
    columns = [
        pa.array(packing.keys, pa.int32()),
        pa.array([packing.name == "s"] * places),
        pa.array([_newest(packing, rows)] * places, PARCEL.field("time").type),
        pa.array(data, pa.binary()),
        *(pa.array([one[i] for one in ranges], pa.int32()) for i in range(4)),
    ]
    return pa.record_batch(columns, schema=PARCEL)


def _newest(packing: Packing, rows: pa.Table) -> int:
    """The newest time in microseconds as the watermark is to see it; 1970 where no row has a time."""
    times, known = packing.side.times(rows)
    if not known.any():
        return 0
    newest = int(times[known].max()) * (US_PER_MS if packing.integer else 1)
    return max(-_MOST_US, min(newest, _MOST_US))


def share(of_s: bool, data: bytes, own: tuple[int, int], counted: tuple[int, int]) -> Share:
    """A parcel, opened at its place."""
    return Share("s" if of_s else "r", unpack_rows(data), own, counted)


def unpack(batches: Batches) -> Iterator[pa.RecordBatch]:
    """Pairs out of the parcels that places gave, or out of the files that they named."""
    settle()
    for batch in batches:
        for parcel, path in zip(batch.column("data"), batch.column("path"), strict=True):
            data = parcel.as_buffer() if parcel.is_valid else taken(path.as_py())
            yield from unpack_rows(data).to_batches(max_chunksize=OUT_ROWS)


# Which keys Spark's hash partitioning puts where.

_CYCLE = 2**7 * 3**2 * 5**2 * 7
MOST_PLACES = 1000


def place_keys(places: int) -> tuple[int, ...]:
    """Keys that Spark's hash partitioning deals out evenly: key i goes to partition `i % n`, if n divides `_CYCLE`.

    The cycle has every number of partitions that people use among its divisors (4, 8, 48, 64, 200, …).
    """
    found = np.zeros(places, np.int64)
    missing = np.ones(places, np.bool_)
    numbers = np.arange(1 << 22)
    rest = _murmur(numbers) % _CYCLE
    for number in np.flatnonzero(rest < places):
        at = rest[number]
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
