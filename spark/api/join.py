"""`ms.join`: joins two frames on any condition of order, as `mr.join` joins two tables.

The driver reads the condition, checks all arguments and chooses a strategy (`plan/strategy.py`). Tasks join the rows in
Python workers, on the requested device. Results are multisets: `r_<name>` and `s_<name>` columns without row numbers,
in no order. A broadcast join reads its small side at the call, and the other strategies sample at the call; everything
else is lazy, as usual in Spark.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as fn
from pyspark.sql import types as ty

from millrace.errors import ArgumentError
from millrace.ingest.choices import Fallback
from millrace.join_parts.routes import BoundCondition, bound_condition
from millrace.spark.cluster.files import save_table, use_in
from millrace.spark.cluster.lifetimes import task_function
from millrace.spark.cluster.metrics import TASK_COLUMN, TASK_TYPE, Metrics, input_counts, task_counts, watched
from millrace.spark.cluster.resources import read_device_request
from millrace.spark.cluster.task import DeviceRequest, map_in_arrow
from millrace.spark.cluster.workers import check_workers, deliver
from millrace.spark.exec import broadcast, shuffle
from millrace.spark.exec.batch_bytes import read_limits
from millrace.spark.exec.join_rows import JoinJob
from millrace.spark.plan import columns as cl
from millrace.spark.plan.hows import How, other_side, read_how
from millrace.spark.plan.strategy import JoinRequest, Strategy, StrategyName, choose


def join(
    r: DataFrame,
    s: DataFrame,
    on: str,
    *,
    how: How = "inner",
    splits: Sequence[Any] | None = None,
    device: str = "auto",
    fallback: Fallback | None = None,
    strategy: StrategyName = "auto",
    metrics: Metrics | None = None,
) -> DataFrame:
    """All pairs of rows of two frames that satisfy `on`.

    `how`: `"inner"`, `"left"`, `"right"`, `"full"`, `"semi"` or `"anti"`, or Spark's name for one of them. `splits`:
    values of r's column at which cells begin, instead of sampling. `strategy`: `"auto"`, `"broadcast"`, `"range"` or
    `"grid"` (see `ms.explain`). `fallback="cpu"`: a task whose device fails continues on the CPU. `metrics`: a
    `Metrics` for counts.
    """
    request = join_request(r, s, on, how, splits, strategy)
    device_request = read_device_request(r.sparkSession, device, fallback)
    chosen = [(part, choose(part)) for part in request.parts]
    if metrics is not None:
        metrics.start()
    observed = {side: _observed(request, side, metrics) for side in ("r", "s")}
    rows = _part(*chosen[0], observed, device_request, metrics)
    for part, strategy_of_part in chosen[1:]:
        # Inputs are observed once. The second part counts the pairs of the first again, to find rows that have none.
        more = _part(part, strategy_of_part, request.frames, device_request, metrics)
        rows = rows.union(_as_pairs(request, more, metrics))
    return _without_reports(rows, metrics)


def join_request(r: Any, s: Any, on: Any, how: Any, splits: Any, strategy: Any) -> JoinRequest:
    """Check everything that can be checked without reading rows; return the join to plan."""
    frames = {"r": cl.check_frame(r, "r"), "s": cl.check_frame(s, "s")}
    known = read_how(how)
    for side, frame in frames.items():
        if frame.isStreaming:
            raise ArgumentError(
                f"{side} is a streaming frame: ms.join is for batch frames, use ms.window_join for streams"
            )
    found = read_condition(frames, on)
    workers = check_workers(frames["r"].sparkSession)
    return JoinRequest(frames, found, known, splits, strategy, workers.tasks)


def read_condition(frames: dict[str, DataFrame], on: Any) -> BoundCondition:
    """The condition, bound to the frames' types."""
    return bound_condition(
        cl.spark_condition(frames, on), *(cl.arrow_schema(frames[side].schema, side) for side in ("r", "s"))
    )


def _observed(request: JoinRequest, side: str, metrics: Metrics | None) -> DataFrame:
    frame = request.frames[side]
    unmatchable = cl.unusable(frame.schema, request.condition.keys[side])  # type: ignore[index]
    return watched(frame, input_counts(side, unmatchable), f"join_{side}", metrics)


def _part(
    part: JoinRequest,
    chosen: Strategy,
    frames: dict[str, DataFrame],
    device_request: DeviceRequest,
    metrics: Metrics | None,
) -> DataFrame:
    """The rows of one part of a join."""
    names = tuple((side, part.condition.columns[side]) for side in ("r", "s"))
    limits = read_limits(part.frames["r"].sparkSession)
    job = JoinJob(part.condition.text, part.how, names, device_request, metrics is not None, part.kept, limits)
    return _shuffle(job, part, frames, chosen) if chosen.held is None else _broadcast(job, part, frames, chosen.held)


def _broadcast(job: JoinJob, part: JoinRequest, frames: dict[str, DataFrame], held: str) -> DataFrame:
    """Save the held side; the tasks search it with the rows of the other side."""
    probing = other_side(held)
    route = part.ordered_route(held)
    table = broadcast.sorted_by_key(frames[held].toArrow(), None if route is None else route.column)
    file = save_table(table)
    deliver(frames[probing].sparkSession, file)
    made = map_in_arrow(frames[probing], broadcast.joiner(job, file, held), _schema(part, job.report))
    use_in(file, task_function(made))
    return made


def _shuffle(job: JoinJob, part: JoinRequest, frames: dict[str, DataFrame], chosen: Strategy) -> DataFrame:
    """Shuffle both sides, and join each shard."""
    assert chosen.cells is not None
    keep_all = job.how in ("left", "anti")
    rows, shared = shuffle.shuffle_sides(frames, part.condition, chosen.route, chosen.cells, chosen.home, keep_all)
    where = shuffle.layout(shared, frames["r"].columns, frames["s"].columns)
    return rows.mapInArrow(shuffle.joiner(job, where), _schema(part, job.report))


def _schema(request: JoinRequest, report: bool) -> ty.StructType:
    """The output columns of the tasks."""
    fields = [
        ty.StructField(f"{side}_{field.name}", field.dataType, True)
        for side in (("r", "s") if request.pairs else (request.kept,))
        for field in request.frames[side].schema.fields
    ]
    if report:
        fields.append(ty.StructField(TASK_COLUMN, TASK_TYPE))
    return ty.StructType(fields)


def _as_pairs(request: JoinRequest, rows: DataFrame, metrics: Metrics | None) -> DataFrame:
    """Rows of one side as pairs: nulls in the columns of the other side; their pairs are not counted again."""
    columns = [
        cl.column(field.name) if field.name in rows.columns else fn.lit(None).cast(field.dataType).alias(field.name)
        for field in _schema(request, False).fields
    ]
    if metrics is not None:
        columns.append(fn.col(TASK_COLUMN).withField("pairs", fn.lit(0).cast("bigint")).alias(TASK_COLUMN))
    return rows.select(*columns)


def _without_reports(rows: DataFrame, metrics: Metrics | None) -> DataFrame:
    """Sum up the tasks' reports, and remove them from the result."""
    if metrics is None:
        return rows
    seen = watched(rows, task_counts(), "join_tasks", metrics)
    return seen.where(fn.col(TASK_COLUMN).isNull()).drop(TASK_COLUMN)
