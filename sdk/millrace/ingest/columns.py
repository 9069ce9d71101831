"""Converts single columns from users (keys, values or queries) to one `pyarrow.Array`.

Accepts Arrow arrays (also chunked), NumPy arrays, pandas and Polars series, lists, and any object with the Arrow
PyCapsule interface; for calls that take scalars, scalars of Python, NumPy or Arrow. `usable` is the rule of keys that
can match, here for Spark too.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from millrace.host.base.columns import column_of, is_plain
from millrace.host.base.errors import ArgumentError, SchemaError
from millrace.host.base.words import usable as usable
from millrace.ingest.tables import COLLECT, as_table, check_no_objects, is_lazy

_ALLOWED = "a pyarrow, NumPy, pandas or Polars array of one dimension, or a list"


def as_array(given: Any, label: str, are_queries: bool = False) -> pa.Array:
    """A column as one contiguous array; its type stays. Lists `are_queries` may hold integers of any size."""
    if isinstance(given, pa.Array):
        return given
    try:
        if isinstance(given, pa.ChunkedArray):
            return _contiguous(given)
        if isinstance(given, np.ndarray):
            if given.ndim != 1:
                raise ArgumentError(f"{label} has {given.ndim} dimensions; allowed is {_ALLOWED}")
            return column_of(given) if is_plain(given) else from_numpy(given)
        if hasattr(given, "__arrow_c_stream__") or hasattr(given, "__arrow_c_array__"):
            check_no_objects(given, label)
            return _contiguous(pa.chunked_array(given) if hasattr(given, "__arrow_c_stream__") else pa.array(given))
        if type(given).__module__.partition(".")[0] == "pandas" or isinstance(given, list | tuple):
            return _contiguous(_from_objects(given, are_queries))
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        if isinstance(error, ArgumentError):
            raise
        raise ArgumentError(f"{label} cannot be turned into an Arrow array ({error}); allowed is {_ALLOWED}") from error
    advice = f": {COLLECT}, then take its column" if is_lazy(given) else ""
    raise ArgumentError(f"{label} is a {type(given).__name__}; allowed is {_ALLOWED}{advice}")


def from_numpy(given: np.ndarray[Any, Any]) -> pa.Array:
    """A NumPy array as an Arrow array. Times that Arrow would read as other times raise a `ValueError`."""
    if given.dtype.kind in "mM":
        check_numpy_unit(given)
        days = given.view(np.int64)[~np.isnat(given)] if given.dtype == np.dtype("M8[D]") else given[:0].view(np.int64)
        if len(days) and not -(1 << 31) <= days.min() <= days.max() < 1 << 31:
            raise ValueError("its days do not all fit in date32")
    return pa.array(given)


def check_numpy_unit(given: Any) -> None:
    """Refuse times that count in several units, such as `datetime64[25s]`: Arrow would count in one."""
    dtype: Any = given.dtype if isinstance(given, np.generic | np.ndarray) else None
    if dtype is not None and dtype.kind in "mM":
        unit, count = np.datetime_data(dtype)
        if count != 1:
            raise ValueError(f"it counts in steps of {count} {unit}; use astype, as with '{dtype.kind}8[{unit}]'")


def _from_objects(given: Any, are_queries: bool) -> Any:
    """Python objects as an array: integers from 2**63 on are uint64; queries beyond may become doubles, if exact."""
    try:
        made = pa.array(given, from_pandas=not isinstance(given, list | tuple))
        if isinstance(given, list | tuple) and pa.types.is_temporal(made.type):
            for x in given:
                check_numpy_unit(x)
        return made
    except OverflowError:
        try:
            return pa.array(given, pa.uint64())
        except (pa.ArrowException, OverflowError, ValueError) as error:
            if are_queries and all(x is None or _is_double(x) for x in given):
                return pa.array([None if x is None else float(x) for x in given], pa.float64())
            raise ValueError("its integers do not all fit in int64, nor all in uint64") from error


def _is_double(number: Any) -> bool:
    """Whether a Python number equals a double."""
    try:
        return isinstance(number, int | float) and float(number) == number
    except OverflowError:
        return False


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
            return from_numpy(np.array([given]))
        return pa.array([given])
    except OverflowError:
        if isinstance(given, int) and 0 <= given < 1 << 64:
            return pa.array([given], pa.uint64())
        return _beyond_64_bits(given, label)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise ArgumentError(f"{label}={given!r} is not a number, date or time to compare with keys: {error}") from error


def _beyond_64_bits(given: Any, label: str) -> pa.Array:
    """Integers beyond 64 bits are beyond all integer keys; as doubles they still are."""
    try:
        return pa.array([float(given)])
    except (OverflowError, TypeError, ValueError) as error:
        raise ArgumentError(f"{label} is an integer beyond all key types: use float('inf')") from error


def _contiguous(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """A column as one contiguous array."""
    if isinstance(column, pa.Array):
        return column
    if column.num_chunks == 1:
        return column.chunk(0)
    combined = column.combine_chunks()
    return combined if isinstance(combined, pa.Array) else pa.concat_arrays(combined.chunks)
