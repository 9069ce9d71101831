"""Casts the columns of a batch to the types that `schemas=` fixed, where no value changes.

Programs make small changes of types without meaning to: a column of nulls has no type, a pandas column of integers with
a missing value is of floats, an empty frame has arbitrary types, another library has large strings. Such batches are
cast; one that cannot be cast without a loss is a `SchemaError` that names the column and says how to cast it.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from millrace.host.base.errors import SchemaError


def fitted(table: pa.Table, known: pa.Schema, side: str) -> pa.Table:
    """The batch with the columns and types of the fixed schema."""
    if table.schema.names == known.names and table.schema.types == known.types:
        return table
    if not table.num_columns and not table.num_rows:
        return known.empty_table()
    missing = [name for name in known.names if name not in table.column_names]
    extra = [name for name in table.column_names if name not in known.names]
    if missing or extra:
        parts = [f"{name} is missing" for name in missing] + [f"{name} is new" for name in extra]
        raise SchemaError(
            f"a batch of {side} does not have the columns of schemas[{side!r}]: {'; '.join(parts)}. Its columns are "
            f"{', '.join(known.names)}: drop or add columns, or change the schema"
        )
    columns = [_fitted_column(table.column(field.name), field, side) for field in known]
    return pa.Table.from_arrays(columns, schema=known)


def _fitted_column(column: pa.ChunkedArray, field: pa.Field, side: str) -> pa.ChunkedArray:
    try:
        return exactly_cast(column, field.type)
    except (pa.ArrowException, TypeError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise SchemaError(
            f"a batch of {side} has {field.name} of type {column.type}, schemas[{side!r}] has {field.type}, and a cast "
            f"would change values ({reason}): cast it yourself before the push, as with "
            f"batch[{field.name!r}].cast({str(field.type)!r}, safe=False), or fix a type in schemas= that holds all "
            f"values"
        ) from error


def exactly_cast(column: pa.ChunkedArray, wanted: pa.DataType) -> pa.ChunkedArray:
    """The same values in another type; an error says why there are none."""
    if column.type == wanted:
        return column
    if not len(column) or pa.types.is_null(column.type):
        return pa.chunked_array([pa.nulls(len(column), wanted)], wanted)
    if not _may_cast(column.type, wanted):
        raise ValueError("values of these types mean different things")
    cast = column.cast(wanted)
    if not _same(column, cast):
        raise ValueError("values would be rounded")
    return cast


def _may_cast(given: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether values of both types can mean the same."""
    if pa.types.is_dictionary(given) or pa.types.is_dictionary(wanted):
        plain = [kind.value_type if pa.types.is_dictionary(kind) else kind for kind in (given, wanted)]
        return plain[0] == plain[1] or _may_cast(*plain)
    if pa.types.is_timestamp(given) and pa.types.is_timestamp(wanted):
        return (given.tz is None) == (wanted.tz is None)
    if pa.types.is_date(given) and pa.types.is_timestamp(wanted):
        return wanted.tz is None
    return _family(given) == _family(wanted) != ""


def _family(kind: pa.DataType) -> str:
    """Types of one family have values in common."""
    families = {
        "number": (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal),
        "text": (pa.types.is_string, pa.types.is_large_string),
        "binary": (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary),
        "date": (pa.types.is_date,),
        "time": (pa.types.is_time,),
        "duration": (pa.types.is_duration,),
        "nested": (pa.types.is_nested,),
    }
    return next((name for name, tests in families.items() if any(test(kind) for test in tests)), "")


def _same(before: pa.ChunkedArray, after: pa.ChunkedArray) -> bool:
    """Whether a cast back gives the same values: Arrow's own checks leave out fewer digits of a float."""
    if pa.types.is_decimal(before.type) and pa.types.is_integer(after.type):
        return True  # Arrow has refused fractions and overflows; the way back may lack digits for an integer's type
    back = after.cast(before.type)
    if pa.types.is_floating(before.type):
        both_nan = pc.and_(pc.is_nan(before), pc.is_nan(back))
        return bool(pc.all(pc.or_(pc.equal(before, back), both_nan)).as_py() is not False)
    return bool(back.equals(before))
