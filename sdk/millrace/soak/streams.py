"""Joins of streams in a soak: `mr.WindowJoin`, `mr.KnnJoin` and `mr.LiveJoin`, with checkpoints and restores."""

from __future__ import annotations

import time
import warnings
from abc import abstractmethod
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa

from millrace.knn_stream import KnnJoin
from millrace.live_join import LiveJoin
from millrace.soak.base import CPU_INDEXES, DEVICE_INDEXES, SCHEMA, SIMULATED, Operator, table_of
from millrace.soak.reference import KINDS, Longs, ReferenceJoin, ReferenceNeighbours
from millrace.state.join_state import StateDelta
from millrace.window_join import WindowJoin


class StateStore:
    """What a user stores of a join: its runs and the manifest."""

    def __init__(self) -> None:
        """Nothing is stored."""
        self.manifest, self.runs = b"", dict[str, bytes]()

    def add(self, delta: StateDelta) -> None:
        """Store a delta."""
        self.manifest = delta.manifest
        self.runs |= delta.added
        for name in delta.removed:
            del self.runs[name]

    @property
    def size(self) -> int:
        """Bytes stored."""
        return len(self.manifest) + sum(map(len, self.runs.values()))


class StreamOperator(Operator):
    """Pushes, flushes and checkpoints of a join of streams."""

    kind: type[WindowJoin] | type[KnnJoin]
    columns: tuple[str, ...] = ("r_seq", "s_seq")

    def __init__(self, rng: Random, device: str, window: int) -> None:
        super().__init__(rng, device, window)
        self.arguments: dict[str, Any] = {"device": device, "threads": rng.choice((1, 2)), "window": f"{window} rows"}
        if device != "cpu" and rng.random() < 0.5:
            self.arguments["fallback"] = "cpu"
        self.store, self.now = StateStore(), 0
        self.set_up()
        self.join: Any = self.call(lambda: self.kind(**self.arguments))

    @abstractmethod
    def set_up(self) -> None:
        """The arguments and the reference."""

    @abstractmethod
    def wanted(self, side: int, rows: Longs) -> Longs:
        """What a push must return."""

    def step(self) -> None:
        if self.rng.random() < 0.03:
            self.checkpoint()
        side, rows = self.rng.randrange(2), self.rows(self.batch_size(), self.now)
        self.now += rows.shape[1] // 2
        found = self.call(lambda: self.join.push("rs"[side], table_of(rows)))
        self.expect(self.as_array(found), self.wanted(side, rows), "a push")
        self.turnovers += rows.shape[1] / (2 * self.window)

    @property
    def fell_back(self) -> bool:
        return bool(self.join.stats["fallback"])

    def checkpoint(self) -> None:
        """Store the state; now and then, go on with a join that was restored from it."""
        self.store.add(self.call(self.join.state))
        self.state_bytes = self.store.size
        if self.rng.random() < 0.5:
            old = self.join
            self.join = self.call(lambda: self.kind.restore(self.store.manifest, self.store.runs, **self.arguments))
            _leave(old)

    def as_array(self, table: pa.Table) -> Longs:
        """The numbers of an output."""
        return np.stack([table.column(name).to_numpy().astype(np.int64) for name in self.columns])

    def close(self) -> None:
        _leave(self.join)

    def describe(self) -> str:
        chosen = {name: value for name, value in self.arguments.items() if name not in ("device", "schemas")}
        return f"{self.name} on {self.device}: {chosen}"


class WindowJoins(StreamOperator):
    """`mr.WindowJoin`, by arrival or by time."""

    name, kind = "WindowJoin", WindowJoin

    def set_up(self) -> None:
        kind = "band" if self.device in SIMULATED else self.rng.choice(list(KINDS))
        on_cpu = self.device == "cpu"
        self.timed, lateness = self.rng.random() < 0.5, self.rng.choice((0, 3))
        self.arguments |= {"on": KINDS[kind][0]}
        self.arguments["index"] = self.rng.choice(CPU_INDEXES[kind]) if on_cpu else DEVICE_INDEXES[kind]
        if self.timed:
            self.arguments |= {"window": str(self.window), "time": "ts", "lateness": lateness}
        self.reference = ReferenceJoin(kind, self.window, self.timed, lateness)

    def wanted(self, side: int, rows: Longs) -> Longs:
        return self.reference.push(side, rows)

    def finish(self) -> None:
        self.expect(self.as_array(self.call(self.join.flush)), self.reference.flush(), "a flush")


class KnnJoins(StreamOperator):
    """`mr.KnnJoin`."""

    name, kind, columns = "KnnJoin", KnnJoin, ("r_seq", "rank", "s_seq", "squares")

    def set_up(self) -> None:
        k = self.rng.choice((1, 3, 8))
        options = {"partitions": 4} if self.device == "cpu" and self.rng.random() < 0.3 else None
        self.arguments |= {"on": ("x", "y"), "k": k, "options": options, "output": "seqs"}
        self.reference = ReferenceNeighbours(k, self.window)

    def wanted(self, side: int, rows: Longs) -> Longs:
        return self.reference.push(side, rows)

    def as_array(self, table: pa.Table) -> Longs:
        squares = np.rint(table.column("distance").to_numpy() ** 2)
        return super().as_array(table.append_column("squares", pa.array(squares)))


class LiveJoins(StreamOperator):
    """`mr.LiveJoin`: puts, polls at random, and pauses; the order of puts decides the output."""

    name = "LiveJoin"
    kind: Any = LiveJoin

    def set_up(self) -> None:
        kind = self.rng.choice(list(KINDS))
        self.arguments |= {"on": KINDS[kind][0], "index": self.rng.choice(CPU_INDEXES[kind])}
        self.arguments |= {"schemas": {"r": SCHEMA, "s": SCHEMA}}
        self.reference = ReferenceJoin(kind, self.window, False)
        self._found: list[Longs] = []
        self._wanted: list[Longs] = []

    def wanted(self, side: int, rows: Longs) -> Longs:
        return self.reference.push(side, rows)

    def step(self) -> None:
        side, rows = self.rng.randrange(2), self.rows(self.batch_size())
        self.call(lambda: self.join.put("rs"[side], table_of(rows)))
        self._wanted.append(self.wanted(side, rows))
        self.turnovers += rows.shape[1] / (2 * self.window)
        if self.rng.random() < 0.3:
            time.sleep(self.rng.random() * 0.002)
            self._found.append(self.as_array(self.call(self.join.poll)))
        if self.rng.random() < 0.05:
            self.finish()
            self.checkpoint()

    def finish(self) -> None:
        self._found.append(self.as_array(self.call(self.join.flush)))
        found, wanted = (
            np.concatenate(parts, axis=1) for parts in (self._found, self._wanted or [np.zeros((2, 0), np.int64)])
        )
        self.expect(found, wanted, "what was polled")
        self._found, self._wanted = [], []


def _leave(operator: Any) -> None:
    """Leave a join without its last rows."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        operator.__exit__(None, None, None)
