"""`ms.window_join`: two streams joined on any condition of order within a window of time, exactly once.

Everything is checked on the driver when the call is made; rows then go to *places*, in parcels (`packing.py`), and each
place is joined by Spark's stateful operator (`stream_processor.py`), whose state is in RocksDB with a changelog. With
`splits`, rows of r lie in the one range that their key falls into and rows of s in every range that they reach
(*range*). Without, every place sees all rows and keeps its share (*store-one*): no key is too heavy for it, and the
condition needs no band. Spark's own watermark says what is late and what may be forgotten.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as fn
from pyspark.sql import types as ty

import millrace as mr
from millrace.errors import ArgumentError, SchemaError
from millrace.ingest.checks import choice, whole
from millrace.ingest.durations import Span, parse_lateness, parse_window
from millrace.join_parts.routes import Outline
from millrace.spark.api.join import read_condition
from millrace.spark.cluster.metrics import watched
from millrace.spark.cluster.resources import asked_of
from millrace.spark.cluster.workers import check_workers
from millrace.spark.exec.shuffle import row_number
from millrace.spark.plan import columns as cl
from millrace.spark.plan.routing import as_double, range_of
from millrace.spark.plan.strategy import Question, Strategy, choose
from millrace.spark.stream.packed_batches import (
    FIRST,
    MOST_PLACES,
    PARCEL_SPARK,
    PLACE,
    Packing,
    packer,
    place_keys,
    unpack,
)
from millrace.spark.stream.plan import Side, StreamPlan
from millrace.spark.stream.processor import OUT_TYPE, JoinProcessor
from millrace.spark.stream.task import COUNTS

PLACES = 4
WATERMARKS = ("min", "max")
PROVIDER = "spark.sql.streaming.stateStore.providerClass"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
CHANGELOG = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"
POLICY = "spark.sql.streaming.multipleWatermarkPolicy"
PARTITIONS = "spark.sql.shuffle.partitions"
_WATERMARK_KEY = "spark.watermarkDelayMs"
_TIMES = (ty.TimestampType, ty.TimestampNTZType, ty.DateType, ty.IntegralType)
_NS_PER_US, _NS_PER_MS = 1000, 1_000_000
Frames = dict[str, DataFrame]


@dataclass(frozen=True)
class Call:
    """A call whose arguments are right."""

    frames: Frames
    outline: Outline
    plan: StreamPlan
    strategy: Strategy | None
    keys: tuple[int, ...]
    watermark: str
    lateness_ms: int

    def describe(self) -> str:
        """For people."""
        about = f"window join on {self.outline.text} ({self.outline.kind}), in {len(self.keys)} places"
        if self.strategy is None:
            how = "store-one: every place sees all rows and keeps its share; no splits were given"
        else:
            how = self.strategy.describe()
        late = f"  late: {self.lateness_ms:,} ms below the newest row, watermark {self.watermark!r}"
        return f"{about}\n{how}\n{late}\n  device: {self.plan.asked.device}"


def window_join(
    r: DataFrame,
    s: DataFrame,
    on: str,
    window: Any,
    time: Any,
    lateness: Any = 0,
    watermark: str = "min",
    splits: Sequence[Any] | None = None,
    places: int = PLACES,
    device: str = "auto",
    fallback: str | None = None,
) -> DataFrame:
    """All pairs of rows of two streams that satisfy `on` and lie within `window` of each other, as a stream.

    `time`: the time column, or a pair of names. `lateness`: how far below the newest time a row may be. `watermark`:
    `"min"`, the side that is behind sets it, or `"max"`, the one that is ahead does. `splits`: values of r's column at
    which ranges begin; without them every place sees all rows. `places`: how many, without splits; a checkpoint keeps
    to its number. Counts are in the query's progress, under a name that begins with `millrace_window_join`.
    """
    call = read_call(r, s, on, window, time, lateness, watermark, splits, places, device, fallback)
    return build(call)


def read_call(
    r: Any,
    s: Any,
    on: Any,
    window: Any,
    time: Any,
    lateness: Any = 0,
    watermark: Any = "min",
    splits: Any = None,
    places: Any = PLACES,
    device: Any = "auto",
    fallback: Any = None,
) -> Call:
    """Check everything."""
    frames = {"r": _streaming(r, "r"), "s": _streaming(s, "s")}
    spark = frames["r"].sparkSession
    choice("watermark", watermark, WATERMARKS)
    spans = parse_window(window)
    if spans.counts:
        raise ArgumentError(
            f"window={window!r} counts rows, and rows of a Spark stream have no order of arrival: give a length of time"
        )
    if time is None:
        raise ArgumentError("time is missing: name the time column, such as time='ts', or a pair (r's, s's)")
    schemas = {side: _schema(frames[side], side) for side in ("r", "s")}
    # The same rules as everywhere: what a WindowJoin would refuse is refused here, in its words.
    mr.WindowJoin(on=on, window=window, time=time, lateness=lateness, schemas=schemas, device="cpu").close()
    names = dict(zip(("r", "s"), (time, time) if isinstance(time, str) else time, strict=True))
    integer = _is_integer(frames, names)
    outline = read_condition(frames, on)
    asked = asked_of(spark, device, fallback)
    strategy = None if splits is None else choose(Question(frames, outline, "inner", splits, "auto", 1))
    keys = place_keys(_places(places, strategy))
    late = _milliseconds(parse_lateness(lateness))
    arguments = {
        "on": outline.text,
        "window": f"{spans.r}, {spans.s}",
        "time": f"{names['r']}, {names['s']}",
        "lateness": f"{late} ms",
        "watermark": watermark,
        "splits": "none" if strategy is None else str(list(strategy.cells.bounds)),  # type: ignore[union-attr]
        "places": str(list(keys)),
        **{f"columns of {side}": str(schemas[side]) for side in ("r", "s")},
    }
    sides = {side: Side(schemas[side], names[side], outline.columns[side], outline.keys[side]) for side in ("r", "s")}
    after, before = (_ticks(span) for span in (spans.r, spans.s))
    given = tuple(sorted(arguments.items()))
    plan = StreamPlan(outline.text, sides["r"], sides["s"], after, before, integer, asked, given)
    return Call(frames, outline, plan, strategy, keys, watermark, late)


def build(call: Call) -> DataFrame:
    """The query."""
    spark = call.frames["r"].sparkSession
    check_workers(spark)
    _set_up(spark, call)
    parcels = _watermarked({side: _parcels(call, side) for side in ("r", "s")}, call.watermark, call.lateness_ms)
    told = (
        parcels.select(*(field.name for field in PARCEL_SPARK.fields if field.name != "time"))
        .groupBy("place")
        .transformWithStateInPandas(
            statefulProcessor=JoinProcessor(call.plan),
            outputStructType=OUT_TYPE,
            outputMode="Append",
            timeMode="EventTime",
        )
    )
    counted = watched(told, {name: fn.sum(name) for name in COUNTS}, "window_join", None)
    pairs = counted.where("data IS NOT NULL OR path IS NOT NULL").select("data", "path")
    return pairs.mapInArrow(unpack, _pairs(call.frames))


# Arguments.


def _streaming(given: Any, label: str) -> DataFrame:
    frame = cl.check_frame(given, label)
    if not frame.isStreaming:
        raise ArgumentError(f"{label} is a batch frame: ms.window_join is for streams, for two tables there is ms.join")
    for field in frame.schema.fields:
        if _WATERMARK_KEY in field.metadata:
            raise ArgumentError(
                f"{label} has a watermark on {field.name} already, and a query has one rule of lateness: leave "
                f"withWatermark out, and give lateness= here"
            )
    return frame


def _schema(frame: DataFrame, label: str) -> pa.Schema:
    """A side's columns as its tasks see them: any may be null, and times are in UTC whatever the session's zone."""
    return pa.schema([field.with_nullable(True) for field in cl.arrow_schema(frame.schema, label)])


def _is_integer(frames: Frames, names: dict[str, str]) -> bool:
    kinds = {side: frames[side].schema[names[side]].dataType for side in ("r", "s")}
    for side, kind in kinds.items():
        if not isinstance(kind, _TIMES):
            raise SchemaError(
                f"{side}.{names[side]} is {kind.simpleString()}: a time column is a timestamp, a date or an integer"
            )
    return isinstance(kinds["r"], ty.IntegralType)


def _places(given: Any, strategy: Strategy | None) -> int:
    places = whole("places", given, 1)
    if strategy is not None:
        assert strategy.cells is not None
        places = strategy.cells.places
    if places > MOST_PLACES:
        raise ArgumentError(f"{places} places: allowed are at most {MOST_PLACES}")
    return places


def _ticks(span: Span) -> int:
    return span.length if span.measure == "ticks" else span.length // _NS_PER_US


def _milliseconds(span: Span) -> int:
    """Lateness as Spark has it, in whole milliseconds, rounded up; a tick of an integer column is one."""
    return span.length if span.measure == "ticks" else -(-span.length // _NS_PER_MS)


def _set_up(spark: SparkSession, call: Call) -> None:
    """The state store that the operator needs; and what would make the query wrong or slow is told."""
    if "rocksdb" not in str(spark.conf.get(PROVIDER, "")).lower():
        spark.conf.set(PROVIDER, ROCKSDB)
    spark.conf.set(CHANGELOG, "true")
    if call.watermark == "min" and str(spark.conf.get(POLICY, "min")).lower() != "min":
        raise ArgumentError(f"{POLICY} is not 'min' in this session, as watermark='min' needs it: unset it")
    partitions = int(str(spark.conf.get(PARTITIONS, "200")))
    if partitions > 4 * len(call.keys):
        warnings.warn(
            f"{PARTITIONS} is {partitions}: each micro-batch of a new query runs so many tasks, and only "
            f"{len(call.keys)} have work; set it to {len(call.keys)} before the query starts",
            stacklevel=4,
        )


# The query.


def _parcels(call: Call, side: str) -> DataFrame:
    """A side's rows, packed for their places."""
    frame = call.frames[side]
    own = [cl.column(name) for name in frame.columns]
    if call.strategy is None:
        place = fn.expr(f"int(pmod({row_number(frame)}, {len(call.keys)}))")
        placed = frame.select(place.alias(PLACE), fn.lit(True).alias(FIRST), *own)
    else:
        placed = _routed(call, side, frame, own)
    packing = Packing(side, call.plan.side(side), call.keys, call.strategy is None, call.plan.integer)
    return placed.mapInArrow(packer(packing), PARCEL_SPARK)


