"""`WindowJoin(index="spo")` equals the nested loop: operators, ties, nulls, windows, sources, self-joins, states."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import millrace as mr
from millrace.host.join.spo import stream
from millrace.host.join.spo.block_window import BlockWindow
from tests.gpu.emulated.backend import registered

CONDITIONS = [
    *(f"r.a {one} s.a AND r.b {two} s.b" for one in ("<", "<=", ">", ">=") for two in ("<", "<=", ">", ">=")),
    "abs(r.a - s.a) < 3 AND abs(r.b - s.b) <= 2",
    "r.a - s.a BETWEEN -1 AND 4 AND r.b > s.b",
    "s.a BETWEEN r.a AND r.a + r.c AND r.b >= s.b",
    "r.a + r.c < 2 * s.a AND s.b <= r.b",
    "r.a < s.a AND r.b > s.b AND r.c <> s.c",
    "r.a < s.a AND r.b > s.b AND r.c > 2",
]


@pytest.fixture(autouse=True)
def small_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cells of 64 rows: blocks are built, merged and dropped often."""
    monkeypatch.setattr(stream, "_cell_rows", lambda context, side: 64)


def rows(rng: np.random.Generator, count: int, types: tuple[str, str], start: int = 0) -> pa.Table:
    span = int(rng.choice([4, 12, 1000]))
    columns = {name: rng.integers(-span, span, count).astype(kind) for name, kind in zip("ab", types, strict=True)}
    columns["c"] = rng.integers(0, 6, count)
    masked = {name: pa.array(one, mask=rng.random(count) < 0.06) for name, one in columns.items()}
    return pa.table({**masked, "ts": start + np.sort(rng.integers(0, max(count // 2, 1), count))})


@pytest.mark.parametrize("number", range(len(CONDITIONS)))
def test_pushes_of_either_side_or_both(number: int) -> None:
    rng = np.random.default_rng(number)
    types = [("int32", "int64"), ("float64", "float32"), ("int16", "float64")][number % 3]
    window = [["200 rows", "900 rows"], "150 rows"][number % 2]
    given: dict[str, Any] = {
        "on": CONDITIONS[number],
        "window": window,
        "output": ["pairs", "seqs", "count"][number % 3],
    }
    spo, scan = (mr.WindowJoin(index=index, threads=1 + number % 2, **given) for index in ("spo", "scan"))
    for size in (3, 0, 1, 40, 300, 2, 17, 120):
        r, s = rows(rng, size, types), rows(rng, int(rng.integers(0, size + 1)), types)
        arrival = rng.permutation(np.repeat([0, 1], [len(r), len(s)]))
        assert spo.push("s", r).equals(scan.push("s", r))
        assert spo.push_both(r, s, arrival).equals(scan.push_both(r, s, arrival))
    assert spo.stats.index == "spo"
    assert spo.stats.counters["boundaries"] > 0


@pytest.mark.parametrize("number", range(0, len(CONDITIONS), 2))
def test_time_windows_with_sources_and_states(number: int) -> None:
    rng = np.random.default_rng(100 + number)
    given: dict[str, Any] = {
        "on": CONDITIONS[number],
        "window": ["30", "90"],
        "time": "ts",
        "lateness": 5,
        "sources": {"r": 2, "s": 1},
        "output": ["pairs", "count"][number // 2 % 2],
    }
    spo, scan = (mr.WindowJoin(index=index, **given) for index in ("spo", "scan"))
    stored: dict[str, bytes] = {}
    for step in range(8):
        for side, source in (("r", 0), ("s", 0), ("r", 1)):
            batch = rows(rng, int(rng.integers(0, 80)), ("int64", "int64"), 30 * step)
            assert spo.push(side, batch, source).equals(scan.push(side, batch, source))
        if step % 3 == 2:
            delta = spo.state()
            stored.update(delta.added)
            spo = mr.WindowJoin.restore(delta.manifest, stored, **given, index="spo")
    assert spo.flush().equals(scan.flush())


@pytest.mark.parametrize("on", CONDITIONS[2::5])
@pytest.mark.parametrize("window", ["100 rows", "25"])
def test_self_joins(on: str, window: str) -> None:
    rng = np.random.default_rng(len(on))
    given: dict[str, Any] = {"on": on, "window": window, "self_join": True}
    if window == "25":
        given["time"] = "ts"
    spo, scan = (mr.WindowJoin(index=index, **given) for index in ("spo", "scan"))
    for step in range(6):
        batch = rows(rng, int(rng.integers(0, 200)), ("int32", "float64"), 100 * step)
        assert spo.push("r", batch).equals(scan.push("r", batch))


@pytest.fixture
def _emulated() -> Iterator[None]:
    with registered():
        yield


@pytest.mark.usefixtures("_emulated")
@pytest.mark.parametrize("number", range(4))
def test_a_state_goes_on_with_any_index_and_device(number: int) -> None:
    """By count, by time, by time with own sizes, and joined with itself; each stop continues elsewhere."""
    windows: list[dict[str, Any]] = [
        {"window": ["90 rows", "400 rows"]},
        {"window": "40", "time": "ts"},
        {"window": ["10", "120"], "time": "ts", "lateness": 3},
        {"window": "60 rows", "self_join": True},
    ]
    given = {"on": CONDITIONS[4 * number + 1], "output": ["pairs", "count"][number % 2], **windows[number]}
    turns = [("spo", "cpu"), ("spo", "opencl:0"), ("btree", "cpu"), ("spo", "cuda-emulated:0"), ("spo", "cpu")]
    rng = np.random.default_rng(200 + number)
    scan = mr.WindowJoin(**given, index="scan", device="cpu")
    join, stored = mr.WindowJoin(**given, index="spo", device="cpu"), dict[str, bytes]()
    for step in range(10):
        for side in "r" if "self_join" in given else "rs":
            batch = rows(rng, int(rng.integers(0, 120)), ("int64", "int32"), 40 * step)
            assert join.push(side, batch).equals(scan.push(side, batch))
        if step % 2:
            delta = join.state()
            stored.update(delta.added)
            join.close()
            index, device = turns[step // 2]
            join = mr.WindowJoin.restore(delta.manifest, stored, **given, index=index, device=device)
    assert join.stats.pairs == scan.stats.pairs > 0


@pytest.mark.parametrize("window", ["2000 rows", "700"])
def test_states_in_the_middle_of_merges(window: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Merges that get a few rows per push are at work at every state; taking one changes nothing."""
    monkeypatch.setattr(stream, "MERGE_ROWS", 64)
    monkeypatch.setattr(stream, "MERGE_RATE", 8)
    monkeypatch.setattr(stream, "_cell_rows", lambda context, side: 512)
    merging: list[bool] = []
    expire = BlockWindow.expire

    def watched(held: BlockWindow, oldest: int) -> None:
        merging.append(held.merge is not None)
        expire(held, oldest)

    monkeypatch.setattr(BlockWindow, "expire", watched)
    given: dict[str, Any] = {"on": CONDITIONS[5], "window": window, "output": "seqs"}
    if window == "700":
        given["time"] = "ts"
    rng = np.random.default_rng(9)
    kept, scan = mr.WindowJoin(**given, index="spo"), mr.WindowJoin(**given, index="scan")
    restored: list[tuple[mr.WindowJoin, mr.WindowJoin]] = []
    stored: dict[str, bytes] = {}
    for step in range(40):
        side, batch = "rs"[step % 2], rows(rng, 130, ("int64", "float64"), 60 * step)
        wanted = scan.push(side, batch)
        assert kept.push(side, batch).equals(wanted)
        for one, _ in restored:
            assert one.push(side, batch).equals(wanted)
        if step % 9 == 8:
            delta = kept.state()
            stored.update(delta.added)
            restored.append((mr.WindowJoin.restore(delta.manifest, stored, **given, index="spo"), kept))
    assert sum(merging) > 40
    assert {one.stats.pairs for pair in restored for one in pair} == {scan.stats.pairs}


def test_a_restored_single_source_is_one_number() -> None:
    """A stored column of sources would be moved from time to time, which stalls a push."""
    given: dict[str, Any] = {"on": CONDITIONS[0], "window": "500 rows", "index": "spo"}
    join = mr.WindowJoin(**given)
    for side in "rs":
        join.push(side, rows(np.random.default_rng(1), 700, ("int64", "int64")))
    delta = join.state()
    restored = mr.WindowJoin.restore(delta.manifest, delta.added, **given)
    assert [window.source.nbytes for window in restored._engine.windows.values()] == [0, 0]
