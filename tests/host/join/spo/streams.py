"""Random streams of words for the SPO engine, and what it must find: a nested loop over the words of both keys."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from millrace.host.base.types import SIDES, Array, Side, other
from millrace.host.device.cpu import CpuDevice
from millrace.host.expr.plan import bind
from millrace.host.join.contract import IndexContext, KeyProbe, Matches, ProbeBatch, SideProbes
from millrace.host.join.spo.stream import StreamEngine
from millrace.host.runtime.team import Team
from millrace.host.stream.window_bounds import arrival_order
from millrace.ingest.arguments import parse_condition

SHAPES = ("at most", "at least", "band", "any", "all")
"""How a key is searched: one-sided ranges, around a value, any range (some empty), everything."""
SAMPLE = 300
"""How many tuples of a step are compared, at most."""


def engine(types: dict[Side, tuple[str, str]], threads: int, merge_rows: int, rows: dict[Side, int]) -> StreamEngine:
    """An empty engine; `types` are the Arrow types of the columns of each side's keys."""
    schemas = {side: pa.schema({"a": types[side][0], "b": types[side][1]}) for side in SIDES}
    plan = bind(parse_condition("r.a < s.a AND r.b > s.b"), schemas)
    return StreamEngine(IndexContext(plan, CpuDevice(threads), Team(threads), rows, False, {"merge_rows": merge_rows}))


@dataclass
class Reference:
    """All tuples of one side so far."""

    words: list[Array]
    live: Array = field(default_factory=lambda: np.zeros(0, np.bool_))

    def append(self, words: tuple[Array, ...], live: Array) -> None:
        self.words = [np.concatenate(pair) for pair in zip(self.words, words, strict=True)]
        self.live = np.concatenate([self.live, live])

    def matches(self, part: SideProbes, sample: Array) -> list[Array]:
        """The positions of the partners of some tuples."""
        found = []
        for i in sample:
            begin, end = int(part.begin[i]), int(part.end[i])
            fits = self.live[begin:end] & part.live[i]
            for words, probe in zip(self.words, part.probes, strict=True):
                fits &= (words[begin:end] >= probe.low[0, i]) & (words[begin:end] <= probe.high[0, i])
            found.append(np.flatnonzero(fits) + begin)
        return found


