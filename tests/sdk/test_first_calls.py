"""First calls while kernels compile in another process: small inputs go on without kernels, with the same output."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import millrace as mr
from millrace.host.hbtree.build import build
from millrace.host.runtime import first_use, jit
from millrace.host.runtime.team import Team
from millrace.warm import RECIPES, warm

CONDITIONS = ["abs(r.x - s.x) <= 3", "r.x < s.x AND r.y > s.y", "r.x = s.x OR r.x - s.x = 5", "r.t = s.t AND r.x > s.y"]


@pytest.fixture
def compiling(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> set[str]:
    """A machine whose kernels are not compiled; no process is started. The operators whose kernels are wanted."""
    wanted: set[str] = set()
    monkeypatch.delenv("MILLRACE_COMPILE")
    monkeypatch.setattr(first_use, "_ready", set())
    monkeypatch.setattr(first_use, "_checked", {})
    monkeypatch.setattr(first_use, "_started", {})
    monkeypatch.setattr(first_use, "_calls", {})
    monkeypatch.setattr(first_use, "LATE_CALLS", 0)
    monkeypatch.setattr(first_use, "CHECK_SECONDS", 0.0)
    monkeypatch.setattr(first_use, "cache_dir", lambda: tmp_path)

    def spawn(executable: str, arguments: list[str], *_: Any, **__: Any) -> int:
        wanted.add(arguments[-1])
        return 1 << 22

    monkeypatch.setattr(os, "posix_spawn", spawn)
    return wanted


def table(rng: np.random.Generator, rows: int) -> pa.Table:
    x, y = (pa.array(rng.integers(0, 200, rows), mask=rng.random(rows) < 0.1) for _ in "xy")
    return pa.table({"x": x, "y": y, "t": rng.choice(["a", "b", "c"], rows)})


def pushes(on: str, **arguments: Any) -> tuple[list[pa.Table], list[str]]:
    rng = np.random.default_rng(8)
    with mr.WindowJoin(on, window="150 rows", **arguments) as join:
        found, strategies = [], []
        for number in range(24):
            if number == 16:
                first_use.set_ready("window_join")
            found.append(join.push("rs"[number % 2], table(rng, 1 + 7 * (number % 4))))
            strategies.append(join.stats["strategy"])
        return found, strategies


@pytest.mark.parametrize("output", ["pairs", "seqs", "count"])
@pytest.mark.parametrize("on", CONDITIONS)
def test_a_window_join_goes_on_without_kernels_until_they_are_ready(on: str, output: Any, compiling: set[str]) -> None:
    found, strategies = pushes(on, output=output)
    expected, _ = pushes(on, output=output, index="scan")
    assert all(ours.equals(theirs) for ours, theirs in zip(found, expected, strict=True))
    assert ["NumPy" in strategy for strategy in strategies[1:]] == [True] * 15 + [False] * 8
    assert compiling == {"window_join"}


def test_large_windows_do_not_wait(compiling: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_use, "MAX_ROWS", 50)
    rng = np.random.default_rng(2)
    with mr.WindowJoin(CONDITIONS[0], window="1000 rows") as join:
        waited = []
        for number in range(12):
            join.push("rs"[number % 2], table(rng, 20))
            waited.append("NumPy" in join.stats["strategy"])
    assert (waited[1], waited[-1]) == (True, False)
    with mr.WindowJoin(CONDITIONS[0], window="1000 rows", index="bisort") as named:
        named.push("r", table(rng, 2))
        named.push("s", table(rng, 2))
        assert named.stats["strategy"] == ""


@pytest.mark.parametrize("how", ["inner", "left", "semi", "anti"])
def test_a_join_of_tables_evaluates_all_pairs_meanwhile(how: Any, compiling: set[str]) -> None:
    rng = np.random.default_rng(3)
    r, s = table(rng, 700), table(rng, 900)
    for on in CONDITIONS:
        meanwhile = mr.join(r, s, on, how=how)
        assert meanwhile.equals(mr.join(r, s, on, how=how, index="scan"))
    assert compiling == {"join"}


def index_answers(keys: Any, values: Any, queries: Any, duplicates: Any) -> list[Any]:
    """What every call of an index returns."""
    low, high = queries, queries + queries.dtype.type(3)
    with mr.OrderedIndex(keys, values, duplicates=duplicates) as index:
        found = [index.lookup(queries), index.range(low, high), index.floor(queries), index.ceil(queries), list(index)]
        few = min(len(keys), 5)
        fresh = (queries[:few], values[:few]) if values is not None else queries[:few]
        index.update(upsert=fresh, delete=queries[5:9])
        return [*found, queries[0] in index, len(index), index.lookup(queries), index.range(low, high), list(index)]


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.uint64, np.float64])
@pytest.mark.parametrize("duplicates", ["error", "first", "last"])
@pytest.mark.parametrize("kind", ["rows", "numbers", "text"])
def test_an_index_goes_on_without_kernels(kind: str, duplicates: str, dtype: Any, compiling: set[str]) -> None:
    rng = np.random.default_rng(len(kind))
    for keys in (1, 9, 700):
        given = (rng.permutation(2 * keys)[:keys] if duplicates == "error" else rng.integers(0, keys, keys)).astype(
            dtype
        )
        values = {"rows": None, "numbers": rng.random(keys), "text": pa.array([f"{i}" for i in range(keys)])}[kind]
        queries = rng.integers(0, 2 * keys, 40).astype(dtype)
        meanwhile = index_answers(given, values, queries, duplicates)
        assert compiling == {"ordered_index"}
        os.environ["MILLRACE_COMPILE"] = "now"
        expected = index_answers(given, values, queries, duplicates)
        del os.environ["MILLRACE_COMPILE"]
        for ours, theirs in zip(meanwhile, expected, strict=True):
            assert ours.equals(theirs) if isinstance(theirs, pa.Array) else ours == theirs


@pytest.mark.parametrize("hybrid", [False, True])
def test_a_tree_built_without_kernels_has_the_same_bytes(hybrid: bool, compiling: set[str]) -> None:
    rng = np.random.default_rng(4)
    for size, width in ((0, 0), (1, 8), (7, 4), (64, 0), (65, 8), (4096, 4)):
        for word in (np.uint64, np.uint32):
            words = np.sort(rng.integers(0, 1 << 30, size)).astype(word)
            values = rng.integers(0, 99, size).astype(f"u{width}") if width else None
            plainly = build(words, 0, values, hybrid, Team(1))
            os.environ["MILLRACE_COMPILE"] = "now"
            built = build(words, 0, values, hybrid, Team(1))
            del os.environ["MILLRACE_COMPILE"]
            assert plainly.known == built.known
            assert plainly.leaves.data.tobytes() == built.leaves.data.tobytes()
            assert plainly.nodes is not None
            assert built.nodes is not None
            assert plainly.nodes.tobytes() == built.nodes.tobytes()
    assert compiling == {"ordered_index"}


def test_the_first_small_calls_do_without_kernels_that_are_ready(
    compiling: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(first_use, "LATE_CALLS", 3)
    first_use.set_ready("join")
    assert not first_use.without_kernels("join", first_use.LATE_PAIRS + 1)
    assert [first_use.without_kernels("join") for _ in range(4)] == [True, True, False, False]
    assert compiling == set()


SMALL_CALLS = {
    "join": "mr.join(rows, rows, on='abs(r.x - s.x) <= 5', how='left')",
    "window_join": "j = mr.WindowJoin('r.x < s.x', window='99 rows'); j.push('r', rows); j.push('s', rows)",
    "ordered_index": "a = np.arange(4000); ix = mr.OrderedIndex(a); ix.lookup(a[:3]); ix.range(a[:2], a[5:7])",
}


@pytest.mark.parametrize("name", SMALL_CALLS)
def test_a_small_first_call_loads_neither_the_compiler_nor_pandas(name: str, tmp_path: Path) -> None:
    """Both take longer to import than everything else."""
    script = f"""
