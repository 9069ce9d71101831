"""`mr.ScaleGate` against brute force over random interleavings, its errors, and its memory."""

from __future__ import annotations

import copy
import pickle
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

import millrace as mr
from millrace.host.stream import scalegate_kernel as kernels

Row = tuple[int, int, int]
"""Time, source, seq."""


@dataclass
class Expected:
    """The gate's rules in plain Python: every row is compared with every source's clock."""

    sources: int
    rows: list[Row] = field(default_factory=list)
    clocks: dict[int, int] = field(default_factory=dict)
    closed: set[int] = field(default_factory=set)
    seqs: dict[int, int] = field(default_factory=dict)
    late: int = 0
    nulls: int = 0

    def add(self, source: int, times: list[int | None]) -> None:
        for time in times:
            seq = self.seqs.get(source, 0)
            self.seqs[source] = seq + 1
            if time is None:
                self.nulls += 1
            elif time < self.clocks.get(source, time):
                self.late += 1
            else:
                self.clocks[source] = time
                self.rows.append((time, source, seq))

    def advance(self, source: int, time: int) -> None:
        self.clocks[source] = max(time, self.clocks.get(source, time))

    def ready(self) -> list[Row]:
        """All rows that no open source can still come before, in order."""

        def is_ready(row: Row) -> bool:
            still = set(range(self.sources)) - self.closed
            return all(q in self.clocks and (self.clocks[q], q) >= row[:2] for q in still)

        return sorted(row for row in self.rows if is_ready(row))


def rows_of(table: pa.Table) -> list[Row]:
    if "ts" not in table.column_names:  # before the first batch
        return []
    return list(zip(*(table[name].to_pylist() for name in ("ts", "source", "seq")), strict=True))


def batch_of(source: int, first: int, times: list[int | None]) -> pa.Table:
    """Rows with a payload that says which row it is."""
    names = [f"{source}/{first + i}" for i in range(len(times))]
    return pa.table({"ts": pa.array(times, pa.int64()), "name": pa.array(names, pa.string())})


@pytest.mark.parametrize("seed", range(40))
def test_random_interleavings_match_brute_force(seed: int) -> None:
    rng = random.Random(seed)
    sources, readers = rng.choice([1, 2, 3, 5, 9]), rng.choice([1, 2, 3])
    gate = mr.ScaleGate(sources=sources, readers=readers, time="ts")
    model = Expected(sources)
    got: list[list[Row]] = [[] for _ in range(readers)]
    step = rng.choice([1, 2, 50])
    for _ in range(rng.choice([20, 120])):
        source, action = rng.randrange(sources), rng.random()
        if source in model.closed:
            with pytest.raises(mr.StateError, match="closed"):
                gate.add(source, batch_of(source, 0, [1]))
        elif action < 0.7:
            times: list[int | None] = []
            now = model.clocks.get(source, rng.randrange(10))
            for _ in range(rng.choice([0, 1, 1, 3, 20])):
                now += rng.randrange(step + 1)
                times.append(rng.choice([now, now, now, now, now - rng.randrange(4), None]))
            gate.add(source, batch_of(source, model.seqs.get(source, 0), times))
            model.add(source, times)
        elif action < 0.8:
            time = model.clocks.get(source, 0) + rng.randrange(-3, 2 * step + 3)
            gate.advance(source, time)
            model.advance(source, time)
        elif action < 0.83:
            gate.close(source)
            model.closed.add(source)
        for reader in range(readers):
            if rng.random() < 0.3:
                table = gate.ready(reader)
                got[reader] += rows_of(table)
                assert got[reader] == model.ready()
                assert not table.num_rows or table["name"].to_pylist() == [f"{q}/{n}" for _, q, n in rows_of(table)]
    for source in range(sources):
        gate.close(source)
    for reader in range(readers):
        got[reader] += rows_of(gate.ready(reader))
        assert got[reader] == sorted(model.rows)
    stats = gate.stats
    assert (stats.rows, stats.late, stats.null_times) == (sum(model.seqs.values()), model.late, model.nulls)
    assert (stats.pending, stats.held, stats.open_sources) == (0, 0, 0)


