"""`ms.lookup`: looks up a column of keys in an ordered index, for batch and streaming frames.

The index is saved once; every Python worker maps the file, so a machine holds its pages in memory once. Only the key
column travels to Python and only the values travel back (an Arrow UDF): the other columns stay in the JVM. For that,
Spark queues every row and joins it with its value. A batch frame of one or two fixed-width columns travels as it is
(`mapInArrow`), which is faster. Several lookups in one call need one pass through Python. HB+-Tree: the thesis's
appendix A.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as fn
from pyspark.sql import types as ty
from pyspark.sql.pandas.functions import arrow_udf

import millrace as mr
from millrace.errors import ArgumentError
from millrace.ingest.choices import Fallback
from millrace.spark.cluster.files import SharedFile, given_up_on_error, save_shared, shared_file, use_in
from millrace.spark.cluster.jobs import named_node
from millrace.spark.cluster.lifetimes import column_function, task_function
from millrace.spark.cluster.metrics import Metrics, watched
from millrace.spark.cluster.open_cache import OpenCache
from millrace.spark.cluster.resources import read_device_request
from millrace.spark.cluster.task import (
    DeviceRequest,
    TaskDevice,
    device_lock,
    error_first,
    map_in_arrow,
    reporting,
    task_device,
)
from millrace.spark.cluster.workers import deliver, describe_remote
from millrace.spark.exec.batch_bytes import BatchLimits, read_limits
from millrace.spark.exec.join_rows import merge_batches
from millrace.spark.exec.row_bytes import cut_rows, has_fixed_width
from millrace.spark.plan import columns as cl

Index = mr.OrderedIndex | str | os.PathLike[str]
NARROW = 2
"""A frame of at most so many fixed-width columns travels to Python as it is."""
MERGED_ROWS, MERGED_BYTES = 1 << 16, 16 << 20
"""Rows of a narrow frame that are looked up together."""
FIRST_ROWS = 1 << 8
"""Rows that are looked up first, if the width of the values varies."""
Batches = Iterable[pa.RecordBatch]
MAX_OPEN = 16
"""Indexes that a worker keeps open at once."""
_indexes: OpenCache[tuple[SharedFile, str, str | None], mr.OrderedIndex] = OpenCache(MAX_OPEN)
_on_driver: OpenCache[SharedFile, mr.OrderedIndex] = OpenCache(MAX_OPEN)
"""Indexes by path that the driver opened for their types, so that their checksums are read only once."""


@dataclass(frozen=True)
class Step:
    """One column to look up."""

    into: str
    key: str
    file: SharedFile
    values: pa.DataType
    spark_values: ty.DataType


def lookup(
    df: DataFrame,
    index: Index | Mapping[str, tuple[Index, str]],
    *,
    key: str | None = None,
    into: str = "value",
    device: str = "auto",
    fallback: Fallback | None = None,
    metrics: Metrics | None = None,
) -> DataFrame:
    """The frame with a new column: the index's values for `key`, null for null and absent keys.

    The call saves an index that is an object: later changes to it have no effect.

    Args:
        df: The frame that gets the column: batch or streaming, classic or Connect.
        index: An `mr.OrderedIndex`, or the path of a saved one; or, for several in one pass, a mapping from new columns
            to pairs `(index, key column)`.
        key: The column of keys, by Spark's case rules; None only if `index` is a mapping.
        into: The name of the new column; not used if `index` is a mapping.
        device: The device of the tasks: `"cpu"`, `"opencl[:i]"`, `"cuda[:i]"`, … as in `mr.device`; `"auto"` is the
            setting `spark.millrace.device`, and without one each task chooses on its machine.
        fallback: `"cpu"`: a task whose device fails continues on the CPU. None: it fails, and Spark runs it again.
        metrics: A new `ms.Metrics`, which counts this call, for reading after the action; None counts nothing.

    Raises:
        ArgumentError: An argument is not allowed, or does not fit the others; the message says what is.
        KeyTypeError: The column of keys has another kind of type than the index's keys.
        SchemaError: There is no such column, or there is already a column `into`.
        DeviceUnavailable: The tasks' machines do not have the device.
        StateError: The file is no index or is damaged, or the workers cannot use millrace.
    """
    frame = cl.check_frame(df, "df")
    device_request = read_device_request(frame.sparkSession, device, fallback)
    wanted = _wanted(index, key, into)
    cl.check_new(frame, wanted)
    checked = {name: _check(frame, name, *pair) for name, pair in wanted.items()}  # all before the first is saved
    steps = [_prepare(frame, name, wanted[name][0], one) for name, one in checked.items()]
    if metrics is not None:
        metrics.start()
    counts = {f"{step.into}_null_keys": fn.count_if(fn.expr(cl.unusable(frame.schema, [step.key]))) for step in steps}
    seen = watched(frame, {"rows": fn.count(fn.lit(1)), **counts}, "lookup", metrics)
    if _is_narrow(frame):
        mapper = _row_mapper(steps, device_request, read_limits(frame.sparkSession))
        made = map_in_arrow(seen, mapper, _with_values(frame, steps))
        for step in steps:
            use_in(step.file, task_function(made))
        return made
    return seen.withColumns({step.into: _udf(step, device_request)(cl.column(step.key)) for step in steps})


def explain_lookup(df: Any, index: Any, key: Any, into: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Entries for `ms.explain`: the plan and the index of a lookup."""
    frame = cl.check_frame(df, "df")
    plan = {"input": "a stream" if frame.isStreaming else "a batch frame", "passes": "one through Python, keys only"}
    used = {"name": "HB+-Tree", "why": "saved once, mapped by every worker"}
    for name, (one, column) in _wanted(index, key, into).items():
        field = cl.check_column(frame, column, f"the key of {name!r}")
        plan[name] = f"by {column} ({field.dataType.simpleString()})"
        used[name] = repr(one) if isinstance(one, mr.OrderedIndex) else f"the index saved at {os.fspath(one)}"
    return plan, used