import sys, numpy as np, pyarrow as pa, millrace as mr
from millrace.host.runtime import first_use
first_use.set_ready({name!r})
columns = [pa.Array.from_buffers(pa.int64(), 3, [None, pa.py_buffer(np.arange(3) + i)]) for i in (0, 1)]
rows = pa.Table.from_arrays(columns, ["x", "v"])
{SMALL_CALLS[name]}
print(sorted({{"numba", "pandas", "scipy", "cupy", "pyopencl"}} & set(sys.modules)))
"""
    environment = {name: value for name, value in os.environ.items() if name != "MILLRACE_COMPILE"}
    environment["MILLRACE_CACHE_DIR"] = str(tmp_path)
    ended = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False)
    assert (ended.stdout, ended.returncode) == ("[]\n", 0), ended.stderr


@pytest.mark.parametrize("name", RECIPES)
def test_warm_runs_to_its_end(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setenv("MILLRACE_COMPILE", "now")
    warm([name], lambda what, share: said.append(what))
    assert said[-1] == "compiled"
    assert len(said) == 1 + len(list(RECIPES[name]()))
    assert first_use.is_ready(name)


def test_the_other_process_is_started_once_and_its_mark_is_seen(compiling: set[str], tmp_path: Path) -> None:
    assert first_use.without_kernels("window_join")
    compiling.clear()
    assert first_use.without_kernels("window_join")
    assert compiling == set(), "started already"
    first_use._started.clear()
    assert first_use.without_kernels("window_join")
    assert compiling == set(), "another process of this machine has started it"
    (tmp_path / "ready-window_join").touch()
    assert not first_use.without_kernels("window_join")


def test_where_no_process_can_be_started_the_call_compiles(
    compiling: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> int:
        raise OSError("no more processes")

    monkeypatch.setattr(os, "posix_spawn", refuse)
    assert not first_use.without_kernels("join")
    assert mr.join(pa.table({"x": np.arange(90)}), pa.table({"x": np.arange(90)}), "r.x = s.x").num_rows == 90


def test_long_compilation_is_reported_once(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("MILLRACE_COMPILE")
    total = jit.CompileTime()
    total.add(0.9 * jit.NOTICED_SECONDS)
    assert capsys.readouterr().err == ""
    for _ in range(2):
        total.add(0.2 * jit.NOTICED_SECONDS)
    assert capsys.readouterr().err.count("millrace warm") == 1


def test_a_process_may_fork_and_end_while_kernels_compile(tmp_path: Path) -> None:
    """With an empty cache, in a process of its own; what it starts is ended here."""
    script = """
import os, sys
import pyarrow as pa, millrace as mr
from millrace.host.runtime import first_use
spawn = os.posix_spawn
sleeping = [sys.executable, "-c", "import time; time.sleep(600)"]
os.posix_spawn = lambda path, arguments, *more, **named: spawn(path, sleeping, *more, **named)
rows = pa.table({"x": [1, 2, 3]})
join = mr.WindowJoin("r.x = s.x", window="9 rows")
join.push("r", rows)
print(join.push("s", rows).num_rows, "NumPy" in join.stats["strategy"], *first_use._started.values(), flush=True)
child = os.fork()
if child == 0:
    sys.exit(0)
print(os.waitpid(child, 0)[1])
"""
    environment = {name: value for name, value in os.environ.items() if name != "MILLRACE_COMPILE"}
    environment["MILLRACE_CACHE_DIR"] = str(tmp_path)
    ended = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False)
    pairs, without_kernels, started, status = ended.stdout.split()
    os.kill(int(started), 15)
    assert (ended.returncode, pairs, without_kernels, status) == (0, "3", "True", "0"), ended.stderr
    assert ended.stderr == ""
