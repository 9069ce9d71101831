"""`mr.LiveJoin` under stress: producers that pause, burst and stall, consumers that come and leave, small capacities.

No pair may be lost, doubled or misordered, nothing may hang, and memory must stay flat over many turnovers of the
window. A watchdog dumps the state of a join that makes no progress for minutes. Every run draws another seed, which
a failure names. `pytest -m long` runs for a minute.
"""

from __future__ import annotations

import faulthandler
import os
import random
import resource
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import millrace as mr

SECONDS, LONG_SECONDS = 10.0, 60.0
STUCK_SECONDS = 300
SCHEMA = pa.schema([("x", pa.int64()), ("ts", pa.int64())])
SCHEMAS = {"r": SCHEMA, "s": SCHEMA}
KINDS: list[dict[str, Any]] = [
    {"window": "300 rows"},
    {"window": "300 rows", "index": "pim"},
    {"window": "300 rows", "index": "im"},
    {"window": "300 rows", "index": "chain"},
    {"window": "300 rows", "index": "scan", "on": "r.x < s.x AND r.x + 4 > s.x"},
    {"window": "200", "time": "ts", "sources": {"r": 2, "s": 2}},
    {"window": "100 rows", "self_join": True, "index": "btree"},
]


class Watchdog:
    """Ends the test with a dump if `progress()` returns the same for minutes."""

    def __init__(self, progress: Callable[[], object]) -> None:
        self._progress, self._over = progress, threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Watchdog:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        last, since = self._progress(), time.monotonic()
        while not self._over.wait(1.0):
            now = self._progress()
            if now != last:
                last, since = now, time.monotonic()
            elif time.monotonic() - since > STUCK_SECONDS:
                sys.stderr.write(f"no progress: {now}\n")
                faulthandler.dump_traceback(all_threads=True)
                os._exit(1)


class Session:
    """One join with random producers and consumers, until a time."""

    def __init__(self, seed: int, until: float) -> None:
        self._rng = random.Random(seed)
        kind = dict(self._rng.choice(KINDS))
        self._self_join = bool(kind.get("self_join"))
        self._timed = "time" in kind
        schemas = {"r": SCHEMA} if self._self_join else SCHEMAS
        self.arguments = {"on": "abs(r.x - s.x) <= 3", **kind, "schemas": schemas}
        threads, capacity = self._rng.choice([1, 2, 3]), self._rng.choice([1, 7, 500, 100_000])
        self.live = mr.LiveJoin(**self.arguments, threads=threads, capacity=capacity)
        self._until = until
        self._done: list[tuple[int, str, int, pa.Table]] = []
        self._got: list[tuple[int, pa.Table]] = []
        self._turn = threading.Lock()
        self._over = threading.Event()

    def run(self) -> None:
        """Run producers and consumers, then compare with a window join."""
        sides = ["r"] if self._self_join else ["r", "s"]
        owners = [(side, q) for side in sides for q in range(2 if self._timed else 1)]
        # Several threads may feed one source, unless rows of one would be late because of another.
        owners = [owner for owner in owners for _ in range(1 if self._timed else self._rng.randrange(1, 4))]
        producers = [threading.Thread(target=self._produce, args=(*o, self._rng.random())) for o in owners]
        count = self._rng.randrange(1, 4)
        consumers = [threading.Thread(target=self._consume, args=(self._rng.random(), n > 0)) for n in range(count)]
        with Watchdog(lambda: (self.live.stats["arrived"], self.live.stats["queued"], len(self._got))):
            for thread in (*producers, *consumers):
                thread.start()
            for thread in producers:
                thread.join()
            last = self.live.close()
            self._over.set()
            for thread in consumers:
                thread.join()
        self._compare(last)

    def _produce(self, side: str, source: int, seed: float) -> None:
        """Put rows at changing paces, stall, burst; some producers leave early."""
        rng, now = random.Random(seed), 0
        until = self._until - (rng.random() if rng.random() < 0.3 else 0)
        while time.monotonic() < until:
            pace = rng.choice([0, 0, 0.0001, 0.001, 0.02])
            if rng.random() < 0.05:
                time.sleep(0.3 * rng.random())
            for _ in range(rng.randrange(1, 30)):
                count = rng.choice([1, 1, 1, 5, 40])
                now += rng.randrange(3)
                x, ts = [rng.randrange(500) for _ in range(count)], [now + rng.randrange(2) for _ in range(count)]
                rows = pa.table({"x": x, "ts": ts}, SCHEMA)
                self._put(side, source, rows, as_mapping=count == 1 and rng.random() < 0.5)
                if pace:
                    time.sleep(pace * rng.random())
            if self._timed and rng.random() < 0.2:
                self.live.advance(side, now, source)

    def _put(self, side: str, source: int, rows: pa.Table, as_mapping: bool) -> None:
        given: Any = rows.to_pylist()[0] if as_mapping else rows
        while time.monotonic() < self._until + 30:
            try:
                self._done.append((self.live.put(side, given, source, timeout=0.05), side, source, rows))
                return
            except mr.StateError as error:
                if "capacity" not in str(error):
                    raise

    def _consume(self, seed: float, leaves: bool) -> None:
        """Poll, in turns with the other consumers, so that the order of the tables is known; all but one may leave."""
        rng = random.Random(seed)
        while not self._over.is_set():
            with self._turn:
                try:
                    pairs = self.live.poll(rng.choice([0.0, 0.0001, 0.01]))
                except mr.StateError:
                    return
                self._got.append((len(self._got), pairs))
            if rng.random() < 0.1:
                time.sleep(0.01 * rng.random())
            if leaves and rng.random() < 0.01:
                return

    def _compare(self, last: pa.Table) -> None:
        join = mr.WindowJoin(**self.arguments)
        tables = []
        for _, side, source, rows in sorted(self._done, key=lambda one: one[0]):
            tables.append(join.push(side, rows, source))
        expected = pa.concat_tables([*tables, join.close()])
        assert pa.concat_tables([*(pairs for _, pairs in self._got), last]).equals(expected)


def test_random_sessions_lose_double_and_misorder_nothing() -> None:
    stress(SECONDS)


@pytest.mark.long
def test_a_minute_of_random_sessions() -> None:
    stress(LONG_SECONDS)


def stress(duration: float) -> None:
    """Random sessions, one after the other."""
    end, seed = time.monotonic() + duration, random.randrange(10**6)
    sessions = 0
    while time.monotonic() < end:
        try:
            Session(seed + sessions, min(end, time.monotonic() + 1.5)).run()
        except BaseException as error:
            error.add_note(f"seed {seed + sessions}")
            raise
        sessions += 1
    assert sessions > 0


@pytest.mark.parametrize("index", ["auto", "pim"])
def test_memory_is_flat_over_many_turnovers_of_the_window(index: Any) -> None:
    """100 turnovers of both windows; a turnover of rows with text is about a megabyte."""
    schema = pa.schema([("x", pa.int64()), ("text", pa.string())])
    rows = pa.table({"x": list(range(2000)), "text": ["t" * 200] * 2000}, schema)
    live = mr.LiveJoin("r.x = s.x", window="2000 rows", schemas={"r": schema, "s": schema}, index=index)
    peaks = []
    for turnover in range(100):
        live.put("r", rows)
        live.put("s", rows)
        live.flush()
        if turnover in (20, 99):
            peaks.append((pa.total_allocated_bytes(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024))
    live.close()
    assert peaks[1][0] - peaks[0][0] < 4 << 20
    assert peaks[1][1] - peaks[0][1] < 24 << 20
