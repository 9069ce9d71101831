"""The query of `ms.window_join`, built from a call with valid arguments.

Each side's rows are routed to their shards and packed; the watermark is set on the packed batches; Spark's stateful
operator joins each shard, and a last step unpacks the pairs.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import partial
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as fn
from pyspark.sql import types as ty

from millrace.errors import ArgumentError
from millrace.join_parts.routes import BoundCondition
from millrace.spark.api.stream_inputs import Frames, refuse_watermarks
from millrace.spark.cluster.jobs import named_node
from millrace.spark.cluster.lifetimes import sweep, task_function, when_gone
from millrace.spark.cluster.metrics import watched
from millrace.spark.cluster.session_settings import change, put_back, session_number
from millrace.spark.cluster.task import map_in_arrow
from millrace.spark.cluster.workers import check_workers
from millrace.spark.exec.shuffle import row_hash
from millrace.spark.plan import columns as cl
from millrace.spark.plan.hows import other_side
from millrace.spark.plan.routing import Cells, as_double, range_of
from millrace.spark.plan.strategy import Strategy
from millrace.spark.stream.packed_batches import FIRST, PACKED_TYPE, SHARD, Packing, marker, packer, unpacker
from millrace.spark.stream.plan import StreamPlan
from millrace.spark.stream.processor import OUT_TYPE, JoinProcessor
from millrace.spark.stream.task import COUNTS

PROVIDER = "spark.sql.streaming.stateStore.providerClass"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
CHANGELOG = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"
POLICY = "spark.sql.streaming.multipleWatermarkPolicy"
PARTITIONS = "spark.sql.shuffle.partitions"


@dataclass(frozen=True)
class Call:
    """A call with valid arguments."""

    frames: Frames
    condition: BoundCondition
    plan: StreamPlan
    strategy: Strategy | None
    keys: tuple[int, ...]
    watermark: str
    lateness_ms: int
    chained: frozenset[str]
    """The sides that are pairs of another join."""
    pair_time: ty.StructField | None
    idle: int | None = None
    """How many ticks a side may be behind the other and still hold the watermark."""

    def describe(self) -> dict[str, Any]:
        """Entries for `ms.explain`."""
        given = dict(self.plan.arguments)
        late = f"{self.lateness_ms:,} ms below the newest row, watermark {self.watermark!r}"
        entries: dict[str, Any] = {"window": given["window"], "time": given["time"], "late": late}
        if self.idle is not None:
            entries["idle"] = f"a side that is more than {given['idle']} behind no longer holds the watermark"
        if self.strategy is not None:
            return entries | self.strategy.describe()
        why = "every shard sees all rows and stores its part; no splits were given"
        return entries | {"strategy": "store-one", "why": why, "shards": len(self.keys)}


def build(call: Call) -> DataFrame:
    """Build the query."""
    spark = call.frames["r"].sparkSession
    check_workers(spark)
    sweep()
    changed = _configure(spark, call)
    joined = (
        _watermarked(call)
        .where("uuid() <> ''")  # always true, and has another seed in each copy of the plan: see `_watermarked`
        .select(*(field.name for field in PACKED_TYPE.fields if field.name != "time"))
        .groupBy("shard")
        .transformWithStateInPandas(
            statefulProcessor=JoinProcessor(call.plan),
            outputStructType=OUT_TYPE,
            outputMode="Append",
            timeMode="EventTime",
        )
    )
    counted = watched(joined, {name: fn.sum(name) for name in COUNTS}, "window_join", None)
    pairs = counted.where("data IS NOT NULL OR path IS NOT NULL").select("data", "path")
    made = pairs.mapInArrow(named_node(unpacker(call.plan.limits), "window_join_reads_pairs"), _pairs(call))
    if changed:
        when_gone(task_function(made), partial(put_back, spark, session_number(spark), changed))
    return refuse_watermarks(made, call.plan.event_time)


def _configure(spark: SparkSession, call: Call) -> tuple[str, ...]:
    """Set the state store that the operator needs; report settings that make the query wrong or slow."""
    provider = str(spark.conf.get(PROVIDER, ""))
    wanted = {CHANGELOG: "true", PROVIDER: provider if "rocksdb" in provider.lower() else ROCKSDB}
    if call.watermark == "min" and str(spark.conf.get(POLICY, "min")).lower() != "min":
        raise ArgumentError(f"{POLICY} is not 'min' in this session, but watermark='min' needs it: unset it")
    partitions = int(str(spark.conf.get(PARTITIONS, "200")))
    if partitions > 4 * len(call.keys):
        warnings.warn(
            f"{PARTITIONS} is {partitions}: each micro-batch of a new query runs that many tasks, but only "
            f"{len(call.keys)} have work; set it to {len(call.keys)} before the query starts",
            stacklevel=4,
        )
    return change(spark, wanted, "ms.window_join")


def _packed_batches(call: Call, side: str) -> DataFrame:
    """A side's rows, packed for their shards."""
    frame = call.frames[side]
    own = [cl.column(name) for name in frame.columns]
    if call.strategy is None:
        shard = fn.expr(f"int(pmod({row_hash(frame)}, {len(call.keys)}))")
        assigned = frame.select(shard.alias(SHARD), fn.lit(True).alias(FIRST), *own)
    else:
        assigned = _routed(call, side, frame, own)
    pack = named_node(packer(_packing(call, side)), f"window_join_packs_{side}_for_{len(call.keys)}_shards")
    return map_in_arrow(assigned, pack, PACKED_TYPE)