def test_threads_add_and_read_at_once() -> None:
    """Four sources and two readers in six threads: every reader gets every row, in one order."""
    sources, batches, size = 4, 60, 50
    gate = mr.ScaleGate(sources=sources, readers=2, time="ts")
    got: list[list[Row]] = [[], []]
    failures: list[BaseException] = []

    def add(source: int) -> None:
        rng = random.Random(source)
        now = 0
        for number in range(batches):
            times: list[int | None] = []
            for _ in range(size):
                now += rng.randrange(3)
                times.append(now)
            gate.add(source, batch_of(source, number * size, times))
        gate.close(source)

    def read(reader: int) -> None:
        while len(got[reader]) < sources * batches * size and not failures:
            got[reader] += rows_of(gate.ready(reader))

    def guarded(work: Callable[[int], None], number: int) -> None:
        try:
            work(number)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(add, q)) for q in range(sources)]
    threads += [threading.Thread(target=guarded, args=(read, r)) for r in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert got[0] == got[1] == sorted(got[0])
    assert len(set(got[0])) == sources * batches * size


def test_large_batches_grow_the_rings() -> None:
    gate = mr.ScaleGate(sources=2, readers=1, time="ts")
    n = 200_000
    gate.add(0, pa.table({"ts": range(0, 2 * n, 2)}))
    assert gate.stats.pending == n
    gate.add(1, pa.table({"ts": range(1, 2 * n, 2)}))
    gate.close(0)
    gate.close(1)
    assert gate.ready(0)["ts"].to_pylist() == list(range(2 * n))


def test_memory_is_freed_behind_the_slowest_reader() -> None:
    gate = mr.ScaleGate(sources=1, readers=2, time="ts")
    before = pa.total_allocated_bytes()
    for number in range(50):
        gate.add(0, pa.table({"ts": pa.array([number] * 1000, pa.int64()), "text": ["x" * 100] * 1000}))
        assert gate.ready(0).num_rows == 1000
    assert gate.stats.held == 50_000
    assert gate.ready(1).num_rows == 50_000
    assert gate.stats.held == 0
    assert pa.total_allocated_bytes() - before < 1 << 20


def test_the_memory_of_a_burst_is_given_back() -> None:
    """Rings grow for the rows that wait for a silent source, and shrink when these have been merged."""
    gate = mr.ScaleGate(sources=3, readers=1, time="ts")
    n = 1 << 18
    gate.add(0, pa.table({"ts": range(n)}))
    assert gate._gate.ring_size == n
    gate.add(1, pa.table({"ts": range(0, 2 * n, 2)}))
    gate.close(2)
    gate.add(0, pa.table({"ts": [n, n + 1]}))
    got = rows_of(gate.ready(0))
    assert gate._gate.ring_size > gate.stats.pending > 0
    gate.close(0)
    gate.close(1)
    got += rows_of(gate.ready(0))
    assert got == sorted([(ts, 0, ts) for ts in range(n + 2)] + [(2 * i, 1, i) for i in range(n)])
    assert gate._gate.ring_size <= 1 << 14


def test_an_interrupt_while_rings_move_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    real = kernels.use_rings
    for line in ("before", "after"):
        gate = mr.ScaleGate(sources=1, readers=1, time="ts")
        gate.add(0, pa.table({"ts": range(1000)}))

        def interrupted(*given: int, line: str = line) -> None:
            if line == "after":
                real(*given)
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(kernels, "use_rings", interrupted)
            with pytest.raises(KeyboardInterrupt):
                gate.add(0, pa.table({"ts": range(1000, 5000)}))
        gate.add(0, pa.table({"ts": range(1000, 5000)}))
        assert rows_of(gate.ready(0)) == [(ts, 0, ts) for ts in range(5000)]


def test_a_gate_is_not_copied() -> None:
    gate = mr.ScaleGate(sources=1, readers=1, time="ts")
    for copied in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(mr.StateError, match="another gate"):
            copied(gate)


def test_times_of_any_kind_and_instants_between_ticks() -> None:
    gate = mr.ScaleGate(sources=2, readers=1, time="ts")
    seconds = pa.timestamp("s", "UTC")
    gate.advance(1, datetime(1970, 1, 1, 0, 0, 1, 500_000, UTC))
    assert gate.ready(0).to_pydict() == {"source": [], "seq": []}
    gate.add(0, pa.table({"ts": pa.array([1, 2, 3], seconds)}))
    # Source 1 cannot come before second 2: its next row is at 2 or later, and source 0 goes first at equal times.
    assert gate.ready(0)["seq"].to_pylist() == [0, 1]
    gate.add(1, pa.table({"ts": pa.array([1, 2], seconds)}))
    assert gate.stats.late == 1
    with pytest.raises(mr.ArgumentError, match="an integer"):
        gate.advance(0, 5)
    with pytest.raises(mr.ArgumentError, match="without a zone"):
        gate.advance(0, datetime(1970, 1, 1))


def test_the_largest_and_least_times_work() -> None:
    gate = mr.ScaleGate(sources=2, readers=1, time="ts")
    ends = [-(2**63), 2**63 - 1]
    gate.add(0, pa.table({"ts": ends}))
    gate.add(1, pa.table({"ts": ends}))
    assert rows_of(gate.ready(0)) == [(ends[0], 0, 0), (ends[0], 1, 0), (ends[1], 0, 1)]
    gate.close(0)
    assert rows_of(gate.ready(0)) == [(ends[1], 1, 1)]


BAD_ARGUMENTS: list[dict[str, Any]] = [
    {"sources": 0},
    {"sources": True},
    {"sources": 1 << 17},
    {"readers": 0},
    {"readers": 1.5},
    {"time": 3},
    {"capacity": 0},
]


@pytest.mark.parametrize("wrong", BAD_ARGUMENTS, ids=str)
def test_bad_arguments(wrong: dict[str, Any]) -> None:
    with pytest.raises(mr.ArgumentError, match=next(iter(wrong))):
        mr.ScaleGate(**{"sources": 2, "readers": 1, "time": "ts", **wrong})


def test_bad_calls_change_nothing() -> None:
    gate = mr.ScaleGate(sources=2, readers=1, time="ts", capacity=5)
    for wrong in (2, -1, True, "0", None):
        with pytest.raises(mr.ArgumentError, match="2 sources"):
            gate.add(wrong, pa.table({"ts": [1]}))  # type: ignore[arg-type]
        with pytest.raises(mr.ArgumentError, match=r"readers|sources"):
            gate.ready(2 if wrong == 2 else wrong)  # type: ignore[arg-type]
    for columns, message in (
        ({"x": [1]}, "no such column"),
        ({"ts": ["a"]}, "cast it first"),
        ({"ts": [1], "seq": [1]}, "rename"),
        ({"ts": [1], "source": [1]}, "rename"),
    ):
        with pytest.raises(mr.SchemaError, match=message):
            gate.add(0, pa.table(columns))
    gate.add(0, pa.table({"ts": [1, 2], "x": [0, 0]}))
    with pytest.raises(mr.SchemaError, match="x is missing"):
        gate.add(1, pa.table({"ts": [1]}))
    with pytest.raises(mr.ArgumentError, match="not a point in time"):
        gate.advance(0, "yesterday")
    with pytest.raises(mr.StateError, match="reader 0, 2 of them because source 1 is behind"):
        gate.add(0, pa.table({"ts": [3] * 4, "x": [0] * 4}))
    gate.close(1)
    assert gate.ready(0)["ts"].to_pylist() == [1, 2]
    gate.add(0, pa.table({"ts": [3] * 4, "x": [0] * 4}))
    assert gate.ready(0)["seq"].to_pylist() == [2, 3, 4, 5]
    assert "2 sources" in repr(gate)
    assert "ScaleGate" in gate._repr_html_()
