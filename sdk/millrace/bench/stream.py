"""Runs a session (ours or a peer's) over a workload, turn by turn, as a `Runner` of the harness.

Only `push` is timed, not the generation of rows or their conversion to the session's input format.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from millrace.bench.harness import Answer
from millrace.bench.workload import Rows, Turn, Workload


class Session(Protocol):
    """A join in progress. Inputs and results have the tool's own format."""

    def fill(self, r: Rows, s: Rows) -> None:
        """Fill the window of each side; the pairs are ignored."""

    def prepare(self, turn: Turn) -> Any:
        """Convert a turn to the tool's own format (not timed)."""

    def push(self, prepared: Any) -> Any:
        """Push a turn; returns all its pairs, materialized in memory."""

    def answer(self, result: Any) -> Answer:
        """A result's columns by name: `r_seq`, `s_seq`, and with payload `r_x`, `r_v`, `s_x`, `s_v`.

        For the output `count`: `seq` of each new tuple, in order, and `count`.
        """

    def close(self) -> None:
        """Release all resources."""


class Stream:
    """A session that processes a workload; the unit of work is the tuple.

    With `ordered` results are compared in their own order. Otherwise they are first sorted by the new tuple and then
    the partner, which is the order of our own output.
    """

    def __init__(self, session: Session, workload: Workload, ordered: bool) -> None:
        """Fill the windows."""
        self._session = session
        self._workload = workload
        self._ordered = ordered
        self._number = 0
        self._last: Any = None
        session.fill(*workload.fill())

    def step(self) -> tuple[float, float]:
        """Push one turn."""
        turn = self._workload.turn(self._number)
        prepared = self._session.prepare(turn)
        self._last = None
        start = time.perf_counter()
        self._last = self._session.push(prepared)
        seconds = time.perf_counter() - start
        self._number += 1
        return len(turn), seconds

    def answer(self) -> Answer:
        """The last turn's pairs."""
        columns = self._session.answer(self._last)
        if self._ordered or self._workload.output == "count":
            return columns
        new_side = (self._number - 1) % 2
        keys = (columns["r_seq"], columns["s_seq"])
        order = np.lexsort((keys[1 - new_side], keys[new_side]))
        return {name: column[order] for name, column in columns.items()}

    def pause(self) -> None:
        """Free the last result."""
        self._last = None

    def close(self) -> None:
        """Close the session."""
        self._last = None
        self._session.close()


def starter(make: Callable[[Workload], Session], workload: Workload, ordered: bool) -> Callable[[], Stream]:
    """The `start` function of a `Contender`."""
    return lambda: Stream(make(workload), workload, ordered)
