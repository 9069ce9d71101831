"""`mr.LiveJoin`: its output is that of a `WindowJoin` with the rows in the same order; errors, threads, the end."""

from __future__ import annotations

import gc
import os
import pickle
import random
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import millrace as mr
from millrace.live_join import LiveEngine
from tests.watchdog import WATCHDOG

SCHEMA = pa.schema([("x", pa.int64()), ("ts", pa.int64()), ("name", pa.string())])
SCHEMAS = {"r": SCHEMA, "s": SCHEMA}
ON = "abs(r.x - s.x) <= 2"
Put = tuple[str, int, pa.Table]
"""Side, source, rows."""

KINDS: dict[str, dict[str, Any]] = {
    "count": {"window": "20 rows"},
    "asymmetric": {"window": ("5 rows", "30 rows"), "index": "btree"},
    "two terms": {"window": "20 rows", "on": "r.x < s.x AND r.ts > s.ts", "index": "scan"},
    "self-join": {"window": "15 rows", "self_join": True},
    "time": {"window": "12", "time": "ts", "lateness": 3},
    "count by time": {"window": "9 rows", "time": "ts"},
    "sources": {"window": "12", "time": "ts", "sources": {"r": 2, "s": 3}},
    "counting": {"window": "20 rows", "output": "count"},
    "seqs": {"window": "20 rows", "output": "seqs", "index": "pim"},
}


def arguments(kind: str) -> dict[str, Any]:
    given = {"on": ON, **KINDS[kind]}
    return given | {"schemas": {"r": SCHEMA} if given.get("self_join") else SCHEMAS}


def rows_of(rng: random.Random, count: int, now: int) -> pa.Table:
    x = [rng.choice([None, *range(25)]) for _ in range(count)]
    ts = [None if rng.random() < 0.1 else now + rng.randrange(-2, 6) for _ in range(count)]
    return pa.table({"x": x, "ts": ts, "name": [f"n{rng.randrange(99)}" for _ in range(count)]}, SCHEMA)


def random_puts(seed: int, kind: str, count: int) -> list[Put]:
    rng = random.Random(seed)
    sources = KINDS[kind].get("sources", {"r": 1, "s": 1})
    puts = []
    for number in range(count):
        side = "r" if KINDS[kind].get("self_join") else rng.choice("rs")
        puts.append((side, rng.randrange(sources[side]), rows_of(rng, rng.choice([0, 1, 1, 2, 7]), number)))
    return puts


def expected(kind: str, puts: list[Put], advances: dict[int, tuple[str, int, int]] | None = None) -> pa.Table:
    """The output of a window join that gets the rows in this order."""
    join = mr.WindowJoin(**arguments(kind))
    tables = []
    for number, (side, source, rows) in enumerate(puts):
        if advances and number in advances:
            tables.append(join.advance(*advances[number]))
        tables.append(join.push(side, rows, source))
    return pa.concat_tables([*tables, join.close()])


def put_rows(live: mr.LiveJoin, put: Put, one_by_one: bool) -> int:
    side, source, rows = put
    if not one_by_one:
        return live.put(side, rows, source)
    numbers = [live.put(side, row, source) for row in rows.to_pylist()]
    return numbers[0] if numbers else live.put(side, rows)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(3))
def test_the_output_is_that_of_a_window_join(kind: str, seed: int) -> None:
    """Polled now and then, with rows as tables and as mappings, and clocks that advance."""
    rng = random.Random(seed)
    puts = random_puts(seed, kind, 60)
    timed = "time" in KINDS[kind]
    advances = {n: (*puts[n][:1], n + 5, puts[n][1]) for n in range(10, 60, 17)} if timed else {}
    got = []
    arrived = 0
    with mr.LiveJoin(**arguments(kind)) as live:
        for number, put in enumerate(puts):
            if number in advances:
                live.advance(*advances[number])
            assert put_rows(live, put, rng.random() < 0.3) == arrived
            arrived += put[2].num_rows
            if rng.random() < 0.2:
                got.append(live.poll(rng.choice([0, 0.001])))
        got.append(live.close())
    assert pa.concat_tables(got).equals(expected(kind, puts, advances))
    assert live.stats["arrived"] == arrived


