"""What every device must know about the units: their buffers and scalars, in order, and whether a launch fits them.

A unit has the same buffers and scalars on every device that offers it. Kernels and hardware trust what they are given,
and a wrong size would write over other memory, so devices with a memory of their own check each launch here first.
Words are uint32 or uint64, alike in all buffers of a launch; all other buffers are uint32, and so are scalars, except
those that are words. Limit: a run, a merged one included, or a tree has at most 2**31 rows, so that positions fit 32
bits. What a tree's nodes hold is not looked at: a damaged one, or a start outside of its level, reads anywhere.
BI-Sort's units: PanJoin, III-D, III-E and IV. HB+-Tree's: thesis, appendix A, 5.2 and 5.3; `host/hbtree/layout.py`
tells how a tree lies in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from millrace.host.base.errors import DeviceFault
from millrace.host.device.contract import Buffer

LINE_BITS = 512
"""A line of a tree, 64 bytes."""
LONGEST = 1 << 31
"""The most rows of a run, and the most keys of a tree."""
WORDS = frozenset({"below", "above", "least", "most"})
"""Scalars that are words."""

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
    """One unit: `rows` pass through it in a launch."""

    name: str
    slots: tuple[Slot, ...]
    scalars: tuple[str, ...]
    rows: Amount


@dataclass(frozen=True)
class Work:
    """One launch, checked: the scalars by name."""

    unit: Unit
    word: np.dtype[np.unsignedinteger]
    scalars: dict[str, int]
    rows: int


def _count(name: str) -> Amount:
    return lambda scalars: scalars[name]


def _merged(scalars: Scalars) -> int:
    return scalars["a_n"] + scalars["b_n"]


def _merged_entries(scalars: Scalars) -> int:
    return -(-_merged(scalars) // scalars["step"])


def _entries(scalars: Scalars) -> int:
    return -(-scalars["n"] // scalars["step"])


def _starts(scalars: Scalars) -> int:
    return scalars["m"] if scalars["from"] else 0


def _lines(scalars: Scalars) -> int:
    """The least that an implicit tree of so many levels can have: a line each."""
    return scalars["levels"] * scalars["per_line"]


def _regular(scalars: Scalars) -> int:
    """The least that a regular tree can have: the upper levels, then one node without children's lines."""
    per_line = scalars["per_line"]
    return scalars["last"] + per_line * (1 + per_line) if scalars["levels"] else 0


_A, _B, _N, _M, _LEVELS = (_count(name) for name in ("a_n", "b_n", "n", "m", "levels"))
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
    Unit(
        "bisort_band_prober",
        (
            Slot("words", True, _N),
            Slot("index", True, _entries),
            Slot("keys", True, _M),
            Slot("starts", False, _M, written=True),
            Slot("ends", False, _M, written=True),
        ),
        ("n", "step", "m", "below", "above", "least", "most"),
        _M,
    ),
    Unit(
        "hb_search_implicit",
        (
            Slot("nodes", True, _lines),
            Slot("offsets", False, _LEVELS),
            Slot("queries", True, _M),
            Slot("at", False, _starts),
            Slot("leaves", False, _M, written=True),
        ),
        ("m", "from", "levels"),
        _M,
    ),
    Unit(
        "hb_search_regular",
        (
            Slot("nodes", True, _regular),
            Slot("queries", True, _M),
            Slot("at", False, _starts),
            Slot("leaves", False, _M, written=True),
        ),
        ("m", "from", "levels", "last"),
        _M,
    ),
    Unit(
        "hb_lookup",
        (
            Slot("nodes", True, _lines),
            Slot("offsets", False, _LEVELS),
            Slot("leaf_words", True, _N),
            Slot("queries", True, _M),
            Slot("found", False, _M, written=True),
        ),
        ("m", "levels", "n"),
        _M,
    ),
)
UNITS: dict[str, Unit] = {unit.name: unit for unit in _TABLE}


def check(device: str, offered: Collection[str], name: str, buffers: Sequence[Buffer], scalars: Sequence[int]) -> Work:
    """The work of a launch on a device that offers some units, or a `DeviceFault` that says what does not fit."""
    if name not in offered:
        raise DeviceFault(f"device {device!r} has no unit {name!r}; it has {', '.join(sorted(offered))}")
    unit = UNITS[name]
    if (len(buffers), len(scalars)) != (len(unit.slots), len(unit.scalars)):
        slots = ", ".join(slot.name for slot in unit.slots)
        raise DeviceFault(
            f"{name} takes the buffers {slots} and the scalars {', '.join(unit.scalars)}; "
            f"given {len(buffers)} buffers and {len(scalars)} scalars"
        )
    values = dict(zip(unit.scalars, (int(value) for value in scalars), strict=True))
    _check_scalars(unit, values)
    return Work(unit, _check_buffers(unit, buffers, values), values, unit.rows(values))


def _check_scalars(unit: Unit, values: Scalars) -> None:
    for name, value in values.items():
        if name in WORDS:
            continue
        least = 1 if name == "step" else 0
        if not least <= value <= LONGEST:
            raise DeviceFault(f"{unit.name}: {name}={value}, allowed are {least} to {LONGEST}")
    if values.get("from", 0) > values.get("levels", 0):
        raise DeviceFault(f"{unit.name}: from={values['from']}, but there are {values['levels']} levels to walk")
    if unit.rows(values) > LONGEST:
        raise DeviceFault(f"{unit.name}: {unit.rows(values)} rows, at most {LONGEST} are allowed: cut the runs")


def _check_buffers(unit: Unit, buffers: Sequence[Buffer], values: Scalars) -> np.dtype[np.unsignedinteger]:
    """The type of the words, which all buffers of words share."""
    word: np.dtype[np.unsignedinteger] = buffers[0].dtype
    if word not in (np.dtype(np.uint32), np.dtype(np.uint64)):
        raise DeviceFault(f"{unit.name}: {unit.slots[0].name} holds {word}, words are uint32 or uint64")
    known = {**values, "per_line": LINE_BITS // (8 * word.itemsize)}
    for slot, buffer in zip(unit.slots, buffers, strict=True):
        needed = slot.size(known)
        wanted = word if slot.words else np.dtype(np.uint32)
        if buffer.dtype != wanted:
            raise DeviceFault(f"{unit.name}: {slot.name} holds {buffer.dtype}, it must hold {wanted}")
        if buffer.size < needed:
            told = ", ".join(f"{name}={value}" for name, value in values.items())
            raise DeviceFault(f"{unit.name}: {slot.name} has {buffer.size} elements, {told} needs {needed} of them")
        if slot.written and sum(other is buffer for other in buffers) > 1:
            raise DeviceFault(f"{unit.name}: {slot.name} is written to, so it must be a buffer of its own")
    for name in WORDS & values.keys():
        if not 0 <= values[name] <= np.iinfo(word).max:
            raise DeviceFault(f"{unit.name}: {name}={values[name]}, it must be a word of {word}")
    return word
