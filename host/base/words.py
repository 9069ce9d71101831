"""Keys become words: unsigned 32- or 64-bit integers that sort the same way, the only keys a device ever sees.

Signed integers flip the sign bit; floats flip all bits of a negative number and the sign bit of a positive one, after
`-0.0` became `0.0`; dates and timestamps are signed integers of their own unit. Null and NaN have no word: they are
marked in a mask beside the words. Arithmetic at the ends of a type saturates and never wraps (PanJoin, III-F1, as
corrected: `[v, v+)` overflows at the largest key).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millrace.host.base.errors import KeyTypeError
from millrace.host.base.types import Array, Mask

Domain = Literal["int", "float", "time"]

NS_PER_UNIT = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
NS_PER_DAY = 86_400 * 10**9
KEY_TYPES = "int8..int64, uint8..uint64, float32, float64, date32, date64 and timestamps"


@dataclass(frozen=True)
class KeyType:
    """How a column's values are held (`dtype`) and what one of them means.

    `ns` is the length of a tick in nanoseconds (1 where it is not a time); a `zoned` timestamp is an instant in UTC.
    """

    name: str
    domain: Domain
    dtype: np.dtype[Any]
    ns: int = 1
    zoned: bool = False

    @property
    def word(self) -> np.dtype[Any]:
        """The unsigned type of the words: as wide as the values, at least 32 bits."""
        return np.dtype(np.uint32 if self.dtype.itemsize == 4 else np.uint64)


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
    """The key type of a column, or a `KeyTypeError` that names the column (`label`) and the types that work."""
    if pa.types.is_timestamp(data_type):
        ns = NS_PER_UNIT[data_type.unit]
        return KeyType(str(data_type), "time", np.dtype(np.int64), ns=ns, zoned=data_type.tz is not None)
    found = _NUMBERS.get(data_type)
    if found is None:
        raise KeyTypeError(
            f"column {label} has type {data_type}, which cannot be compared; the types that work are {KEY_TYPES}: "
            f"cast the column first"
        )
    return found


def native(column: pa.Array | pa.ChunkedArray, kind: KeyType) -> tuple[Array, Mask]:
    """A column as a NumPy array of `kind.dtype` and the mask of its usable values (neither null nor NaN).

    What stands at an unusable place is 0. `-0.0` becomes `0.0`. No copy is made where a view will do.
    """
    array = _one_piece(column) if isinstance(column, pa.ChunkedArray) else column
    physical = {"date32": np.int32, "float32": np.float32, "float64": np.float64}.get(kind.name)
    if physical is None:
        physical = np.int64 if kind.domain == "time" else np.dtype(kind.name).type
    buffer = array.buffers()[1]
    if buffer is None or len(array) == 0:
        return np.zeros(len(array), kind.dtype), np.zeros(len(array), np.bool_)
    start = array.offset
    values: Array = np.frombuffer(buffer, physical, count=start + len(array))[start:]
    valid = every(len(array))
    if array.null_count:
        valid = pc.is_valid(array).to_numpy(zero_copy_only=False)
        values = np.where(valid, values, values.dtype.type(0))
    if kind.domain == "float":
        finite_or_inf = ~np.isnan(values)
        if not finite_or_inf.all():
            valid = valid & finite_or_inf
            values = np.where(finite_or_inf, values, values.dtype.type(0))
        values = values + values.dtype.type(0)
    return values.astype(kind.dtype, copy=False), valid


def _one_piece(column: pa.ChunkedArray) -> pa.Array:
    """A column in one piece: itself if it is, since Arrow would copy even then."""
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def to_words(values: Array, out: Array | None = None) -> Array:
    """Words of usable values of a key dtype (int32, uint32, int64, uint64, float32 or float64).

    Those of signed integers go to `out`, where it is given.
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
    """The values that `to_words` made these words of."""
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
    """`values + delta` for an integer array, held at the ends of its type instead of wrapping round."""
    info = np.iinfo(values.dtype)
    if delta == 0 or len(values) == 0:
        return values
    if delta > 0:
        if delta > int(info.max) - int(info.min):
            return np.full_like(values, info.max)
        # The largest value that may still be moved is `max - delta`: clip there, then the addition cannot wrap.
        return _shift(np.minimum(values, values.dtype.type(int(info.max) - delta)), delta)
    if -delta > int(info.max) - int(info.min):
        return np.full_like(values, info.min)
    return _shift(np.maximum(values, values.dtype.type(int(info.min) - delta)), delta)


def _shift(values: Array, delta: int) -> Array:
    """Add modulo the type's width; right because the caller made sure that the true sum fits."""
    word = np.dtype(f"u{values.dtype.itemsize}")
    modulus = 1 << (values.dtype.itemsize * 8)
    with np.errstate(over="ignore"):
        moved: Array = (values.view(word) + word.type(delta % modulus)).view(values.dtype)
    return moved


def band(words: Array, below: int, above: int) -> tuple[Array, Array]:
    """The words `below` under and `above` over each word, both saturating: the bounds of an integer band."""
    return saturating_add(words, -below), saturating_add(words, above)


def repeated(value: int, rows: int, dtype: type = np.int64) -> Array:
    """One number as often as there are rows, with memory for one only: NumPy's `broadcast_to`, but quicker."""
    return np.ndarray((rows,), dtype, np.array([value], dtype), strides=(0,))


# Most masks are all true. Such a mask is one value repeated, and is known by its stride: nobody looks at every row.


def every(rows: int) -> Mask:
    """A mask that is true everywhere."""
    return repeated(True, rows, np.bool_)


def all_true(mask: Mask) -> bool:
    """Whether a mask is true everywhere."""
    return bool(mask[:1].all() if mask.strides == (0,) else mask.all())


def count_true(mask: Mask) -> int:
    """How often a mask is true."""
    return len(mask) if all_true(mask) else int(np.count_nonzero(mask))


def both(a: Mask, b: Mask) -> Mask:
    """Where two masks are true; one of them itself if the other is true everywhere."""
    if all_true(b):
        return a
    return b if all_true(a) else a & b
