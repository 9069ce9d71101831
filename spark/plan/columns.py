"""Spark's columns and types as Arrow sees them: schemas, checks for required columns, and keys that cannot match.

Everything that does not fit raises an error here, on the driver, before a job runs. Spark's timestamps are in
microseconds; the zone in their Arrow type is the session's and does not change any value.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import reduce
from operator import add
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn
from pyspark.sql import types as ty
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_schema, to_arrow_type

from millrace.errors import ArgumentError, SchemaError, StateError
from millrace.join_parts.condition_texts import with_names
from millrace.spark.cluster.connect import is_connect
from millrace.spark.cluster.jobs import described

RESERVED = "__millrace"
"""How names of millrace's own columns begin."""
WATERMARK_KEY = "spark.watermarkDelayMs"
"""The metadata by which Spark knows the column of a watermark."""
_BACKTICKS = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|`((?:[^`]|``)+)`")
"""Texts in quotes, which stay as they are, and names in backticks."""
FLOATS = (ty.FloatType, ty.DoubleType)
FIXED = (ty.NumericType, ty.DatetimeType, ty.BooleanType)


def check_frame(given: Any, label: str) -> DataFrame:
    """Check that an argument is a Spark frame, classic or Connect, without duplicate column names."""
    if not isinstance(given, DataFrame):
        raise ArgumentError(
            f"{label} is a {type(given).__name__}; allowed is a Spark DataFrame: make one with spark.createDataFrame"
        )
    if not is_connect(given) and given.sparkSession.sparkContext._jsc is None:
        raise StateError(f"{label} belongs to a Spark session that was stopped: make the frame in one that runs")
    folded = Counter(given.columns if is_exact(given) else [name.lower() for name in given.columns])
    duplicates = sorted(name for name, count in folded.items() if count > 1)
    if duplicates:
        raise SchemaError(f"{label} has several columns named {', '.join(duplicates)}: rename them, names must differ")
    reserved = [name for name in given.columns if name.lower().startswith(RESERVED)]
    if reserved:
        raise SchemaError(
            f"{label} has a column named {reserved[0]}: names that begin with {RESERVED} are used by millrace itself, "
            f"rename it"
        )
    return given


def is_exact(frame: DataFrame) -> bool:
    """Whether the session's column names are case-sensitive; by default they are not."""
    return str(frame.sparkSession.conf.get("spark.sql.caseSensitive", "false")).lower() == "true"


def real_name(frame: DataFrame, name: Any) -> Any:
    """A column's name as the frame has it: by Spark's case rules, and with or without backticks.

    Anything that is no column of the frame comes back as it is.
    """
    return name_among(frame.columns, name, lambda: is_exact(frame))


def name_among(columns: Sequence[str], name: Any, exact: Callable[[], bool]) -> Any:
    """The same for a list of names; `exact`: whether letters' case counts, asked only if need be."""
    if not isinstance(name, str) or name in columns:
        return name
    if len(name) > 2 and name[0] == name[-1] == "`":
        return name_among(columns, name[1:-1].replace("``", "`"), exact)
    return name if exact() else next((known for known in columns if known.lower() == name.lower()), name)


def spark_condition(frames: dict[str, DataFrame], on: Any) -> Any:
    """A condition in the text that the parser takes: backticks become double quotes, and names are the frames'."""
    if not isinstance(on, str):
        return on
    text = _BACKTICKS.sub(lambda found: found[0] if found[1] is None else _double_quoted(found[1]), on)
    return with_names(text, lambda side, name: str(real_name(frames[side], name)))


def _double_quoted(name: str) -> str:
    """A name that was in backticks, in double quotes."""
    escaped = name.replace("``", "`").replace('"', '""')
    return f'"{escaped}"'


def check_column(frame: DataFrame, name: Any, label: str) -> ty.StructField:
    """The field of a frame's column, by name."""
    if not isinstance(name, str):
        raise ArgumentError(f"{label} is a {type(name).__name__}; allowed is the name of a column")
    real = real_name(frame, name)
    for field in frame.schema.fields:
        if field.name == real:
            return field
    raise SchemaError(f"{label}: there is no column {name!r}; the columns are {', '.join(frame.columns) or 'none'}")


