"""What every GPU driver needs to know about the units: their buffers, scalars, sources, and how much work a launch is.

A unit is one file in `kernels/`, whose only kernel has the unit's name and takes the buffers and then the scalars, in
the order of the table below. Kernels trust what they are given, and a wrong size would write over other memory, so
each launch is checked here first. Words are uint32 or uint64, alike in all buffers of a launch; scalars and all other
buffers are uint32. Limit: a run, a merged one included, has at most 2**31 rows, so that positions fit 32 bits.
BI-Sort's units: PanJoin, III-D, III-E and IV.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from millrace.host.device import Buffer
from millrace.host.errors import DeviceFault

KERNELS = Path(__file__).parent / "kernels"
HEADER = "portable.h"
GROUP = 128
"""Work items of a group, unless the device allows fewer."""
LONGEST = 1 << 31
"""The most rows of a run."""

Scalars = Mapping[str, int]
Amount = Callable[[Scalars], int]


@dataclass(frozen=True)
class Slot:
    """One buffer of a unit: what it holds and how many elements the unit uses of it."""

    name: str
    words: bool
    size: Amount
    written: bool = False


@dataclass(frozen=True)
class Unit:
    """One kernel: `rows` pass through it in a launch, `items` of them through each work item."""

    name: str
    slots: tuple[Slot, ...]
    scalars: tuple[str, ...]
    rows: Amount
    items: int = 1


@dataclass(frozen=True)
class Work:
    """One launch, checked."""

    unit: Unit
    word_bits: int
    scalars: tuple[int, ...]
    rows: int

    def groups(self, group: int) -> int:
        """How many groups of that many work items; at least one, because no API starts none."""
        return max(1, -(-self.rows // (group * self.unit.items)))


def _count(name: str) -> Amount:
    return lambda scalars: scalars[name]


def _merged(scalars: Scalars) -> int:
    return scalars["a_n"] + scalars["b_n"]


def _merged_entries(scalars: Scalars) -> int:
    return -(-_merged(scalars) // scalars["step"])


def _entries(scalars: Scalars) -> int:
    return -(-scalars["n"] // scalars["step"])


_A, _B, _N, _M = _count("a_n"), _count("b_n"), _count("n"), _count("m")
_TABLE = (
    Unit(
        "bisort_merger",
        (
            Slot("a_words", True, _A),
            Slot("a_ids", False, _A),
            Slot("b_words", True, _B),
            Slot("b_ids", False, _B),
            Slot("out_words", True, _merged, written=True),
            Slot("out_ids", False, _merged, written=True),
            Slot("index", True, _merged_entries, written=True),
        ),
        ("a_n", "b_n", "step"),
        _merged,
        # Odd, so that work items that merge in step with each other touch different banks of shared memory.
        items=7,
    ),
    Unit(
        "bisort_indexer",
        (Slot("words", True, _N), Slot("index", True, _entries, written=True)),
        ("n", "step"),
        _entries,
    ),
    Unit(
        "bisort_prober",
        (
            Slot("words", True, _N),
            Slot("index", True, _entries),
            Slot("low", True, _M),
            Slot("high", True, _M),
            Slot("starts", False, _M, written=True),
            Slot("ends", False, _M, written=True),
        ),
        ("n", "step", "m"),
        _M,
    ),
)
UNITS: dict[str, Unit] = {unit.name: unit for unit in _TABLE}


def check(device: str, name: str, buffers: Sequence[Buffer], scalars: Sequence[int]) -> Work:
    """The work of a launch, or a `DeviceFault` that says what does not fit."""
    unit = UNITS.get(name)
    if unit is None:
        raise DeviceFault(f"device {device!r} has no unit {name!r}; it has {', '.join(sorted(UNITS))}")
    if (len(buffers), len(scalars)) != (len(unit.slots), len(unit.scalars)):
        slots = ", ".join(slot.name for slot in unit.slots)
        raise DeviceFault(
            f"{name} takes the buffers {slots} and the scalars {', '.join(unit.scalars)}; "
            f"given {len(buffers)} buffers and {len(scalars)} scalars"
        )
    values = dict(zip(unit.scalars, (int(value) for value in scalars), strict=True))
    _check_scalars(unit, values)
    word = _check_buffers(unit, buffers, values)
    return Work(unit, word.itemsize * 8, tuple(values.values()), unit.rows(values))


def _check_scalars(unit: Unit, values: Scalars) -> None:
    for name, value in values.items():
        least = 1 if name == "step" else 0
        if not least <= value <= LONGEST:
            raise DeviceFault(f"{unit.name}: {name}={value}, allowed are {least} to {LONGEST}")
    if unit.rows(values) > LONGEST:
        raise DeviceFault(f"{unit.name}: {unit.rows(values)} rows, at most {LONGEST} are allowed: cut the runs")


def _check_buffers(unit: Unit, buffers: Sequence[Buffer], values: Scalars) -> np.dtype[np.unsignedinteger]:
    """The type of the words, which all buffers of words share."""
    word: np.dtype[np.unsignedinteger] = buffers[0].dtype
    if word not in (np.dtype(np.uint32), np.dtype(np.uint64)):
        raise DeviceFault(f"{unit.name}: {unit.slots[0].name} holds {word}, words are uint32 or uint64")
    for slot, buffer in zip(unit.slots, buffers, strict=True):
        wanted = word if slot.words else np.dtype(np.uint32)
        if buffer.dtype != wanted:
            raise DeviceFault(f"{unit.name}: {slot.name} holds {buffer.dtype}, it must hold {wanted}")
        if buffer.size < slot.size(values):
            told = ", ".join(f"{name}={value}" for name, value in values.items())
            raise DeviceFault(
                f"{unit.name}: {slot.name} has {buffer.size} elements, {told} needs {slot.size(values)} of them"
            )
        if slot.written and sum(other is buffer for other in buffers) > 1:
            raise DeviceFault(f"{unit.name}: {slot.name} is written to, so it must be a buffer of its own")
    return word


@cache
def source(unit: str) -> str:
    """The whole text of a unit.

    The header's text stands in place of its #include: compilers need no search path then, and PoCL's cache, which
    looks only at the text it is given, notices a changed header.
    """
    text = (KERNELS / f"{unit}.cu").read_text(encoding="utf-8")
    include = f'#include "{HEADER}"\n'
    assert text.count(include) == 1, f"{unit}.cu must include {HEADER} once"
    return text.replace(include, (KERNELS / HEADER).read_text(encoding="utf-8"))


def defines(unit: Unit, word_bits: int, group: int = GROUP) -> dict[str, int]:
    """What a compiler must define for a unit's source."""
    return {"WORD_BITS": word_bits, "GROUP": group, "ITEMS": unit.items}
