"""`ms.join`: joins two frames on any condition of order, as `mr.join` joins two tables.

The driver reads the condition, checks all arguments and chooses a strategy (`plan/strategy.py`). Tasks join the rows in
Python workers, on the requested device, unless Spark's own join does it (buckets). Results are multisets: `r_<name>`
and `s_<name>` columns without row numbers, in no order. A broadcast join reads its small side at the call, and the
other strategies sample at the call; everything else is lazy, as usual in Spark. r may be a stream: its rows search s,
which is read once, at the call.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, get_args

from pyspark.sql import DataFrame
from pyspark.sql import functions as fn
from pyspark.sql import types as ty

from millrace.errors import ArgumentError, DeviceUnavailable
from millrace.ingest.checks import choice, integer_at_least
from millrace.ingest.choices import Fallback
from millrace.join_parts.routes import BoundCondition, bound_condition
from millrace.spark.cluster.files import given_up_on_error, save_table, use_in
from millrace.spark.cluster.jobs import described, named_node
from millrace.spark.cluster.lifetimes import task_function
from millrace.spark.cluster.metrics import TASK_COLUMN, TASK_TYPE, Metrics, input_counts, task_counts, watched
from millrace.spark.cluster.resources import read_device_request
from millrace.spark.cluster.settings import read_settings
from millrace.spark.cluster.task import DeviceRequest, map_in_arrow
from millrace.spark.cluster.workers import check_workers, deliver
from millrace.spark.exec import broadcast, shuffle
from millrace.spark.exec.batch_bytes import read_limits
from millrace.spark.exec.buckets import bucket_join
from millrace.spark.exec.join_rows import COUNT, JoinJob
from millrace.spark.plan import columns as cl
from millrace.spark.plan.hows import How, other_side, read_how
from millrace.spark.plan.output_columns import read_columns
from millrace.spark.plan.strategy import JoinRequest, Strategy, StrategyName, choose

Output = Literal["pairs", "count"]
OUTPUTS = get_args(Output)
STREAM_HOWS = ("inner", "left", "semi", "anti")
"""The kinds of join of a stream r with a table s: r's rows decide, whenever they come."""


def join(
    r: DataFrame,
    s: DataFrame,
    on: str,
    *,
    how: How = "inner",
    splits: Sequence[Any] | None = None,
    columns: Sequence[str] | None = None,
    output: Output = "pairs",
    shards: int | None = None,
    device: str = "auto",
    fallback: Fallback | None = None,
    strategy: StrategyName = "auto",
    metrics: Metrics | None = None,
) -> DataFrame:
    """All pairs of rows of two frames that satisfy `on`.

    Output columns are `r_<name>` and `s_<name>`; rows have no order and no row numbers.

    Args:
        r: One side: a batch frame or a stream, classic or Connect.
        s: The other side: a batch frame of the same session.
        on: The condition over r and s, as in `mr.join`. Column names follow Spark's case rules, and backticks work.
        how: `"inner"`, `"left"`, `"right"`, `"full"`, `"semi"` or `"anti"`, or Spark's name for one of them.
        splits: Values of r's column, numbers or times, at which cells begin; None samples both frames instead.
        columns: Names of the wanted output columns, such as `["r_id", "s_price"]`; others do not travel. None is all.
        output: `"pairs"`, or `"count"`: each row of r that `how` keeps, with the number of its partners as `count`.
        shards: Partitions of a shuffled join, at least 1; None is chosen by the number of rows and tasks. Not with
            `splits`.
        device: The device of the tasks: `"cpu"`, `"opencl[:i]"`, `"cuda[:i]"`, … as in `mr.device`; `"auto"` is the
            setting `spark.millrace.device`, and without one each task chooses on its machine.
        fallback: `"cpu"`: a task whose device fails continues on the CPU. None: it fails, and Spark runs it again.
        strategy: `"broadcast"`, `"buckets"`, `"range"` or `"grid"`; `"auto"` is the setting
            `spark.millrace.strategy`, and without one the fastest by a sample (see `ms.explain`).
        metrics: A new `ms.Metrics`, which counts this call, for reading after the action; None counts nothing.

    Raises:
        ArgumentError: An argument is not allowed, or does not fit the others; the message says what is.
        PredicateError: `on` is not a condition that joins can use; the message points at the place.
        KeyTypeError: A column of `on` has a type that cannot be compared so.
        SchemaError: A column does not exist, names clash, or a type has no Arrow type.
        DeviceUnavailable: The tasks' machines do not have the device.
        StateError: The workers cannot use millrace; the message says what to set.
    """
    device_request = read_device_request(cl.check_frame(r, "r").sparkSession, device, fallback)
    counting = metrics is not None
    request = join_request(r, s, on, how, splits, strategy, columns, output, shards, device_request.device, counting)
    chosen = [(part, choose(part)) for part in request.parts]
    if metrics is not None:
        metrics.start()
    observed = {side: _observed(request, side, metrics) for side in ("r", "s")}
    rows = _part(*chosen[0], observed, device_request, metrics)
    for part, strategy_of_part in chosen[1:]:
        # Inputs are observed once. The second part counts the pairs of the first again, to find rows that have none.
        more = _part(part, strategy_of_part, request.frames, device_request, metrics)
        rows = rows.union(_as_pairs(request, more, metrics))
    return _wanted(request, _without_reports(request, rows, metrics), read_how(how))


