"""`ms.knn_join`: for each row of r its k nearest rows of s, as `mr.knn_join` finds them in tables.

The driver checks all arguments and chooses a strategy (`plan/nearest.py`); tasks search in Python workers. Output:
`rank` (from 0), `distance`, then `r_<name>` and `s_<name>`. Results are multisets without row numbers. Equal distances
are ordered as Spark collects s. r may be a stream: then s is read at the call, once, for all micro-batches.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

from pyspark.sql import DataFrame
from pyspark.sql import functions as fn
from pyspark.sql import types as ty

import millrace as mr
from millrace.errors import ArgumentError, DeviceUnavailable
from millrace.ingest.choices import Fallback
from millrace.ingest.knn_arguments import SearchArguments, explain_knn, parse_search
from millrace.spark.cluster.files import given_up_on_error, save_table, use_in
from millrace.spark.cluster.jobs import described, named_node
from millrace.spark.cluster.lifetimes import task_function
from millrace.spark.cluster.metrics import TASK_COLUMN, TASK_TYPE, Metrics, input_counts, task_counts, watched
from millrace.spark.cluster.resources import read_device_request
from millrace.spark.cluster.settings import read_settings
from millrace.spark.cluster.task import map_in_arrow
from millrace.spark.cluster.workers import check_workers, deliver
from millrace.spark.exec import nearest
from millrace.spark.exec.batch_bytes import read_limits
from millrace.spark.plan import columns as cl
from millrace.spark.plan.hows import KnnHow, read_how
from millrace.spark.plan.nearest import KnnRequest, KnnStrategy, KnnStrategyName, choose_nearest, no_point
from millrace.spark.plan.strategy import SHARDS_PER_TASK


def knn_join(
    r: DataFrame,
    s: DataFrame | None = None,
    on: Any = None,
    *,
    k: int,
    within: float | None = None,
    by: Any = None,
    metric: Literal["euclidean", "haversine"] = "euclidean",
    how: KnnHow = "inner",
    self_join: bool = False,
    device: str = "auto",
    fallback: Fallback | None = None,
    strategy: KnnStrategyName = "auto",
    metrics: Metrics | None = None,
) -> DataFrame:
    """For each row of r its k nearest rows of s: `rank` (from 0), `distance`, then `r_<name>` and `s_<name>`.

    Args:
        r: The rows that look for neighbours: a batch frame or a stream, classic or Connect.
        s: The rows that are found: a batch frame of the same session; None in a self-join.
        on (tuple[str, ...] | tuple[tuple[str, ...], tuple[str, ...]]): 2 to 8 numeric columns that both sides have, or
            a pair of tuples (r's, s's). Names follow Spark's case rules, and backticks work.
        k: Neighbours per r row, at least 1; fewer candidates give fewer rows.
        within: The largest distance, inclusive, in the unit of the coordinates (haversine: metres); None is no limit.
        by (str | tuple[str, str] | list | None): Only rows that are equal in these columns are neighbours: a name, a
            pair (r's, s's), or a list of them; None is no such column.
        metric: `"euclidean"`, or `"haversine"`: `on` is longitude and latitude in degrees, distances are metres.
        how: `"inner"`, or `"left"`, which keeps r rows without a neighbour, with nulls; or Spark's names for them.
        self_join: Search r for the neighbours of its own rows; a row is not its own neighbour.
        device: `"auto"` or `"cpu"`: tasks search on the CPU.
        fallback: `"cpu"` or None; it changes nothing on the CPU.
        strategy: `"broadcast"`, `"partition"`, or `"auto"`: broadcast if s is small (see `ms.explain`).
        metrics: A new `ms.Metrics`, which counts this call, for reading after the action; None counts nothing.

    Raises:
        ArgumentError: An argument is not allowed, or does not fit the others; the message says what is.
        KeyTypeError: A coordinate is not numeric.
        SchemaError: A column does not exist, names clash, or a type has no Arrow type.
        DeviceUnavailable: `device` is neither `"auto"` nor `"cpu"`.
        StateError: The workers cannot use millrace; the message says what to set.
    """
    request = knn_request(r, s, on, k, within, by, metric, how, self_join, device, fallback, strategy)
    device_request = read_device_request(request.frames["r"].sparkSession, "cpu", fallback)  # whatever the settings say
    chosen = choose_nearest(request)
    if metrics is not None:
        metrics.start()
    limits = read_limits(request.frames["r"].sparkSession)
    report = metrics is not None or request.streaming
    job = nearest.KnnJob(request.search, device_request, report, limits)
    observed = {side: _observed(request, side, metrics) for side in request.sides}
    rows = (_broadcast if chosen.name == "broadcast" else _partition)(job, request, observed, chosen)
    if not report:
        return rows
    seen = watched(rows, task_counts(), "knn_join_tasks", metrics)
    return seen.where(fn.col(TASK_COLUMN).isNull()).drop(TASK_COLUMN)


def knn_request(
    r: Any,
    s: Any,
    on: Any,
    k: Any,
    within: Any,
    by: Any,
    metric: Any,
    how: Any,
    self_join: Any,
    device: Any,
    fallback: Any,
    strategy: Any,
) -> KnnRequest:
    """Check everything that can be checked without reading rows; return the join to plan."""
    search = parse_search(
        on=on,
        k=k,
        metric=metric,
        within=within,
        by=by,
        how=_read_how(how),
        self_join=self_join,
        output="pairs",
        device=device,
        threads=None,
        fallback=fallback,
        options=None,
    )
    frames = _frames(r, s, search.self_join)
    search = _with_real_names(search, frames)
    schemas = [cl.arrow_schema(frames[side].schema, side) for side in ("r", "s")]
    spec = search.spec
    groups = list(zip(spec.by["r"], spec.by["s"], strict=True)) or None
    points = (spec.on["r"], spec.on["s"])
    mr.explain("knn_join", *schemas, on=points, k=k, metric=metric, by=groups)  # the rules for columns and types
    if device not in ("auto", "cpu"):
        raise DeviceUnavailable(f"device={device!r}: the tasks of ms.knn_join search on cpu; leave device out")
    spark = frames["r"].sparkSession
    return KnnRequest(frames, search, strategy, check_workers(spark).tasks, read_settings(spark))


def _with_real_names(search: SearchArguments, frames: dict[str, DataFrame]) -> SearchArguments:
    """The search with columns as the frames have them: by Spark's case rules, with or without backticks."""

    def real(given: Mapping[Any, tuple[str, ...]]) -> dict[Any, tuple[str, ...]]:
        return {side: tuple(cl.real_name(frames[side], name) for name in names) for side, names in given.items()}

    return replace(search, spec=replace(search.spec, on=real(search.spec.on), by=real(search.spec.by)))


