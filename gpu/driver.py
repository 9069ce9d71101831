"""The table of GPU units: kernel sources, compiler definitions, and the size of a launch.

A unit is one file in `kernels/` with one kernel of the same name. The kernel takes the buffers and then the scalars in
the order of `host/device/units.py`, which also checks each launch. BI-Sort's units: PanJoin, III-D, III-E and IV.
HB+-Tree's units: thesis, appendix A, 5.2 and 5.3. SPO-Join's: section 3.4. ADS-kNN's: thesis, appendix C.
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
"""Work items per group, unless the device allows fewer; a power of two."""
BARRIER, SUBGROUP = "BARRIER_SEARCH", "SUBGROUP_SEARCH"
"""How a team votes: through shared memory, or by the ballot of an OpenCL subgroup."""
_INCLUDE = re.compile(r'^#include "(\w+\.h)"\n', re.MULTILINE)


@dataclass(frozen=True)
class Unit(units.Unit):
    """A unit and its kernel; each work item processes `items` rows.

    With `teams` a row is a query that as many work items process together as a line has words.
    """

    items: int = 1
    teams: bool = False


@dataclass(frozen=True)
class Work:
    """One checked launch."""

    unit: Unit
    word_bits: int
    scalars: tuple[int, ...]
    rows: int

    def groups(self, group: int) -> int:
        """The number of groups of `group` work items; at least one, because no API starts zero groups."""
        per_line = LINE_BITS // self.word_bits
        team = per_line if self.unit.teams and group >= per_line else 1  # see kernels/line_search.h
        return max(1, -(-self.rows // (group // team * self.unit.items)))


def _unit(name: str, items: int = 1, teams: bool = False) -> Unit:
    return Unit(**vars(units.UNITS[name]), items=items, teams=teams)


UNITS: dict[str, Unit] = {
    unit.name: unit
    for unit in (
        # Odd, so that work items that merge in lockstep access different banks of shared memory.
        _unit("bisort_merger", items=7),
        _unit("bisort_indexer"),
        _unit("bisort_prober"),
        _unit("hb_search_implicit", teams=True),
        _unit("hb_search_regular", teams=True),
        _unit("hb_lookup", teams=True),
        _unit("spo_bits"),
        _unit("knn_select"),
    )
}


def check(device: str, name: str, buffers: Sequence[Buffer], scalars: Sequence[int]) -> Work:
    """The work of a launch, or a `DeviceFault` that names the wrong argument."""
    work = units.check(device, UNITS, name, buffers, scalars)
    return Work(UNITS[name], work.word.itemsize * 8, tuple(work.scalars.values()), work.rows)


@cache
def source(unit: str) -> str:
    """The complete source of a unit.

    Headers are inlined in place of their #include. So compilers need no search path, and PoCL's cache, which compares
    only the source text, notices a changed header.
    """
    text = (KERNELS / f"{unit}.cu").read_text(encoding="utf-8")
    return _INCLUDE.sub(lambda found: (KERNELS / found[1]).read_text(encoding="utf-8"), text)


def group_of(limit: int) -> int:
    """Work items per group on a device that allows `limit`: a power of two."""
    return 1 << (min(GROUP, limit).bit_length() - 1)


def defines(unit: Unit, word_bits: int, group: int = GROUP, votes: str = "") -> dict[str, int]:
    """The macros that a unit's source needs.

    `votes`: how the items of a team vote: "" is the language's own way (CUDA: ballots, OpenCL: barriers), `BARRIER` and
    `SUBGROUP` are explicit (see `kernels/line_search.h`).
    """
    wanted = {"WORD_BITS": word_bits, "GROUP": group, "ITEMS": unit.items}
    return wanted | ({votes: 1} if votes and unit.teams else {})
