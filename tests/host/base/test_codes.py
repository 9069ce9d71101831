"""Codes: equal values, and only those, have equal codes, whatever their Arrow type; codes nobody holds are dropped."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

from millrace.host.base import codes as codes_module
from millrace.host.base.codes import NO_VALUE, CodeTable, code_type

TEXTS = ["a", "", None, "é", "é", "a", "A", "a ", "a\x00"]
BYTES = [b"\x00", b"", None, b"\xff\x00", b"\x00", b"ab"]
TEXT_TYPES = [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())]
BINARY_TYPES = [pa.binary(), pa.large_binary(), pa.binary_view(), pa.dictionary(pa.int32(), pa.binary())]
DECIMALS = [Decimal("1.20"), Decimal("-1.20"), None, Decimal("0.00"), Decimal("1.20")]


def encode(table: CodeTable, values: list, data_type: pa.DataType) -> list:
    kind = code_type(data_type)
    assert kind is not None
    codes, valid = table.encode(pa.array(values, data_type), kind)
    assert codes.dtype == np.int64
    return [code if ok else None for code, ok in zip(codes.tolist(), valid.tolist(), strict=True)]


def check_same(values: list, codes: list) -> None:
    """Two codes are equal exactly if the values are; a null has none."""
    assert [code is None for code in codes] == [value is None for value in values]
    for a, x in zip(codes, values, strict=True):
        for b, y in zip(codes, values, strict=True):
            assert (a == b) == (x == y)


@pytest.mark.parametrize(
    ("values", "kinds"),
    [
        (TEXTS, TEXT_TYPES),
        (BYTES, BINARY_TYPES),
        ([b"ab", b"cd", None, b"ab"], [pa.binary(2), pa.binary()]),
        ([True, None, False, True], [pa.bool_()]),
        (DECIMALS, [pa.decimal128(5, 2), pa.decimal128(38, 2), pa.decimal256(60, 2)]),
    ],
)
def test_equal_values_have_equal_codes_in_every_type(values: list, kinds: list) -> None:
    table = CodeTable()
    found = [encode(table, values, kind) for kind in kinds]
    assert all(codes == found[0] for codes in found)
    check_same(values, found[0])
    assert encode(table, values[::-1], kinds[0]) == found[0][::-1]


@pytest.mark.parametrize("data_type", [pa.decimal32(5, 2), pa.decimal64(9, 2)])
def test_small_decimals_are_those_of_any_width(data_type: pa.DataType) -> None:
    table = CodeTable()
    assert encode(table, DECIMALS, data_type) == encode(table, DECIMALS, pa.decimal128(5, 2))


def test_decimals_of_every_size_are_exact() -> None:
    values = [Decimal(10**37), Decimal(10**37 + 1), Decimal(-(10**37)), Decimal(1)]
    table = CodeTable()
    check_same(values, encode(table, values, pa.decimal128(38, 0)))


def test_chunks_and_slices_are_read_as_they_are() -> None:
    table = CodeTable()
    kind = code_type(pa.string())
    assert kind is not None
    chunked = pa.chunked_array([["a", "b"], [], ["b", None]])
    codes, valid = table.encode(chunked, kind)
    assert valid.tolist() == [True, True, True, False]
    assert codes[1] == codes[2] != codes[0]
    sliced, _ = table.encode(pa.array(["x", "b", "a"]).slice(1), kind)
    assert sliced.tolist() == [codes[1], codes[0]]
    assert table.encode(pa.array([], pa.string()), kind)[0].tolist() == []


def test_families_are_distinct() -> None:
    names = {
        str(code_type(t)) for t in (pa.string(), pa.binary(), pa.bool_(), pa.decimal128(5, 1), pa.decimal128(5, 2))
    }
    assert len(names) == 5
    for other in (pa.int64(), pa.float64(), pa.timestamp("s"), pa.list_(pa.int8()), pa.struct([]), pa.null()):
        assert code_type(other) is None


def test_literals_have_the_codes_of_their_values() -> None:
    table = CodeTable()
    text, decimal = code_type(pa.string()), code_type(pa.decimal128(9, 2))
    assert text is not None
    assert decimal is not None
    code = table.literal("é", text)
    assert encode(table, ["é", "e"], pa.string())[0] == code
    one = encode(table, [Decimal("1.50"), Decimal("1.51")], pa.decimal128(9, 2))
    assert table.literal(Fraction(3, 2), decimal) == one[0]
    assert table.literal(Fraction(1505, 1000), decimal) == NO_VALUE
    assert NO_VALUE not in one
    for value in (False, True):
        assert [table.literal(value, code_type(pa.bool_()))] == encode(table, [value], pa.bool_())  # type: ignore[arg-type]


def test_values_that_no_row_holds_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codes_module, "MIN_SWEEP", 10)
    table = CodeTable()
    kind = code_type(pa.string())
    assert kind is not None
    pinned = table.literal("pinned", kind)
    sizes: list[int] = []
    seen: set[int] = set()
    for batch in range(50):
        values = [f"{batch}-{i}" for i in range(20)]
        held, _ = table.encode(pa.array(values), kind)
        assert seen.isdisjoint(held.tolist())  # a code is never used for another value
        seen.update(held.tolist())
        if table.due:
            table.sweep([held])
            assert table.encode(pa.array(values), kind)[0].tolist() == held.tolist()
        sizes.append(len(table))
    assert max(sizes) < 5 * 20
    assert table.literal("pinned", kind) == pinned
    table.sweep([])
    assert len(table) == 1
