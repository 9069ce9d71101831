"""Converts single columns from users (keys, values or queries) to one `pyarrow.Array`.

Accepts Arrow arrays (also chunked), NumPy arrays, pandas and Polars series, lists, and any object with the Arrow
PyCapsule interface; for calls that take scalars, scalars of Python, NumPy or Arrow. `usable` is the rule of keys that
can match, here for Spark too.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from millrace.host.base.errors import ArgumentError, SchemaError
from millrace.host.base.words import usable as usable
from millrace.ingest.tables import as_table

_ALLOWED = "a pyarrow, NumPy, pandas or Polars array of one dimension, or a list"


def as_array(given: Any, label: str) -> pa.Array:
    """A column as one contiguous array; its type stays."""
    if isinstance(given, pa.Array):
        return given
    try:
        if isinstance(given, pa.ChunkedArray):
            return _contiguous(given)
        if isinstance(given, np.ndarray):
            if given.ndim != 1:
                raise ArgumentError(f"{label} has {given.ndim} dimensions; allowed is {_ALLOWED}")
            return pa.array(given)
        if hasattr(given, "__arrow_c_stream__") or hasattr(given, "__arrow_c_array__"):
            return _contiguous(pa.chunked_array(given) if hasattr(given, "__arrow_c_stream__") else pa.array(given))
        if type(given).__module__.partition(".")[0] == "pandas" or isinstance(given, list | tuple):
            return _contiguous(pa.array(given, from_pandas=not isinstance(given, list | tuple)))
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        if isinstance(error, ArgumentError):
            raise
        raise ArgumentError(f"{label} cannot be turned into an Arrow array ({error}); allowed is {_ALLOWED}") from error
    raise ArgumentError(f"{label} is a {type(given).__name__}; allowed is {_ALLOWED}")


def as_values(given: Any) -> pa.Array:
    """Values in a type whose rows Arrow can always gather (`plain_type` in `tables.py`)."""
    table = as_table(pa.table([as_array(given, "values")], names=["values"]), "values")
    try:
        return _contiguous(table.column(0).unify_dictionaries())
    except pa.ArrowException as error:
        raise SchemaError(
            f"values cannot be combined into one array ({error}): pass fewer rows, or a large type"
        ) from error


def is_scalar(given: Any) -> bool:
    """Whether something is one value and not a column."""
    if isinstance(given, pa.Scalar | str | bytes | np.generic) or given is None:
        return True
    return not (
        isinstance(given, pa.Array | pa.ChunkedArray | np.ndarray | list | tuple)
        or hasattr(given, "__arrow_c_stream__")
        or hasattr(given, "__arrow_c_array__")
        or (type(given).__module__.partition(".")[0] == "pandas" and hasattr(given, "__len__"))
    )


def as_one(given: Any, label: str) -> pa.Array:
    """A scalar as an array of one row."""
    try:
        if isinstance(given, pa.Scalar):
            return pa.array([given.as_py()], given.type)
        if isinstance(given, np.generic):
            return pa.array(np.array([given]))
        return pa.array([given])
    except OverflowError:
        # Integers beyond 64 bits are beyond all keys; as doubles they still are.
        return pa.array([float(given)])
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise ArgumentError(f"{label}={given!r} is not a number, date or time to compare with keys") from error


def _contiguous(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """A column as one contiguous array."""
    if isinstance(column, pa.Array):
        return column
    if column.num_chunks == 1:
        return column.chunk(0)
    combined = column.combine_chunks()
    return combined if isinstance(combined, pa.Array) else pa.concat_arrays(combined.chunks)
