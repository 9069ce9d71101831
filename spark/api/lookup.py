"""`ms.lookup`: a column of values looked up in an ordered index, on batch and streaming frames.

The index is saved once; every Python worker maps the file, so its pages are in memory once per machine. Only the key
column travels to Python and only the values travel back (an Arrow UDF): the other columns stay in the JVM. Several
lookups in one call go through Python in one pass. HB+-Tree: the thesis's appendix A.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as fn
from pyspark.sql import types as ty
from pyspark.sql.pandas.functions import arrow_udf

import millrace as mr
from millrace.errors import ArgumentError
from millrace.spark.cluster.files import Shipped, new_path, shipped
from millrace.spark.cluster.metrics import Metrics, watched
from millrace.spark.cluster.resources import asked_of
from millrace.spark.cluster.task import Asked, Place, at_work, place_of
from millrace.spark.cluster.workers import deliver, describe_remote
from millrace.spark.plan import columns as cl

Index = mr.OrderedIndex | str | os.PathLike[str]
MOST_OPEN = 16
"""Indexes that a worker keeps open at once."""
_opened: dict[tuple[int, Shipped, str, str | None], mr.OrderedIndex] = {}


@dataclass(frozen=True)
class Step:
    """One column to look up."""

    into: str
    key: str
    file: Shipped
    values: pa.DataType
    spark_values: ty.DataType


def lookup(
    df: DataFrame,
    index: Index | Mapping[str, tuple[Index, str]],
    key: str | None = None,
    into: str = "value",
    device: str = "auto",
    fallback: str | None = None,
    metrics: Metrics | None = None,
) -> DataFrame:
    """The frame with the index's values of `key` in a new column `into`, null where a key is null or absent.

    `index`: an `mr.OrderedIndex`, or the path of a saved one; or, for several in one pass, a mapping from new columns
    to pairs `(index, key column)`. An index is saved when the call is made: later changes are not seen.
    """
    frame = cl.check_frame(df, "df")
    asked = asked_of(frame.sparkSession, device, fallback)
    wanted = _wanted(index, key, into)
    cl.check_new(frame, wanted)
    steps = [_prepare(frame, name, *pair) for name, pair in wanted.items()]
    if metrics is not None:
        metrics.start()
    counts = {f"{step.into}_null_keys": fn.count_if(fn.expr(cl.unusable(frame.schema, [step.key]))) for step in steps}
    seen = watched(frame, {"rows": fn.count(fn.lit(1)), **counts}, "lookup", metrics)
    return seen.withColumns({step.into: _udf(step, asked)(cl.column(step.key)) for step in steps})


def plan_lookup(
    df: DataFrame, index: Any, key: str | None = None, into: str = "value", device: str = "auto", **_: Any
) -> str:
    """What `lookup` would do, for `ms.explain`."""
    frame = cl.check_frame(df, "df")
    lines = [f"lookup in {'a stream' if frame.isStreaming else 'a batch frame'}: one pass through Python, keys only"]
    for name, (one, column) in _wanted(index, key, into).items():
        field = cl.check_column(frame, column, f"the key of {name!r}")
        what = repr(one) if isinstance(one, mr.OrderedIndex) else f"the index saved at {os.fspath(one)}"
        lines.append(f"  {name} from {what}, by {column} ({field.dataType.simpleString()}), mapped by every worker")
    return "\n".join([*lines, f"  device: {device}"])


def _wanted(index: Any, key: Any, into: Any) -> dict[str, tuple[Index, str]]:
    """New columns, each with an index and the name of its key column."""
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


def _prepare(frame: DataFrame, into: str, index: Any, key: Any) -> Step:
    """Check one lookup against the frame's types, and make the index's file known to the workers."""
    field = cl.check_column(frame, key, f"the key of {into!r}")
    asked = cl.arrow_schema(ty.StructType([field]), f"column {key}").field(0).type
    spark = frame.sparkSession
    if isinstance(index, mr.OrderedIndex):
        values = _check_key(index, asked, key)
        path = new_path(".index")
        index.save(path)
        file = shipped(path)
        deliver(spark, file)
    elif isinstance(index, str | os.PathLike):
        file, values = _prepare_path(frame, Path(index), asked, key)
    else:
        raise ArgumentError(
            f"the index of {into!r} is a {type(index).__name__}; allowed are an mr.OrderedIndex and the path of a "
            f"saved one"
        )
    return Step(into, key, file, values, cl.spark_type(values, f"the index of {into!r}: its values"))


def _prepare_path(frame: DataFrame, path: Path, asked: pa.DataType, key: str) -> tuple[Shipped, pa.DataType]:
    """An index by its path: opened here or, where only workers see it, there."""
    if path.exists():
        file = shipped(path)
        values = _check_key(_opened_here(file), asked, key)
        deliver(frame.sparkSession, file)
        return file, values
    told = describe_remote(frame.sparkSession, str(path))
    kinds = pa.ipc.read_schema(pa.py_buffer(bytes.fromhex(told["schema"])))
    keys, values = (pa.nulls(0, kinds.field(name).type) for name in ("key", "value"))
    alike = mr.OrderedIndex(keys, values, device="cpu")  # the same types, so the same rules
    return Shipped(str(path), told["size"], told["head"]), _check_key(alike, asked, key)


@lru_cache(maxsize=MOST_OPEN)
def _opened_here(file: Shipped) -> mr.OrderedIndex:
    """The index of a file: its checksums are read once, not at every call."""
    return mr.OrderedIndex.open(file.path, device="cpu")


def _check_key(index: mr.OrderedIndex, asked: pa.DataType, key: str) -> pa.DataType:
    """The type of the index's values; a key type that does not fit is a `KeyTypeError`, by the index's own rules."""
    try:
        return index.lookup(pa.nulls(0, asked)).type
    except mr.KeyTypeError as error:
        raise mr.KeyTypeError(
            f"column {key} of type {asked} does not fit an index with {index.stats['key_type']} keys: {error}"
        ) from error


def _udf(step: Step, asked: Asked) -> Callable[..., Any]:
    """The function that workers run for one column."""
    exact = cl.arrow_type(step.spark_values)
    file = step.file

    def look_up(keys: pa.Array) -> pa.Array:
        found = find(file, asked, keys)
        return found if found.type == exact else found.cast(exact)

    made: Callable[..., Any] = arrow_udf(look_up, returnType=step.spark_values)  # type: ignore[call-overload]
    return made


def find(file: Shipped, asked: Asked, keys: pa.Array) -> pa.Array:
    """The values of some keys, by this process's own index; one on a card is closed before the card is given back."""
    place = place_of(asked)
    if not place.card:
        return _index(file, place, asked.fallback).lookup(keys)
    with at_work(place), closing(_open(file, place, asked.fallback)) as index:
        return index.lookup(keys)


def _open(file: Shipped, place: Place, fallback: str | None) -> mr.OrderedIndex:
    return mr.OrderedIndex.open(file.locate(), place.device, place.threads, fallback)


def _index(file: Shipped, place: Place, fallback: str | None) -> mr.OrderedIndex:
    """Opened in this process, after the fork; the few used last stay open for the tasks that come."""
    key = (os.getpid(), file, place.device, fallback)
    index = _opened.pop(key, None)
    if index is None:
        index = _open(file, place, fallback)
    _opened[key] = index
    while len(_opened) > MOST_OPEN:
        del _opened[next(iter(_opened))]
    return index
