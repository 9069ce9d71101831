"""Encodes keys as words: unsigned 32- or 64-bit integers in the same order. Devices only see words.

Signed integers: flip the sign bit. Floats: first turn `-0.0` into `0.0`, then flip all bits of a negative number and
the sign bit of a positive one. Dates and timestamps are signed integers in their own unit. Null and NaN have no word:
a separate mask marks them. Arithmetic at the ends of a type saturates and never wraps (PanJoin, III-F1, as corrected:
`[v, v+)` overflows at the largest key).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millrace.host.base.errors import KeyTypeError
from millrace.host.base.types import Array, Mask

Domain = Literal["int", "float", "time", "code"]

NS_PER_UNIT = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
NS_PER_DAY = 86_400 * 10**9
KEY_TYPES = "int8..int64, uint8..uint64, float32, float64, date32, date64 and timestamps"


@dataclass(frozen=True)
class KeyType:
    """The type of a key column: how its values are stored (`dtype`) and what they mean.

    `ns` is the length of a tick in nanoseconds (1 if it is not a time); a `zoned` timestamp is an instant in UTC.
    `family` names what a code stands for (`codes.py`): only values of one family compare. Other types have none.
    """

    name: str
    domain: Domain
    dtype: np.dtype[Any]
    ns: int = 1
    zoned: bool = False
    family: str = ""

    @cached_property
    def word(self) -> np.dtype[Any]:
        """The unsigned type of the words: as wide as `dtype`, 32 or 64 bits."""
        return np.dtype(np.uint32 if self.dtype.itemsize == 4 else np.uint64)

    @cached_property
    def stored(self) -> np.dtype[Any]:
        """The type of the values in Arrow's memory."""
        names = {"date32": np.int32, "float32": np.float32, "float64": np.float64}
        return np.dtype(names.get(self.name) or (np.int64 if self.domain == "time" else self.name))


_NUMBERS: dict[pa.DataType, KeyType] = {
    pa.int8(): KeyType("int8", "int", np.dtype(np.int32)),
    pa.int16(): KeyType("int16", "int", np.dtype(np.int32)),
    pa.int32(): KeyType("int32", "int", np.dtype(np.int32)),
    pa.int64(): KeyType("int64", "int", np.dtype(np.int64)),
    pa.uint8(): KeyType("uint8", "int", np.dtype(np.uint32)),
    pa.uint16(): KeyType("uint16", "int", np.dtype(np.uint32)),
    pa.uint32(): KeyType("uint32", "int", np.dtype(np.uint32)),
    pa.uint64(): KeyType("uint64", "int", np.dtype(np.uint64)),
    pa.float32(): KeyType("float32", "float", np.dtype(np.float32)),
    pa.float64(): KeyType("float64", "float", np.dtype(np.float64)),
    pa.date32(): KeyType("date32", "time", np.dtype(np.int32), ns=NS_PER_DAY),
    pa.date64(): KeyType("date64", "time", np.dtype(np.int64), ns=10**6),
}


def key_type(label: str, data_type: pa.DataType) -> KeyType:
    """Return the key type of a column; raise a `KeyTypeError` with its name (`label`) and the types that work."""
    if pa.types.is_timestamp(data_type):
        ns = NS_PER_UNIT[data_type.unit]
        return KeyType(str(data_type), "time", np.dtype(np.int64), ns=ns, zoned=data_type.tz is not None)
    # Most extension types cannot be hashed.
    found = None if isinstance(data_type, pa.BaseExtensionType) else _NUMBERS.get(data_type)
    if found is None:
        raise KeyTypeError(
            f"column {label} has type {data_type}, which cannot be compared; the types that work are {KEY_TYPES}: "
            f"cast the column first"
        )
    return found


def arrow_type(kind: KeyType) -> pa.DataType:
    """The Arrow type of a key type that is no code."""
    if kind.name.startswith("timestamp["):
        unit, _, zone = kind.name.removeprefix("timestamp[").removesuffix("]").partition(", tz=")
        return pa.timestamp(unit, zone or None)
    return pa.type_for_alias(kind.name)


def native(column: pa.Array | pa.ChunkedArray, kind: KeyType) -> tuple[Array, Mask]:
    """Return a column as a NumPy array of `kind.dtype`, and the mask of its usable values (neither null nor NaN).

    Unusable values become 0, and `-0.0` becomes `0.0`. The array is a view where possible, else a copy.
    """
    array = _one_piece(column)
    buffer, rows, stored = array.buffers()[1], len(array), kind.stored
    if buffer is None or rows == 0:
        return np.zeros(rows, kind.dtype), np.zeros(rows, np.bool_)
    values: Array = np.frombuffer(buffer, stored, rows, array.offset * stored.itemsize)
    valid = not_null(array)
    if stored.kind == "f" or array.null_count:
        values, valid = usable_numbers(values, valid)
    return values if stored == kind.dtype else values.astype(kind.dtype), valid