def _packing(call: Call, side: str) -> Packing:
    plan = call.plan
    late = call.lateness_ms if plan.integer else 0
    return Packing(side, plan.side(side), call.keys, call.strategy is None, plan.integer, plan.limits, late)


def _markers(call: Call, side: str) -> DataFrame:
    """A side's times for the watermark of the other, which may be idle."""
    assert call.idle is not None
    times = call.frames[side].select(cl.column(call.plan.side(side).time))
    mark = named_node(marker(_packing(call, side), call.idle), f"window_join_reads_times_of_{side}")
    return map_in_arrow(times, mark, PACKED_TYPE)


def _routed(call: Call, side: str, frame: DataFrame, own: list[Column]) -> DataFrame:
    """Rows with their shards: one for r, all that can have partners for s; rows that cannot match go to shard 0."""
    assert call.strategy is not None
    assert call.strategy.route is not None
    assert isinstance(call.strategy.cells, Cells)
    route, cells = call.strategy.route, call.strategy.cells
    unmatchable = cl.unusable(frame.schema, call.condition.keys[side])  # type: ignore[index]
    if side == "r":
        key = as_double(route.column, frame.schema[route.column].dataType)
        shard = fn.expr(f"CASE WHEN {unmatchable} THEN 0 ELSE {cells.first(key)} END")
        return frame.select(shard.alias(SHARD), fn.lit(True).alias(FIRST), *own)
    guests = cells.guests([range_of(one, frame.schema) for one in route.ranges])
    shards = f"CASE WHEN {unmatchable} OR size({guests}) = 0 THEN array(0) ELSE {guests} END"
    at = "__millrace_at"
    replicated = frame.select(fn.expr(f"posexplode({shards})").alias(at, SHARD), *own)
    return replicated.select(fn.col(SHARD), (fn.col(at) == 0).alias(FIRST), *own)


def _watermarked(call: Call) -> DataFrame:
    """Both sides' packed batches: with one watermark per side, of which Spark takes the lower, or one for both.

    Pairs of another join have theirs. For integer times the packed times are below the newest by the lateness already.
    A query may contain the pairs twice, in a union for example. If both copies of this plan were equal, Spark (4.3)
    would reuse the shuffle of one for the other, and not see a watermark there: no row would be late, no state dropped.
    """
    packed = {side: _packed_batches(call, side) for side in ("r", "s")}
    delay = f"{0 if call.plan.integer else call.lateness_ms} milliseconds"
    if call.watermark == "max":
        return packed["r"].union(packed["s"]).withWatermark("time", delay)
    if call.idle is not None:
        packed = {side: rows.union(_markers(call, other_side(side))) for side, rows in packed.items()}
    r, s = (packed[side] if side in call.chained else packed[side].withWatermark("time", delay) for side in ("r", "s"))
    if call.idle is None:
        return r.union(s)
    # The markers end here. The condition names `time`, or Spark would apply it before it sets the watermark.
    return r.union(s).where("data IS NOT NULL OR time IS NULL")


def _pairs(call: Call) -> ty.StructType:
    """The output columns."""
    fields = [
        ty.StructField(f"{side}_{field.name}", field.dataType, True)
        for side in ("r", "s")
        for field in call.frames[side].schema.fields
    ]
    return ty.StructType([*fields, *([] if call.pair_time is None else [call.pair_time])])