class Stream:
    """Feeds an engine and the references with random tuples."""

    def __init__(
        self, seed: int, words: dict[Side, tuple[str, str]], merge_rows: int, window: dict[Side, int], threads: int
    ) -> None:
        self.rng = np.random.default_rng(seed)
        self.window = window
        types = {side: tuple("uint32" if one == "uint32" else "uint64" for one in words[side]) for side in SIDES}
        self.dtypes = {side: [np.dtype(one) for one in types[side]] for side in SIDES}
        self.engine = engine(types, threads, merge_rows, window)  # type: ignore[arg-type]
        self.held = {side: Reference([np.zeros(0, one) for one in self.dtypes[side]]) for side in SIDES}
        self.begin: dict[Side, int] = {"r": 0, "s": 0}
        self.span = int(self.rng.choice([3, 50, 10**6]))
        self.dead = float(self.rng.choice([0.0, 0.0, 0.1, 0.9]))
        self.shapes = {side: self.rng.choice(SHAPES, 2) for side in SIDES}
        self.correlated = False
        """Whether key b is about as large as key a, so that ranges of both are wide and hold few tuples together."""

    def values(self, n: int, dtype: np.dtype[np.unsignedinteger]) -> Array:
        """Words with ties, also at the ends of the type."""
        middle = 1 << (8 * dtype.itemsize - 1)
        drawn = (self.rng.integers(0, self.span, n) + (middle - self.span // 2)).astype(dtype)
        extreme = self.rng.random(n) < 0.05
        drawn[extreme] = self.rng.choice(np.array([0, 1, np.iinfo(dtype).max - 1, np.iinfo(dtype).max], dtype), n)[
            extreme
        ]
        return drawn

    def probe(self, n: int, dtype: np.dtype[np.unsignedinteger], shape: str) -> KeyProbe:
        low, high = np.zeros(n, dtype), np.full(n, np.iinfo(dtype).max)
        if shape in ("at least", "any"):
            low = self.values(n, dtype)
        if shape in ("at most", "any"):
            high = self.values(n, dtype)
        if shape == "band":
            middle, width = self.values(n, dtype), dtype.type(self.rng.integers(0, max(2, self.span // 4)))
            low = np.where(middle < width, dtype.type(0), middle - width)
            high = np.where(middle > np.iinfo(dtype).max - width, np.iinfo(dtype).max, middle + width)
        return KeyProbe.of(low.astype(dtype)[None], high.astype(dtype)[None])

    def along_a_line(self, n: int, side: Side) -> tuple[tuple[Array, ...], tuple[KeyProbe, ...]]:
        """Tuples with about equal keys; each searches for larger a and smaller b."""
        at, noise = self.rng.integers(1000, 1 << 31, n), self.rng.integers(-900, 900, (4, n)) * 500_000
        near = [np.clip(at + one, 1, (1 << 32) - 2) for one in noise]
        words = tuple(near[key].astype(dtype) for key, dtype in enumerate(self.dtypes[side]))
        a, b = self.dtypes[other(side)]
        above = KeyProbe.of(near[2].astype(a)[None], np.full((1, n), np.iinfo(a).max, a))
        below = KeyProbe.of(np.zeros((1, n), b), near[3].astype(b)[None])
        return words, (above, below)

    def part(self, side: Side, n: int, end: Array, exact: bool) -> SideProbes:
        """New tuples of a side; with `exact`, windows are those of a count, else they slide at random."""
        partner = other(side)
        begin = np.maximum(end - self.window[partner], 0)
        if not exact and n:
            more = np.sort(self.rng.integers(0, self.window[partner] // 4 + 1, n))
            begin = np.maximum.accumulate(np.minimum(begin + more, end))
        begin = np.maximum(begin, self.begin[partner])
        if n:
            self.begin[partner] = int(begin[-1])
        words = tuple(self.values(n, dtype) for dtype in self.dtypes[side])
        probes = tuple(
            self.probe(n, dtype, str(shape))
            for dtype, shape in zip(self.dtypes[partner], self.shapes[partner], strict=True)
        )
        if self.correlated:
            words, probes = self.along_a_line(n, side)
        return SideProbes(len(self.held[side].live), self.rng.random(n) >= self.dead, begin, end, words, probes)

    def step(self, r: int, s: int, want: bool) -> None:
        """Push tuples of both sides, interleaved, and compare what the engine finds."""
        order = arrival_order(r, s)
        self.rng.shuffle(order)
        exact = bool(self.rng.random() < 0.7)
        before = {side: len(self.held[side].live) for side in SIDES}
        seen = {
            "r": before["s"] + np.cumsum(order == 1)[order == 0],
            "s": before["r"] + np.cumsum(order == 0)[order == 1],
        }
        batch_r = self.part("r", r, seen["r"], exact)
        batch_s = self.part("s", s, seen["s"], exact)
        self.held["r"].append(batch_r.words, batch_r.live)
        self.held["s"].append(batch_s.words, batch_s.live)
        keep = tuple(
            min(max(len(self.held[side].live) - self.window[side], self.begin[side]), len(self.held[side].live))
            for side in SIDES
        )
        self.begin = dict(zip(SIDES, keep, strict=True))
        found = self.engine.step(ProbeBatch(batch_r, batch_s, order, (keep[0], keep[1])), want)
        check(found[0], self.held["s"], batch_r, want, self.rng)
        check(found[1], self.held["r"], batch_s, want, self.rng)


def check(found: Matches, held: Reference, part: SideProbes, want: bool, rng: np.random.Generator) -> None:
    """Counts, positions and own positions of up to `SAMPLE` tuples are the expected ones."""
    n = len(part)
    assert len(found.counts) == n
    sample = np.arange(n) if n <= SAMPLE else np.sort(rng.choice(n, SAMPLE, replace=False))
    expected = held.matches(part, sample)
    assert found.counts[sample].tolist() == [len(one) for one in expected]
    if not want or n == 0:
        assert (found.positions is None) == (not want)
        return
    assert found.positions is not None
    assert found.own_positions is not None
    stops = np.cumsum(found.counts)
    assert len(found.positions) == len(found.own_positions) == stops[-1]
    for i, partners in zip(sample, expected, strict=True):
        at = slice(stops[i] - found.counts[i], stops[i])
        assert np.array_equal(found.positions[at], partners)
        assert (found.own_positions[at] == part.first + i).all()
