"""Every visible pair as a candidate, with NumPy alone: what a join does before the kernels of its index are loaded.

The index searches no key, so the matcher evaluates the whole condition on every candidate (`Plan.matches`). It is for
small windows: a step returns as many candidates as there are pairs. Users cannot name it; see `runtime/first_use.py`.
"""

from __future__ import annotations

import numpy as np

from millrace.host.base.types import SIDES, Array, Mask, Positions, Side
from millrace.host.device.contract import Device
from millrace.host.join.contract import IndexContext, JoinIndex, Matches, ProbeBatch, SideProbes

REASON = "all pairs are evaluated with NumPy until the kernels of the index are compiled and loaded"


class AllPairsIndex(JoinIndex):
    """The positions of both sides' live tuples."""

    max_keys = 0

    def __init__(self, context: IndexContext) -> None:
        """Two empty sides."""
        super().__init__(context)
        none = np.zeros(0, np.int64)
        self._live: dict[Side, Positions] = {"r": none, "s": none}

    @classmethod
    def keys_on(cls, device: Device) -> int:
        """None: the matcher checks all terms."""
        return 0

    def load(self, side: Side, first: int, words: tuple[Array, ...], live: Mask) -> None:
        """Append earlier tuples."""
        self._live[side] = np.concatenate([self._live[side], first + np.flatnonzero(live)])

    def step(self, batch: ProbeBatch, want_positions: bool) -> tuple[Matches, Matches]:
        """Append both sides, then pair each with the other. The intervals exclude later tuples."""
        self.load("r", batch.r.first, (), batch.r.live)
        self.load("s", batch.s.first, (), batch.s.live)
        found = _visible(self._live["s"], batch.r), _visible(self._live["r"], batch.s)
        for side, keep in zip(SIDES, batch.keep, strict=True):
            self._live[side] = self._live[side][self._live[side].searchsorted(keep) :]
        return found

    def reason(self) -> str:
        """Why there is no index yet."""
        return REASON


def _visible(partners: Positions, part: SideProbes) -> Matches:
    """All live partners in the interval of each live tuple."""
    begin, end = partners.searchsorted(part.begin), partners.searchsorted(part.end)
    counts = np.where(part.live, np.maximum(end - begin, 0), 0)
    starts = np.cumsum(counts) - counts
    offsets = np.arange(int(counts.sum())) - np.repeat(starts, counts)
    return Matches(counts, partners[np.repeat(begin, counts) + offsets])
