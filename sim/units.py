"""The units of the simulated engine as the host sees them: their buffers and scalars, and whether a launch fits them.

The same buffers and scalars as on every device (`host/bisort_*.py`), and two more ways: `bisort_merger` may be given an
index buffer and a step, and samples the merged run as it goes; `bisort_band_prober` makes its bounds from keys.
Limits: those of the engine's registers, 2**31 rows and steps that are powers of two from 8 on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from millrace.host.device import Buffer
from millrace.host.errors import DeviceFault
from millrace.hw.registers import MAX_LENGTH

Scalars = Mapping[str, int]
Amount = Callable[[Scalars], int]


@dataclass(frozen=True)
class Slot:
    """One buffer: whether it holds words (or ids and positions), and how many elements are used."""

    name: str
    words: bool
    size: Amount
    written: bool = False


@dataclass(frozen=True)
class Unit:
    """One way to launch a unit."""

    slots: tuple[Slot, ...]
    scalars: tuple[str, ...]
    rows: Amount


def _count(name: str) -> Amount:
    return lambda scalars: scalars[name]


def _merged(scalars: Scalars) -> int:
    return scalars["a_n"] + scalars["b_n"]


def _samples(scalars: Scalars) -> int:
    return -(-scalars["n"] // scalars["step"])


def _merged_samples(scalars: Scalars) -> int:
    return -(-_merged(scalars) // scalars["step"])


_A, _B, _N, _M = _count("a_n"), _count("b_n"), _count("n"), _count("m")
_RUNS = (
    Slot("a_words", True, _A),
    Slot("a_ids", False, _A),
    Slot("b_words", True, _B),
    Slot("b_ids", False, _B),
    Slot("out_words", True, _merged, written=True),
    Slot("out_ids", False, _merged, written=True),
)
_RUN = (Slot("words", True, _N), Slot("index", True, _samples))
_FOUND = (Slot("starts", False, _M, written=True), Slot("ends", False, _M, written=True))
_INDEXED = Slot("index", True, _merged_samples, written=True)
UNITS: dict[str, tuple[Unit, ...]] = {
    "bisort_merger": (
        Unit(_RUNS, ("a_n", "b_n"), _merged),
        Unit((*_RUNS, _INDEXED), ("a_n", "b_n", "step"), _merged),
    ),
    "bisort_indexer": (Unit((_RUN[0], Slot("index", True, _samples, written=True)), ("n", "step"), _samples),),
    "bisort_prober": (Unit((*_RUN, Slot("low", True, _M), Slot("high", True, _M), *_FOUND), ("n", "step", "m"), _M),),
    "bisort_band_prober": (
        Unit((*_RUN, Slot("keys", True, _M), *_FOUND), ("n", "step", "m", "below", "above", "least", "most"), _M),
    ),
}
COUNTS = frozenset({"a_n", "b_n", "n", "m"})


@dataclass(frozen=True)
class Work:
    """A launch that fits: the scalars by name, the type of its words, and the rows that pass."""

    scalars: dict[str, int]
    word: np.dtype[Any]
    rows: int
    unit: Unit


def check(device: str, name: str, buffers: Sequence[Buffer], scalars: Sequence[int]) -> Work:
    """The work of a launch, or a `DeviceFault` that says what does not fit."""
    ways = UNITS.get(name)
    if ways is None:
        raise DeviceFault(f"device {device!r} has no unit {name!r}; it has {', '.join(sorted(UNITS))}")
    given = len(buffers), len(scalars)
    unit = next((way for way in ways if (len(way.slots), len(way.scalars)) == given), None)
    if unit is None:
        told = " or ".join(f"the buffers {_names(way.slots)} and the scalars {', '.join(way.scalars)}" for way in ways)
        raise DeviceFault(f"{name} takes {told}; given {given[0]} buffers and {given[1]} scalars")
    values = dict(zip(unit.scalars, (int(value) for value in scalars), strict=True))
    _check_scalars(name, values)
    if unit.rows(values) > MAX_LENGTH:
        raise DeviceFault(f"{name}: {unit.rows(values)} rows, at most {MAX_LENGTH} are allowed: cut the runs")
    return Work(values, _check_buffers(name, unit, buffers, values), unit.rows(values), unit)


def _names(slots: Sequence[Slot]) -> str:
    return ", ".join(slot.name for slot in slots)


def _check_scalars(name: str, values: Scalars) -> None:
    for scalar, value in values.items():
        if scalar in COUNTS and not 0 <= value <= MAX_LENGTH:
            raise DeviceFault(f"{name}: {scalar}={value}, allowed are 0 to {MAX_LENGTH}")
        if scalar == "step" and value < 1:
            raise DeviceFault(f"{name}: step={value}, it must be positive")


def _check_buffers(name: str, unit: Unit, buffers: Sequence[Buffer], values: Scalars) -> np.dtype[Any]:
    """The type of the words, which all buffers of words share."""
    word = buffers[0].dtype
    if word not in (np.dtype(np.uint32), np.dtype(np.uint64)):
        raise DeviceFault(f"{name}: {unit.slots[0].name} holds {word}, words are uint32 or uint64")
    for slot, buffer in zip(unit.slots, buffers, strict=True):
        wanted = word if slot.words else np.dtype(np.uint32)
        if buffer.dtype != wanted:
            raise DeviceFault(f"{name}: {slot.name} holds {buffer.dtype}, it must hold {wanted}")
        if buffer.size < slot.size(values):
            told = ", ".join(f"{scalar}={value}" for scalar, value in values.items())
            raise DeviceFault(f"{name}: {slot.name} has {buffer.size} elements, {told} needs {slot.size(values)}")
        if slot.written and sum(other is buffer for other in buffers) > 1:
            raise DeviceFault(f"{name}: {slot.name} is written to, so it must be a buffer of its own")
    return word