def _wanted(index: Any, key: Any, into: Any) -> dict[str, tuple[Index, str]]:
    """The new columns, each with an index and the name of its key column."""
    if not isinstance(index, Mapping):
        if key is None:
            raise ArgumentError("key is missing: name the column that holds the keys, such as key='k'")
        if not isinstance(into, str) or not into:
            raise ArgumentError(f"into={into!r}: allowed is the name of the new column")
        return {into: (index, key)}
    if key is not None:
        raise ArgumentError(f"key={key!r} with several indexes: name each one's key as {{'value': (index, 'k')}}")
    for name, pair in index.items():
        if not isinstance(name, str) or not isinstance(pair, tuple) or len(pair) != 2:
            raise ArgumentError(f"index[{name!r}]={pair!r}: allowed are pairs of an index and a key column's name")
    if not index:
        raise ArgumentError("index={}: give at least one index")
    return dict(index)


@dataclass(frozen=True)
class Checked:
    """A lookup that fits the frame: the key column, the values' types, and the index's file, if it is saved already."""

    key: str
    values: pa.DataType
    spark_values: ty.DataType
    file: SharedFile | None


def _check(frame: DataFrame, into: str, index: Any, key: Any) -> Checked:
    """Check one lookup against the frame's types."""
    field = cl.check_column(frame, key, f"the key of {into!r}")
    kind = cl.arrow_schema(ty.StructType([field]), f"column {key}").field(0).type
    file = None
    if isinstance(index, mr.OrderedIndex):
        values = _check_key(index, kind, key)
    elif isinstance(index, str | os.PathLike):
        file, values = _prepare_path(frame, Path(index), kind, key)
    else:
        raise ArgumentError(
            f"the index of {into!r} is a {type(index).__name__}; allowed are an mr.OrderedIndex and the path of a "
            f"saved one"
        )
    return Checked(field.name, values, cl.spark_type(values, f"the index of {into!r}: its values"), file)


def _prepare(frame: DataFrame, into: str, index: Any, checked: Checked) -> Step:
    """Make the index's file known to the workers."""
    file = checked.file
    if file is None:
        file = save_shared(index.save, ".index")
        with given_up_on_error(file):
            deliver(frame.sparkSession, file)
    return Step(into, checked.key, file, checked.values, checked.spark_values)


def _prepare_path(frame: DataFrame, path: Path, key_type: pa.DataType, key: str) -> tuple[SharedFile, pa.DataType]:
    """An index by its path: opened on the driver or, if only workers see it, described by a worker."""
    if path.exists():
        file = shared_file(path)
        with _on_driver.use(file, lambda: mr.OrderedIndex.open(file.path, device="cpu")) as opened:
            values = _check_key(opened, key_type, key)
        deliver(frame.sparkSession, file)
        return file, values
    found = describe_remote(frame.sparkSession, str(path))
    kinds = pa.ipc.read_schema(pa.py_buffer(bytes.fromhex(found["schema"])))
    keys, values = (pa.nulls(0, kinds.field(name).type) for name in ("key", "value"))
    with closing(mr.OrderedIndex(keys, values, device="cpu")) as same_types:  # so the same rules apply
        return SharedFile(str(path), found["size"], found["head"]), _check_key(same_types, key_type, key)


