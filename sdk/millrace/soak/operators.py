"""The operators of a soak that are no joins of streams, and the table of all."""

from __future__ import annotations

import warnings
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa

from millrace.index import OrderedIndex
from millrace.knn_table import knn_join
from millrace.scalegate import ScaleGate
from millrace.soak.base import CPU_INDEXES, DEVICE_INDEXES, SIMULATED, Operator, table_of
from millrace.soak.reference import KINDS, Longs, MergeOrder, nearest
from millrace.soak.streams import KnnJoins, LiveJoins, WindowJoins
from millrace.table_join import join

DIRECT_ROWS = 1 << 13
"""Rows of tables that `mr.join` buckets by key."""


class Indexes(Operator):
    """`mr.OrderedIndex` with updates, lookups, ranges, and copies by `save` and `open`."""

    name = "OrderedIndex"

    def __init__(self, rng: Random, device: str, window: int) -> None:
        super().__init__(rng, device, window)
        self.layout: Any = rng.choice(("implicit", "regular"))
        self.arguments: dict[str, Any] = {"device": device, "threads": rng.choice((1, 2))}
        if device != "cpu" and rng.random() < 0.5:
            self.arguments["fallback"] = "cpu"
        keys = rng.sample(range(4 * window), window)
        self.held = {key: 7 * key for key in keys}
        values = pa.array([7 * key for key in keys])
        self.folder = TemporaryDirectory()
        self.index = self.call(lambda: OrderedIndex(pa.array(keys), values, layout=self.layout, **self.arguments))

    def step(self) -> None:
        draw = self.rng.random()
        if draw < 0.4:
            self._update()
        elif draw < 0.43:
            self._save_and_open()
        elif draw < 0.7:
            keys = [self.rng.randrange(5 * self.window) for _ in range(self.batch_size())]
            found = self.call(lambda: self.index.lookup(pa.array(keys, pa.int64()))).to_pylist()
            self.expect(found, [self.held.get(key) for key in keys], "a lookup")
        else:
            low = self.rng.randrange(4 * self.window)
            high = low + self.rng.randrange(self.window)
            found = self.call(lambda: self.index.range(low, high)).to_pylist()
            self.expect(found, [[self.held[k] for k in range(low, high + 1) if k in self.held]], "a range")

    @property
    def fell_back(self) -> bool:
        return bool(self.index.stats["fallback"])

    def _update(self) -> None:
        """Upsert some keys, and delete as many as keep the size."""
        keys = self.rng.sample(range(4 * self.window), min(self.batch_size(), self.window))
        value = self.rng.randrange(1 << 40)
        surplus = len(self.held.keys() | set(keys)) - self.window
        gone = self.rng.sample(sorted(self.held.keys() - set(keys)), max(0, surplus))
        upsert = (pa.array(keys, pa.int64()), pa.array([value] * len(keys), pa.int64()))
        mode: Any = self.rng.choice(("auto", "sync", "async"))
        self.call(lambda: self.index.update(upsert=upsert, delete=pa.array(gone, pa.int64()), mode=mode))
        self.held.update(dict.fromkeys(keys, value))
        for key in gone:
            del self.held[key]
        self.expect(len(self.index), len(self.held), "the number of keys")
        self.turnovers += len(keys) / self.window

    def _save_and_open(self) -> None:
        path = Path(self.folder.name) / "index"
        self.call(lambda: self.index.save(path))
        self.state_bytes = path.stat().st_size
        other = self.call(lambda: OrderedIndex.open(path, **self.arguments))
        self.index.close()
        self.index = other

    def finish(self) -> None:
        found = self.call(lambda: self.index.range(0, 5 * self.window)).to_pylist()
        self.expect(found, [[self.held[key] for key in sorted(self.held)]], "all rows")

    def close(self) -> None:
        self.index.close()
        self.folder.cleanup()

    def describe(self) -> str:
        return f"{self.name} on {self.device}: {self.layout}, {self.arguments}"


class Gates(Operator):
    """`mr.ScaleGate` with several sources and readers."""

    name = "ScaleGate"

    def __init__(self, rng: Random, device: str, window: int) -> None:
        super().__init__(rng, device, window)
        self.sources, self.readers = rng.choice((1, 2, 5)), rng.choice((1, 3))
        self.gate = ScaleGate(sources=self.sources, readers=self.readers, time="ts")
        self.order, self.now = MergeOrder(self.sources), 0
        self.seqs = [0] * self.sources
        self.merged: list[tuple[int, int, int]] = []
        self.read = [0] * self.readers

    def step(self) -> None:
        source, rows = self.rng.randrange(self.sources), self.rows(self.batch_size(), self.now)
        self.now += rows.shape[1] // self.sources
        self.call(lambda: self.gate.add(source, table_of(rows)))
        for ts in rows[0].tolist():
            self.order.push(source, ts, self.seqs[source])
            self.seqs[source] += 1
        if self.rng.random() < 0.1:
            self.call(lambda: self.gate.advance(source, self.now))
            self.order.advance(source, self.now)
        self.merged += list(self.order.ready())
        self._read(self.rng.randrange(self.readers))
        self.turnovers += rows.shape[1] / self.window

    def _read(self, reader: int) -> None:
        found = self.call(lambda: self.gate.ready(reader))
        rows = list(zip(*(found.column(name).to_pylist() for name in ("ts", "source", "seq")), strict=True))
        self.expect(rows, self.merged[self.read[reader] :], "what a reader got")
        self.read[reader] = len(self.merged)
        if min(self.read) > 10 * self.window:
            done = min(self.read)
            self.merged, self.read = self.merged[done:], [at - done for at in self.read]

    def finish(self) -> None:
        for reader in range(self.readers if any(self.seqs) else 0):  # without a row, the columns are not known
            self._read(reader)


