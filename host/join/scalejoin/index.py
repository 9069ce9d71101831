"""`index="scan"`: the nested loop. Serves every condition; each tuple is compared with its entire window.

On the CPU it is ScaleJoin: `threads` stripes of both windows, each searched by one thread in vector code, for up to
`MAX_KEYS` keys (`stripes.py`). The output does not depend on the number of threads. Terms that are no ranges of words
are checked by the matcher on the pairs found; if there is no key at all, on every pair. On other devices it is the
unit `scan_prober` (`baseline/scan.py`).
"""

from __future__ import annotations

from millrace.host.base.types import Array, Mask, Side
from millrace.host.device.contract import Device
from millrace.host.join.baseline.scan import ScanIndex
from millrace.host.join.contract import IndexContext, Matches, ProbeBatch
from millrace.host.join.scalejoin.stripes import Stripes

MAX_KEYS = 8


class ScaleJoinIndex(ScanIndex):
    """Compares each new tuple with every live tuple visible to it, with all threads."""

    max_keys = MAX_KEYS

    def __init__(self, context: IndexContext) -> None:
        """Two empty sides."""
        super().__init__(context)
        self._striped = context.device.shares_host_memory and context.plan.searchable
        self._stripes: dict[Side, Stripes] = {}

    @classmethod
    def keys_on(cls, device: Device) -> int:
        """The unit `scan_prober` compares one key."""
        return MAX_KEYS if device.shares_host_memory else 1

    def load(self, side: Side, first: int, words: tuple[Array, ...], live: Mask) -> None:
        """Append earlier tuples."""
        if self._striped:
            self._side(side, words).append(first, words, live)
        else:
            super().load(side, first, words, live)

    def step(self, batch: ProbeBatch, want_positions: bool) -> tuple[Matches, Matches]:
        """Append both sides, then probe each with the other. The intervals exclude later tuples."""
        if not self._striped:
            return super().step(batch, want_positions)
        r, s = self._side("r", batch.r.words), self._side("s", batch.s.words)
        for side, part in ((r, batch.r), (s, batch.s)):
            side.append(part.first, part.words, part.live)
        found = s.probe(batch.r, want_positions), r.probe(batch.s, want_positions)
        r.drop_before(batch.keep[0])
        s.drop_before(batch.keep[1])
        return found

    def _side(self, side: Side, words: tuple[Array, ...]) -> Stripes:
        if side not in self._stripes:
            self._stripes[side] = Stripes(tuple(one.dtype for one in words), self.context.team)
        return self._stripes[side]

    def counters(self) -> dict[str, int]:
        """Pairs compared, in all and by each stripe, and how often memory was moved."""
        if not self._striped:
            return super().counters()
        sides = list(self._stripes.values())
        shares = [sum(pairs) for pairs in zip(*(side.compared for side in sides), strict=True)]
        named = {f"comparisons_{stripe}": pairs for stripe, pairs in enumerate(shares)}
        return {"boundaries": sum(side.moves for side in sides), "comparisons": sum(shares), **named}
