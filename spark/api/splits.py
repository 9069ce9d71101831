"""`ms.splits`: chooses where to cut r's key for `ms.window_join`, from a sample before a stream starts, and keeps them.

A stream cannot be sampled before it runs, but a table with similar rows can, such as yesterday's. `keep` names a file,
best next to the checkpoint: the first call writes its splits there, and later calls return the same splits, whatever
the sample is then. (The checkpoint stores the splits too, and refuses others.)
"""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import types as ty

from millrace.errors import ArgumentError, StateError
from millrace.ingest.checks import integer_at_least
from millrace.spark.api.join import join_request
from millrace.spark.plan.routing import as_double
from millrace.spark.plan.sampling import cut, sample

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def splits(
    r: DataFrame, s: DataFrame, on: str, *, shards: int = 4, keep: str | os.PathLike[str] | None = None
) -> list[Any]:
    """Values of r's column that cut rows like these into ranges with about equally many rows, by a sample of r.

    Args:
        r: A batch frame with rows like those of the stream r.
        s: A batch frame with the columns of s; its rows are not read.
        on: The condition of the join; it bounds a plain column of r with numbers or times.
        shards: The number of ranges, at least 1; heavy values get ranges of their own.
        keep: A file for the splits: written if it does not exist, otherwise read; None keeps nothing.

    Raises:
        ArgumentError: An argument is not allowed, or `on` bounds no such column of r.
        PredicateError: `on` is not a condition that joins can use; the message points at the place.
        KeyTypeError: A column of `on` has a type that cannot be compared so.
        SchemaError: A column does not exist, names clash, or a type has no Arrow type.
        StateError: The file does not hold splits, or holds those of another column or number.
    """
    path = None if keep is None else Path(keep)
    request = join_request(r, s, on, "inner", None, "range")
    route = request.ordered_route("r")
    if route is None:
        raise ArgumentError(
            f"on={on!r} bounds no plain column of r with numbers or times: leave splits out, every shard then sees all "
            f"rows"
        )
    about = {"column": route.column, "shards": integer_at_least("shards", shards, 1)}
    if path is not None and path.exists():
        return _read(path, about)
    key = as_double(route.column, r.schema[route.column].dataType)
    bounds = cut(sample({"r": r}, {"r": [key]})["r"], None, shards).bounds
    temporal = isinstance(r.schema[route.column].dataType, ty.DatetimeType)
    if path is not None:
        _write(path, {**about, "temporal": temporal, "bounds": list(bounds)})
    return _values(bounds, temporal)


def _values(bounds: Any, temporal: bool) -> list[Any]:
    """The bounds as values of the column's type."""
    return [_EPOCH + timedelta(microseconds=bound) if temporal else bound for bound in bounds]


def _read(path: Path, about: dict[str, Any]) -> list[Any]:
    try:
        kept = json.loads(path.read_text())
        found = {name: kept[name] for name in about}
        values = _values(kept["bounds"], kept["temporal"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StateError(f"{path} does not hold kept splits ({error}): remove it, or name another file") from error
    if found != about:
        raise StateError(f"{path} holds splits for {found}, but {about} was requested: name another file")
    return values


def _write(path: Path, content: dict[str, Any]) -> None:
    """Write atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{os.getpid()}")
    temporary.write_text(json.dumps(content) + "\n")
    temporary.replace(path)