def _routed(call: Call, side: str, frame: DataFrame, own: list[Column]) -> DataFrame:
    """Rows with their places: one of r's, all that it reaches of s's. Rows that can match nothing go to the first."""
    assert call.strategy is not None
    assert call.strategy.route is not None
    assert call.strategy.cells is not None
    route, cells = call.strategy.route, call.strategy.cells
    lost = cl.unusable(frame.schema, call.outline.keys[side])  # type: ignore[index]
    if side == "r":
        key = as_double(route.column, frame.schema[route.column].dataType)
        place = fn.expr(f"CASE WHEN {lost} THEN 0 ELSE {cells.first(key)} END")
        return frame.select(place.alias(PLACE), fn.lit(True).alias(FIRST), *own)
    guests = cells.guests([range_of(one, frame.schema) for one in route.ranges])
    places = f"CASE WHEN {lost} OR size({guests}) = 0 THEN array(0) ELSE {guests} END"
    at = "__millrace_at"
    spread = frame.select(fn.expr(f"posexplode({places})").alias(at, PLACE), *own)
    return spread.select(fn.col(PLACE), (fn.col(at) == 0).alias(FIRST), *own)


def _watermarked(parcels: Frames, watermark: str, lateness_ms: int) -> DataFrame:
    """Both sides' parcels: of each side a watermark, the lowest counting, or one over both."""
    delay = f"{lateness_ms} milliseconds"
    if watermark == "max":
        return parcels["r"].union(parcels["s"]).withWatermark("time", delay)
    r, s = (parcels[side].withWatermark("time", delay) for side in ("r", "s"))
    return r.union(s)


def _pairs(frames: Frames) -> ty.StructType:
    """The columns that come out."""
    return ty.StructType(
        [
            ty.StructField(f"{side}_{field.name}", field.dataType, True)
            for side in ("r", "s")
            for field in frames[side].schema.fields
        ]
    )