@pytest.mark.parametrize("kind", ["count", "self-join", "sources"])
def test_a_restored_join_goes_on_with_results_that_were_not_polled(kind: str) -> None:
    puts = random_puts(7, kind, 60)
    got: list[pa.Table] = []
    runs: dict[str, bytes] = {}
    live = mr.LiveJoin(**arguments(kind))
    for number, put in enumerate(puts):
        if number in (13, 14, 40):
            delta = live.state()
            runs |= delta.added
            for name in delta.removed:
                del runs[name]
            unpolled, arrived = live.stats["unpolled"], live.stats["arrived"]
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ResourceWarning)
                live.__exit__(None, None, None)
            live = mr.LiveJoin.restore(delta.manifest, runs, **arguments(kind), capacity=100)
            assert (live.stats["unpolled"], live.stats["arrived"]) == (unpolled, arrived)
        put_rows(live, put, False)
        if number % 25 == 0:
            got.append(live.poll())
    got.append(live.close())
    assert pa.concat_tables(got).equals(expected(kind, puts))


def test_a_state_that_was_altered_is_refused() -> None:
    live = mr.LiveJoin(**arguments("count"))
    live.put("r", {"x": 1, "ts": 0, "name": "a"})
    live.put("s", {"x": 1, "ts": 0, "name": "b"})
    delta = live.state()
    pairs = next(n for n, data in delta.added.items() if b"r_seq" in data)
    with pytest.raises(mr.StateError, match="missing"):
        mr.LiveJoin.restore(delta.manifest, {n: d for n, d in delta.added.items() if n != pairs}, **arguments("count"))
    with pytest.raises(mr.StateError, match="altered"):
        mr.LiveJoin.restore(delta.manifest, {**delta.added, pairs: b"x"}, **arguments("count"))
    with pytest.raises(mr.StateError, match="manifest"):
        mr.LiveJoin.restore(b"x", delta.added, **arguments("count"))
    with pytest.raises(mr.StateError, match="arguments"):
        mr.LiveJoin.restore(delta.manifest, delta.added, **{**arguments("count"), "window": "21 rows"})
    assert live.close().num_rows == 1


def puts_by_threads(live: mr.LiveJoin, plans: list[list[Put]]) -> list[tuple[int, Put]]:
    """Put from one thread per plan; return all puts with their numbers."""
    done: list[tuple[int, Put]] = []

    def work(plan: list[Put]) -> None:
        for put in plan:
            done.append((live.put(put[0], put[2], put[1]), put))

    threads = [threading.Thread(target=work, args=(plan,)) for plan in plans]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return done


@pytest.mark.parametrize("kind", ["count", "sources"])
@pytest.mark.parametrize("capacity", [3, 1000])
def test_threads_put_and_poll_at_once(kind: str, capacity: int) -> None:
    """The numbers that `put` returns are the order of the rows. A small capacity makes producers wait."""
    plans = [[p for p in random_puts(i, kind, 80) if p[2].num_rows] for i in range(4)]
    if kind == "sources":  # a source belongs to one thread: its own order decides what is late
        plans = [[(("r", "r", "s", "s")[i], i % 2, rows) for _, _, rows in plans[i]] for i in range(4)]
    got: list[pa.Table] = []
    with mr.LiveJoin(**arguments(kind), capacity=capacity) as live:
        if kind == "sources":
            live.advance("s", 10**6, 2)
        reader = threading.Thread(target=lambda: got.extend(live))
        reader.start()
        done = puts_by_threads(live, plans)
        last = live.close()
        reader.join()
    done.sort(key=lambda one: one[0])
    assert [n for n, _ in done] == [sum(p[2].num_rows for _, p in done[:i]) for i in range(len(done))]
    order = [put for _, put in done]
    advances = {0: ("s", 10**6, 2)} if kind == "sources" else None
    assert pa.concat_tables([*got, last]).equals(expected(kind, order, advances))


def put_often(live: mr.LiveJoin, row: dict[str, Any]) -> None:
    for _ in range(100):
        live.put("s", row, timeout=0.05)


def test_results_that_nobody_polls_stop_the_worker_and_then_put() -> None:
    with mr.LiveJoin("r.x = s.x", window="100 rows", schemas=SCHEMAS, capacity=10) as live:
        row = {"x": 1, "ts": 0, "name": None}
        live.put("r", pa.Table.from_pylist(10 * [row], SCHEMA))
        with pytest.raises(mr.StateError, match="capacity=10"):
            put_often(live, row)
        stats = live.stats
        assert stats["unpolled"] >= 10
        assert stats["queued"] == 10
        assert live.flush().num_rows == 10 * (stats["arrived"] - 10)
        live.put("s", row, timeout=WATCHDOG)
        assert live.poll(timeout=None).num_rows == 10


