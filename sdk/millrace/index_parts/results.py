"""Makes Arrow arrays of the results of both layouts of an ordered index.

Limit: a call returns up to `MAX_VALUES` values, the capacity of a `pyarrow.ListArray`. (Not in the paper.)
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millrace.host.base.columns import column_of
from millrace.host.base.errors import ArgumentError
from millrace.host.base.memory import free_bytes, size_text
from millrace.host.base.types import Array, Mask
from millrace.host.base.words import all_true
from millrace.host.hbtree.regular import RegularTree
from millrace.host.hbtree.search_call import FEW
from millrace.host.hbtree.tree import HBTree
from millrace.host.kernels.gathered_memory import check_gathered
from millrace.host.runtime.jit import Share

MAX_VALUES = (1 << 31) - 1
SMALL = 1 << 24
"""Results of fewer bytes are not compared with the memory."""
Positions = npt.NDArray[np.int64]


def flipped(raw: Array, flip: int) -> Array:
    """Convert numbers to words."""
    words: Array = raw ^ raw.dtype.type(flip) if flip else raw
    return words


def memory_of(buffer: pa.Buffer) -> Array:
    """The memory of a buffer as a byte array."""
    return np.frombuffer(buffer, np.uint8)


def search_values(
    tree: HBTree | RegularTree,
    share: Share,
    raw: Array,
    flip: int,
    mask: Array | None,
    out: pa.Buffer,
    bits: pa.Buffer,
    mode: int,
) -> int:
    """Look up inline values on the CPU, into a buffer of values and one of validity; return the number found."""
    if len(raw) <= FEW:
        return tree.look_up_few(share, raw, flip, mask, out, bits, mode)
    masked = 0 if mask is None else mask
    return tree.run(share, raw, flip, MASK=masked, OUT=memory_of(out), BITS=memory_of(bits), MODE=mode)


def take_values(values: pa.Array, rows: pa.Array) -> pa.Array:
    """Values by number; an `ArgumentError` if they do not fit in memory."""
    check_gathered(values, rows)
    return values.take(rows)


def arrow_of(numbers: Array, absent: Mask, kind: pa.DataType) -> pa.Array:
    """Numbers as values of a type of the same width, null where absent."""
    return column_of(numbers, absent, kind)


def offsets_of(counts: Positions) -> Positions:
    """The offset of each list's values, and the total; too many values raise `ArgumentError`."""
    offsets = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=offsets[1:])
    if offsets[-1] > MAX_VALUES:
        raise ArgumentError(
            f"these ranges hold at least {offsets[-1]:,} values; allowed are {MAX_VALUES:,} a call: query fewer ranges "
            f"per call"
        )
    size = 8 * int(offsets[-1])
    if size > SMALL and size > free_bytes():
        raise ArgumentError(
            f"the values of these ranges do not fit in memory: {offsets[-1]:,} values of 8 bytes are "
            f"{size_text(size)}, and there are {size_text(free_bytes())}: query fewer ranges per call"
        )
    return offsets


def lists_of(offsets: npt.NDArray[np.int32], values: pa.Array, valid: Mask) -> pa.ListArray:
    """A list array, null where not valid."""
    nulls = None if all_true(valid) else pa.array(~valid)
    return pa.ListArray.from_arrays(column_of(offsets), values, mask=nulls)
