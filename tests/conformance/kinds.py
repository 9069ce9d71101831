"""Column kinds: every key type of the contract, its extremes, and its values for Arrow and for the oracle.

A column's values are stored raw: the integer or float that Arrow stores, or None; for text, binary, booleans and
decimals, which have no order, the number of a value. `Kind.arrow` converts them to an Arrow array, `Kind.known` to the
oracle's values.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pyarrow as pa

from tests.oracle import Instant, Value

Raw = int | float | None
UNITS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
DAY = 86400 * 10**9


@dataclass(frozen=True)
class Kind:
    """A column type. `unit` is the length of one tick in nanoseconds; 0 for numbers.

    `value` gives the values of a type that only `=` and `<>` compare, by their number. `given` is the type in which a
    user passes the column, if it is not the one in which it comes back.
    """

    name: str
    type: pa.DataType
    low: int = 0
    high: int = 0
    unit: int = 0
    step: int = 1  # stored values are multiples of this (date64 holds whole days)
    zoned: bool = False
    value: Callable[[int], Any] | None = None
    given: pa.DataType | None = None

    @property
    def is_float(self) -> bool:
        return bool(pa.types.is_floating(self.type))

    @property
    def is_temporal(self) -> bool:
        return self.unit > 0

    @property
    def is_integer(self) -> bool:
        return not (self.is_float or self.is_temporal or self.value)

    def store(self, number: float) -> Raw:
        """Returns the nearest storable value at or below a number of ticks; integers are clamped to the type."""
        if self.is_float:
            return to_float32(float(number)) if self.name == "float32" else float(number)
        ticks = math.floor(number) // self.step * self.step
        return min(max(ticks, self.low), self.high)

    def extremes(self) -> list[Raw]:
        if self.is_float:
            big, small = (3.4028234663852886e38, 1e-45) if self.name == "float32" else (1.7976931348623157e308, 5e-324)
            return [math.inf, -math.inf, 0.0, -0.0, *map(self.store, (big, -big, small, -small, 1.0))]
        if self.value:
            return list(range(len(TEXTS)))
        near = (0, 1, -1, self.low, self.low + self.step, self.high, self.high - self.step)
        return [self.store(value) for value in near]

    def known(self, raw: Raw) -> Value:
        """Returns the oracle's value."""
        if raw is None or not (self.is_temporal or self.value):
            return raw
        if self.is_temporal:
            return Instant(int(raw) * self.unit)
        value: Value = self.value(int(raw)) if self.value else None
        return Fraction(value) if isinstance(value, Decimal) else value

    def arrow(self, raws: Sequence[Raw]) -> pa.Array:
        make = self.value
        values = raws if make is None else [None if raw is None else make(int(raw)) for raw in raws]
        return pa.array(values, self.type, from_pandas=False)

    def literal(self, number: int) -> str:
        """Returns a value that only `=` and `<>` compare as it is written in a condition."""
        value = self.known(number)
        if isinstance(value, bool):
            return str(value).upper()
        if isinstance(value, bytes):
            return f"X'{value.hex()}'"
        return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else f"{float(value):.4f}"  # type: ignore[arg-type]


