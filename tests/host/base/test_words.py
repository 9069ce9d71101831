"""Words: they sort like the values they encode, for every key type, and their arithmetic never wraps."""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millrace.host.base.errors import KeyTypeError
from millrace.host.base.words import band, from_words, key_type, native, saturating_add, to_words, usable

quick = settings(deadline=None, max_examples=40)


def integers(bits: int, signed: bool) -> st.SearchStrategy[int]:
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    near = [v for v in (low, low + 1, -1, 0, 1, high - 1, high) if low <= v <= high]
    return st.sampled_from(near) | st.integers(low, high) | st.integers(max(low, -3), 3)


def floats(width: Literal[32, 64]) -> st.SearchStrategy[float]:
    tiny, huge = (1.401298464324817e-45, 3.4028234663852886e38) if width == 32 else (5e-324, 1.7976931348623157e308)
    special = [0.0, -0.0, math.inf, -math.inf, tiny, -tiny, huge, -huge, 1.0, -1.0]
    return st.sampled_from(special) | st.floats(allow_nan=False, width=width)


# Every key type: its Arrow type, the values that Arrow stores, the bits of its words.
DATE64_DAY = 86_400_000
KINDS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any], int]] = {
    "int8": (pa.int8(), integers(8, True), 32),
    "int16": (pa.int16(), integers(16, True), 32),
    "int32": (pa.int32(), integers(32, True), 32),
    "int64": (pa.int64(), integers(64, True), 64),
    "uint8": (pa.uint8(), integers(8, False), 32),
    "uint16": (pa.uint16(), integers(16, False), 32),
    "uint32": (pa.uint32(), integers(32, False), 32),
    "uint64": (pa.uint64(), integers(64, False), 64),
    "float32": (pa.float32(), floats(32), 32),
    "float64": (pa.float64(), floats(64), 64),
    "date32": (pa.date32(), integers(32, True), 32),
    "date64": (pa.date64(), st.integers(-(10**9), 10**9).map(lambda d: d * DATE64_DAY), 64),
    "timestamp[s]": (pa.timestamp("s"), integers(64, True), 64),
    "timestamp[ms]": (pa.timestamp("ms"), integers(64, True), 64),
    "timestamp[us, tz]": (pa.timestamp("us", "Europe/Berlin"), integers(64, True), 64),
    "timestamp[ns]": (pa.timestamp("ns"), integers(64, True), 64),
}
every_kind = pytest.mark.parametrize("name", KINDS)


def column(data_type: pa.DataType, values: list[Any]) -> pa.Array:
    """Make an array from its stored values (days, ticks or numbers), without Arrow's conversions."""
    if pa.types.is_floating(data_type):
        return pa.array(values, data_type, from_pandas=False)
    width = data_type.bit_width
    kind = f"{'uint' if pa.types.is_unsigned_integer(data_type) else 'int'}{width}"
    plain = pa.array(values, pa.type_for_alias(kind))
    return plain if plain.type == data_type else plain.view(data_type)


@every_kind
@quick
@given(data=st.data())
def test_words_sort_as_the_values_do(name: str, data: st.DataObject) -> None:
    data_type, strategy, bits = KINDS[name]
    values = data.draw(st.lists(strategy, max_size=20))
    kind = key_type("r.x", data_type)
    held, valid = native(column(data_type, values), kind)
    words = to_words(held)
    assert valid.all()
    assert words.dtype == kind.word == np.dtype(f"u{bits // 8}")
    for a, x in zip(values, words, strict=True):
        for b, y in zip(values, words, strict=True):
            assert (a < b) == bool(x < y)
            assert (a == b) == bool(x == y)


@every_kind
@quick
@given(data=st.data())
def test_from_words_undoes_to_words(name: str, data: st.DataObject) -> None:
    data_type, strategy, _ = KINDS[name]
    values = data.draw(st.lists(strategy, max_size=20))
    kind = key_type("r.x", data_type)
    held, _ = native(column(data_type, values), kind)
    back = from_words(to_words(held), kind.dtype)
    assert back.dtype == kind.dtype
    assert back.tolist() == values


@every_kind
@quick
@given(data=st.data())
def test_nulls_and_nan_have_no_word_at_any_position(name: str, data: st.DataObject) -> None:
    data_type, strategy, _ = KINDS[name]
    nothing = [None, math.nan] if pa.types.is_floating(data_type) else [None]
    values = data.draw(st.lists(strategy | st.sampled_from(nothing), max_size=20))
    start = data.draw(st.integers(0, len(values)))
    cut = data.draw(st.integers(start, len(values)))
    array = column(data_type, values)
    chunked = pa.chunked_array([array[start:cut], array[cut:]], type=data_type)
    usable = [v is not None and v == v for v in values[start:]]
    kind = key_type("r.x", data_type)
    for given_column in (array[start:], chunked):
        held, valid = native(given_column, kind)
        assert valid.tolist() == usable
        assert held.tolist() == [v if u else 0 for v, u in zip(values[start:], usable, strict=True)]


