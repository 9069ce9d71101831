"""`ms.join`: two frames joined on any condition of order, as `mr.join` joins two tables.

The condition is read and all arguments are checked on the driver; then a strategy is chosen (`strategy.py`) and rows
are joined by tasks, in Python workers, on the device that was asked for. Results are multisets: `r_<name>` and
`s_<name>` columns without row numbers, in no order. A broadcast join reads its small side when the call is made, and
so does the sampling of the others; everything else waits for an action, as usual.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as fn
from pyspark.sql import types as ty

from millrace.errors import ArgumentError
from millrace.ingest.arguments import HOWS
from millrace.ingest.checks import choice
from millrace.join_parts.routes import Outline, outline
from millrace.spark.cluster.files import save_table
from millrace.spark.cluster.metrics import TASK_COLUMN, TASK_TYPE, Metrics, input_counts, task_counts, watched
from millrace.spark.cluster.resources import asked_of
from millrace.spark.cluster.workers import check_workers, deliver
from millrace.spark.exec import broadcast, shuffle
from millrace.spark.exec.join_rows import Job
from millrace.spark.plan import columns as cl
from millrace.spark.plan.strategy import Question, Strategy, choose


def join(
    r: DataFrame,
    s: DataFrame,
    on: str,
    how: str = "inner",
    splits: Sequence[Any] | None = None,
    device: str = "auto",
    fallback: str | None = None,
    strategy: str = "auto",
    metrics: Metrics | None = None,
) -> DataFrame:
    """All pairs of rows of two frames that satisfy `on`.

    `how`: `"inner"`, `"left"`, `"semi"` or `"anti"`, as in `mr.join`. `splits`: values of r's column at which cells
    begin, instead of sampling for them. `strategy`: `"auto"`, `"broadcast"`, `"range"` or `"grid"` (see `ms.explain`).
    `fallback="cpu"`: a task whose device fails goes on there. `metrics`: a `Metrics` to read counts from afterwards.
    """
    question = ask(r, s, on, how, splits, strategy)
    asked = asked_of(r.sparkSession, device, fallback)
    chosen = choose(question)
    if metrics is not None:
        metrics.start()
    names = tuple((side, question.outline.columns[side]) for side in ("r", "s"))
    job = Job(question.outline.text, how, names, asked, told=metrics is not None)
    frames = {side: _watched(question, side, chosen, metrics) for side in ("r", "s")}
    if chosen.held is not None:
        rows = _broadcast(job, question, frames, chosen.held, metrics)
    else:
        rows = _spread(job, question, frames, chosen)
    return _without_told(rows, metrics)


def ask(r: Any, s: Any, on: Any, how: Any, splits: Any, strategy: Any) -> Question:
    """Check everything that can be checked without reading rows."""
    frames = {"r": cl.check_frame(r, "r"), "s": cl.check_frame(s, "s")}
    choice("how", how, HOWS)
    for side, frame in frames.items():
        if frame.isStreaming:
            raise ArgumentError(f"{side} is a streaming frame: ms.join is for batch frames, streams need a window")
    found = read_condition(frames, on)
    workers = check_workers(frames["r"].sparkSession)
    return Question(frames, found, how, splits, strategy, workers.tasks)


def read_condition(frames: dict[str, DataFrame], on: Any) -> Outline:
    """The condition, bound to the frames' types."""
    return outline(on, *(cl.arrow_schema(frames[side].schema, side) for side in ("r", "s")))


def _watched(question: Question, side: str, chosen: Strategy, metrics: Metrics | None) -> DataFrame:
    frame = question.frames[side]
    lost = cl.unusable(frame.schema, question.outline.keys[side])  # type: ignore[index]
    return watched(frame, input_counts(side, lost), f"join_{side}", metrics)


def _broadcast(
    job: Job, question: Question, frames: dict[str, DataFrame], held: str, metrics: Metrics | None
) -> DataFrame:
    """Save the held side, and let the other ask it."""
    asking = "s" if held == "r" else "r"
    route = question.route(held)
    table = broadcast.in_key_order(frames[held].toArrow(), None if route is None else route.column)
    file = save_table(table)
    deliver(frames[asking].sparkSession, file)
    return frames[asking].mapInArrow(broadcast.asker(job, file, held), _schema(question, job.told))


def _spread(job: Job, question: Question, frames: dict[str, DataFrame], chosen: Strategy) -> DataFrame:
    """Shuffle both sides, and join each place."""
    assert chosen.cells is not None
    keep_all = job.how in ("left", "anti")
    rows, shared = shuffle.spread(frames, question.outline, chosen.route, chosen.cells, chosen.home, keep_all)
    where = shuffle.layout(shared, frames["r"].columns, frames["s"].columns)
    return rows.mapInArrow(shuffle.joiner(job, where), _schema(question, job.told))


def _schema(question: Question, told: bool) -> ty.StructType:
    """The columns that come out of the tasks."""
    sides = ("r", "s") if question.how in ("inner", "left") else ("r",)
    fields = [
        ty.StructField(f"{side}_{field.name}", field.dataType, True)
        for side in sides
        for field in question.frames[side].schema.fields
    ]
    if told:
        fields.append(ty.StructField(TASK_COLUMN, TASK_TYPE))
    return ty.StructType(fields)


def _without_told(rows: DataFrame, metrics: Metrics | None) -> DataFrame:
    """Count what tasks told, and take it out."""
    if metrics is None:
        return rows
    seen = watched(rows, task_counts(), "join_tasks", metrics)
    return seen.where(fn.col(TASK_COLUMN).isNull()).drop(TASK_COLUMN)
