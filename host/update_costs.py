"""Which way to bring a batch of changes to a tree whose inner nodes are on a device too (thesis, appendix A, 5.6, 6.3).

*Asynchronous*: all threads change the tree, then the whole I-segment is sent. *Synchronous*: one thread changes it and
another sends every node that changed, meanwhile. The first has a price that does not depend on the batch, the second a
higher one for each change: so there is a size from which the first is better, the *crossover*. All four prices are
measured, those of the device when the tree is first sent and with every update since.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

MODES = ("auto", "sync", "async")
_NEWS = 0.5
"""How much of what is remembered comes from the last update."""


@dataclass
class UpdateCosts:
    """Nanoseconds of a change by one thread and by all, of a node sent, of the I-segment sent; nodes per change."""

    one: float = 400.0
    all: float = 200.0
    node: float = 0.0
    segment: float = 0.0
    nodes: float = 0.05

    def sync(self, changes: int) -> float:
        """Changing and sending overlap."""
        return changes * self._each

    def asynchronous(self, changes: int) -> float:
        """One after the other."""
        return changes * self.all + self.segment

    @property
    def _each(self) -> float:
        return max(self.one, self.nodes * self.node)

    @property
    def crossover(self) -> int | None:
        """The smallest batch for which `async` is taken; nothing where `sync` is always better."""
        gained = self._each - self.all
        if self.segment == 0:
            return 0
        return ceil(self.segment / gained) if gained > 0 else None

    def choose(self, mode: str, changes: int) -> str:
        """`sync` or `async`."""
        if mode != "auto":
            return mode
        return "sync" if self.sync(changes) < self.asynchronous(changes) else "async"

    def learn(self, **measured: float) -> None:
        """Remember what an update took, by name."""
        for name, value in measured.items():
            setattr(self, name, (1 - _NEWS) * getattr(self, name) + _NEWS * value)