def to_float32(value: float) -> float:
    try:
        return float(struct.unpack("f", struct.pack("f", value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


def _integers() -> list[Kind]:
    kinds = []
    for bits in (8, 16, 32, 64):
        kinds.append(Kind(f"int{bits}", getattr(pa, f"int{bits}")(), -(2 ** (bits - 1)), 2 ** (bits - 1) - 1))
        kinds.append(Kind(f"uint{bits}", getattr(pa, f"uint{bits}")(), 0, 2**bits - 1))
    return kinds


def _temporals() -> list[Kind]:
    low, high = -(2**63), 2**63 - 1
    day_ms = DAY // 10**6
    kinds = [
        Kind("date32", pa.date32(), -(2**31), 2**31 - 1, DAY),
        Kind("date64", pa.date64(), low // day_ms * day_ms + day_ms, high // day_ms * day_ms, 10**6, day_ms),
    ]
    for unit, ns in UNITS.items():
        kinds.append(Kind(f"timestamp_{unit}", pa.timestamp(unit), low, high, ns))
        for name, zone in (("utc", "UTC"), ("berlin", "Europe/Berlin"), ("offset", "+02:00")):
            kinds.append(Kind(f"timestamp_{unit}_{name}", pa.timestamp(unit, zone), low, high, ns, zoned=True))
    return kinds


TEXTS = ("", "a", "A", "a ", "a\x00", "é", "e\u0301", "it's", "longer than the twelve bytes of a view", "\U0001f642")
BYTES = (b"", b"\x00", b"\x00\x00", b"\xff", b"a")


def _text(number: int) -> str:
    return TEXTS[number] if number < len(TEXTS) else f"text {number}"


def _bytes(number: int) -> bytes:
    return BYTES[number] if number < len(BYTES) else number.to_bytes(4, "big")


def _two_bytes(number: int) -> bytes:
    return number.to_bytes(2, "little")


def _decimal(number: int) -> Decimal:
    return Decimal((number - 4) * 25).scaleb(-2)


def _unordered() -> list[Kind]:
    top = 10**4

    def kind(name: str, type_: pa.DataType, value: Callable[[int], Any], given: pa.DataType | None = None) -> Kind:
        return Kind(name, type_, 0, top, value=value, given=given)

    return [
        kind("string", pa.string(), _text),
        kind("large_string", pa.large_string(), _text),
        kind("string_view", pa.large_string(), _text, pa.string_view()),
        kind("dictionary", pa.dictionary(pa.int32(), pa.string()), _text, pa.dictionary(pa.int16(), pa.string())),
        kind("binary", pa.binary(), _bytes),
        kind("large_binary", pa.large_binary(), _bytes),
        kind("binary_view", pa.large_binary(), _bytes, pa.binary_view()),
        kind("binary_dictionary", pa.dictionary(pa.int64(), pa.large_binary()), _bytes),
        kind("two_bytes", pa.binary(), _two_bytes),
        kind("fixed_binary", pa.binary(2), _two_bytes),
        kind("bool", pa.bool_(), lambda number: number % 2 == 1),
        kind("decimal32", pa.decimal32(6, 2), _decimal),
        kind("decimal64", pa.decimal64(12, 2), _decimal),
        kind("decimal128", pa.decimal128(12, 2), _decimal),
        kind("decimal128_wide", pa.decimal128(38, 2), _decimal),
        kind("decimal256", pa.decimal256(60, 2), _decimal),
    ]


KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in [
        *_integers(),
        Kind("float32", pa.float32()),
        Kind("float64", pa.float64()),
        *_temporals(),
        *_unordered(),
    ]
}

KEY_KINDS: list[tuple[str, str]] = [
    *[(name, name) for name in ("int32", "uint32", "int64", "uint64", "float32", "float64") for _ in range(3)],
    ("int32", "int64"),
    ("int64", "int32"),
    ("uint32", "int32"),
    ("int64", "uint64"),
    ("uint64", "int32"),
    ("int8", "uint16"),
    ("uint8", "int16"),
    ("float32", "float64"),
    ("float64", "float32"),
    ("int32", "float64"),
    ("float32", "int64"),
    ("uint64", "float64"),
    ("float64", "int64"),
    ("timestamp_us", "timestamp_us"),
    ("timestamp_ns", "timestamp_ns"),
    ("timestamp_s", "timestamp_ms"),
    ("timestamp_ns", "timestamp_s"),
    ("timestamp_us_utc", "timestamp_us_utc"),
    ("timestamp_ms_berlin", "timestamp_us_offset"),
    ("timestamp_ns_utc", "timestamp_s_berlin"),
    ("date32", "date32"),
    ("date32", "date64"),
    ("date64", "timestamp_us"),
    ("timestamp_s", "date32"),
]
"""The kinds of the two sides' keys: alike, of mixed widths, signs, units and zones, or int against float."""

CODE_KINDS: list[tuple[str, str]] = [
    ("string", "string"),
    ("string", "large_string"),
    ("string_view", "string"),
    ("dictionary", "dictionary"),
    ("dictionary", "string_view"),
    ("binary", "binary"),
    ("large_binary", "binary_dictionary"),
    ("binary_view", "binary"),
    ("fixed_binary", "fixed_binary"),
    ("fixed_binary", "two_bytes"),
    ("bool", "bool"),
    ("decimal128", "decimal128"),
    ("decimal128", "decimal128_wide"),
    ("decimal256", "decimal32"),
    ("decimal64", "decimal64"),
]
"""The kinds of the two sides' columns that only `=` and `<>` compare."""

TIME_KINDS: list[tuple[str, str]] = [
    ("int64", "int64"),
    ("timestamp_us", "timestamp_us"),
    ("timestamp_ns", "timestamp_ns"),
    ("timestamp_s", "timestamp_s"),
    ("int32", "int64"),
    ("uint64", "int32"),
    ("uint32", "uint32"),
    ("timestamp_s", "timestamp_ms"),
    ("timestamp_ns", "timestamp_s"),
    ("timestamp_ms", "timestamp_us"),
    ("timestamp_us_utc", "timestamp_us_berlin"),
    ("timestamp_s_offset", "timestamp_ns_utc"),
    ("date32", "date32"),
    ("date64", "date32"),
    ("date32", "timestamp_ms"),
]
"""The kinds of the two time columns."""
