"""The inputs of `ms.window_join`: streams, their columns as tasks see them, and joins behind other joins.

Spark allows one watermark on the way of a row. `ms.window_join` sets it on its inputs, so these must not have one, with
one exception: the pairs of another `ms.window_join` that was called with `event_time=`. That column is the later time
of a pair and carries the first join's watermark, so the second join needs none on that side.
"""

from __future__ import annotations

from typing import Any, NoReturn

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import types as ty

from millrace.errors import ArgumentError, SchemaError
from millrace.spark.plan import columns as cl
from millrace.spark.plan.columns import WATERMARK_KEY

_TIMES = (ty.TimestampType, ty.TimestampNTZType, ty.DateType, ty.IntegralType)
_BY_TABLE = "or write the pairs to a table and read that as a stream"
Frames = dict[str, DataFrame]


def streaming(given: Any, label: str) -> DataFrame:
    """Check that an input is a stream."""
    frame = cl.check_frame(given, label)
    if not frame.isStreaming:
        raise ArgumentError(f"{label} is a batch frame: ms.window_join is for streams, use ms.join for two tables")
    return frame


def is_chained(frame: DataFrame, label: str, time: str, watermark: str) -> bool:
    """Whether an input has its watermark already, from a join before this one; any other watermark is refused."""
    plan = plan_text(frame)
    if "EventTimeWatermark" not in plan:
        return False
    marked = [field.name for field in frame.schema.fields if WATERMARK_KEY in field.metadata]
    if "millrace_window_join" not in plan:
        raise ArgumentError(
            f"{label} already has a watermark on {', '.join(marked) or 'a column'}, but ms.window_join sets it itself: "
            f"remove withWatermark, and pass lateness= here; {_BY_TABLE.replace('the pairs', 'what needs it')}"
        )
    if marked != [time]:
        raise ArgumentError(
            f"{label} comes from ms.window_join, but its time column {time!r} does not carry that join's watermark, "
            f"and Spark does not allow another one: pass event_time='t' to that join and use its column 't' as time "
            f"here; {_BY_TABLE}"
        )
    if watermark == "max":
        raise ArgumentError(
            f"watermark='max' with {label} from ms.window_join: Spark allows one watermark for both sides only before "
            f"the first join; use watermark='min' here, {_BY_TABLE}"
        )
    return True


def plan_text(frame: DataFrame) -> str:
    """The analysed plan of a frame, as Spark prints it."""
    if hasattr(frame, "_jdf"):
        return str(frame._jdf.queryExecution().analyzed().toString())
    found: str = frame._explain_string(extended=True)  # type: ignore[operator]
    return found


def side_schema(frame: DataFrame, label: str) -> pa.Schema:
    """A side's columns as its tasks see them: all nullable, and times in UTC regardless of the session's zone."""
    fields = cl.arrow_schema(frame.schema, label)
    return pa.schema([field.with_nullable(True).remove_metadata() for field in fields])


def real_times(frames: Frames, time: Any) -> Any:
    """The time columns as the frames name them; anything else comes back as it is."""
    pair = (time, time) if isinstance(time, str) else time
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        return time
    return tuple(cl.real_name(frames[side], name) for side, name in zip(("r", "s"), pair, strict=True))


def time_kinds(frames: Frames, names: dict[str, str]) -> dict[str, ty.DataType]:
    """The types of the time columns."""
    kinds = {side: frames[side].schema[names[side]].dataType for side in ("r", "s")}
    for side, kind in kinds.items():
        if not isinstance(kind, _TIMES):
            raise SchemaError(
                f"{side}.{names[side]} is {kind.simpleString()}: a time column is a timestamp, a date or an integer"
            )
    return kinds


def pair_time(name: Any, kind: ty.DataType, columns: list[str], lateness_ms: int) -> ty.StructField | None:
    """The column for the later time of a pair, which carries the watermark; None if it is not wanted."""
    if name is None:
        return None
    if not isinstance(name, str) or not name:
        raise ArgumentError(f"event_time={name!r}: allowed is the name of the new column")
    if isinstance(kind, ty.IntegralType):
        raise ArgumentError(
            f"event_time={name!r} with an integer time column: Spark's watermarks need a timestamp; convert the column "
            f"first, for example with timestamp_millis"
        )
    if name.lower() in (column.lower() for column in columns):
        raise SchemaError(f"event_time={name!r}: there is an output column of that name; choose another one")
    zoned = isinstance(kind, ty.TimestampType)
    data_type = ty.TimestampType() if zoned else ty.TimestampNTZType()
    return ty.StructField(name, data_type, True, {WATERMARK_KEY: lateness_ms})


def refuse_watermarks(pairs: DataFrame, event_time: str | None) -> DataFrame:
    """The frame, whose `withWatermark` says what to do instead: Spark would fail in the second micro-batch."""
    use = f"use its column {event_time!r}" if event_time else "pass event_time='t' to it, and use that column"

    def withWatermark(*_: Any, **__: Any) -> NoReturn:  # noqa: N802 - Spark's name
        raise ArgumentError(
            f"the pairs of ms.window_join have its watermark already, and Spark does not allow another one: {use} in "
            f"window(…), dropDuplicatesWithinWatermark and joins; {_BY_TABLE}"
        )

    object.__setattr__(pairs, "withWatermark", withWatermark)
    return pairs