def check_new(frame: DataFrame, names: Iterable[str]) -> None:
    """Check names of new columns: neither the frame nor another new column may have them.

    The session decides whether names are case-sensitive; by default they are not.
    """
    exact = is_exact(frame)
    taken = {name if exact else name.lower(): name for name in frame.columns}
    for name in names:
        if name.lower().startswith(RESERVED):
            raise SchemaError(f"into={name!r}: names that begin with {RESERVED} are used by millrace itself")
        known = name if exact else name.lower()
        if known in taken:
            raise SchemaError(
                f"into={name!r}: there is a column {taken[known]!r}; choose another name, or drop that one first"
            )
        taken[known] = name


def arrow_schema(schema: ty.StructType, label: str) -> pa.Schema:
    """The Arrow types that a task sees."""
    try:
        return to_arrow_schema(schema, timezone="UTC", error_on_duplicated_field_names_in_struct=True)
    except Exception as error:  # pyspark raises various types for what Arrow does not have
        raise SchemaError(
            f"{label} has a column that cannot be converted to Arrow ({_first_line(error)}): drop it, or cast it"
        ) from error


def spark_type(arrow: pa.DataType, label: str) -> ty.DataType:
    """The Spark type of an Arrow type; a `SchemaError` if there is none."""
    try:
        found: ty.DataType = from_arrow_type(arrow, prefer_timestamp_ntz=True)
    except Exception as error:  # as above
        raise SchemaError(
            f"{label} has the Arrow type {arrow}, which Spark has no type for: cast it first, unsigned integers to the "
            f"next wider signed type, times of day to integers"
        ) from error
    return found


def arrow_type(spark: ty.DataType) -> pa.DataType:
    """The exact Arrow type that Spark expects for a column of this type."""
    return to_arrow_type(spark, timezone="UTC")


def watermark_of(field: ty.StructField, streaming: bool) -> dict[str, Any] | None:
    """A stream's watermark on a column, as metadata for the same column behind a task; None if it has none."""
    delay = field.metadata.get(WATERMARK_KEY) if streaming else None
    return None if delay is None else {WATERMARK_KEY: delay}


def quoted(name: str) -> str:
    """A column name quoted for SQL, so that dots and spaces are part of the name."""
    return f"`{name.replace('`', '``')}`"


def column(name: str) -> Column:
    """The same as a `Column`."""
    return fn.col(quoted(name))


def unusable(schema: ty.StructType, names: Collection[str]) -> str:
    """SQL that is true if a row has a null or NaN in one of these columns, so that it cannot match; never null.

    The rule of `millrace.ingest.columns.usable`, in SQL.
    """
    terms = [f"{quoted(name)} IS NULL" for name in names]
    # isnan(null) is false in Spark
    terms += [f"isnan({quoted(name)})" for name in names if isinstance(schema[name].dataType, FLOATS)]
    return f"({' OR '.join(terms)})" if terms else "false"


def row_bytes(schema: ty.StructType) -> int:
    """Estimated bytes of a row: 8 for a number, 32 for anything else."""
    return max(8, sum(8 if isinstance(f.dataType, FIXED) else 32 for f in schema.fields))


def has_fixed_rows(schema: ty.StructType) -> bool:
    """Whether all rows have the same size."""
    return all(isinstance(f.dataType, FIXED) for f in schema.fields)


def measured_bytes(frame: DataFrame) -> int:
    """Estimated bytes of a frame, from a pass over all its rows; text and the like count by their length."""
    with described(frame.sparkSession, "size of rows of variable length"):
        row = frame.select(fn.sum(row_size(frame.schema))).first()
    return int(row[0] or 0) if row is not None else 0


def row_size(schema: ty.StructType) -> Column:
    """Estimated bytes of a row as a column; text and the like count by their length."""
    sizes = [fn.lit(8) if isinstance(field.dataType, FIXED) else _length(field) for field in schema.fields]
    return reduce(add, sizes, fn.lit(0)).cast("bigint")


def _length(field: ty.StructField) -> Column:
    """Bytes of a value that is not a number; a nested value counts as JSON, which is about its size in Arrow."""
    value = column(field.name)
    if isinstance(field.dataType, ty.ArrayType | ty.MapType | ty.StructType):
        value = fn.to_json(fn.struct(value))
    elif not isinstance(field.dataType, ty.StringType | ty.BinaryType):
        value = value.cast("string")
    return 8 + fn.coalesce(fn.octet_length(value), fn.lit(0))


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