@pytest.mark.parametrize("data_type", [pa.float32(), pa.float64()])
def test_minus_zero_is_zero(data_type: pa.DataType) -> None:
    kind = key_type("r.x", data_type)
    held, valid = native(pa.array([-0.0, 0.0], data_type), kind)
    assert valid.all()
    assert to_words(held)[0] == to_words(held)[1]
    raw = np.array([-0.0, 0.0], kind.dtype)
    assert to_words(raw)[0] == to_words(raw)[1]


@pytest.mark.parametrize("data_type", [k[0] for k in KINDS.values()], ids=str)
def test_a_column_of_nulls_and_an_empty_one_are_read(data_type: pa.DataType) -> None:
    kind = key_type("r.x", data_type)
    held, valid = native(pa.nulls(3, data_type), kind)
    assert held.dtype == kind.dtype
    assert held.tolist() == [0, 0, 0]
    assert not valid.any()
    empty, none = native(pa.chunked_array([], data_type), kind)
    assert empty.dtype == kind.dtype
    assert len(empty) == len(none) == 0


@pytest.mark.parametrize(
    ("data_type", "ns", "zoned"),
    [
        (pa.date32(), 86_400 * 10**9, False),
        (pa.date64(), 10**6, False),
        (pa.timestamp("s"), 10**9, False),
        (pa.timestamp("ms", "UTC"), 10**6, True),
        (pa.timestamp("us"), 10**3, False),
        (pa.timestamp("ns", "+02:00"), 1, True),
        (pa.int64(), 1, False),
    ],
    ids=str,
)
def test_a_time_type_has_its_tick_and_whether_it_is_zoned(data_type: pa.DataType, ns: int, zoned: bool) -> None:
    kind = key_type("r.ts", data_type)
    assert (kind.ns, kind.zoned) == (ns, zoned)


@pytest.mark.parametrize(
    "data_type",
    [
        pa.string(),
        pa.large_string(),
        pa.binary(),
        pa.bool_(),
        pa.decimal128(10, 2),
        pa.list_(pa.int64()),
        pa.struct([("a", pa.int64())]),
        pa.dictionary(pa.int32(), pa.int64()),
        pa.duration("s"),
        pa.time64("us"),
        pa.float16(),
        pa.null(),
    ],
    ids=str,
)
def test_a_type_that_cannot_be_a_key_is_refused_by_name(data_type: pa.DataType) -> None:
    with pytest.raises(KeyTypeError) as caught:
        key_type("r.x", data_type)
    message = str(caught.value)
    assert "r.x" in message
    assert str(data_type) in message
    for allowed in ("int64", "uint64", "float32", "float64", "date32", "timestamp"):
        assert allowed in message
    assert "cast" in message


INTEGER_DTYPES = [np.int32, np.uint32, np.int64, np.uint64]


@pytest.mark.parametrize("dtype", INTEGER_DTYPES)
@quick
@given(data=st.data())
def test_saturating_add_is_python_addition_clamped_to_the_type(dtype: type, data: st.DataObject) -> None:
    info = np.iinfo(dtype)
    low, high = int(info.min), int(info.max)
    values = [low, 0, high, *data.draw(st.lists(integers(info.bits, info.kind == "i"), max_size=10))]
    deltas = [0, 1, -1, high, -high, high - low, low - high, 2**64, -(2**64), 2**200]
    array: Any = np.array(values, dtype)
    for delta in [*deltas, data.draw(st.integers(-(2**66), 2**66) | st.integers(-3, 3))]:
        result = saturating_add(array, delta)
        assert result.dtype == array.dtype
        assert result.tolist() == [min(max(v + delta, low), high) for v in values]
    assert array.tolist() == values


@quick
@given(
    words=st.lists(integers(64, False), max_size=10),
    below=st.integers(0, 2**65),
    above=st.integers(0, 2**65),
)
def test_a_band_of_words_ends_where_the_type_ends(words: list[int], below: int, above: int) -> None:
    low, high = band(np.array(words, np.uint64), below, above)
    assert low.tolist() == [max(w - below, 0) for w in words]
    assert high.tolist() == [min(w + above, 2**64 - 1) for w in words]


NAN = float("nan")


@pytest.mark.parametrize(
    ("values", "data_type", "expected"),
    [
        ([1.0, None, NAN, -0.0, float("inf")], pa.float64(), [True, False, False, True, True]),
        ([NAN, 2.5], pa.float32(), [False, True]),
        ([None, 3], pa.int64(), [False, True]),
        (["", None], pa.string(), [True, False]),
        ([None, None], pa.float64(), [False, False]),
        ([None, None], pa.null(), [False, False]),
        ([], pa.float64(), []),
    ],
)
def test_a_key_is_usable_if_it_is_neither_null_nor_nan(values: list, data_type: pa.DataType, expected: list) -> None:
    """The same rule for arrays, slices and chunks."""
    array = pa.array(values, data_type)
    assert usable(array).tolist() == expected
    assert usable(array.slice(1)).tolist() == expected[1:]
    assert usable(pa.chunked_array([array, array.slice(1)])).tolist() == expected + expected[1:]
    assert usable(pa.chunked_array([], data_type)).tolist() == []