class Tables(Operator):
    """`mr.join` and `mr.knn_join`."""

    name = "tables"

    @property
    def fell_back(self) -> bool:
        return self._warned

    def __init__(self, rng: Random, device: str, window: int) -> None:
        super().__init__(rng, device, window)
        self._warned = False

    def step(self) -> None:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", RuntimeWarning)
            self._step()
        self._warned = self._warned or any("fell back" in str(one.message) for one in caught)

    def _step(self) -> None:
        r, s = (self.rows(self.rng.randrange(1, self.window + 1)) for _ in range(2))
        arguments: dict[str, Any] = {"device": self.device, "threads": self.rng.choice((1, 2)), "output": "seqs"}
        if self.device != "cpu" and self.rng.random() < 0.5:
            arguments["fallback"] = "cpu"
        if self.device == "cpu" and self.rng.random() < 0.1:
            self._direct_join(arguments)
        elif self.rng.random() < 0.5 or self.device in SIMULATED:
            self._join(r, s, arguments)
        else:
            self._neighbours(r, s, arguments)
        self.turnovers += 1

    def _join(self, r: Longs, s: Longs, arguments: dict[str, Any]) -> None:
        kind = "band" if self.device in SIMULATED else self.rng.choice(list(KINDS))
        index: Any = self.rng.choice(CPU_INDEXES[kind]) if self.device == "cpu" else DEVICE_INDEXES[kind]
        on, holds = KINDS[kind]
        found = self.call(lambda: join(table_of(r), table_of(s), on, index=index, **arguments))
        pairs = np.nonzero(holds(r[1:, :, None], s[1:, None, :]))
        self.expect(_arrays(found, ("r_seq", "s_seq")), np.stack(pairs), f"mr.join {on} by {index}")

    def _direct_join(self, arguments: dict[str, Any]) -> None:
        """Tables that are large enough to be joined by buckets of keys."""
        rng = np.random.default_rng(self.rng.randrange(1 << 62))
        r, s = (np.stack([np.zeros(DIRECT_ROWS, np.int64), *rng.integers(0, 20_000, (2, DIRECT_ROWS))]) for _ in "rs")
        found = self.call(lambda: join(table_of(r), table_of(s), KINDS["equal"][0], index="bisort", **arguments))
        order = np.argsort(s[1], kind="stable")
        low, high = (np.searchsorted(s[1][order], r[1], side) for side in ("left", "right"))
        own = np.repeat(np.arange(DIRECT_ROWS), high - low)
        within = np.arange(len(own)) - np.repeat(np.cumsum(high - low) - (high - low), high - low)
        wanted = np.stack([own, order[np.repeat(low, high - low) + within]])
        self.expect(_arrays(found, ("r_seq", "s_seq")), wanted, "mr.join of larger tables")

    def _neighbours(self, r: Longs, s: Longs, arguments: dict[str, Any]) -> None:
        k = self.rng.choice((1, 4))
        found = self.call(lambda: knn_join(table_of(r), table_of(s), on=("x", "y"), k=k, **arguments))
        points = np.stack([np.arange(s.shape[1]), s[1], s[2]])
        wanted = [nearest(seq, x, y, points, k) for seq, (_, x, y) in enumerate(r.T.tolist())]
        self.expect(_arrays(found, ("r_seq", "rank", "s_seq")), np.concatenate(wanted, axis=1)[:3], "mr.knn_join")


OPERATORS: dict[str, type[Operator]] = {
    kind.name: kind for kind in (WindowJoins, KnnJoins, LiveJoins, Indexes, Gates, Tables)
}
RESIDENTS = ("WindowJoin", "KnnJoin", "LiveJoin", "OrderedIndex", "ScaleGate")
"""The operators that live as long as the soak."""


def operators_of(device: str) -> list[str]:
    """The operators that a device can run."""
    if device == "cpu":
        return list(OPERATORS)
    return ["WindowJoin", "tables"] if device in SIMULATED else ["WindowJoin", "KnnJoin", "OrderedIndex", "tables"]


def _arrays(table: pa.Table, names: tuple[str, ...]) -> Longs:
    return np.stack([table.column(name).to_numpy().astype(np.int64) for name in names])
