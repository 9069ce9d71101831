"""The cases of the benches at tiny sizes: contenders agree, rows report what was measured, targets are checked."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from millrace.bench import catalog, csim, hardware, join, panjoin, structures, window_join
from millrace.bench.engine_work import Merging
from millrace.bench.entrants import LARGEST_WINDOW, Entrant, entrants, ours, suits, yardstick
from millrace.bench.harness import Case, DifferentWork, Effort, PeerMissing, Result, measure
from millrace.bench.options import Options
from millrace.bench.peers.duckdb_tables import DuckdbTables
from millrace.bench.peers.numpy_batches import NumpySession
from millrace.bench.peers.numpy_tables import NumpyTables
from millrace.bench.peers.polars_tables import PolarsTables
from millrace.bench.peers.random_reads import READS, RandomReads
from millrace.bench.rows import Row, result_rows
from millrace.bench.stream import Stream
from millrace.bench.tables import COLUMNS, TableRun, Tables, fingerprint
from millrace.bench.targets import TARGETS, judged
from millrace.bench.workload import DISTRIBUTIONS, DOMAIN, HEAVY_VALUES, Distribution, Workload
from millrace.cli import bench as command
from millrace.host.hbtree.layout import LAYOUTS
from millrace.host.hybrid.pipeline import STRATEGIES
from millrace.host.runtime import pool

SHORT = Effort(1, 1e-6, 1.0)
FACTS = {"window", "batch", "output", "selectivity", "distribution"}


def quiet(what: str, share: float) -> None:
    assert what


def run(case: Case) -> list[Row]:
    result = measure(case, SHORT, quiet)
    assert not result.missing
    return list(result_rows("b", result, {}))


def tiny_panjoin(monkeypatch: pytest.MonkeyPatch) -> list[Case]:
    for name, value in {
        "QUICK_COUNT_WINDOW": 512,
        "QUICK_COUNT_BATCH": 256,
        "QUICK_COUNT_SELECTIVITIES": (1, 64),
        "QUICK_SMALL_WINDOW": 256,
        "QUICK_SMALL_BATCHES": (1, 64),
        "QUICK_GRID": ((8, 1), (128, 32)),
    }.items():
        monkeypatch.setattr(panjoin, name, value)
    return list(panjoin.cases(Options(quick=True), entrants()))


def test_panjoin_cases_agree_and_say_what_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    cases = tiny_panjoin(monkeypatch)
    assert [case.name for case in cases[:4]] == [
        "count-2^9-batch256-sel1",
        "count-2^9-batch256-sel64",
        "small-2^8-batch1-sel2",
        "small-2^8-batch64-sel2",
    ]
    assert {case.facts["distribution"] for case in cases[4:]} == set(DISTRIBUTIONS)
    for case in cases:
        rows = run(case)
        assert all(set(row) >= FACTS for row in rows)
        assert {"scan", "btree", "auto"} <= {row["index"] for row in rows}
        assert ("auto", "best fixed index") in {(row["index"], row["peer"]) for row in rows}
    count = {row["peer"] for row in run(cases[0])}
    assert {"numpy", "numpy-sorted"} <= count


def tiny_structures(monkeypatch: pytest.MonkeyPatch) -> list[Case]:
    for name, value in {
        "QUICK_SUBWINDOWS": (256, 1024),
        "QUICK_BATCHES": (1, 256),
        "QUICK_COUNT_BATCH": 64,
        "QUICK_SELECTIVITIES": (1, 32),
        "QUICK_BALANCE_ROWS": 4096,
        "TURN": 32,
    }.items():
        monkeypatch.setattr(structures, name, value)
    return list(structures.cases(Options(quick=True)))


def test_structures_agree_and_say_what_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    cases = tiny_structures(monkeypatch)
    assert [case.name for case in cases[:-12]] == [
        "insert-2^8-batch1",
        "insert-2^8-batch256",
        "insert-2^10-batch1",
        "insert-2^10-batch256",
        "probe-2^8-batch1-sel1",
        "probe-2^8-batch256-sel1",
        "probe-2^10-batch1-sel1",
        "probe-2^10-batch256-sel1",
        "count-2^10-batch64-sel1",
        "count-2^10-batch64-sel32",
    ]
    for case in cases[:-12]:
        rows = run(case)
        assert {row["index"] for row in rows} == {"bisort", "rap", "wib"}
        assert {row["peer"] for row in rows} == ({None} if case.name.startswith("insert") else {"numpy"})
        assert all({"operation", "subwindow", "batch", "selectivity"} <= set(row) for row in rows)


def test_full_subwindows_are_followed_by_others() -> None:
    """Ids restart at 0 in each subwindow, and the structures still agree."""
    runners = [structures.Inserting(name, 256, 64) for name in ("bisort", "rap", "wib")]
    for _ in range(7):
        found = []
        for runner in runners:
            amount, seconds = runner.step()
            assert amount == 256
            assert seconds > 0
            found.append(runner.answer()["count"].tolist())
        assert found[0] == found[1] == found[2]
        # The ranges cover half of the domain; the subwindow is as full as when timing started.
        assert 30 < sum(found[0]) < 100
    for runner in runners:
        runner.close()


def test_probing_finds_what_the_definition_says() -> None:
    runner = structures.Probing("rap", 256, 64, 4, want=False)
    again = np.random.default_rng([structures.SEED, 256, 64])
    held = again.integers(0, structures.DOMAIN, 256, dtype=np.uint64)
    runner.step()
    low = again.integers(0, structures.DOMAIN, (4, 64), dtype=np.uint64).reshape(-1, 1)
    inside = (held >= low) & (held < low + np.uint64(4 * structures.DOMAIN // 256))
    assert runner.answer()["count"].tolist() == inside.sum(axis=1).tolist()
    runner.close()


def test_balance_gets_better(monkeypatch: pytest.MonkeyPatch) -> None:
    cases = tiny_structures(monkeypatch)[-12:]
    errors = {case.name: run(case)[0]["value"] for case in cases}
    for distribution in ("uniform", "multimodal", "rank-size"):
        assert errors[f"balance-{distribution}-adjusted3"] < 450 < errors[f"balance-{distribution}-adjusted0"]
    assert {row["peer"] for row in run(cases[0])} == {"quantiles"}


def test_window_join_cases_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    """Includes the largest window, which is compared with a smaller one; `btree` replaces the usual yardstick."""
    monkeypatch.setattr(window_join, "WINDOWS", (1 << 8, 1 << 9))
    monkeypatch.setattr(window_join, "BATCH", 1 << 7)
    monkeypatch.setattr(window_join, "BASE_WINDOW", 1 << 8)
    monkeypatch.setattr(window_join, "yardstick", lambda index, *arguments: yardstick("btree", *arguments))
    cases = [case for case in window_join.cases(Options()) if case.name.startswith(("tuples-", "batches-"))]
    assert [case.name for case in cases] == [
        "tuples-2^8-seqs",
        "batches-2^8-seqs",
        "tuples-2^9-seqs",
        "batches-2^9-seqs",
    ]
    for case in cases:
        rows = run(case)
        wanted = {"multimap"} if case.facts["arrival"] == "tuples" else {*window_join.BATCH_PEERS, "random-reads"}
        assert wanted <= {row["peer"] for row in rows}
        assert ("btree at 2^8" in {row["peer"] for row in rows}) == (case.name == "batches-2^9-seqs")


def test_counts_of_numpy_are_those_of_the_definition() -> None:
    for sort in (False, True):
        workload = Workload(64, 40, "batches", "count", rate=8)
        stream = Stream(NumpySession(workload, sort), workload, ordered=True)
        stream.step()
        held, new = workload.fill()[1].x, workload.turn(0).r.x
        expected = (np.abs(held[None, :] - new[:, None]) <= workload.eps).sum(axis=1)
        assert stream.answer()["count"].tolist() == expected.tolist()
        assert stream.answer()["seq"].tolist() == list(range(64, 104))


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
@pytest.mark.parametrize("rate", [1, 64])
def test_every_distribution_has_the_wanted_match_rate(distribution: Distribution, rate: int) -> None:
    workload = Workload(1 << 12, 1 << 10, "batches", "count", rate, distribution=distribution)
    stream = Stream(NumpySession(workload, True), workload, ordered=True)
    counts = []
    for _ in range(8):
        stream.step()
        counts.append(stream.answer()["count"])
    assert 0.75 * rate < np.concatenate(counts).mean() < 1.3 * rate


def test_what_the_distributions_are_like() -> None:
    def keys(distribution: Distribution, at: int) -> Any:
        workload = Workload(1 << 12, 1 << 12, "batches", rate=64, distribution=distribution)
        return workload.turn(2 * at).r.x

    values, times = np.unique(keys("skewed", 0), return_counts=True)
    assert (times > 10).sum() == HEAVY_VALUES
    assert np.histogram(values, 1024, (0, DOMAIN))[0].max() > 20 * 4
    early, late = keys("drifting", 0), keys("drifting", 8)
    assert np.ptp(early) == pytest.approx(1.25 * DOMAIN, rel=0.1)
    assert np.median(late) - np.median(early) == pytest.approx(2 * DOMAIN, rel=0.1)
    increasing = keys("increasing", 0)
    assert 0 < (np.diff(increasing) < 0).mean() < 0.6
    assert (np.diff(increasing[::256]) > 0).all()
    again = Workload(1 << 12, 1 << 12, "batches", rate=64, distribution="skewed").turn(0).r.x
    assert np.array_equal(np.unique(again), values)


@pytest.mark.parametrize("far", [False, True])
def test_random_reads_reads_as_much_as_it_says(far: bool) -> None:
    reads = RandomReads(1 << 16, far)
    amount, seconds = reads.step()
    assert amount == READS * pool.cores()
    assert seconds > 0
    reads.close()


def test_which_index_takes_part_in_which_workload() -> None:
    def takes_part(index: str, workload: Workload, kind: str = "cpu") -> bool:
        return suits(Entrant(index, "d", kind), workload)

    small, large = Workload(1 << 12, 1 << 16, "batches"), Workload(1 << 23, 1 << 16, "batches")
    assert all(takes_part(index, small) for index in LARGEST_WINDOW)
    assert {index for index in LARGEST_WINDOW if takes_part(index, large)} == {"bisort", "rap", "wib", "auto"}
    assert not takes_part("nosuch", small)
    middle = Workload(1 << 16, 1 << 16, "batches")
    assert not takes_part("scan", middle)
    assert takes_part("bisort", middle, "opencl-cpu")
    assert not takes_part("bisort", Workload(1 << 20, 1 << 16, "batches"), "opencl-cpu")
    many = Workload(1 << 20, 1 << 16, "batches", "count", 1 << 14)
    assert {index for index in LARGEST_WINDOW if takes_part(index, many)} == {"bisort", "auto"}


def test_an_index_that_is_not_there_is_not_among_the_contenders() -> None:
    everyone = entrants()
    assert ("auto", "cpu", "cpu") in {(e.index, e.device, e.kind) for e in everyone}
    assert len(everyone) == len(set(everyone))
    workload = Workload(16, 16, "batches")
    assert yardstick("nosuch", "x", workload, everyone) == []
    assert ours(workload, [Entrant("nosuch", "cpu", "cpu")]) == []


def test_a_device_says_what_it_is() -> None:
    assert Entrant("bisort", "opencl:0", "opencl-cpu").name == "bisort on opencl:0 (opencl-cpu)"
    assert Entrant("btree", "cpu", "cpu").name == "btree on cpu"


def test_table_joins_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    """Row by row at the first size, by fingerprint at the second."""
    monkeypatch.setattr(join, "SIZES", {"a": 300, "b": 900})
    monkeypatch.setattr("millrace.bench.tables.SORTED_ROWS", 500)
    cases = list(join.cases(Options()))
    assert [case.name for case in cases] == ["band-a-pairs", "band-b-pairs"]
    for case in cases:
        rows = run(case)
        assert set(join.PEERS) <= {row["peer"] for row in rows}
        assert {"btree", "auto"} <= {row["index"] for row in rows}
        assert {(row["rows"], row["output"], row["selectivity"], row["unit"]) for row in rows} == {
            (case.facts["rows"], "pairs", 2.0, "rows/s")
        }


def test_table_joins_have_about_two_matches_a_row() -> None:
    for make in (DuckdbTables, PolarsTables):
        for buckets in (False, True):
            one = TableRun(partial(make, buckets=buckets), Tables(2000))
            assert one.step()[0] == 4000
            answer = one.answer()
            assert list(answer) == COLUMNS
            assert 1.7 < len(answer["r_seq"]) / 2000 < 2.3
            one.close()


def test_a_fingerprint_ignores_only_the_row_order() -> None:
    columns: dict[str, Any] = {name: np.arange(5) * (n + 2) for n, name in enumerate(COLUMNS)}
    columns["r_v"] = np.linspace(0, 1, 5)
    print_of = {k: v.tolist() for k, v in fingerprint(columns).items()}
    turned = {name: column[::-1] for name, column in columns.items()}
    assert {k: v.tolist() for k, v in fingerprint(turned).items()} == print_of
    swapped = {**columns, "r_v": columns["r_v"][::-1]}
    assert fingerprint(swapped)["hash"].tolist() != print_of["hash"]


def test_different_pairs_of_tables_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    class Wrong(DuckdbTables):
        def answer(self, result: Any) -> Any:
            columns = dict(super().answer(result))
            columns["s_v"] = columns["s_v"] + 1
            return columns

    monkeypatch.setattr(join, "PEERS", {"wrong": Wrong})
    for limit in (1000, 10):
        monkeypatch.setattr("millrace.bench.tables.SORTED_ROWS", limit)
        monkeypatch.setattr(join, "SIZES", {"a": 300})
        (case,) = join.cases(Options())
        with pytest.raises(DifferentWork, match="wrong and "):
            run(case)


def test_a_slow_peer_is_not_run_at_the_next_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(join, "MAX_SECONDS", 0.0)
    with pytest.raises(PeerMissing, match=r"^100 rows took 0 s, more than 0 s$"):
        join.patiently(NumpyTables, Tables(200), 100)
    assert join.patiently(NumpyTables, Tables(200), None).step()[0] == 400


def row(bench: str, case: str, index: str, peer: str | None, ratio: float | None, **more: Any) -> Row:
    return {"bench": bench, "case": case, "index": index, "peer": peer, "ratio": ratio, "device": "cpu", **more}


def test_targets_are_checked_against_the_worst_row() -> None:
    given = [
        row("window_join", "batches-2^20-seqs", "bisort", "numpy", 21.0),
        row("window_join", "batches-2^20-seqs", "bisort", "numpy", 1.0, device="opencl"),
        row("window_join", "batches-2^20-seqs", "bisort", "numpy-sorted", 2.0),
        row("window_join", "grid-a", "auto", "best fixed index", 0.95),
        row("window_join", "grid-b", "auto", "best fixed index", 0.84),
        row("window_join", "small-2^16-batch1-sel2", "wib", "btree on cpu", 0.6),
        row("window_join", "small-2^16-batch1-sel2", "btree", None, None),
        row("join", "band-1M-pairs", "bisort", "duckdb-buckets", 4.0),
        row("join", "band-1M-pairs", "bisort", "duckdb", 9.0),
    ]
    found = {(v.target.text, v.worst["ratio"], v.met) for v in judged(given)}
    assert found == {
        ("bisort 20x NumPy at 2^20", 21.0, True),
        ("auto 0.85 of the best choice", 0.84, False),
        ("wib within 2x of btree, batch 1", 0.6, True),
        ("mr.join 5x the best peer, 1M", 4.0, False),
    }
    assert list(judged([])) == []


def test_every_target_matches_cases_of_a_full_run() -> None:
    """Regression guard: a renamed case would disable its target without notice."""
    cases = {bench: [case.name for case in catalog.cases(bench, Options())] for bench in catalog.BENCHES}
    for target in TARGETS:
        given = ((case, *pair) for case in cases[target.bench] for pair in _pairs())
        assert target.rows(row(target.bench, case, i, p, 1.0, device=device) for case, i, p, device in given), (
            target.text
        )


def _pairs() -> Iterator[tuple[str, str, str]]:
    yield "bisort", "bound", "rtl:w4,n2,m4,ideal"
    yield "bisort", "bar", "hls:w4"
    yield "gate", "bar", "cpu"
    yield "scan", "bar", "cpu"
    yield "pim", "one thread", "cpu"
    yield "kdtree", "bar", "cpu"
    yield "instant", "before", "cpu"
    for peer in ("spark-buckets", "spark-equi-join", "spark-loop"):
        yield "auto", peer, "cpu"
    for peer in ("scipy-sorted", "scipy", "pykdtree", "bar", "scipy-rebuild", "search", "uniform"):
        yield "hilbert", peer, "cpu"
    for index, peer in (("pim", "btree on cpu"), ("im", "btree on cpu"), ("pim", "pim on cpu, 2 threads, steady")):
        yield index, peer, "cpu"
    peers = [
        "best fixed index",
        "500 calls",
        "btree on cpu",
        "random-reads",
        "bisort at 2^16",
        "bisort at selectivity 1",
    ]
    for index in LARGEST_WINDOW:
        for peer in [*peers, *window_join.BATCH_PEERS, *join.PEERS]:
            yield index, peer, "cpu"
    for index in LAYOUTS:
        for peer in ("numpy", "numpy-sorted", "random-reads", "implicit on cpu", "implicit at uniform", "copy"):
            yield index, peer, "cpu"
        yield index, "keys and values", "cpu"
        for peer in ("rebuild", "multimap", "one thread", "fresh build"):
            yield index, peer, "cpu"
    yield "auto", "best fixed index", "paced"
    for peer in ("duckdb", "polars", "spo at 1M matches", "200,000 tuples/s", "scan on cpu", "3 medians", "80 bytes"):
        yield "spo", peer, "cpu"
    for strategy in STRATEGIES:
        yield strategy, "max(T2, T4)", "paced"
    for called in ("lookup", "broadcast", "range"):
        for peer in ("identity", "identity-shuffle", "spark-buckets", "40 MB"):
            yield called, peer, "cpu"
    for called in ("range", "store-one"):
        for peer in (f"empty {called}", "spark-buckets", f"{called} at 256K", "6x the batch"):
            yield called, peer, "cpu"


def test_a_full_run_prints_its_targets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(join, "SIZES", {"1M": 300})
    monkeypatch.setattr(join, "LARGEST", {"auto": 300})
    monkeypatch.setattr(catalog, "run", _measured_briefly)
    command.run_benches(["join"], False, False, tmp_path, None, "")
    printed = capsys.readouterr().out
    assert "in the worst case" in printed
    assert "mr.join 5x the best peer, 1M" in printed
    (kept,) = tmp_path.iterdir()
    assert {json.loads(line)["bench"] for line in kept.read_text().splitlines()} == {"join"}


def _measured_briefly(name: str, options: Options, progress: Any) -> Iterator[Result]:
    for case in catalog.cases(name, options):
        yield measure(case, SHORT, quiet)


def test_hardware_cases_count_cycles_and_check_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "QUICK_RUN", 4096)
    monkeypatch.setattr(hardware, "QUICK_BATCH", 512)
    monkeypatch.setattr(hardware, "QUICK_PARTITIONS", 256)
    cases = [case for case in hardware.cases(Options(quick=True)) if not case.name.startswith("csim-")]
    assert {case.facts["operation"] for case in cases} == {"merge", "probe"}
    for case in cases:
        rows = {row["peer"]: row for row in run(case)}
        assert set(rows) == {"bound", "model"}
        assert 0.3 < rows["bound"]["ratio"] <= 1
        assert rows["bound"]["repeats"] == 1
        cycles = case.facts["work"] / rows["bound"]["value"]
        assert cycles == pytest.approx(round(cycles))


def test_c_simulation_is_timed_and_its_answer_checked() -> None:
    cases = list(csim.cases(4096, 512, 256))
    assert {case.facts["operation"] for case in cases} == {"merge", "probe"}
    assert {case.contenders[0].device for case in cases} == {"hls:w1", "hls:w4", "hls:w8"}
    for case in cases:
        rows = {row["peer"]: row for row in run(case)}
        assert set(rows) == {"bar", "numpy"}
        assert rows["bar"]["peer_value"] == pytest.approx(csim.TARGET_SPEED)
        assert rows["bar"]["unit"] == "tuples/s"


def test_hardware_with_wrong_results_is_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "QUICK_RUN", 1024)
    case = next(iter(hardware.cases(Options(quick=True))))
    right = Merging.expected
    monkeypatch.setattr(Merging, "expected", lambda work, made: {**right(work, made), "ids": made[1][:0]})
    with pytest.raises(DifferentWork, match=r"ids|rows"):
        measure(case, SHORT, quiet)
