"""PanJoin's chain of subwindows: what it keeps, what it sends, and that every structure finds the same matches."""

from __future__ import annotations

import os
import threading
import warnings
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import millrace as mr
from millrace.host.base.types import Side
from millrace.host.join.panjoin import chain
from millrace.host.join.panjoin.index import PanJoinIndex
from millrace.host.runtime import team

STRUCTURES = ["bisort", "rap", "wib"]
ON = "abs(r.x - s.x) <= 3"


def rows(*values: Any) -> pa.Table:
    return pa.table({"x": np.concatenate([np.asarray(v, np.int64).ravel() for v in values])})


def index_of(join: mr.WindowJoin) -> PanJoinIndex:
    assert join._engine.matcher is not None
    index = join._engine.matcher._index
    assert isinstance(index, PanJoinIndex)
    return index


def spans(join: mr.WindowJoin, side: Side) -> list[tuple[int, int]]:
    return [(sub.first, sub.end) for sub in index_of(join)._chains[side].subwindows]


def both(index: Any, batches: list[pa.Table], **arguments: Any) -> mr.WindowJoin:
    """Push batches to r and s by turns, and compare every result with that of the nested loop."""
    joins = [mr.WindowJoin(on=ON, index=name, **arguments) for name in (index, "scan")]
    for number, batch in enumerate(batches):
        side = "rs"[number % 2]
        ours, theirs = (join.push(side, batch) for join in joins)
        assert ours.equals(theirs), f"{index} differs at batch {number}"
    return joins[0]