# The rule of usable keys: a value can match if it is neither null nor NaN, and -0.0 equals 0.0. `usable` states it for
# Arrow columns of any type, `usable_numbers` for numbers. In Spark, `plan/columns.py` writes the same rule in SQL.


def usable(column: pa.Array | pa.ChunkedArray) -> Mask:
    """Return which values of a key column can match: those that are neither null nor NaN."""
    array = _one_piece(column)
    if not pa.types.is_floating(array.type) or len(array) == 0:
        return not_null(array)
    return native(array, key_type("", array.type))[1]


def usable_numbers(values: Array, valid: Mask) -> tuple[Array, Mask]:
    """Return numbers with unusable ones as 0 and `-0.0` as `0.0`, and which are usable: valid and not NaN."""
    if values.dtype.kind == "f":
        valid = mask_and(valid, ~np.isnan(values))
    if not all_true(valid):
        values = np.where(valid, values, values.dtype.type(0))
    return values + values.dtype.type(0) if values.dtype.kind == "f" else values, valid


def not_null(array: pa.Array) -> Mask:
    """Return which values of an array are not null."""
    return pc.is_valid(array).to_numpy(zero_copy_only=False) if array.null_count else true_mask(len(array))


def _one_piece(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return a column as one array. A single chunk is returned directly: `combine_chunks` would copy it."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def to_words(values: Array, out: Array | None = None) -> Array:
    """Encode usable values of a key dtype (int32, uint32, int64, uint64, float32 or float64) as words.

    If `out` is given, the words of signed integers are written to it.
    """
    bits = values.dtype.itemsize * 8
    word = np.dtype(f"u{values.dtype.itemsize}")
    top = word.type(1 << (bits - 1))
    if values.dtype.kind == "u":
        return values
    if values.dtype.kind == "i":
        shifted: Array = np.bitwise_xor(values.view(word), top, out=out)
        return shifted
    raw = (values + values.dtype.type(0)).view(word)
    negative = (raw & top) != 0
    flipped: Array = np.where(negative, ~raw, raw | top)
    return flipped


def from_words(words: Array, dtype: np.dtype[Any]) -> Array:
    """Decode words: the inverse of `to_words`."""
    bits = words.dtype.itemsize * 8
    top = words.dtype.type(1 << (bits - 1))
    if dtype.kind == "u":
        return words
    if dtype.kind == "i":
        signed: Array = (words ^ top).view(dtype)
        return signed
    raw: Array = np.where((words & top) != 0, words ^ top, ~words)
    return raw.view(dtype)


def saturating_add(values: Array, delta: int) -> Array:
    """Return `values + delta` for an integer array; saturates at the ends of its type instead of wrapping."""
    info = np.iinfo(values.dtype)
    if delta == 0 or len(values) == 0:
        return values
    if delta > 0:
        if delta > int(info.max) - int(info.min):
            return np.full_like(values, info.max)
        # Clip to `max - delta` first, so that the addition cannot wrap.
        return _shift(np.minimum(values, values.dtype.type(int(info.max) - delta)), delta)
    if -delta > int(info.max) - int(info.min):
        return np.full_like(values, info.min)
    return _shift(np.maximum(values, values.dtype.type(int(info.min) - delta)), delta)


def _shift(values: Array, delta: int) -> Array:
    """Add modulo the type's width; exact because the caller has made sure that the sum fits."""
    word = np.dtype(f"u{values.dtype.itemsize}")
    modulus = 1 << (values.dtype.itemsize * 8)
    with np.errstate(over="ignore"):
        moved: Array = (values.view(word) + word.type(delta % modulus)).view(values.dtype)
    return moved


def band(words: Array, below: int, above: int) -> tuple[Array, Array]:
    """Return each word minus `below` and plus `above`, both saturating: the bounds of an integer band."""
    return saturating_add(words, -below), saturating_add(words, above)


def repeated(value: int, rows: int, dtype: type = np.int64) -> Array:
    """Return an array of `rows` equal values that stores one value only (like NumPy's `broadcast_to`, but faster)."""
    return np.ndarray((rows,), dtype, np.array([value], dtype), strides=(0,))


@lru_cache(maxsize=1 << 10)
def constant(value: int, rows: int, dtype: type = np.int64) -> Array:
    """Return the same for values that occur again and again: the array is shared, and must not be changed."""
    return repeated(value, rows, dtype)


# Most masks are all true. Such a mask stores one value with stride 0, so checking it does not read every row.


def true_mask(rows: int) -> Mask:
    """Return a mask that is true everywhere."""
    return constant(True, rows, np.bool_)


def all_true(mask: Mask) -> bool:
    """Return whether a mask is true everywhere."""
    if mask.strides == (0,):
        return not len(mask) or bool(mask[0])
    return bool(mask.all())


def count_true(mask: Mask) -> int:
    """Count the true values of a mask."""
    return len(mask) if all_true(mask) else int(np.count_nonzero(mask))


def mask_and(a: Mask, b: Mask) -> Mask:
    """Return the logical and of two masks; without a copy if one of them is true everywhere."""
    if a is b or all_true(b):
        return a
    return b if all_true(a) else a & b
