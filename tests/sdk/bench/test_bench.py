"""The bench harness and its peers: all do the same work, and rows report what was measured. No timing is asserted."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from millrace.bench import catalog, window_join
from millrace.bench.harness import Case, Contender, DifferentWork, Effort, PeerMissing, Result, Runner, measure
from millrace.bench.options import Options
from millrace.bench.ours import OurSession
from millrace.bench.peers import native
from millrace.bench.peers.duckdb_batches import DuckdbSession
from millrace.bench.peers.multimap import MultimapSession
from millrace.bench.peers.polars_batches import PolarsSession
from millrace.bench.rows import about_run, default_folder, keep_results, result_rows, results_file
from millrace.bench.stream import Session, Stream
from millrace.bench.workload import DISTRIBUTIONS, DOMAIN, Rows, Turn, Workload
from millrace.cli.bench import run_benches
from millrace.errors import ArgumentError

KEYS = {"bench", "case", "contender", "device", "index", "value", "unit", "peer", "peer_value", "peer_unit", "ratio"}
KEYS |= {"arrival", "window", "batch", "output", "selectivity", "distribution", "versions"}
SESSIONS: dict[str, Callable[[Workload], Session]] = {
    "scan": partial(OurSession, index="scan", device="cpu"),
    "btree": partial(OurSession, index="btree", device="cpu"),
    **window_join.BATCH_PEERS,
    **window_join.TUPLE_PEERS,
}
PER_TUPLE = ("scan", "btree", "multimap")
SHORT = Effort(1, 0.1, 60.0)


class Narrow(Workload):
    """Few distinct keys, so that there are ties, and a band of three."""

    @property
    def eps(self) -> int:
        return 3

    def fill(self) -> tuple[Rows, Rows]:
        return tuple(_narrow(rows) for rows in super().fill())  # type: ignore[return-value]

    def turn(self, number: int) -> Turn:
        turn = super().turn(number)
        return Turn(_narrow(turn.r), _narrow(turn.s), turn.order)


def _narrow(rows: Rows) -> Rows:
    return Rows(rows.x % 97 - 40, rows.v)


class Brute:
    """The join by its definition: each tuple against the last `window` of the other side."""

    def __init__(self, workload: Workload) -> None:
        self.window, self.eps, self.payload = workload.window, workload.eps, workload.output == "pairs"
        self.seen: tuple[list[tuple[int, float]], list[tuple[int, float]]] = ([], [])

    def fill(self, r: Rows, s: Rows) -> None:
        for seen, rows in zip(self.seen, (r, s), strict=True):
            seen += zip(rows.x.tolist(), rows.v.tolist(), strict=True)

    def push(self, turn: Turn) -> dict[str, list[Any]]:
        pairs = []
        rows = [iter(zip(side.x.tolist(), side.v.tolist(), strict=True)) for side in (turn.r, turn.s)]
        for side in turn.order.tolist():
            new, others = next(rows[side]), self.seen[1 - side]
            for at in range(max(0, len(others) - self.window), len(others)):
                if abs(others[at][0] - new[0]) <= self.eps:
                    found = ((len(self.seen[side]), *new), (at, *others[at]))
                    pairs.append(found if side == 0 else found[::-1])
            self.seen[side].append(new)
        columns = {"r_seq": [r[0] for r, _ in pairs], "s_seq": [s[0] for _, s in pairs]}
        if self.payload:
            columns |= {"r_x": [r[1] for r, _ in pairs], "r_v": [r[2] for r, _ in pairs]}
            columns |= {"s_x": [s[1] for _, s in pairs], "s_v": [s[2] for _, s in pairs]}
        return columns


def check_against_brute(name: str, workload: Workload, turns: int, ordered: bool) -> None:
    stream = Stream(SESSIONS[name](workload), workload, ordered)
    brute = Brute(workload)
    brute.fill(*workload.fill())
    found = 0
    for number in range(turns):
        stream.step()
        expected = brute.push(workload.turn(number))
        assert {k: v.tolist() for k, v in stream.answer().items()} == expected
        found += len(expected["r_seq"])
    stream.close()
    assert found > 0


@pytest.mark.parametrize("output", ["seqs", "pairs"])
@pytest.mark.parametrize("kind", [Workload, Narrow])
@pytest.mark.parametrize("name", [n for n in SESSIONS if n != "multimap"])
def test_micro_batches_give_the_pairs_of_the_definition(name: str, kind: type[Workload], output: Any) -> None:
    check_against_brute(name, kind(50, 40, "batches", output), 6, ordered=False)


@pytest.mark.parametrize("name", SESSIONS)
def test_a_batch_larger_than_the_window(name: str) -> None:
    check_against_brute(name, Workload(30, 100, "batches"), 4, ordered=False)


@pytest.mark.parametrize("kind", [Workload, Narrow])
@pytest.mark.parametrize("name", PER_TUPLE)
def test_tuples_give_the_pairs_of_the_definition_in_order(name: str, kind: type[Workload]) -> None:
    check_against_brute(name, kind(60, 200, "tuples"), 4, ordered=True)


def test_multimap_bounds_saturate() -> None:
    session = MultimapSession(Narrow(4, 2, "tuples"))
    lowest, highest = np.iinfo(np.int64).min, np.iinfo(np.int64).max
    empty = Rows(np.zeros(0, np.int64), np.zeros(0))
    session.fill(Rows(np.array([lowest, highest]), np.zeros(2)), empty)
    keys = Rows(np.array([lowest + 1, highest - 1]), np.zeros(2))
    answer = session.answer(session.push(session.prepare(Turn(empty, keys, np.ones(2, np.uint8)))))
    assert {name: column.tolist() for name, column in answer.items()} == {"r_seq": [0, 1], "s_seq": [0, 1]}
    session.close()


def test_btree_and_multimap_agree_when_trees_are_deep_and_rows_leave() -> None:
    """Regression: a stale lower bound in an inner node of the B+-tree sent searches to the wrong leaf."""
    workload = Workload(4096, 8192, "tuples")
    streams = [Stream(SESSIONS[name](workload), workload, ordered=True) for name in ("btree", "multimap")]
    for _ in range(3):
        for stream in streams:
            stream.step()
        ours, theirs = (stream.answer() for stream in streams)
        assert all(np.array_equal(ours[name], theirs[name]) for name in ("r_seq", "s_seq"))
    for stream in streams:
        stream.close()


def test_the_workload_has_the_wanted_match_rate() -> None:
    workload = Workload(1 << 12, 1 << 12, "batches")
    stream = Stream(SESSIONS["multimap"](workload), workload, ordered=True)
    stream.step()
    assert 1.7 < len(stream.answer()["r_seq"]) / workload.batch < 2.3
    assert workload.eps == DOMAIN // workload.window
    again = workload.turn(3)
    assert np.array_equal(again.s.x, workload.turn(3).s.x)
    assert len(again.r) == 0
    stream.close()


class Fake:
    """A runner that does nothing and reports a fixed time."""

    def __init__(self, answer: list[int], seconds: float = 0.5) -> None:
        self.given, self.seconds, self.steps, self.pauses, self.closed = answer, seconds, 0, 0, False

    def step(self) -> tuple[float, float]:
        self.steps += 1
        return 10.0, self.seconds

    def answer(self) -> dict[str, Any]:
        return {"x": np.array(self.given)}

    def pause(self) -> None:
        self.pauses += 1

    def close(self) -> None:
        self.closed = True


def quiet(what: str, share: float) -> None:
    assert what
    assert 0 <= share <= 1


def contest(*runners: tuple[str, Runner], effort: Effort | None = None) -> Result:
    contenders = [
        Contender(name, partial(lambda r: r, runner), *(("i", "cpu") if number == 0 else ()))
        for number, (name, runner) in enumerate(runners)
    ]
    return measure(Case("c", "things/s", contenders, {"size": 3}), effort or Effort(3, 1.0, 60.0), quiet)


def test_speeds_are_work_over_time_and_everyone_is_closed() -> None:
    ours, peer = Fake([1], 0.5), Fake([1], 0.25)
    result = contest(("ours", ours), ("peer", peer))
    assert [m.value for m in result.measured] == [20.0, 40.0]
    assert [len(m.speeds) for m in result.measured] == [3, 3]
    assert ours.closed
    assert peer.closed
    (row,) = result_rows("b", result, {})
    assert (row["value"], row["peer_value"], row["ratio"], row["size"]) == (20.0, 40.0, 0.5, 3)


def test_a_slow_contender_gets_fewer_repeats() -> None:
    result = contest(("ours", Fake([1])), ("slow", Fake([1], 40.0)), effort=Effort(5, 1.0, 60.0))
    assert [len(m.speeds) for m in result.measured] == [5, 2]


def test_different_answers_are_not_compared() -> None:
    ours = Fake([1, 2])
    with pytest.raises(DifferentWork, match="peer and ours return different results: x of row 1 is 3, not 2"):
        contest(("ours", ours), ("peer", Fake([1, 3])))
    assert ours.closed
    with pytest.raises(DifferentWork, match="1 rows, not 2"):
        contest(("ours", Fake([1, 2])), ("peer", Fake([1])))


def test_a_slice_is_complete_rounds_and_warming_up_is_not_timed() -> None:
    runner = Fake([1], 0.3)
    contender = Contender("ours", lambda: runner, "i", "cpu")
    case = Case("c", "things/s", [contender], check_steps=3, round=2, warm_work=35.0)
    assert measure(case, Effort(2, 0.5, 60.0), quiet).measured[0].speeds == pytest.approx((10 / 0.3, 10 / 0.3))
    assert runner.steps == 3 + 4 + 2 * 2
    assert runner.pauses == 3 + 1 + 2


def test_a_yardstick_is_not_compared_and_has_its_own_unit() -> None:
    class Mute(Fake):
        def answer(self) -> dict[str, Any]:
            raise AssertionError("must not be called")

    mute = Contender("reads", lambda: Mute([]), answers=False, unit="lines/s")
    for others in ([mute], [mute, Contender("peer", lambda: Fake([1]))]):
        result = measure(
            Case("c", "things/s", [*others, Contender("ours", lambda: Fake([1]), "i", "cpu")]), SHORT, quiet
        )
        row = next(result_rows("b", result, {}))
        assert (row["peer"], row["unit"], row["peer_unit"], row["ratio"]) == ("reads", "things/s", "lines/s", 1.0)


def test_a_peer_without_memory_is_taken_out_but_ours_fails() -> None:
    class Full(Fake):
        def step(self) -> tuple[float, float]:
            raise MemoryError

    def cannot_start() -> Runner:
        raise MemoryError

    full = Full([1])
    ours = Contender("ours", lambda: Fake([1]), "i", "cpu")
    peers = [Contender("full", lambda: full), Contender("larger", cannot_start)]
    result = measure(Case("c", "things/s", [*peers, ours]), SHORT, quiet)
    assert result.missing == dict.fromkeys(("larger", "full"), "it ran out of memory")
    assert full.closed
    for start in (lambda: Full([1]), cannot_start):
        with pytest.raises(MemoryError):
            measure(Case("c", "things/s", [Contender("ours", start, "i", "cpu")]), SHORT, quiet)


def test_ours_are_compared_with_rivals_and_auto_with_the_best_of_them() -> None:
    seconds = {"auto": 0.5, "slow": 1.0, "fast": 0.25, "btree": 2.0}
    contenders = [Contender(name, partial(Fake, [1], took), name, "cpu") for name, took in seconds.items()]
    contenders.append(Contender("other device", partial(Fake, [1], 0.1), "fast", "opencl", "opencl-cpu"))
    result = measure(Case("c", "things/s", contenders, rivals=frozenset({"btree"})), SHORT, quiet)
    rows = list(result_rows("b", result, {}))
    assert [(r["contender"], r["peer"], r["peer_index"], r["ratio"]) for r in rows] == [
        ("auto", "btree", "btree", 4.0),
        ("auto", "best fixed index", "fast", 0.5),
        ("slow", "btree", "btree", 2.0),
        ("fast", "btree", "btree", 8.0),
        ("btree", None, None, None),
        ("other device", "btree", "btree", 20.0),
    ]
    assert rows[-1]["device_kind"] == "opencl-cpu"
    assert len({frozenset(row) for row in rows}) == 1


def test_a_missing_peer_is_reported_and_ours_has_a_row_without_peer() -> None:
    def absent() -> Runner:
        raise PeerMissing("not here: install it")

    case = Case("c", "things/s", [Contender("ours", lambda: Fake([1]), "i", "cpu"), Contender("peer", absent)])
    result = measure(case, Effort(2, 0.1), quiet)
    assert result.missing == {"peer": "not here: install it"}
    (row,) = result_rows("b", result, {})
    assert row["missing"] == result.missing
    assert row["peer"] is row["peer_value"] is row["ratio"] is row["peer_spread"] is None


@pytest.mark.parametrize(("module", "make"), [("duckdb", DuckdbSession), ("polars", PolarsSession)])
def test_a_peer_that_is_not_installed(module: str, make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(PeerMissing, match=r"pip install '\.\[bench\]'"):
        make(Workload(4, 4, "batches"))


def test_no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "find_compiler", lambda: None)
    with pytest.raises(PeerMissing, match=r"apt-get install g\+\+"):
        native.load.__wrapped__("multimap")


def test_names_and_cases_are_checked() -> None:
    assert catalog.check_names([]) == list(catalog.BENCHES)
    with pytest.raises(ArgumentError, match="no bench 'x'; there are: window_join, join"):
        catalog.check_names(["x"])
    with pytest.raises(ArgumentError, match=r"contains 'zzz'; there are: tuples-2\^12-seqs, "):
        catalog.cases("window_join", Options(quick=True, only="zzz"))
    with pytest.raises(ArgumentError, match="contains 'zzz'; there are: band-1M-pairs, band-10M-pairs"):
        catalog.cases("join", Options(only="zzz"))


def test_full_cases_cover_what_was_promised() -> None:
    names = [case.name for case in catalog.cases("window_join", Options())]
    assert {f"tuples-2^{n}-seqs" for n in (12, 16, 20)} <= set(names)
    assert {"batches-2^20-seqs", "batches-2^23-seqs", "batches-2^16-pairs"} <= set(names)
    assert "tuples-2^23-seqs" not in names
    assert {f"count-2^20-batch65536-sel{n}" for n in (1, 16, 256, 4096, 16384)} <= set(names)
    assert {f"small-2^16-batch{n}-sel2" for n in (1, 16, 256, 4096)} <= set(names)
    grid = [name for name in names if name.startswith("grid-")]
    for part in ("batch1-", "batch65536-", "sel1-", "sel256-", "sel16384-", *DISTRIBUTIONS):
        assert any(part in name for name in grid), part
    assert len(set(names)) == len(names)


def test_where_results_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert default_folder() == Path("millrace-results")
    (tmp_path / "benchmarks").mkdir()
    assert default_folder() == Path("benchmarks/results")
    ends = {
        results_file(tmp_path, "x", "2026-01-02", Options(quick, only=only)).name.removeprefix("x-2026-01-02")
        for quick in (False, True)
        for only in ("", "2^12")
    }
    assert ends == {".jsonl", "-part.jsonl", "-quick.jsonl", "-quick-part.jsonl"}
    (tmp_path / "file").touch()
    with pytest.raises(ArgumentError, match="choose a folder with --out"), keep_results(tmp_path / "file/x.jsonl"):
        pass


def one_row(name: str, options: Options, progress: Any) -> Iterator[Result]:
    yield contest(("ours", Fake([1])))


def cut_short(name: str, options: Options, progress: Any) -> Iterator[Result]:
    yield from one_row(name, options, progress)
    raise KeyboardInterrupt


def test_only_a_complete_run_replaces_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog, "run", one_row)
    folder = tmp_path / "a/b"
    run_benches(["window_join"], False, False, folder, None, "")
    (full,) = folder.iterdir()
    full.write_text("the full run\n")
    monkeypatch.setattr(catalog, "run", cut_short)
    with pytest.raises(KeyboardInterrupt):
        run_benches(["window_join"], False, False, folder, None, "")
    assert list(folder.iterdir()) == [full]
    assert full.read_text() == "the full run\n"
    monkeypatch.setattr(catalog, "run", one_row)
    run_benches(["window_join"], False, False, folder, None, "2^12")
    assert full.read_text() == "the full run\n"
    (part,) = set(folder.iterdir()) - {full}
    assert part.name == f"{full.stem}-part.jsonl"
    run_benches(["window_join"], False, False, folder, None, "")
    assert json.loads(full.read_text())["bench"] == "window_join"


def test_a_run_of_some_cases_keeps_the_rows_of_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog, "run", one_row)
    run_benches(["window_join"], False, False, tmp_path, None, "2^12")
    (part,) = tmp_path.iterdir()
    (row,) = part.read_text().splitlines()
    older = json.dumps(json.loads(row) | {"case": "another", "value": 7.0})
    part.write_text(f"{older}\n{row}\n")
    run_benches(["window_join"], False, False, tmp_path, None, "2^12")
    new, kept = part.read_text().splitlines()
    assert kept == older
    assert json.loads(new)["case"] == json.loads(row)["case"]


def test_a_result_names_no_host_and_no_path() -> None:
    text = json.dumps(about_run())
    assert {"cpu", "cores", "memory_gib", "python"} <= set(about_run()["machine"])
    assert {"numpy", "duckdb", "polars"} <= set(about_run()["versions"])
    assert platform.node() not in text
    assert str(Path.home()) + "/" not in text


def test_the_command_prints_and_keeps_rows(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "millrace.cli",
        "bench",
        "window_join",
        "--quick",
        "--json",
        "--case",
        "s-2^12-seqs",
    ]
    done = subprocess.run(
        [*command, "--repeat", "2", "--out", "kept"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    ours, limits = {"btree on cpu", "best fixed index"}, {"random-reads", "window-reads"}
    assert {row["peer"] for row in rows} == {*window_join.BATCH_PEERS, *window_join.TUPLE_PEERS} | ours | limits
    assert {row["index"] for row in rows} >= {"scan", "btree", "auto"}
    for row in rows:
        assert set(row) >= KEYS
        assert row["unit"] == "tuples/s"
        assert row["peer_unit"] == ("lines/s" if row["peer"] in limits else "tuples/s")
        assert row["ratio"] == pytest.approx(row["value"] / row["peer_value"])
        assert row["spread"]["min"] <= row["value"] <= row["spread"]["max"]
    (kept,) = (tmp_path / "kept").glob("window_join-*-quick-part.jsonl")
    assert [json.loads(line) for line in kept.read_text().splitlines()] == rows
    assert "\x1b" not in done.stdout + done.stderr