def test_a_batch_larger_than_the_capacity_is_taken_when_nothing_waits() -> None:
    rows = rows_of(random.Random(1), 50, 0)
    with mr.LiveJoin(**arguments("count"), capacity=3) as live:
        assert [live.put("r", rows), live.put("s", rows)] == [0, 50]
        assert live.close().equals(expected("count", [("r", 0, rows), ("s", 0, rows)]))


def test_max_pending_refuses_the_put_that_would_wait() -> None:
    given = {**arguments("time"), "lateness": 0, "max_pending": 5}
    row = {"x": 1, "ts": 1, "name": "a"}
    with mr.LiveJoin(**given) as live:
        for number in range(5):
            live.put("r", {**row, "ts": number})
        with pytest.raises(mr.StateError, match="source 0 of side 's'"):
            live.put("r", {**row, "ts": 9})
        assert live.put("s", {**row, "ts": 3}) == 6, "the refused row has used up a number"
        assert live.flush()["r_seq"].to_pylist() == [0, 1, 2, 3, 4]
        assert live.stats["rows"] == {"r": 5, "s": 1}


# Errors of calls.


def test_bad_arguments() -> None:
    good = arguments("count")
    for wrong, error, text in (
        ({"capacity": 0}, mr.ArgumentError, "capacity=0"),
        ({"capacity": 1.5}, mr.ArgumentError, "capacity"),
        ({"threads": 0}, mr.ArgumentError, "threads=0"),
        ({"threads": 1025}, mr.ArgumentError, "at most 1024"),
        ({"device": "opencl"}, mr.DeviceUnavailable, "CPU only"),
        ({"schemas": {"r": SCHEMA}}, mr.ArgumentError, "lacks 's'"),
        ({"schemas": None}, mr.ArgumentError, "lacks 'r' and 's'"),
        ({"window": "0 rows"}, mr.ArgumentError, "window"),
        ({"on": "r.x + s.x"}, mr.PredicateError, "comparison"),
    ):
        with pytest.raises(error, match=text):
            mr.LiveJoin(**{**good, **wrong})
    with pytest.raises(TypeError, match="schemas"):
        mr.LiveJoin(ON, window="5 rows")  # type: ignore[call-arg]


def test_bad_rows_change_nothing() -> None:
    row = {"x": 1, "ts": 0, "name": "a"}
    with mr.LiveJoin(**arguments("count")) as live:
        for side, bad, error, text in (
            ("q", row, mr.ArgumentError, "side='q'"),
            ("r", {"x": 1, "ts": 0}, mr.SchemaError, "exactly the columns x, ts, name"),
            ("r", {**row, "y": 1}, mr.SchemaError, "exactly the columns"),
            ("r", {**row, "x": "one"}, mr.SchemaError, "x='one', which is no int64"),
            ("r", {**row, "x": 2**63}, mr.SchemaError, "no int64"),
            ("r", {**row, "x": 1.5}, mr.SchemaError, "x=1.5, which is no int64"),
            ("r", {**row, "name": 5}, mr.SchemaError, "no string"),
            ("r", pa.table({"x": [1]}), mr.SchemaError, "ts is missing"),
            ("r", pa.table({"x": ["1"], "ts": [0], "name": ["a"]}), mr.SchemaError, "x of type string, .* has int64"),
            ("r", [row], mr.ArgumentError, "list"),
        ):
            with pytest.raises(error, match=text):
                live.put(side, bad)
        with pytest.raises(mr.ArgumentError, match="source=1"):
            live.put("r", row, 1)
        with pytest.raises(mr.ArgumentError, match="timeout=-1"):
            live.put("r", row, timeout=-1)
        with pytest.raises(mr.ArgumentError, match="timeout='1'"):
            live.poll("1")  # type: ignore[arg-type]
        with pytest.raises(mr.ArgumentError, match="needs a join with time="):
            live.advance("r", 5)
        assert live.stats["arrived"] == 0
        assert live.put("r", row) == 0
        live.close()


