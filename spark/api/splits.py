"""`ms.splits`: where to cut r's key for `ms.window_join`, chosen from a sample before a stream starts, and kept.

A stream cannot be sampled before it runs; a table of rows like its own can: yesterday's, say. `keep` names a file, best
beside the checkpoint: the splits that were chosen first are written there, and given again whenever the query
starts anew, whatever the sample says by then. (The checkpoint holds them too, and refuses others.)
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
from millrace.ingest.checks import whole
from millrace.spark.api.join import ask
from millrace.spark.plan.sampling import cut, sample
from millrace.spark.plan.strategy import to_sample

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def splits(
    r: DataFrame, s: DataFrame, on: str, places: int = 4, keep: str | os.PathLike[str] | None = None
) -> list[Any]:
    """Values of r's column that cut rows like these into so many ranges of about equally many."""
    path = None if keep is None else Path(keep)
    question = ask(r, s, on, "inner", None, "range")
    route = question.route("r")
    if route is None:
        raise ArgumentError(f"on={on!r} bounds no plain column of r: leave splits out, every place then sees all rows")
    about = {"column": route.column, "places": whole("places", places, 1)}
    if path is not None and path.exists():
        return _read(path, about)
    drawn = sample(question.frames, {side: to_sample(question, side) for side in ("r", "s")})
    bounds = cut(drawn["r"], None, places).bounds
    temporal = isinstance(r.schema[route.column].dataType, ty.DatetimeType)
    if path is not None:
        _write(path, {**about, "temporal": temporal, "bounds": list(bounds)})
    return _values(bounds, temporal)


def _values(bounds: Any, temporal: bool) -> list[Any]:
    """As a user would write them."""
    return [_EPOCH + timedelta(microseconds=bound) if temporal else bound for bound in bounds]


def _read(path: Path, about: dict[str, Any]) -> list[Any]:
    try:
        kept = json.loads(path.read_text())
        found = {name: kept[name] for name in about}
        values = _values(kept["bounds"], kept["temporal"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StateError(f"{path} does not hold splits that were kept ({error}): remove it, or name another") from error
    if found != about:
        raise StateError(f"{path} holds splits for {found}, and {about} was asked for: name another file")
    return values


def _write(path: Path, content: dict[str, Any]) -> None:
    """All or nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f"{path.name}.{os.getpid()}")
    fresh.write_text(json.dumps(content) + "\n")
    fresh.replace(path)
