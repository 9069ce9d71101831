"""Column kinds: every key type of the contract, its extremes, and its values for Arrow and for the oracle.

A column's values are stored raw: the integer or float that Arrow stores, or None. `Kind.arrow` converts them to an
Arrow array, `Kind.known` to the oracle's values.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from tests.oracle import Instant, Value

Raw = int | float | None
UNITS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
DAY = 86400 * 10**9


@dataclass(frozen=True)
class Kind:
    """A column type. `unit` is the length of one tick in nanoseconds; 0 for numbers."""

    name: str
    type: pa.DataType
    low: int = 0
    high: int = 0
    unit: int = 0
    step: int = 1  # stored values are multiples of this (date64 holds whole days)
    zoned: bool = False

    @property
    def is_float(self) -> bool:
        return bool(pa.types.is_floating(self.type))

    @property
    def is_temporal(self) -> bool:
        return self.unit > 0

    @property
    def is_integer(self) -> bool:
        return not (self.is_float or self.is_temporal)

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
        near = (0, 1, -1, self.low, self.low + self.step, self.high, self.high - self.step)
        return [self.store(value) for value in near]

    def known(self, raw: Raw) -> Value:
        """Returns the oracle's value."""
        return Instant(int(raw) * self.unit) if self.is_temporal and raw is not None else raw

    def arrow(self, raws: Sequence[Raw]) -> pa.Array:
        return pa.array(raws, self.type, from_pandas=False)


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


KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in [
        *_integers(),
        Kind("float32", pa.float32()),
        Kind("float64", pa.float64()),
        *_temporals(),
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