def test_late_rows_are_counted() -> None:
    given = {**arguments("time"), "lateness": 0}
    with mr.LiveJoin(**given) as live:
        for ts in (5, 3, None, 6):
            live.put("r", {"x": 1, "ts": ts, "name": None})
        live.flush()
        assert (live.stats["late"], live.stats["null_times"]) == (1, 1)


def test_a_closed_join_refuses_every_call() -> None:
    live = mr.LiveJoin(**arguments("count"))
    live.close()
    calls: list[Callable[[], object]] = [
        lambda: live.put("r", rows_of(random.Random(1), 1, 0)),
        live.poll,
        live.flush,
        live.close,
        live.state,
    ]
    for call in calls:
        with pytest.raises(mr.StateError, match="closed"):
            call()
    assert list(live) == []
    assert live.recover() is None
    assert live.stats["index"]
    assert "LiveJoin" in repr(live)
    assert "LiveJoin" in live._repr_html_()
    assert "plan" in live.explain().to_dict()
    with pytest.raises(mr.StateError, match="restore"):
        pickle.dumps(live)


# Errors in the worker.


@contextmanager
def failing(monkeypatch: pytest.MonkeyPatch, error: Exception, when: Callable[[list[Put]], bool]) -> Iterator[None]:
    """Steps whose rows satisfy `when` fail."""
    real = LiveEngine.push_parts

    def push(self: LiveEngine, parts: Any) -> pa.Table:
        if when(parts):
            raise error
        return real(self, parts)

    with monkeypatch.context() as patch:
        patch.setattr(LiveEngine, "push_parts", push)
        yield


def test_a_failure_of_the_worker_is_raised_by_the_next_call_and_nothing_is_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    puts = [p for p in random_puts(3, "count", 20) if p[2].num_rows]
    live = mr.LiveJoin(**arguments("count"))
    with failing(monkeypatch, MemoryError("no memory"), lambda parts: True):
        live.put(puts[0][0], puts[0][2])
        with pytest.raises(MemoryError, match="no memory"):
            live.poll(timeout=None)
        with pytest.raises(MemoryError, match="no memory"):
            live.flush()
    for side, _, rows in puts[1:]:
        try:
            live.put(side, rows)
        except MemoryError:  # the worker had tried again before the failure ended
            live.put(side, rows)
    assert live.close().equals(expected("count", puts))