def join_request(
    r: Any,
    s: Any,
    on: Any,
    how: Any,
    splits: Any,
    strategy: Any,
    columns: Any = None,
    output: Any = "pairs",
    shards: Any = None,
    device: str = "auto",
    counting: bool = False,
) -> JoinRequest:
    """Check everything that can be checked without reading rows; return the join to plan.

    `device`: the device of the tasks; `counting`: whether they count their work.
    """
    frames = {"r": cl.check_frame(r, "r"), "s": cl.check_frame(s, "s")}
    known = read_how(how)
    choice("output", output, OUTPUTS)
    _check_streams(frames, known)
    if output == "count" and known in ("right", "full"):
        raise ArgumentError(f"output='count' counts the partners of r's rows: how={how!r} is not for it, swap r and s")
    found = read_condition(frames, on)
    sides = ("r", "s") if known in ("inner", "left", "right", "full") and output == "pairs" else ("r",)
    wanted = read_columns(columns, frames, sides)
    spark = frames["r"].sparkSession
    settings = read_settings(spark)
    in_python = device not in ("auto", "cpu")
    if strategy == "buckets" and in_python:
        raise DeviceUnavailable(f"strategy='buckets' is Spark's own join, which cannot use {device!r}: leave one out")
    return JoinRequest(
        {side: wanted.narrowed(frame, found, side) for side, frame in frames.items()},
        found,
        "count" if output == "count" else known,
        splits,
        strategy,
        check_workers(spark).tasks,
        settings,
        settings.shards if shards is None else integer_at_least("shards", shards, 1),
        shards is not None,
        in_python or counting,
        wanted,
    )


def _check_streams(frames: dict[str, DataFrame], how: str) -> None:
    if frames["s"].isStreaming:
        raise ArgumentError(
            "s is a streaming frame: ms.join is for batch frames, and for a stream r with a table s; use "
            "ms.window_join for two streams, or swap r and s"
        )
    if frames["r"].isStreaming and how not in STREAM_HOWS:
        raise ArgumentError(
            f"how={how!r}: r is a stream, so which rows of s have no partner is never known; allowed are "
            f"{', '.join(repr(one) for one in STREAM_HOWS)}"
        )


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
    report = metrics is not None or part.streaming
    if chosen.buckets is not None:
        rows = bucket_join(frames, chosen.buckets, part.how, part.kept, part.shards, _own_columns(part))
        return rows.withColumn(TASK_COLUMN, fn.lit(None).cast(TASK_TYPE)) if report else rows
    names = tuple((side, part.condition.columns[side]) for side in ("r", "s"))
    limits = read_limits(part.frames["r"].sparkSession)
    job = JoinJob(part.condition.text, part.how, names, device_request, report, part.kept, limits, part.output)
    if chosen.held is None:
        return _shuffle(job, part, frames, chosen)
    return _broadcast(job, part, frames, chosen.held, chosen.sort_held)


def _broadcast(job: JoinJob, part: JoinRequest, frames: dict[str, DataFrame], held: str, sort_held: bool) -> DataFrame:
    """Save the held side; the tasks search it with the rows of the other side."""
    probing = other_side(held)
    route = part.ordered_route(held) if sort_held else None
    with described(frames[held].sparkSession, f"ms.join reads {held}, which every worker will hold"):
        rows = frames[held].toArrow()
    file = save_table(broadcast.sorted_by_key(rows, None if route is None else route.column))
    with given_up_on_error(file):
        deliver(frames[probing].sparkSession, file)
        search = named_node(broadcast.joiner(job, file, held), f"join_holding_{rows.num_rows}_rows_of_{held}")
        made = map_in_arrow(frames[probing], search, _schema(part, job.report))
        use_in(file, task_function(made))
    return made


def _shuffle(job: JoinJob, part: JoinRequest, frames: dict[str, DataFrame], chosen: Strategy) -> DataFrame:
    """Shuffle both sides, and join each shard."""
    assert chosen.cells is not None
    keep_all = job.how in ("left", "anti", "count")
    rows, shared = shuffle.shuffle_sides(frames, part.condition, chosen.route, chosen.cells, chosen.home, keep_all)
    where = shuffle.layout(shared, frames["r"].columns, frames["s"].columns)
    search = named_node(shuffle.joiner(job, where), f"join_shard_{chosen.name}_{chosen.cells.shards}_shards")
    return rows.mapInArrow(search, _schema(part, job.report))


def _own_columns(request: JoinRequest) -> list[tuple[str, str]]:
    """Side and name of the output columns that are columns of r and s."""
    sides = ("r", "s") if request.pairs else (request.kept,)
    return [(side, name) for side in sides for name in request.output.of(side, request.frames[side].columns)]


def _schema(request: JoinRequest, report: bool) -> ty.StructType:
    """The output columns of the tasks."""
    fields = []
    for side, name in _own_columns(request):
        field = request.frames[side].schema[name]
        watermark = cl.watermark_of(field, request.streaming and side == "r")
        fields.append(ty.StructField(f"{side}_{name}", field.dataType, True, watermark))
    if request.how == "count":
        fields.append(ty.StructField(COUNT, ty.LongType()))
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


def _without_reports(request: JoinRequest, rows: DataFrame, metrics: Metrics | None) -> DataFrame:
    """Sum up the tasks' reports, and remove them from the result."""
    if metrics is None and not request.streaming:
        return rows
    seen = watched(rows, task_counts(), "join_tasks", metrics)
    return seen.where(fn.col(TASK_COLUMN).isNull()).drop(TASK_COLUMN)


def _wanted(request: JoinRequest, rows: DataFrame, how: str) -> DataFrame:
    """The rows and columns that were asked for, in their order."""
    if request.how == "count" and how in ("semi", "anti"):
        rows = rows.where(f"{COUNT} {'>' if how == 'semi' else '='} 0")
    if request.output.names is None:
        return rows
    counts = [COUNT] if request.how == "count" else []
    return rows.select(*(cl.column(name) for name in (*request.output.names, *counts)))
