"""Arrow columns of NumPy numbers, and empty tables, without pandas.

`pa.array` and `Schema.empty_table` import pandas where it is installed, which takes a third of a second: most of a
small first call (`bench cold`). These do not, and copy nothing but the validity bits. Limit: numbers of one dimension
in the machine's byte order.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from millrace.host.base.types import Array, Mask


def is_plain(numbers: Array) -> bool:
    """Whether `column_of` takes an array as it is: integers or floats that lie one behind the other."""
    return numbers.dtype.kind in "iuf" and numbers.dtype.isnative and numbers.flags.c_contiguous


def column_of(numbers: Array, absent: Mask | None = None, kind: pa.DataType | None = None) -> pa.Array:
    """Numbers as a column, null where absent; `kind`: a type of the same width, if not the numbers' own."""
    if not is_plain(numbers):
        numbers = np.ascontiguousarray(numbers)
    nulls = 0 if absent is None else int(np.count_nonzero(absent))
    bits = None if absent is None or not nulls else pa.py_buffer(np.packbits(~absent, bitorder="little"))
    wanted = pa.from_numpy_dtype(numbers.dtype) if kind is None else kind
    return pa.Array.from_buffers(wanted, len(numbers), [bits, pa.py_buffer(numbers)], nulls)


def empty_table(schema: pa.Schema) -> pa.Table:
    """A table of a schema without rows."""
    return pa.Table.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)