def test_a_batch_that_the_join_refuses_is_dropped_and_others_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if it was taken together with others."""
    puts = [p for p in random_puts(4, "count", 30) if p[2].num_rows]
    bad = puts[7][2]
    refused = []
    live = mr.LiveJoin(**arguments("count"))
    with failing(monkeypatch, mr.SchemaError("refused"), lambda parts: any(p[2] is bad for p in parts)):
        for side, _, rows in puts:
            try:
                live.put(side, rows)
            except mr.SchemaError as error:
                refused.append(error)
                live.put(side, rows)
        try:
            last = live.flush()
        except mr.SchemaError as error:
            refused.append(error)
            last = live.flush()
    assert len(refused) == 1
    assert last.equals(expected("count", puts[:7] + puts[8:]).slice(0, last.num_rows))
    live.close()


def test_a_close_that_fails_can_be_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    live = mr.LiveJoin(**arguments("count"))
    with monkeypatch.context() as patch:
        patch.setattr(LiveEngine, "close", lambda self: (_ for _ in ()).throw(MemoryError("no memory")))
        with pytest.raises(MemoryError):
            live.close()
    live.put("r", rows_of(random.Random(1), 3, 0))
    assert live.close().num_rows == 0


# The end.


def test_leaving_the_block_warns_of_what_is_lost() -> None:
    live = mr.LiveJoin(**{**arguments("time"), "lateness": 0}).__enter__()
    for side, ts in (("r", 1), ("s", 2), ("r", 3)):
        live.put(side, {"x": 1, "ts": ts, "name": None})
    while live.stats["queued"]:
        time.sleep(0.001)
    with pytest.warns(ResourceWarning, match=r"1 rows that were not matched and 1 rows of results"):
        live.__exit__(None, None, None)
    with pytest.raises(mr.StateError):
        live.poll()


def test_a_join_that_is_dropped_ends_its_thread() -> None:
    def live_threads() -> int:
        return sum(thread.name == "millrace-live" for thread in threading.enumerate())

    before = live_threads()
    live = mr.LiveJoin(**arguments("count"))
    live.put("r", rows_of(random.Random(1), 3, 0))
    assert live_threads() == before + 1
    del live
    gc.collect()
    deadline = time.monotonic() + WATCHDOG
    while live_threads() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert live_threads() == before


def test_an_error_in_a_consumer_leaves_the_join_usable() -> None:
    live = mr.LiveJoin("r.x = s.x", window="9 rows", schemas=SCHEMAS)
    row = {"x": 1, "ts": 0, "name": None}
    live.put("r", row)
    live.put("s", row)
    with pytest.raises(ZeroDivisionError):
        [pairs.num_rows / 0 for pairs in live]
    live.put("s", row)
    assert live.close()["s_seq"].to_pylist() == [1]


def test_a_forked_child_refuses_calls_and_ends() -> None:
    live = mr.LiveJoin(**arguments("count"))
    live.put("r", rows_of(random.Random(1), 3, 0))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn of threads
        child = os.fork()
    if child == 0:
        code = 1
        try:
            live.__exit__(None, None, None)
            live.put("r", rows_of(random.Random(1), 3, 0))
        except mr.StateError as error:
            code = 0 if "forked" in str(error) else 2
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    assert live.close().num_rows == 0


PROGRAM = """
import threading, pyarrow as pa, millrace as mr
schema = pa.schema([("x", pa.int64())])
live = mr.LiveJoin("r.x = s.x", window="1000 rows", schemas={"r": schema, "s": schema}, capacity=100)
rows = pa.table({"x": list(range(50))})
reader = threading.Thread(target=lambda: [t for t in live])
"""


@pytest.mark.parametrize(
    "rest",
    [
        "live.put('r', rows); live.put('s', rows)",
        "reader.start(); live.put('r', rows); live.put('s', rows)",
        "[live.put('rs'[i % 2], rows, timeout=None if i < 2 else 0.01) for i in range(2)]; live.poll()",
    ],
)
def test_the_interpreter_ends_with_a_join_open(rest: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM + rest + "\nprint('end')"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "end\n", "")


def test_ctrl_c_in_the_middle_of_a_step_loses_and_doubles_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread that puts a row joins it; an interrupt is raised when all is done."""
    live = mr.LiveJoin("r.x = s.x", window="9 rows", schemas=SCHEMAS)
    row, real = {"x": 1, "ts": 0, "name": None}, LiveEngine.push_parts

    def push(self: LiveEngine, parts: Any) -> pa.Table:
        signal.raise_signal(signal.SIGINT)
        return real(self, parts)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        live.put("r", row)
        with monkeypatch.context() as patch:
            patch.setattr(LiveEngine, "push_parts", push)
            with pytest.raises(KeyboardInterrupt):
                live.put("s", row)
    finally:
        signal.signal(signal.SIGINT, before)
    assert live.poll(timeout=None)["s_seq"].to_pylist() == [0]
    assert live.put("s", row) == 2
    assert live.close()["s_seq"].to_pylist() == [1]


@pytest.mark.parametrize("blocked", ["put", "poll", "iterate"])
def test_ctrl_c_ends_a_call_that_waits_and_the_join_goes_on(blocked: str) -> None:
    live = mr.LiveJoin("r.x = s.x", window="9 rows", schemas=SCHEMAS, capacity=1)
    row = {"x": 1, "ts": 0, "name": None}
    expected_pairs = 0
    if blocked == "put":
        live.put("r", row)
        live.put("s", row)
        while live.stats["unpolled"] < 1:
            time.sleep(0.001)
        live.put("s", row)  # waits in the queue: the worker waits for a poll
        expected_pairs = 2
    calls: dict[str, Callable[[], object]] = {
        "put": lambda: live.put("s", row),
        "poll": lambda: live.poll(timeout=None),
        "iterate": lambda: list(live),
    }
    main = threading.main_thread().ident
    assert main is not None
    interrupt = threading.Timer(0.3, lambda: signal.pthread_kill(main, signal.SIGINT))
    # A process that a shell started in the background ignores SIGINT.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        interrupt.start()
        with pytest.raises(KeyboardInterrupt):
            calls[blocked]()
        interrupt.join()
    finally:
        signal.signal(signal.SIGINT, before)
    assert live.close().num_rows == expected_pairs
