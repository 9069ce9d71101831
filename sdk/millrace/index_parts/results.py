"""What both layouts of an ordered index need to make Arrow arrays of what they found."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millrace.host.base.errors import ArgumentError
from millrace.host.base.types import Array, Mask
from millrace.host.base.words import all_true

MOST_VALUES = (1 << 31) - 1
Positions = npt.NDArray[np.int64]


def flipped(raw: Array, flip: int) -> Array:
    """Numbers to words."""
    words: Array = raw ^ raw.dtype.type(flip) if flip else raw
    return words


def memory_of(buffer: pa.Buffer) -> Array:
    """A new buffer's memory."""
    return np.frombuffer(buffer, np.uint8)


def arrow_of(numbers: Array, absent: Mask, kind: pa.DataType) -> pa.Array:
    """Plain numbers as values of a type of their width, null where absent."""
    plain = pa.array(numbers, mask=absent)
    return pa.Array.from_buffers(kind, len(plain), plain.buffers(), plain.null_count)


def offsets_of(counts: Positions) -> Positions:
    """Where the values of each list begin, and where the last end; too many are refused."""
    offsets = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=offsets[1:])
    if offsets[-1] > MOST_VALUES:
        raise ArgumentError(
            f"these ranges hold {offsets[-1]:,} values; allowed are {MOST_VALUES:,} a call: ask for fewer"
        )
    return offsets


def lists_of(offsets: npt.NDArray[np.int32], values: pa.Array, valid: Mask) -> pa.ListArray:
    """Lists, null where not valid."""
    nulls = None if all_true(valid) else pa.array(~valid)
    return pa.ListArray.from_arrays(pa.array(offsets), values, mask=nulls)
