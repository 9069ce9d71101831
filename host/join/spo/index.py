"""`index="spo"`: joins on two order keys (SPO-Join), as rectangle queries over the ranks of both keys.

The plan gives closed ranges of words per key, so strict and non-strict comparisons, bands and ties are the same case: a
tuple matches if both of its words are in the ranges. Whole tables are joined by `table.py`, streams by `stream.py`, and
both by `device.py` on a device with memory of its own.
Limit: both sides need two keys that the plan can search; further terms are checked on the pairs found.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Protocol

from millrace.host.base.types import Array, Mask, Side
from millrace.host.join.contract import IndexContext, JoinIndex, Matches, Option, ProbeBatch
from millrace.host.join.spo.device import UNIT, DeviceEngine
from millrace.host.join.spo.stream import StreamEngine
from millrace.host.join.spo.table import TableEngine

MAX_MERGE_ROWS = 1 << 24


class Engine(Protocol):
    """What `SpoIndex` delegates to; the methods are those of `JoinIndex`."""

    def load(self, side: Side, first: int, words: tuple[Array, ...], live: Mask) -> None:
        """Insert earlier tuples without probing."""

    def step(self, batch: ProbeBatch, want_positions: bool) -> tuple[Matches, Matches]:
        """Insert new tuples, drop expired ones, and return the partners of r's and of s's new tuples."""

    def close(self) -> None:
        """Free all memory."""

    def reason(self) -> str:
        """Which way was taken last, and why."""

    def counters(self) -> dict[str, int]:
        """Counters."""


class SpoIndex(JoinIndex):
    """Two order keys of each side, searched together."""

    max_keys = 2
    numbers_rows = False
    needs = frozenset({UNIT})
    options: ClassVar[Mapping[str, Option]] = {"merge_rows": Option(1 << 16, 1 << 10, MAX_MERGE_ROWS)}

    def __init__(self, context: IndexContext) -> None:
        """An empty index."""
        super().__init__(context)
        self._engine: Engine = _engine(context)

    def load(self, side: Side, first: int, words: tuple[Array, ...], live: Mask) -> None:
        """Insert earlier tuples without probing."""
        self._engine.load(side, first, words, live)

    def step(self, batch: ProbeBatch, want_positions: bool) -> tuple[Matches, Matches]:
        """Insert new tuples, drop expired ones, and return the partners of r's and of s's new tuples."""
        return self._engine.step(batch, want_positions)

    def close(self) -> None:
        """Free all memory."""
        self._engine.close()

    def reason(self) -> str:
        """Which way was taken last, and why."""
        return self._engine.reason()

    def counters(self) -> dict[str, int]:
        """Counters of the engine."""
        return self._engine.counters()


def _engine(context: IndexContext) -> Engine:
    if not context.device.shares_host_memory:
        return DeviceEngine(context)
    return TableEngine(context) if context.static else StreamEngine(context)
