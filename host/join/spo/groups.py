"""The rows of a table by group, for joins with an equality in front and few rows in a group (`group_kernel.py`).

The first key is a grouped key (`expr/grouped_keys.py`): its words have the group in their high bits. Limits: the group
numbers are below about four times the number of rows, which the layout of a join of tables ensures; a query has at most
`MAX_CANDIDATES` rows in its group, on average, else `points.py` serves.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from millrace.host.base.types import Array, Ids, Mask
from millrace.host.base.words import all_true
from millrace.host.expr.grouped_keys import group_bits
from millrace.host.expr.plan import KeySearch
from millrace.host.join.contract import Matches, SideProbes
from millrace.host.join.pair_memory import check_fits
from millrace.host.join.spo import group_kernel as gk
from millrace.host.runtime.allocator import allocate, free, result_array
from millrace.host.runtime.intrinsics import MASK_LANES, address
from millrace.host.runtime.team import Team

MAX_CANDIDATES = 2048
"""Rows that a query compares on average; with more, searching is faster."""
QUERIES_PER_PART = 1 << 9


@dataclass
class Groups:
    """The live rows of a table, by group."""

    shift: int
    offsets: Ids
    a: Array
    b: Array
    rows: Ids
    first: int
    team: Team

    @staticmethod
    def of(
        words: tuple[Array, ...], live: Mask, first: int, searches: tuple[KeySearch, ...], team: Team
    ) -> Groups | None:
        """Put the rows together by group; None if the first key has no groups, or too many."""
        bits = group_bits(searches[0])
        n = len(live)
        if bits is None or bits[0] > n.bit_length() + 2:
            return None
        known = None if all_true(live) else np.flatnonzero(live)
        own, others = ((one if known is None else one[known]).astype(np.uint64, copy=False) for one in words[:2])
        n, groups, parts = len(own), 1 << bits[0], team.threads
        offsets, counts = allocate(groups + 1, np.uint32), allocate(parts * groups, np.uint32)
        a, b = (allocate(n + MASK_LANES, np.uint64) for _ in range(2))
        rows = allocate(n, np.uint32)
        given = gk.PartitionArgs.pack(
            WORDS=np.ascontiguousarray(own),
            OTHERS=np.ascontiguousarray(others),
            N=n,
            SHIFT=bits[1],
            GROUPS=groups,
            PARTS=parts,
            COUNTS=counts,
            OFFSETS=offsets,
            A=a,
            B=b,
            ROWS=rows,
        )
        team.run(gk.count_groups, given, parts)
        team.run(gk.find_offsets, given, 1)
        team.run(gk.partition, given, parts)
        free(counts)
        return Groups(bits[1], offsets, a, b, rows if known is None else known.astype(np.uint32)[rows], first, team)

    def matches(self, part: SideProbes, want: bool) -> Matches | None:
        """The partners of some queries, or their counts alone; None if a query has too many candidates."""
        m = len(part)
        ends = [np.ascontiguousarray(end[0], np.uint64) for probe in part.probes for end in (probe.low, probe.high)]
        parts = max(min(-(-m // QUERIES_PER_PART), gk.MAX_PARTS), 1)
        counts, (masks, pairs) = allocate(m, np.int64), np.zeros((2, parts + 1), np.int64)
        live = np.ascontiguousarray(part.live)
        given = gk.GroupArgs.partly(
            M=m,
            A_LOW=ends[0],
            A_HIGH=ends[1],
            B_LOW=ends[2],
            B_HIGH=ends[3],
            LIVE=live,
            SHIFT=self.shift,
            OFFSETS=self.offsets,
            A=self.a,
            B=self.b,
            ROWS=self.rows,
            COUNTS=counts,
            MASK_STARTS=masks,
            PAIR_STARTS=pairs,
            FIRST=self.first,
            OWN_FIRST=part.first,
        )
        self.team.run(gk.measure, given, parts)
        total = _starts(masks)
        if total * MASK_LANES > MAX_CANDIDATES * m:
            return None
        if want:
            kept = allocate(total, np.int64)
            given[gk.GroupArgs.MASKS] = address(kept)
        self.team.run(gk.count_pairs, given, parts)
        if not want:
            return Matches(counts, None)
        found = _starts(pairs)
        check_fits(found)
        partners, own = (result_array(found, np.int64) for _ in range(2))
        given[[gk.GroupArgs.PARTNERS, gk.GroupArgs.OWN]] = address(partners), address(own)
        self.team.run(gk.write_pairs, given, parts)
        free(kept)
        return Matches(counts, partners, own)


def _starts(amounts: Array) -> int:
    """Turn the amounts of parts into their starts; return the sum."""
    total = int(amounts.sum())
    amounts[1:] = np.cumsum(amounts)[:-1]
    amounts[0] = 0
    return total