def _read_how(how: Any) -> str:
    known = read_how(how)
    if known not in ("inner", "left"):
        raise ArgumentError(f"how={how!r}: ms.knn_join has 'inner' and 'left' (rows of r without a neighbour are kept)")
    return known


def _frames(r: Any, s: Any, self_join: bool) -> dict[str, DataFrame]:
    """Both frames; in a self-join the same."""
    frame = cl.check_frame(r, "r")
    if not self_join:
        if s is None:
            raise ArgumentError("s=None: pass the frame that is searched, or self_join=True to search r itself")
        held = cl.check_frame(s, "s")
        if held.isStreaming:
            raise ArgumentError(
                "s is a streaming frame: ms.knn_join searches a batch frame s; only r may be a stream. For two streams "
                "use mr.KnnJoin"
            )
        return {"r": frame, "s": held}
    if s is not None and s is not r:
        raise ArgumentError("self_join=True searches one frame: leave s out, or pass r again")
    if frame.isStreaming:
        raise ArgumentError("r is a streaming frame: self_join=True is for batch frames; for a stream use mr.KnnJoin")
    return {"r": frame, "s": frame}


def explain_knn_join(request: KnnRequest) -> mr.Explanation:
    """The plan for `ms.explain`, without the device; from samples alone."""
    request = replace(request, one_pass=True)
    names = "rank, distance, r_<name>, s_<name>"
    source = "a stream r against a table s" if request.streaming else "batch frames"
    return explain_knn(request.search, {"output": names, "input": source, **choose_nearest(request).describe()})


def _observed(request: KnnRequest, side: str, metrics: Metrics | None) -> DataFrame:
    frame = request.frames[side]
    counts = input_counts(side, no_point(request.search, frame.schema, side))
    return watched(frame, counts, f"knn_join_{side}", metrics)


def _broadcast(
    job: nearest.KnnJob, request: KnnRequest, frames: dict[str, DataFrame], chosen: KnnStrategy
) -> DataFrame:
    """Save s; the tasks search it with the rows of r, in a self-join with row numbers."""
    session = request.frames["r"].sparkSession
    with described(session, f"ms.knn_join reads {request.sides[-1]}, which every worker will hold"):
        held = frames[request.sides[-1]].toArrow()
    file = save_table(held)
    with given_up_on_error(file):
        deliver(session, file)
        name = f"knn_join_holding_{held.num_rows}_rows_of_{request.sides[-1]}"
        if request.search.self_join:
            rows = session.range(0, held.num_rows, 1, SHARDS_PER_TASK * request.tasks)
            made = rows.mapInArrow(named_node(nearest.self_joiner(job, file), name), _schema(request, job.report))
        else:
            search = named_node(nearest.broadcast_joiner(job, file), name)
            made = map_in_arrow(frames["r"], search, _schema(request, job.report))
        use_in(file, task_function(made))
    return made


def _partition(
    job: nearest.KnnJob, request: KnnRequest, frames: dict[str, DataFrame], chosen: KnnStrategy
) -> DataFrame:
    """Shuffle the rows of both sides, and search each shard."""
    name = f"knn_join_{chosen.shards}_shards"
    if request.search.self_join:
        rows = nearest.shuffle_self(request, frames["r"], chosen)
        search = named_node(nearest.self_shard_joiner(job, chosen.routes), name)
        return map_in_arrow(rows, search, _schema(request, job.report))
    rows, where = nearest.shuffle_nearest(request, frames, chosen)
    search = named_node(nearest.shard_joiner(job, where, chosen.routes), name)
    return rows.mapInArrow(search, _schema(request, job.report))


def _schema(request: KnnRequest, report: bool) -> ty.StructType:
    """The output columns of the tasks."""
    fields = [ty.StructField("rank", ty.IntegerType()), ty.StructField("distance", ty.DoubleType())]
    fields += [
        ty.StructField(
            f"{side}_{field.name}", field.dataType, True, cl.watermark_of(field, request.streaming and side == "r")
        )
        for side in ("r", "s")
        for field in request.frames[side].schema.fields
    ]
    if report:
        fields.append(ty.StructField(TASK_COLUMN, TASK_TYPE))
    return ty.StructType(fields)