@pytest.mark.parametrize("index", [*STRUCTURES, "auto"])
def test_the_chain_spans_the_window_one_subwindow_and_one_batch(index: Any) -> None:
    window, batch, rng = 20_000, 3_000, np.random.default_rng(1)
    join = mr.WindowJoin(on=ON, window=f"{window} rows", index=index, output="count")
    longest = 0
    for number in range(40):
        join.push("rs"[number % 2], rows(rng.integers(0, 10**6, batch)))
        if number > 1:
            first, end = spans(join, "r")[0][0], spans(join, "r")[-1][1]
            longest = max(longest, end - first)
    capacity = -(-window // chain.SUBWINDOWS)
    assert window < longest <= window + capacity + 2 * batch
    assert join.stats["held"] == 2 * window
    assert join.stats["boundaries"] > 4


@pytest.mark.parametrize("index", [*STRUCTURES, "auto"])
def test_counted_boundaries_never_go_back(index: Any) -> None:
    """Not when subwindows expire with what they counted, and not when the index is dropped and rebuilt."""
    join = mr.WindowJoin(on=ON, window="6000 rows", index=index, output="count")
    rng, counted = np.random.default_rng(5), [0]
    for number in range(60):
        join.push("rs"[number % 2], rows(rng.integers(0, 10**6, 1_000)))
        if number == 30:
            assert join._engine.matcher is not None
            join._engine.matcher.discard_index()
        counted.append(join.stats["boundaries"])
    assert counted == sorted(counted)
    assert counted[-1] > counted[len(counted) // 2] > 0


@pytest.mark.parametrize("device", ["cpu", "opencl"])
def test_bytes_sent_do_not_grow_with_the_window(device: str) -> None:
    sent = []
    for window in (4_000, 64_000):
        rng = np.random.default_rng(2)
        join = mr.WindowJoin(on=ON, window=f"{window} rows", index="bisort", device=device, output="count")
        for side in ("r", "s"):
            join.push(side, rows(rng.integers(0, 10**6, window)))
        before = join.stats["bytes_in"]
        for number in range(8):
            join.push("rs"[number % 2], rows(rng.integers(0, 10**6, 2_000)))
        sent.append(join.stats["bytes_in"] - before)
    per_tuple = [amount / (8 * 2_000) for amount in sent]
    subwindows = chain.SUBWINDOWS + 2
    assert max(per_tuple) <= 8 + 4 + 16 * subwindows
    assert sent[1] <= 1.5 * sent[0]


@pytest.mark.parametrize("index", [*STRUCTURES, "auto"])
@pytest.mark.parametrize("output", ["seqs", "count"])
def test_hard_keys(index: str, output: str) -> None:
    rng, n = np.random.default_rng(3), 700
    for name, values in {
        "all equal": np.full(12 * n, 5),
        "increasing": np.arange(12 * n),
        "decreasing": np.arange(12 * n)[::-1],
        "heavy hitter": np.where(rng.random(12 * n) < 0.9, 7, rng.integers(0, 10**9, 12 * n)),
        "ends of the type": rng.choice([-(2**63), 2**63 - 1, 0, 2**63 - 2], 12 * n),
    }.items():
        batches = [rows(part) for part in np.split(values, 12)]
        join = both(index, batches, window="900 rows", output=output)
        assert join.stats["pairs"] > 0, name


@pytest.mark.parametrize("index", STRUCTURES)
def test_batches_larger_than_the_window_and_single_rows(index: str) -> None:
    rng = np.random.default_rng(4)
    sizes = [5_000, 1, 1, 3, 9_000, 1, 200, 1, 1_500, 1_100, 2, 64]
    both(index, [rows(rng.integers(0, 2_000, size)) for size in sizes], window="100 rows")


@pytest.mark.parametrize("index", STRUCTURES)
def test_interleaved_tuples_and_a_band_wider_than_the_domain(index: Any) -> None:
    rng = np.random.default_rng(5)
    for on in ("abs(r.x - s.x) <= 2", "abs(r.x - s.x) <= 10000000", "s.x BETWEEN r.x + 5 AND r.x + 7", "r.x <> s.x"):
        joins = [mr.WindowJoin(on=on, window="60 rows", index=name) for name in (index, "scan")]
        for _ in range(3):
            order = rng.integers(0, 2, 800).astype(np.uint8)
            r, s = (rows(rng.integers(0, 300, n)) for n in (800 - int(order.sum()), int(order.sum())))
            ours, theirs = (join.push_both(r, s, order) for join in joins)
            assert ours.num_rows > 0
            assert ours.equals(theirs), on


def test_counts_of_many_partners_do_not_look_at_them() -> None:
    rng = np.random.default_rng(6)
    join = mr.WindowJoin(on="abs(r.x - s.x) <= 100000", window="30000 rows", index="bisort", output="count")
    other = mr.WindowJoin(on="abs(r.x - s.x) <= 100000", window="30000 rows", index="scan", output="count")
    for number in range(14):
        batch = rows(rng.integers(0, 10**6, 5_000))
        side = "rs"[number % 2]
        assert join.push(side, batch).equals(other.push(side, batch))
    # What had expired inside the oldest subwindow was cut off, so nothing had to be checked tuple by tuple.
    assert join.stats["bisort_trimmer_rows"] > 0


@pytest.mark.parametrize("index", STRUCTURES)
def test_ranges_that_are_in_another_order_than_the_keys(index: Any) -> None:
    rng = np.random.default_rng(7)
    on = "s.x BETWEEN r.lo AND r.hi"
    joins = [mr.WindowJoin(on=on, window="5000 rows", index=name) for name in (index, "scan")]
    for _ in range(4):
        low = rng.integers(0, 10**5, 3_000)
        r = pa.table({"lo": low, "hi": low + rng.integers(-50, 200, 3_000)})
        s = rows(rng.integers(0, 10**5, 3_000))
        for side, batch in (("r", r), ("s", s)):
            ours, theirs = (join.push(side, batch) for join in joins)
            assert ours.equals(theirs)


def test_nothing_is_lost_when_a_subwindow_begins_in_every_push() -> None:
    rng = np.random.default_rng(8)
    both("bisort", [rows(rng.integers(0, 9_000, 6_000)) for _ in range(9)], window="6000 rows")


def test_single_rows_do_not_trim_the_oldest_subwindow_each() -> None:
    rng = np.random.default_rng(9)
    join = mr.WindowJoin(on=ON, window="30000 rows", index="bisort", output="count")
    for side in ("r", "s", "r", "s", "r", "s"):
        join.push(side, rows(rng.integers(0, 10**6, 15_000)))
    before = join.stats.get("bisort_trimmer_rows", 0)
    for number in range(60):
        join.push("rs"[number % 2], rows(rng.integers(0, 10**6, 1)))
    assert join.stats.get("bisort_trimmer_rows", 0) == before


@pytest.mark.parametrize("window", ["20000 rows", "5"])
def test_the_helper_threads_are_free_after_every_call(window: str) -> None:
    arguments = {} if "rows" in window else {"time": "x"}
    join = mr.WindowJoin(on=ON, window=window, index="bisort", **arguments)  # type: ignore[arg-type]
    for side in ("r", "s", "r"):
        join.push(side, rows(np.arange(10_000)))
        assert _is_free()
    with pytest.raises(mr.MillraceError):
        join.push("s", pa.table({"x": ["text"] * 10_000}))
    assert _is_free()


def _is_free() -> bool:
    owner = team._helper_threads.get().owner
    return owner is None or owner.depth == 0


def test_two_tables_share_the_work_however_small_one_is(monkeypatch: pytest.MonkeyPatch) -> None:
    led: list[int] = []
    lead = team._run_shared

    def counted(control: int, function: int, arguments: int, parts: int) -> None:
        led.append(parts)
        lead(control, function, arguments, parts)

    monkeypatch.setattr(team, "_run_shared", counted)
    mr.join(rows(np.arange(70_000)), rows(np.arange(100)), on=ON, index="bisort", threads=2)
    assert led


@pytest.mark.parametrize("word", [np.int32, np.int64])
@pytest.mark.parametrize("width", [0, 20, 60, 600])
@pytest.mark.parametrize("batch", [300, 5_000])
def test_few_and_many_partners_are_found_alike(word: type, width: int, batch: int) -> None:
    rng = np.random.default_rng(width + batch)
    arguments: dict[str, Any] = {"on": f"abs(r.x - s.x) <= {width}", "window": "12000 rows", "output": "seqs"}
    joins = [mr.WindowJoin(index=index, threads=2, **arguments) for index in ("bisort", "wib")]
    for number in range(14):
        keys = rng.integers(0, 1 << 19, batch)
        keys[: batch // 50] = 77  # a few probes in some blocks have many partners
        keys[-3:] = (1 << 31) - 1, 0, -(1 << 31)
        given = pa.table({"x": keys.astype(word)})
        ours, theirs = (join.push("rs"[number % 2], given) for join in joins)
        assert ours.equals(theirs), f"batch {number} differs"
    assert ours.num_rows


def test_an_older_result_is_not_changed_by_later_pushes() -> None:
    rng = np.random.default_rng(2)
    join = mr.WindowJoin(on=ON, window="50000 rows", index="bisort", output="seqs")
    held, copies = [], []
    for number in range(8):
        held.append(join.push("rs"[number % 2], rows(rng.integers(0, 100_000, 20_000))).column("s_seq"))
        copies.append(held[-1].to_numpy().copy())
    assert len(copies[-1]) > 10_000
    assert all((column.to_numpy() == copy).all() for column, copy in zip(held, copies, strict=True))


def large_steps(seed: int, most: int) -> tuple[list[int], mr.WindowJoin]:
    """Pairs found at each push, of batches so large that helper threads merge in the background."""
    rng, join = np.random.default_rng(seed), mr.WindowJoin(on=ON, window="60000 rows", index="bisort", output="seqs")
    found = []
    for number in range(most):
        result = join.push("rs"[number % 2], rows(rng.integers(0, 10**6, 10_000)))
        found.append(int((result["r_seq"].to_numpy() * 31 + result["s_seq"].to_numpy()).sum()))
    return found, join


def test_joins_that_merge_in_the_background_are_made_and_dropped_in_threads() -> None:
    """Dropped and closed at any time, while other threads use the helper threads: the pairs stay the same."""
    most = [5, 12, 24]
    expected = [large_steps(seed, n)[0] for seed, n in enumerate(most)]
    wrong: list[int] = []

    def work(seed: int) -> None:
        for _ in range(4):
            found, join = large_steps(seed, most[seed])
            if found != expected[seed]:
                wrong.append(seed)
            if seed == 1:
                join.close()

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(len(most))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_run_that_is_being_merged_is_finished_before_it_is_used() -> None:
    """Nothing reads an unfinished run: not the next step, nor a count, nor a trim, nor closing the join."""
    rng = np.random.default_rng(4)
    batches = [rows(rng.integers(0, 10**6, 10_000)) for _ in range(30)]
    both("bisort", batches, window="60000 rows", output="seqs").close()
    both("bisort", batches, window="60000 rows", output="count").close()


def test_a_fork_while_runs_are_merged_leaves_both_processes_right() -> None:
    rng = np.random.default_rng(9)
    batches = [rows(rng.integers(0, 10**6, 20_000)) for _ in range(12)]
    complete = both("bisort", batches, window="100000 rows", output="count")
    join = mr.WindowJoin(on=ON, window="100000 rows", index="bisort", output="count")
    for number, batch in enumerate(batches[:-1]):
        join.push("rs"[number % 2], batch)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn of a fork beside threads
        child = os.fork()
    pairs = complete.stats["pairs"]
    if child == 0:
        try:
            join.push("s", batches[-1])
            os._exit(0 if join.stats["pairs"] == pairs else 1)
        except BaseException:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    join.push("s", batches[-1])
    assert join.stats["pairs"] == pairs
