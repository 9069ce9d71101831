"""`ms.window_join`: joins two streams on any condition of order within a time window, exactly once.

The call checks everything on the driver. Rows then go to *shards* as packed batches (`packed_batches.py`). Spark's
stateful operator joins each shard (`processor.py`); its state is in RocksDB with a changelog. With `splits`, a row of r
is in the one range that contains its key, and a row of s in every range that its partners may be in (*range*). Without
`splits`, every shard sees all rows and stores its part (*store-one*): heavy keys do no harm, and the condition needs no
band. Spark's own watermark decides which rows are late and which state can be dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, get_args

from pyspark.sql import DataFrame
from pyspark.sql import types as ty

import millrace as mr
from millrace.errors import ArgumentError
from millrace.ingest.checks import choice, integer_at_least
from millrace.ingest.choices import Fallback
from millrace.ingest.durations import Span, parse_lateness, parse_window
from millrace.spark.api.join import read_condition
from millrace.spark.api.stream_inputs import (
    is_chained,
    pair_time,
    real_times,
    side_schema,
    streaming,
    time_kinds,
)
from millrace.spark.api.stream_query import Call, build
from millrace.spark.cluster.resources import read_device_request
from millrace.spark.cluster.settings import read_settings
from millrace.spark.exec.batch_bytes import read_limits
from millrace.spark.plan import columns as cl
from millrace.spark.plan.routing import Cells
from millrace.spark.plan.strategy import JoinRequest, Strategy, by_splits
from millrace.spark.stream.packed_batches import (
    MAX_SHARDS,
    shard_keys,
)
from millrace.spark.stream.plan import Side, StreamPlan

SHARDS = 4
Watermark = Literal["min", "max"]
WATERMARKS = get_args(Watermark)
_NS_PER_US, _NS_PER_MS = 1000, 1_000_000


def window_join(
    r: DataFrame,
    s: DataFrame,
    on: str,
    *,
    window: Any,
    time: Any,
    lateness: Any = 0,
    watermark: Watermark = "min",
    idle: Any = None,
    splits: Sequence[Any] | None = None,
    shards: int | None = None,
    event_time: str | None = None,
    device: str = "auto",
    fallback: Fallback | None = None,
) -> DataFrame:
    """All pairs of rows of two streams that satisfy `on` and are within `window` of each other, as a stream.

    Counts are in the query's progress, under a name that begins with `millrace_window_join`.

    Args:
        r: One stream, classic or Connect.
        s: The other stream, of the same session.
        on: The condition over r and s, as in `mr.join`. Column names follow Spark's case rules, and backticks work.
        window (str | timedelta | int | tuple): The largest distance in time, such as `"10 minutes"`, or a pair of them
            as in `mr.WindowJoin`; a number if times are integers. A count window is refused.
        time (str | tuple[str, str]): The time column, or a pair (r's, s's): a timestamp, a date or an integer.
        lateness (str | timedelta | int): How far below the newest time a row may be without being late; whole
            milliseconds, finer values are rounded up.
        watermark: `"min"`: the slower side sets it; `"max"`: the faster side sets it.
        idle (str | timedelta | int | None): With `"min"`: how far, in event time, a side may be behind the other and
            still hold the watermark; None is without limit.
        splits: Values of r's column at which ranges begin; None: every shard sees all rows.
        shards: The number of shards without `splits`; None is the setting `spark.millrace.shards`, or 4. A checkpoint
            fixes it.
        event_time: A name for one more column, the later time of each pair, for stateful operators behind the join;
            None adds none.
        device: The device of the tasks: `"cpu"`, `"opencl[:i]"`, `"cuda[:i]"`, … as in `mr.device`; `"auto"` is the
            setting `spark.millrace.device`, and without one each task chooses on its machine.
        fallback: `"cpu"`: a task whose device fails continues on the CPU. None: it fails, and Spark runs it again.

    Raises:
        ArgumentError: An argument is not allowed, or a side is no stream; the message says what is.
        PredicateError: `on` is not a condition that joins can use; the message points at the place.
        KeyTypeError: A column of `on` has a type that cannot be compared so.
        SchemaError: A column does not exist, names clash, or a type has no Arrow type.
        DeviceUnavailable: The tasks' machines do not have the device.
        StateError: The workers cannot use millrace; the message says what to set.
    """
    call = read_call(
        r,
        s,
        on,
        window=window,
        time=time,
        lateness=lateness,
        watermark=watermark,
        idle=idle,
        splits=splits,
        shards=shards,
        event_time=event_time,
        device=device,
        fallback=fallback,
    )
    return build(call)


def read_call(
    r: Any,
    s: Any,
    on: Any,
    *,
    window: Any,
    time: Any,
    lateness: Any = 0,
    watermark: Any = "min",
    idle: Any = None,
    splits: Any = None,
    shards: Any = None,
    event_time: Any = None,
    device: Any = "auto",
    fallback: Any = None,
) -> Call:
    """Check all arguments."""
    frames = {"r": streaming(r, "r"), "s": streaming(s, "s")}
    spark = frames["r"].sparkSession
    choice("watermark", watermark, WATERMARKS)
    spans = parse_window(window)
    if spans.counts:
        raise ArgumentError(
            f"window={window!r} counts rows, and rows of a Spark stream have no order of arrival: give a length of time"
        )
    if time is None:
        raise ArgumentError("time is missing: name the time column, such as time='ts', or a pair (r's, s's)")
    schemas = {side: side_schema(frames[side], side) for side in ("r", "s")}
    text, times = cl.spark_condition(frames, on), real_times(frames, time)
    # The same rules as everywhere: WindowJoin checks the arguments and raises its own errors.
    mr.WindowJoin(on=text, window=window, time=times, lateness=lateness, schemas=schemas, device="cpu").close()
    names = dict(zip(("r", "s"), (times, times) if isinstance(times, str) else times, strict=True))
    kinds = time_kinds(frames, names)
    integer = isinstance(kinds["r"], ty.IntegralType)
    chained = frozenset(side for side in ("r", "s") if is_chained(frames[side], side, names[side], watermark))
    condition = read_condition(frames, text)
    device_request = read_device_request(spark, device, fallback)
    strategy = None if splits is None else by_splits(JoinRequest(frames, condition, "inner", splits, "auto", 1))
    if shards is None:
        shards = read_settings(spark).shards or SHARDS
    keys = shard_keys(_shard_count(shards, strategy))
    behind = None if idle is None else _idle(idle, watermark, integer, chained)
    late = _milliseconds(parse_lateness(lateness))
    arguments = {
        "on": condition.text,
        "window": f"{spans.r}, {spans.s}",
        "time": f"{names['r']}, {names['s']}",
        "lateness": f"{late} ms",
        "watermark": watermark,
        "splits": "none" if strategy is None else str(list(strategy.cells.bounds)),  # type: ignore[union-attr]
        "shards": str(list(keys)),
        **{f"columns of {side}": str(schemas[side]) for side in ("r", "s")},
    }
    sides = {
        side: Side(schemas[side], names[side], condition.columns[side], condition.keys[side], side in chained)
        for side in ("r", "s")
    }
    after, before = (_ticks(span) for span in (spans.r, spans.s))
    if behind is not None:
        arguments["idle"] = str(parse_lateness(idle))
    given = tuple(sorted(arguments.items()))
    limits = read_limits(spark)
    outputs = [f"{side}_{name}" for side in ("r", "s") for name in frames[side].columns]
    pair_field = pair_time(event_time, kinds["r"], outputs, late)
    zoned = isinstance(kinds["r"], ty.TimestampType)
    plan = StreamPlan(
        condition.text,
        sides["r"],
        sides["s"],
        after,
        before,
        integer,
        device_request,
        given,
        limits,
        None if pair_field is None else pair_field.name,
        zoned,
    )
    return Call(frames, condition, plan, strategy, keys, watermark, late, chained, pair_field, behind)


# Arguments.


def _shard_count(given: Any, strategy: Strategy | None) -> int:
    shards = integer_at_least("shards", given, 1)
    if strategy is not None:
        assert isinstance(strategy.cells, Cells)
        shards = strategy.cells.shards
    if shards > MAX_SHARDS:
        raise ArgumentError(f"{shards} shards: allowed are at most {MAX_SHARDS}")
    return shards


def _idle(given: Any, watermark: str, integer: bool, chained: frozenset[str]) -> int:
    """The idle time-out in ticks."""
    span = parse_lateness(given)
    if watermark != "min":
        raise ArgumentError(f"idle={given!r} with watermark='max': there an idle side holds nothing; leave idle out")
    if chained:
        raise ArgumentError(
            f"idle={given!r}: {', '.join(sorted(chained))} has the pairs of another join, whose watermark is its own; "
            f"give idle to that join"
        )
    if span.length and (span.measure == "ticks") != integer:
        kind = "a number, as the time columns are integers" if integer else "a length of time, such as '10 minutes'"
        raise ArgumentError(f"idle={given!r}: allowed is {kind}")
    return _ticks(span)


def _ticks(span: Span) -> int:
    return span.length if span.measure == "ticks" else span.length // _NS_PER_US


def _milliseconds(span: Span) -> int:
    """Lateness in milliseconds for Spark, rounded up; a tick of an integer column counts as one."""
    return span.length if span.measure == "ticks" else -(-span.length // _NS_PER_MS)
