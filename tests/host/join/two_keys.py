"""A reference index over two keys: a nested loop over the words of both."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from millrace.host.base.types import Array, Mask, Positions, Side
from millrace.host.expr.plan import SearchShape
from millrace.host.join.contract import IndexContext, JoinIndex, Matches, ProbeBatch, SideProbes


def serves_two_keys(shape: SearchShape) -> bool:
    """Which conditions the index can search."""
    return max(len(keys) for keys in shape.keys.values()) >= 2


class TwoKeyIndex(JoinIndex):
    """Serves conditions with at least two keys on either side; keeps every tuple."""

    max_keys = 2
    shapes: ClassVar[list[tuple[tuple[str, ...], tuple[str, ...]]]] = []
    """The shapes of the keys that were probed in r and in s, batch by batch."""

    def __init__(self, context: IndexContext) -> None:
        super().__init__(context)
        self._words: dict[Side, list[Array]] = {"r": [], "s": []}
        self._positions: dict[Side, Positions] = {side: np.zeros(0, np.int64) for side in self._words}

    def load(self, side: Side, first: int, words: tuple[Array, ...], live: Mask) -> None:
        fresh = [one[live] for one in words]
        held = self._words[side] or [one[:0] for one in fresh]
        self._words[side] = [np.concatenate(pair) for pair in zip(held, fresh, strict=True)]
        self._positions[side] = np.concatenate([self._positions[side], np.flatnonzero(live) + first])

    def step(self, batch: ProbeBatch, want_positions: bool) -> tuple[Matches, Matches]:
        for side, part in ((("r"), batch.r), ("s", batch.s)):
            self.load("r" if side == "r" else "s", part.first, part.words, part.live)
        self.shapes.append(tuple(tuple(one.shape for one in part.probes) for part in (batch.s, batch.r)))  # type: ignore[arg-type]
        return self._matches("s", batch.r), self._matches("r", batch.s)

    def _matches(self, searched: Side, part: SideProbes) -> Matches:
        held, found = self._positions[searched], []
        for i in range(len(part)):
            fits = (held >= part.begin[i]) & (held < part.end[i]) & part.live[i]
            for words, probe in zip(self._words[searched], part.probes, strict=True):
                lines = [(probe.low[k, i] <= words) & (words <= probe.high[k, i]) for k in range(len(probe.low))]
                fits &= np.logical_or.reduce(lines)
            found.append(held[fits])
        counts = np.array([len(one) for one in found], np.int64)
        return Matches(counts, np.concatenate([np.zeros(0, np.int64), *found]))
