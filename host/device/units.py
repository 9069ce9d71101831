"""The table of units: the buffers and scalars of each unit, in order, and a check of launches against it.

A unit has the same buffers and scalars on every device that offers it. Kernels and hardware do not check their
arguments, and a wrong size would overwrite other memory. So devices with their own memory `check` each launch first.
Words are uint32 or uint64, the same type in all buffers of a launch; all other buffers are uint32, and so are scalars,
except those in `WORDS`. Limits: a sorted run (also the result of a merge) or a tree has at most 2**31 rows, so that
positions fit in 32 bits. The contents of tree nodes are not checked: a damaged node, or a start node that is not in its
level, may read any memory. BI-Sort's units: PanJoin, III-D, III-E and IV. HB+-Tree's: thesis, appendix A, 5.2 and 5.3;
`hbtree/layout.py` describes the memory layout of a tree. SPO-Join's: section 3.4. ADS-kNN's: thesis, appendix C;
`knn/run.py` describes a run of points.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from millrace.host.base.errors import DeviceFault
from millrace.host.device.contract import Buffer

LINE_BITS = 512
"""Bits of a tree line: 64 bytes."""
MAX_ROWS = 1 << 31
"""The maximum number of rows of a sorted run, and of keys of a tree."""
BLOCK_ROWS = 1 << 16
"""The maximum number of positions of a block of `spo_bits`, whose ranks have 16 bits."""
TILE_ROWS = 1 << 10
"""`spo_bits` counts the matches of so many positions together."""
POINT_BLOCK = 32
"""Points of a block of a run, for `knn_select` and the CPU."""
BOX_FANOUT = 16
"""Boxes of a node over blocks or nodes."""
WORDS = frozenset({"below", "above", "least", "most"})
"""Names of the scalars that are words."""

Scalars = Mapping[str, int]
Amount = Callable[[Scalars], int]


@dataclass(frozen=True)
class Slot:
    """One buffer argument of a unit: what it holds, and how many elements the unit uses."""

    name: str
    words: bool
    size: Amount
    written: bool = False
    floats: bool = False
    """Whether a kernel reads the 32-bit numbers as floats."""


@dataclass(frozen=True)
class Unit:
    """The signature of a unit; a launch processes `rows` rows."""

    name: str
    slots: tuple[Slot, ...]
    scalars: tuple[str, ...]
    rows: Amount


@dataclass(frozen=True)
class Work:
    """A checked launch, with its scalars by name."""

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
    """Return the minimum size of an implicit tree: one line per level."""
    return scalars["levels"] * scalars["per_line"]


def _regular(scalars: Scalars) -> int:
    """Return the minimum size of a regular tree: the upper levels, then one node without its child lines."""
    per_line = scalars["per_line"]
    return scalars["last"] + per_line * (1 + per_line) if scalars["levels"] else 0


def _boxes(scalars: Scalars) -> int:
    """Return six bounds per query."""
    return 6 * scalars["m"]


def _bits(scalars: Scalars) -> int:
    return -(-scalars["n"] // 32) * scalars["m"] if scalars["want"] else 0


def _tiles(scalars: Scalars) -> int:
    """Return the number of (tile, query) combinations of a block."""
    return -(-scalars["n"] // TILE_ROWS) * scalars["m"]


def box_counts(slots: int) -> list[int]:
    """Return the number of boxes of each level over the blocks of a run, the lowest level first; nodes are full."""
    counts, children = list[int](), -(-slots // POINT_BLOCK)
    while True:
        nodes = -(-children // BOX_FANOUT)
        counts.append(nodes * BOX_FANOUT)
        if nodes <= 1:
            return counts
        children = nodes


def _point_boxes(scalars: Scalars) -> int:
    return 2 * scalars["dims"] * sum(box_counts(scalars["n"]))


def _coordinates(scalars: Scalars) -> int:
    return scalars["n"] * scalars["dims"]


def _query_columns(scalars: Scalars) -> int:
    """Return the coordinates of all queries, and their limits."""
    return (scalars["dims"] + 1) * scalars["m"]


def _spans(scalars: Scalars) -> int:
    return 4 * scalars["m"]


def _selected(scalars: Scalars) -> int:
    return scalars["want"] * scalars["m"]


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
    Unit(
        "spo_bits",
        (
            Slot("ranks", False, _N),
            Slot("boxes", False, _boxes),
            Slot("bits", False, _bits, written=True),
            Slot("counts", False, _tiles, written=True),
        ),
        ("n", "m", "want"),
        _tiles,
    ),
    Unit(
        "knn_select",
        (
            Slot("points", False, _coordinates, floats=True),
            Slot("positions", False, _N),
            Slot("boxes", False, _point_boxes, floats=True),
            Slot("offsets", False, _LEVELS),
            Slot("queries", False, _query_columns, floats=True),
            Slot("spans", False, _spans),
            Slot("squares", False, _selected, written=True, floats=True),
            Slot("ids", False, _selected, written=True),
        ),
        ("n", "dims", "levels", "m", "want"),
        _M,
    ),
)
UNITS: dict[str, Unit] = {unit.name: unit for unit in _TABLE}


def check(device: str, offered: Collection[str], name: str, buffers: Sequence[Buffer], scalars: Sequence[int]) -> Work:
    """Check a launch on a device that offers the units `offered`; raise a `DeviceFault` that says what does not fit."""
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
        if not least <= value <= MAX_ROWS:
            raise DeviceFault(f"{unit.name}: {name}={value}, allowed are {least} to {MAX_ROWS}")
    if values.get("from", 0) > values.get("levels", 0):
        raise DeviceFault(f"{unit.name}: from={values['from']}, but there are {values['levels']} levels to walk")
    if unit.name == "spo_bits" and values["n"] > BLOCK_ROWS:
        raise DeviceFault(f"spo_bits: n={values['n']}, a block has at most {BLOCK_ROWS} positions: cut the block")
    if unit.name == "knn_select":
        _check_selection(unit, values)
    if unit.rows(values) > MAX_ROWS:
        raise DeviceFault(f"{unit.name}: {unit.rows(values)} rows, at most {MAX_ROWS} are allowed: cut the runs")


def _check_selection(unit: Unit, values: Scalars) -> None:
    """Check that a run has its levels, and that every index of `knn_select` fits 32 bits."""
    levels = len(box_counts(values["n"]))
    if values["want"] < 1 or values["dims"] < 1 or values["levels"] != levels:
        raise DeviceFault(
            f"knn_select: want={values['want']}, dims={values['dims']}, levels={values['levels']}; want and dims must "
            f"be at least 1, and {values['n']} slots have {levels} levels"
        )
    for slot in unit.slots:
        if slot.size(values) > MAX_ROWS:
            raise DeviceFault(f"knn_select: {slot.name} of {slot.size(values)}, at most {MAX_ROWS} are allowed: cut it")


def _check_buffers(unit: Unit, buffers: Sequence[Buffer], values: Scalars) -> np.dtype[np.unsignedinteger]:
    """Check the buffers and return the type of the words, which is the same in all word buffers."""
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
            given = ", ".join(f"{name}={value}" for name, value in values.items())
            raise DeviceFault(f"{unit.name}: {slot.name} has {buffer.size} elements, {given} needs {needed} of them")
        if slot.written and sum(other is buffer for other in buffers) > 1:
            raise DeviceFault(f"{unit.name}: {slot.name} is written to, so it must be a buffer of its own")
    for name in WORDS & values.keys():
        if not 0 <= values[name] <= np.iinfo(word).max:
            raise DeviceFault(f"{unit.name}: {name}={values[name]}, it must be a word of {word}")
    return word
