"""Which way to bring a batch of changes to a tree whose inner nodes are on a device too (thesis, appendix A, 5.6, 6.3).

*Asynchronous*: all threads change the tree, then the whole I-segment is sent. *Synchronous*: one thread changes it and
another sends every node that changed, meanwhile. The first has a price that does not depend on the batch, the second a
higher one for each change: so there is a size from which the first is better, the *crossover*. All prices are measured,
those of the device when the tree is first sent and with every update since. Inner nodes change because of upserts:
deletes leave separators as they are, and what is merged after them is little.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

MODES = ("auto", "sync", "async")
_NEWS = 0.5
"""How much of what is remembered comes from the last update."""
_MOST_GROWTH = 4.0
"""How much longer than remembered a time may seem: one that met fresh memory must not rule a way out for good."""


@dataclass
class UpdateCosts:
    """Nanoseconds of a change by one thread and by all, of a node sent, of the I-segment sent; nodes per upsert.

    Upserts into a fresh tree change 0.002 nodes each where they are a thousandth of its keys, 0.06 where a sixteenth.
    """

    one: float = 400.0
    all: float = 200.0
    node: float = 0.0
    segment: float = 0.0
    nodes: float = 0.02
    _is_counted: bool = False

    def sync(self, changes: int, upserts: int) -> float:
        """Changing and sending overlap."""
        return max(changes * self.one, upserts * self.nodes * self.node)

    def asynchronous(self, changes: int) -> float:
        """One after the other."""
        return changes * self.all + self.segment

    @property
    def crossover(self) -> int | None:
        """The smallest batch of upserts for which `async` is taken; nothing where `sync` is always better."""
        gained = self.sync(1, 1) - self.all
        if self.segment == 0:
            return 0
        return ceil(self.segment / gained) if gained > 0 else None

    def choose(self, mode: str, changes: int, upserts: int) -> str:
        """`sync` or `async`, for so many changes, of which so many are upserts."""
        if mode != "auto":
            return mode
        return "sync" if self.sync(changes, upserts) < self.asynchronous(changes) else "async"

    def count(self, nodes: int, upserts: int, whole: int) -> None:
        """Remember how many nodes upserts changed. Fewer than `whole` say less; the first `whole` replace the guess."""
        if upserts:
            news = min(upserts / whole, 1.0) * (_NEWS if self._is_counted else 1.0)
            self._is_counted |= upserts >= whole
            self.nodes += news * (nodes / upserts - self.nodes)

    def learn(self, **measured: float) -> None:
        """Remember what an update took, by name."""
        for name, value in measured.items():
            known = getattr(self, name)
            likely = min(value, _MOST_GROWTH * known) if known else value
            setattr(self, name, (1 - _NEWS) * known + _NEWS * likely)
