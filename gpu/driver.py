"""What every GPU driver needs to know about the kernels: their sources, and how much work a launch is.

A unit is one file in `kernels/`, whose only kernel has the unit's name and takes the buffers and then the scalars, in
the order of `host/device/units.py`, where each launch is checked first. BI-Sort's units: PanJoin, III-D, III-E and IV.
HB+-Tree's: thesis, appendix A, 5.2 and 5.3.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from millrace.host.device import units
from millrace.host.device.contract import Buffer
from millrace.host.device.units import LINE_BITS

KERNELS = Path(__file__).parent / "kernels"
GROUP = 128
"""Work items of a group, unless the device allows fewer; a power of two."""
_INCLUDE = re.compile(r'^#include "(\w+\.h)"\n', re.MULTILINE)


@dataclass(frozen=True)
class Unit(units.Unit):
    """A unit and its kernel, through each of whose work items `items` rows pass.

    With `teams`, a row is a query, and as many work items share it as a line has words.
    """

    items: int = 1
    teams: bool = False


@dataclass(frozen=True)
class Work:
    """One launch, checked."""

    unit: Unit
    word_bits: int
    scalars: tuple[int, ...]
    rows: int

    def groups(self, group: int) -> int:
        """How many groups of that many work items; at least one, because no API starts none."""
        per_line = LINE_BITS // self.word_bits
        team = per_line if self.unit.teams and group >= per_line else 1  # see kernels/line_search.h
        return max(1, -(-self.rows // (group // team * self.unit.items)))


def _unit(name: str, items: int = 1, teams: bool = False) -> Unit:
    return Unit(**vars(units.UNITS[name]), items=items, teams=teams)


UNITS: dict[str, Unit] = {
    unit.name: unit
    for unit in (
        # Odd, so that work items that merge in step with each other touch different banks of shared memory.
        _unit("bisort_merger", items=7),
        _unit("bisort_indexer"),
        _unit("bisort_prober"),
        _unit("hb_search_implicit", teams=True),
        _unit("hb_search_regular", teams=True),
        _unit("hb_lookup", teams=True),
    )
}


def check(device: str, name: str, buffers: Sequence[Buffer], scalars: Sequence[int]) -> Work:
    """The work of a launch, or a `DeviceFault` that says what does not fit."""
    work = units.check(device, UNITS, name, buffers, scalars)
    return Work(UNITS[name], work.word.itemsize * 8, tuple(work.scalars.values()), work.rows)


@cache
def source(unit: str) -> str:
    """The whole text of a unit.

    A header's text stands in place of its #include: compilers need no search path then, and PoCL's cache, which
    looks only at the text it is given, notices a changed header.
    """
    text = (KERNELS / f"{unit}.cu").read_text(encoding="utf-8")
    return _INCLUDE.sub(lambda found: (KERNELS / found[1]).read_text(encoding="utf-8"), text)


def group_of(most: int) -> int:
    """Work items of a group on a device that allows so many: a power of two."""
    return 1 << (min(GROUP, most).bit_length() - 1)


def defines(unit: Unit, word_bits: int, group: int = GROUP, barrier: bool = False) -> dict[str, int]:
    """What a compiler must define for a unit's source; `barrier`: teams do without ballots (OpenCL always does)."""
    wanted = {"WORD_BITS": word_bits, "GROUP": group, "ITEMS": unit.items}
    return wanted | ({"BARRIER_SEARCH": 1} if barrier and unit.teams else {})
