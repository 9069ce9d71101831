"""The door for single columns: whatever a user brings as keys, values or queries becomes one `pyarrow.Array`.

Accepted are Arrow arrays (chunked ones too), NumPy arrays, pandas and Polars series, lists, and anything with the Arrow
PyCapsule interface; where a call takes scalars, any of Python's, NumPy's or Arrow's.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from millrace.host.base.errors import ArgumentError, SchemaError
from millrace.ingest.tables import as_table

_ALLOWED = "a pyarrow, NumPy, pandas or Polars array of one dimension, or a list"


def as_array(given: Any, label: str) -> pa.Array:
    """A column in one piece, of whatever type it has."""
    if isinstance(given, pa.Array):
        return given
    try:
        if isinstance(given, pa.ChunkedArray):
            return _one_piece(given)
        if isinstance(given, np.ndarray):
            if given.ndim != 1:
                raise ArgumentError(f"{label} has {given.ndim} dimensions; allowed is {_ALLOWED}")
            return pa.array(given)
        if hasattr(given, "__arrow_c_stream__") or hasattr(given, "__arrow_c_array__"):
            return _one_piece(pa.chunked_array(given) if hasattr(given, "__arrow_c_stream__") else pa.array(given))
        if type(given).__module__.partition(".")[0] == "pandas" or isinstance(given, list | tuple):
            return _one_piece(pa.array(given, from_pandas=not isinstance(given, list | tuple)))
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        if isinstance(error, ArgumentError):
            raise
        raise ArgumentError(f"{label} cannot be turned into an Arrow array ({error}); allowed is {_ALLOWED}") from error
    raise ArgumentError(f"{label} is a {type(given).__name__}; allowed is {_ALLOWED}")


def as_values(given: Any) -> pa.Array:
    """Values in a type whose rows Arrow can always gather (`door.plain_type`)."""
    table = as_table(pa.table([as_array(given, "values")], names=["values"]), "values")
    try:
        return _one_piece(table.column(0).unify_dictionaries())
    except pa.ArrowException as error:
        raise SchemaError(f"values cannot be put in one piece ({error}): bring fewer rows, or a large type") from error


def is_scalar(given: Any) -> bool:
    """Whether something is one value rather than a column of them."""
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
        # Whole numbers beyond 64 bits lie beyond all keys; as a double they still do.
        return pa.array([float(given)])
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise ArgumentError(f"{label}={given!r} is no number, date or time that keys could be compared with") from error


def _one_piece(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """A column without chunks."""
    if isinstance(column, pa.Array):
        return column
    if column.num_chunks == 1:
        return column.chunk(0)
    combined = column.combine_chunks()
    return combined if isinstance(combined, pa.Array) else pa.concat_arrays(combined.chunks)
