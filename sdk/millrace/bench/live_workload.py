"""The streams of bench `live`, and a window join that takes them tuple by tuple, with options and threads.

Keys are uniform, Gaussian or Gamma distributed (PIM-Tree, section 5.2), or Gaussian with a mean that moves by `drift`
in ten windows (the paper's second phase of the shifting Gaussian). Windows and rates of the sides may differ.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from millrace.bench.ours import OurSession
from millrace.bench.workload import DOMAIN, Longs, Rows, Turn, Workload, sampled_eps
from millrace.host.base.types import Side
from millrace.host.runtime.team import Team
from millrace.ingest.choices import IndexName
from millrace.window_join import WindowJoin

Keys = Literal["uniform", "gaussian", "gamma-3-3", "gamma-1-5"]
SIGMA = 0.125
GAMMA_SCALE = 1 / 64
"""Gamma distributed keys become a part of the domain."""
DRIFT_WINDOWS = 10
FILL_ROWS = 1 << 16


@dataclass(frozen=True)
class LiveWorkload(Workload):
    """Two interleaved streams; `s_window` is the window of s if it differs, `r_share` the share of r's tuples.

    With `burst`, that many tuples of one side follow each other.
    """

    s_window: int | None = None
    r_share: float = 0.5
    burst: int = 0
    shape: Keys = "uniform"
    drift: float = 0.0
    self_join: bool = False

    @property
    def eps(self) -> int:
        """The half-width of the band, for `rate` matches in r's window."""
        return super().eps if self.shape == "uniform" else sampled_eps(self)

    @property
    def facts(self) -> dict[str, Any]:
        """What a result line reports about the work."""
        more = {"distribution": self.shape, "s_window": self.s_window or self.window, "r_share": self.r_share}
        return super().facts | more | {"burst": self.burst, "drift": self.drift, "self_join": self.self_join}

    def fill(self) -> tuple[Rows, Rows]:
        """A full window of each side."""
        rng = np.random.default_rng([self.seed, 0])
        return self._rows(rng, 0, self.window), self._rows(rng, 0, self.s_window or self.window)

    def turn(self, number: int) -> Turn:
        """The rows of a turn, from number 0 on."""
        rng = np.random.default_rng([self.seed, 1, number])
        order = self._order(rng, number)
        first, s_rows = self.window + number * self.batch // 2, int(order.sum())
        return Turn(self._rows(rng, first, self.batch - s_rows), self._rows(rng, first, s_rows), order)

    def _order(self, rng: np.random.Generator, number: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
        if self.self_join:
            return np.zeros(self.batch, np.uint8)
        if self.burst:
            at = np.arange(number * self.batch, (number + 1) * self.batch)
            return (at // self.burst % 2).astype(np.uint8)
        return (rng.random(self.batch) >= self.r_share).astype(np.uint8)

    def keys(self, rng: np.random.Generator, at: Longs) -> Longs:
        """The keys of the tuples with arrival numbers `at` of their side."""
        if self.shape == "uniform":
            return rng.integers(0, DOMAIN, len(at), dtype=np.int64)
        if self.shape == "gaussian":
            value = rng.normal(0.5 + self.drift * at / (DRIFT_WINDOWS * self.window), SIGMA, len(at))
        else:
            _, shape, scale = self.shape.split("-")
            value = rng.gamma(float(shape), float(scale) * GAMMA_SCALE, len(at))
        return (value * DOMAIN).astype(np.int64)


@dataclass(frozen=True)
class Engine:
    """One of our indexes with options and threads; `label` names it in a case.

    `alone`: another team has the helper threads, so one worker does all the work of the threads' protocol.
    """

    index: IndexName
    label: str = ""
    options: Mapping[str, int | float | str] = field(default_factory=dict)
    threads: int = 1
    alone: bool = False

    @property
    def name(self) -> str:
        """For example `pim on cpu, merge ratio 0.125`."""
        return f"{self.index} on cpu" + (f", {self.label}" if self.label else "")


class LiveSession(OurSession):
    """A `WindowJoin` of one engine. The windows are filled by a checkpoint: inserting tuple by tuple takes too long."""

    def __init__(self, workload: LiveWorkload, engine: Engine) -> None:
        """Nothing is pushed yet."""
        self._output = workload.output
        self._self_join = workload.self_join
        windows = f"{workload.window} rows", f"{workload.s_window or workload.window} rows"
        self._arguments: dict[str, Any] = {
            "on": workload.on,
            "window": windows[0] if self._self_join else windows,
            "self_join": workload.self_join,
            "output": workload.output,
        }
        self._engine: dict[str, Any] = {
            "index": engine.index,
            "options": engine.options,
            "threads": engine.threads,
        }
        self._other_team = Team(2) if engine.alone else Team(1)

    def fill(self, r: Rows, s: Rows) -> None:
        """Fill the windows with the fastest index, and go on with the engine's."""
        join = WindowJoin(**self._arguments, index="bisort")
        self._push_all(join, "r", self._table(r))
        if not self._self_join:
            self._push_all(join, "s", self._table(s))
        delta = join.state()
        self._join = WindowJoin.restore(delta.manifest, delta.added, **self._arguments, **self._engine)

    @staticmethod
    def _push_all(join: WindowJoin, side: Side, rows: pa.Table) -> None:
        """In parts: all pairs of a window with many matches would not fit in memory."""
        for first in range(0, len(rows), FILL_ROWS):
            join.push(side, rows.slice(first, FILL_ROWS))

    def push(self, prepared: tuple[pa.Table, pa.Table, Any]) -> pa.Table:
        """Push a turn."""
        r, s, order = prepared
        self._other_team.acquire()
        try:
            return self._join.push("r", r) if self._self_join else self._join.push_both(r, s, order)
        finally:
            self._other_team.depth -= 1
