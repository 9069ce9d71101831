"""Chooses the update mode for a tree whose inner nodes are also on a device (thesis, appendix A, 5.6 and 6.3).

*Asynchronous*: all threads change the tree, then the entire I-segment is sent. *Synchronous*: one thread changes it
while another sends each changed node. The first has a fixed cost, the second a higher cost per change. So from some
batch size on, the *crossover*, the first is better. All costs are measured: those of the device before the first update
and with each update since. Limit: only upserts count as changes of inner nodes, since deletes leave separators
unchanged and the merges after them are few.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Literal

UpdateMode = Literal["auto", "sync", "async"]
MODES: tuple[UpdateMode, ...] = ("auto", "sync", "async")
_NEWS = 0.5
"""Weight of the last update in the moving averages."""
_MAX_GROWTH = 4.0
"""Maximum growth of a time relative to its average: one slow update in fresh memory must not exclude a mode."""


@dataclass
class UpdateCosts:
    """Nanoseconds per change with one thread and with all, per node sent, per I-segment sent; nodes per upsert.

    Upserts into a fresh tree change 0.002 nodes each if they are 1/1000 of its keys, 0.06 if they are 1/16.
    """

    one: float = 400.0
    all: float = 200.0
    node: float = 0.0
    segment: float = 0.0
    nodes: float = 0.02
    _is_counted: bool = False

    def sync(self, changes: int, upserts: int) -> float:
        """Cost of the synchronous mode: changing and sending overlap."""
        return max(changes * self.one, upserts * self.nodes * self.node)

    def asynchronous(self, changes: int) -> float:
        """Cost of the asynchronous mode: changing, then sending."""
        return changes * self.all + self.segment

    @property
    def crossover(self) -> int | None:
        """The smallest batch of upserts for which `async` is chosen; None if `sync` is always better."""
        gained = self.sync(1, 1) - self.all
        if self.segment == 0:
            return 0
        return ceil(self.segment / gained) if gained > 0 else None

    def choose(self, mode: str, changes: int, upserts: int) -> str:
        """Choose `sync` or `async` for this number of changes and of upserts among them."""
        if mode != "auto":
            return mode
        return "sync" if self.sync(changes, upserts) < self.asynchronous(changes) else "async"

    def count(self, nodes: int, upserts: int, full_batch: int) -> None:
        """Record how many nodes the upserts changed.

        Batches below `full_batch` upserts have less weight; the first full batch replaces the initial guess.
        """
        if upserts:
            news = min(upserts / full_batch, 1.0) * (_NEWS if self._is_counted else 1.0)
            self._is_counted |= upserts >= full_batch
            self.nodes += news * (nodes / upserts - self.nodes)

    def learn(self, **measured: float) -> None:
        """Record measured costs of an update, by attribute name."""
        for name, value in measured.items():
            known = getattr(self, name)
            likely = min(value, _MAX_GROWTH * known) if known else value
            setattr(self, name, (1 - _NEWS) * known + _NEWS * likely)