def _check_key(index: mr.OrderedIndex, key_type: pa.DataType, key: str) -> pa.DataType:
    """The type of the index's values; a key type that the index does not accept is a `KeyTypeError`."""
    try:
        return index.lookup(pa.nulls(0, key_type)).type
    except mr.KeyTypeError as error:
        raise mr.KeyTypeError(
            f"column {key} of type {key_type} does not fit an index with {index.stats['key_type']} keys: {error}"
        ) from error


def _is_narrow(frame: DataFrame) -> bool:
    """Whether rows travel as they are. Not in streams: columns would lose their watermark."""
    fields = frame.schema.fields
    return not frame.isStreaming and len(fields) <= NARROW and all(isinstance(f.dataType, cl.FIXED) for f in fields)


def _with_values(frame: DataFrame, steps: list[Step]) -> ty.StructType:
    return ty.StructType([*frame.schema.fields, *(ty.StructField(s.into, s.spark_values) for s in steps)])


def _row_mapper(
    steps: list[Step], device_request: DeviceRequest, limits: BatchLimits
) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    """The function that workers run on the rows of a narrow frame; small batches are looked up together."""
    exact = [cl.arrow_type(step.spark_values) for step in steps]

    def with_values(rows: pa.RecordBatch) -> pa.RecordBatch:
        found = [find(step.file, device_request, rows[step.key]) for step in steps]
        values = [one.cast(kind) for one, kind in zip(found, exact, strict=True)]
        names = [*rows.schema.names, *(step.into for step in steps)]
        return pa.RecordBatch.from_arrays([*rows.columns, *values], names=names)

    def look_up_rows(batches: Batches) -> Iterator[pa.RecordBatch]:
        varying = not all(has_fixed_width(kind) for kind in exact)
        for table in merge_batches(batches, MERGED_ROWS, MERGED_BYTES):
            rows = table.to_batches()[0]
            for made in map_parts(rows, with_values, limits.bytes) if varying else [with_values(rows)]:
                yield from (made.slice(*cut) for cut in cut_rows(made, limits))

    return named_node(reporting(look_up_rows), f"lookup_{'_'.join(step.into for step in steps)}")


def map_parts(
    rows: pa.RecordBatch, function: Callable[[pa.RecordBatch], pa.RecordBatch], max_bytes: int
) -> Iterator[pa.RecordBatch]:
    """`function` of parts of the rows, of which each result has about `max_bytes`.

    How wide the values are that keys will find is not known before. So the first part is small, each part tells the
    size of the next one, and that one has at most four times as many rows.
    """
    at, count = 0, FIRST_ROWS
    while at < rows.num_rows:
        made = function(rows.slice(at, count))
        yield made
        at += count
        count = max(1, min(4 * count, max_bytes * made.num_rows // max(1, made.nbytes)))


def _udf(step: Step, device_request: DeviceRequest) -> Callable[..., Any]:
    """The function that workers run for one column."""
    exact = cl.arrow_type(step.spark_values)
    file = step.file

    def look_up(keys: pa.Array) -> pa.Array:
        with error_first():
            found = find(file, device_request, keys)
        return found if found.type == exact else found.cast(exact)

    named_node(look_up, f"lookup_{step.into}")
    made: Callable[..., Any] = arrow_udf(look_up, returnType=step.spark_values)  # type: ignore[call-overload]
    use_in(file, column_function(made))
    return made


def find(file: SharedFile, device_request: DeviceRequest, keys: pa.Array) -> pa.Array:
    """Look up keys in this process's index; an index on a card is closed before the card is unlocked."""
    device = task_device(device_request)
    if not device.card:
        with use_index(file, device, device_request.fallback) as index:
            return index.lookup(keys)
    with device_lock(device), closing(_open(file, device, device_request.fallback)) as index:
        return index.lookup(keys)


def _open(file: SharedFile, device: TaskDevice, fallback: Fallback | None) -> mr.OrderedIndex:
    return mr.OrderedIndex.open(file.locate(), device=device.name, threads=device.threads, fallback=fallback)


def use_index(
    file: SharedFile, device: TaskDevice, fallback: Fallback | None
) -> AbstractContextManager[mr.OrderedIndex]:
    """The index, opened in this process after the fork; the last `MAX_OPEN` used stay open for later tasks."""
    return _indexes.use((file, device.name, fallback), lambda: _open(file, device, fallback))
