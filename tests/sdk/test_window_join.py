"""`mr.WindowJoin`, sentence by sentence of the contract: small examples written out by hand."""

from __future__ import annotations

import os
import threading
import warnings
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import millrace as mr
from millrace.host.data.window import Window
from millrace.host.join import matcher
from tests.sdk.window_join_cases import counts, every_index, everything, pairs, timed, xs

# --- on ---


@every_index
def test_one_sided_terms_filter_pairs_but_the_row_fills_its_window(index: Any) -> None:
    j = mr.WindowJoin(on="r.x = s.x AND r.x > 5", window="1 rows", index=index)
    j.push("r", xs(9, 3))
    assert pairs(j.push("s", xs(9))) == []  # r's window of one row holds the 3, which cannot match
    assert j.stats["held"] == 2


@every_index
def test_a_pair_that_satisfies_several_or_bands_appears_once(index: Any) -> None:
    j = mr.WindowJoin(on="abs(r.x - s.x) <= 3 OR abs(r.x - s.x - 2) <= 3", window="10 rows", index=index)
    j.push("r", xs(10))
    assert pairs(j.push("s", xs(10, 8, 5, 14, 4))) == [(0, 0), (0, 1), (0, 2)]


@every_index
def test_a_null_or_nan_operand_matches_nothing(index: Any) -> None:
    j = mr.WindowJoin(on="r.f <> s.f", window="10 rows", index=index)
    floats = pa.table({"f": pa.array([1.0, None, float("nan"), -0.0], from_pandas=False)})
    j.push("r", floats)
    assert pairs(j.push("s", floats)) == [(3, 0), (0, 3)]
    assert j.stats["null_keys"] == 4


@every_index
def test_a_range_from_two_columns_is_legal_and_answers_whichever_side_probes(index: Any) -> None:
    spans = pa.table({"lo": [0, 5], "hi": [5, 9]})
    one = mr.WindowJoin(on="s.x BETWEEN r.lo AND r.hi", window="10 rows", index=index)
    one.push("r", spans)
    first = one.push("s", xs(5, 9, 10))
    two = mr.WindowJoin(on="s.x BETWEEN r.lo AND r.hi", window="10 rows", index=index)
    two.push("s", xs(5, 9, 10))
    second = two.push("r", spans)
    assert pairs(first) == [(0, 0), (1, 0), (1, 1)]
    assert pairs(second) == [(0, 0), (1, 0), (1, 1)]


# --- a row's identity ---


def test_seq_counts_every_pushed_row_from_zero_across_batches() -> None:
    j = mr.WindowJoin(on="r.x = s.x", window="10 rows")
    j.push("r", xs(1, None, 2))
    j.push("r", xs(3))
    assert pairs(j.push("s", xs(3, 2))) == [(3, 0), (2, 1)]


@every_index
def test_a_row_with_a_null_key_fills_a_slot_in_a_count_window_and_matches_nothing(index: Any) -> None:
    j = mr.WindowJoin(on="r.x = s.x", window="2 rows", index=index)
    j.push("r", xs(7, 7, None))
    assert pairs(j.push("s", xs(7))) == [(1, 0)]
    assert j.stats["null_keys"] == 1
    assert j.stats["held"] == 3


def test_a_row_with_a_null_key_moves_the_clock() -> None:
    j = mr.WindowJoin(on="r.x = s.x", window="10", time="ts")
    j.push("r", timed((5, 1)))
    assert j.push("s", timed((3, 1))).num_rows == 0
    assert pairs(j.push("s", timed((9, None)))) == [(0, 0)]


def test_a_dropped_row_only_uses_up_its_seq() -> None:
    j = mr.WindowJoin(on="r.x = s.x", window="1 rows", time="ts")
    j.push("r", timed((5, 1), (3, 1), (None, 1), (6, 2)))
    assert (j.stats["late"], j.stats["null_times"], j.stats["rows"]["r"]) == (1, 1, 4)
    # Neither dropped row took a slot in the window of one row.
    assert everything(j, ("s", timed((5, 1)))) == [(0, 0)]
    k = mr.WindowJoin(on="r.x = s.x", window="9", time="ts")
    k.push("r", timed((5, 1), (3, 1), (None, 1), (6, 1)))
    assert everything(k, ("s", timed((7, 1)))) == [(0, 0), (3, 0)]


# --- count windows ---


@every_index
def test_a_tuple_meets_the_last_n_of_the_other_side_that_arrived_before_it(index: Any) -> None:
    j = mr.WindowJoin(on="r.x <= s.x", window="2 rows", index=index)
    j.push("r", xs(0, 0, 0))
    assert pairs(j.push("s", xs(1))) == [(1, 0), (2, 0)]
    assert pairs(j.push("r", xs(0))) == [(3, 0)]
    assert pairs(j.push("s", xs(1, 1))) == [(2, 1), (3, 1), (2, 2), (3, 2)]


@every_index
def test_an_asymmetric_count_window_lets_r_meet_the_last_m_of_s(index: Any) -> None:
    j = mr.WindowJoin(on="r.x <= s.x", window=("1 rows", "3 rows"), index=index)
    j.push("r", xs(0, 0))
    assert pairs(j.push("s", xs(1, 1, 1, 1))) == [(1, 0), (1, 1), (1, 2), (1, 3)]
    assert pairs(j.push("r", xs(0))) == [(2, 1), (2, 2), (2, 3)]


@every_index
@pytest.mark.parametrize("threads", [1, 3])
def test_splitting_batches_never_changes_the_result(index: Any, threads: int) -> None:
    rng = np.random.default_rng(2)
    r, s = xs(*rng.integers(0, 20, 60).tolist()), xs(*rng.integers(0, 20, 60).tolist())

    def run(size: int) -> pa.Table:
        known = {"r": r.schema, "s": s.schema}
        on = "abs(r.x - s.x) <= 1"
        j = mr.WindowJoin(on=on, window="7 rows", index=index, threads=threads, schemas=known)
        found = []
        for start in range(0, 60, 20):
            for side, table in (("r", r), ("s", s)):
                for at in range(start, start + 20, size):
                    found.append(j.push(side, table.slice(at, min(size, start + 20 - at))))
        return pa.concat_tables(found).combine_chunks()

    at_once = run(20)
    assert at_once.num_rows > 50
    for size in (1, 3, 7):
        assert run(size).equals(at_once)


def test_pushing_no_rows_changes_nothing() -> None:
    j = mr.WindowJoin(on="r.x = s.x", window="2 rows")
    assert j.push("r", xs()).num_rows == 0
    j.push("s", xs(1))
    assert j.push("r", xs()).num_rows == 0
    assert pairs(j.push("r", xs(1))) == [(0, 0)]


# --- push_both ---


@every_index
def test_push_both_is_one_row_pushes_in_the_order_given(index: Any) -> None:
    r, s = xs(1, 1, 2), xs(1, 2, 2)
    arrival = np.array([1, 0, 0, 1, 1, 0], np.uint8)
    j = mr.WindowJoin(on="r.x <= s.x", window="2 rows", index=index)
    together = j.push_both(r, s, arrival)
    k = mr.WindowJoin(on="r.x <= s.x", window="2 rows", index=index)
    at = {"r": 0, "s": 0}
    parts = []
    for which in arrival:
        side = "s" if which else "r"
        parts.append(k.push(side, (s if which else r).slice(at[side], 1)))
        at[side] += 1
    assert pairs(together) == [p for part in parts for p in pairs(part)]
    assert pairs(together) == [(0, 0), (1, 0), (0, 1), (1, 1), (0, 2), (1, 2), (2, 1), (2, 2)]


@pytest.mark.parametrize("arrival", [[0, 1], (0, 1), pa.array([0, 1]), np.array([False, True]), np.array([0, 1])])
def test_push_both_takes_any_array_of_zeros_and_ones(arrival: Any) -> None:
    j = mr.WindowJoin(on="r.x = s.x", window="2 rows")
    assert pairs(j.push_both(xs(1), xs(1), arrival)) == [(0, 0)]


def test_push_both_of_nothing_and_of_one_side() -> None:
    j = mr.WindowJoin(on="r.x = s.x", window="2 rows")
    assert j.push_both(xs(), xs(), []).num_rows == 0
    assert j.push_both(xs(1), xs(), [0]).num_rows == 0
    assert pairs(j.push_both(xs(), xs(1), [1])) == [(0, 0)]


def test_push_both_with_time_decides_lateness_row_by_row() -> None:
    j = mr.WindowJoin(on="r.x = s.x", window="5", time="ts")
    found = j.push_both(timed((3, 1), (2, 1), (6, 1)), timed((4, 1), (7, 1)), [0, 1, 0, 1, 0])
    assert pairs(found) == [(0, 0), (2, 0)]
    assert j.stats["late"] == 1


# --- self-join ---


@every_index
def test_a_self_join_gives_both_ways_and_never_a_row_with_itself(index: Any) -> None:
    j = mr.WindowJoin(on="abs(r.x - s.x) <= 1", window="2 rows", self_join=True, index=index)
    # Newcomer as r first: (b, a), then (a, b).
    assert pairs(j.push("r", xs(1, 2))) == [(1, 0), (0, 1)]
    assert pairs(j.push("r", xs(9, 2))) == [(3, 1), (1, 3)]
    assert pairs(j.push("r", xs(2))) == [(4, 3), (3, 4)]
    assert j.stats["rows"] == {"r": 5, "s": 0}
    assert j.stats["held"] == 2


@every_index
def test_a_self_join_is_ordered_by_new_tuple_then_partner_then_new_tuple_as_r(index: Any) -> None:
    j = mr.WindowJoin(on="r.x <= s.x", window="5 rows", self_join=True, index=index)
    assert pairs(j.push("r", xs(1, 1, 1))) == [(1, 0), (0, 1), (2, 0), (0, 2), (2, 1), (1, 2)]
    k = mr.WindowJoin(on="r.x < s.x", window="5 rows", self_join=True, index=index)
    assert pairs(k.push("r", xs(3, 1, 2))) == [(1, 0), (2, 0), (1, 2)]


def test_a_self_join_over_time_with_an_asymmetric_window() -> None:
    j = mr.WindowJoin(on="r.x = s.x", window=("0", "5"), time="ts", self_join=True)
    # 0 <= r.ts - s.ts <= 5: only the later one may be r.
    assert everything(j, ("r", timed((1, 0), (4, 0)))) == [(1, 0)]


def test_a_self_join_counts_each_tuple_once() -> None:
    j = mr.WindowJoin(on="r.x = s.x", window="5 rows", self_join=True, output="count")
    assert counts(j.push("r", xs(1, 1, 2, 1))) == [("r", 0, 0, 0), ("r", 0, 1, 2), ("r", 0, 2, 0), ("r", 0, 3, 4)]
    assert j.stats["pairs"] == 6


def test_a_self_join_names_both_roles_in_the_output() -> None:
    j = mr.WindowJoin(on="r.x = s.x + 1", window="5 rows", self_join=True)
    found = j.push("r", xs(1, 2))
    assert found.to_pydict() == {"r_seq": [1], "s_seq": [0], "r_x": [2], "s_x": [1]}


def test_a_self_join_of_several_sources() -> None:
    j = mr.WindowJoin(on="r.x = s.x", window="5", time="ts", self_join=True, sources={"r": 2})
    j.push("r", timed((1, 0)), source=1)
    j.push("r", timed((2, 0)), source=0)
    found = j.close()
    rows = [(row["r_source"], row["r_seq"], row["s_source"], row["s_seq"]) for row in found.to_pylist()]
    assert rows == [(0, 0, 1, 0), (1, 0, 0, 0)]


# --- output ---


def test_the_columns_are_seqs_then_r_then_s() -> None:
    j = mr.WindowJoin(on="r.x = s.y", window="5 rows")
    j.push("r", pa.table({"x": pa.array([1], pa.int32()), "name": ["a"]}))
    found = j.push("s", pa.table({"note": ["b"], "y": pa.array([1], pa.int16())}))
    assert found.schema == pa.schema(
        [
            ("r_seq", pa.int64()),
            ("s_seq", pa.int64()),
            ("r_x", pa.int32()),
            ("r_name", pa.string()),
            ("s_note", pa.string()),
            ("s_y", pa.int16()),
        ]
    )
    assert found.to_pylist() == [{"r_seq": 0, "s_seq": 0, "r_x": 1, "r_name": "a", "s_note": "b", "s_y": 1}]


@every_index
def test_rows_are_ordered_by_the_later_tuple_then_by_the_partner(index: Any) -> None:
    j = mr.WindowJoin(on="r.x <> s.x", window="9 rows", index=index)
    j.push("r", xs(3, 1, 2))
    assert pairs(j.push("s", xs(0, 9))) == [(0, 0), (1, 0), (2, 0), (0, 1), (1, 1), (2, 1)]
    found = j.push_both(xs(4, 5), xs(7), [0, 1, 0])
    assert pairs(found) == [(3, 0), (3, 1), (0, 2), (1, 2), (2, 2), (3, 2), (4, 0), (4, 1), (4, 2)]


def test_output_seqs_leaves_the_payload_out() -> None:
    j = mr.WindowJoin(on="r.x = s.x", window="5 rows", output="seqs")
    j.push("r", xs(1))
    found = j.push("s", xs(1))
    assert found.schema == pa.schema([("r_seq", pa.int64()), ("s_seq", pa.int64())])
    assert pairs(found) == [(0, 0)]


@every_index
def test_output_count_gives_one_row_per_tuple_taken_zeros_included(index: Any) -> None:
    j = mr.WindowJoin(on="abs(r.x - s.x) <= 1", window="5 rows", output="count", index=index)
    first = j.push("r", xs(1, 2, None))
    assert first.schema == pa.schema(
        [("side", pa.string()), ("source", pa.int32()), ("seq", pa.int64()), ("count", pa.int64())]
    )
    assert counts(first) == [("r", 0, 0, 0), ("r", 0, 1, 0), ("r", 0, 2, 0)]
    assert counts(j.push("s", xs(2, 9))) == [("s", 0, 0, 2), ("s", 0, 1, 0)]
    assert counts(j.push_both(xs(2), xs(2), [1, 0])) == [("s", 0, 2, 2), ("r", 0, 3, 2)]
    assert j.stats["pairs"] == 6


@pytest.mark.parametrize("output", ["pairs", "seqs", "count"])
@every_index
def test_all_outputs_give_the_same_pairs(index: Any, output: Any) -> None:
    """A condition that must be checked again after the search, so that counts cannot come from the index alone."""
    rng = np.random.default_rng(4)
    r = pa.table({"x": rng.integers(0, 9, 40), "y": rng.random(40)})
    s = pa.table({"x": rng.integers(0, 9, 40), "y": rng.random(40)})
    j = mr.WindowJoin(on="abs(r.x - s.x) <= 1 AND r.y < s.y", window="15 rows", output=output, index=index)
    total = 0
    for at in range(0, 40, 10):
        for side, table in (("r", r), ("s", s)):
            found = j.push(side, table.slice(at, 10))
            total += sum(found["count"].to_pylist()) if output == "count" else found.num_rows
    k = mr.WindowJoin(on="abs(r.x - s.x) <= 1 AND r.y < s.y", window="15 rows", output="seqs", index="scan")
    wanted = sum(k.push(side, t.slice(at, 10)).num_rows for at in range(0, 40, 10) for side, t in (("r", r), ("s", s)))
    assert total == wanted == j.stats["pairs"] > 0


def test_until_both_schemas_are_known_output_is_empty_with_the_known_columns() -> None:
    j = mr.WindowJoin(on="r.x = s.x", window="5 rows")
    assert j.flush().schema == pa.schema([("r_seq", pa.int64()), ("s_seq", pa.int64())])
    first = j.push("r", xs(1))
    assert (first.num_rows, first.column_names) == (0, ["r_seq", "s_seq", "r_x"])
    assert j.push("s", xs(2)).column_names == ["r_seq", "s_seq", "r_x", "s_x"]
    k = mr.WindowJoin(on="r.x = s.x", window="5 rows")
    assert k.push("s", xs(1)).column_names == ["r_seq", "s_seq", "s_x"]


def test_schemas_fix_the_columns_early() -> None:
    schema = pa.schema([("x", pa.int64())])
    j = mr.WindowJoin(on="r.x = s.x", window="5 rows", schemas={"r": schema, "s": xs(1)})
    assert j.flush().column_names == ["r_seq", "s_seq", "r_x", "s_x"]
    assert j.push("r", xs(1)).column_names == ["r_seq", "s_seq", "r_x", "s_x"]
    with pytest.raises(mr.SchemaError, match="y is new"):
        j.push("s", pa.table({"x": [1], "y": [2]}))
    one = mr.WindowJoin(on="r.x = s.x", window="5 rows", schemas={"s": schema})
    assert one.flush().column_names == ["r_seq", "s_seq", "s_x"]


def test_every_result_of_a_join_has_the_same_schema() -> None:
    schemas = {"r": timed().schema, "s": timed().schema}
    j = mr.WindowJoin(on="r.x = s.x", window="2", time="ts", schemas=schemas)
    found = [
        j.push("r", timed((1, 0))),
        j.push("s", timed((1, 0), (2, 0))),
        j.advance("r", 3),
        j.push_both(timed((4, 0)), timed((5, 0)), [0, 1]),
        j.flush(),
        j.close(),
    ]
    assert len({str(table.schema) for table in found}) == 1
    assert sum(table.num_rows for table in found) == 4


# --- stats ---


def test_stats_have_the_names_of_the_contract() -> None:
    j = mr.WindowJoin(on="r.x = s.x", window="5", time="ts", index="scan", device="cpu")
    j.push("r", timed((1, 0), (None, 0), (2, None), (0, 0)))
    j.push("s", timed((1, 0)))
    s = j.stats
    assert {k: s[k] for k in ("rows", "late", "null_times", "null_keys", "pending", "held", "pairs")} == {
        "rows": {"r": 4, "s": 1},
        "late": 1,
        "null_times": 1,
        "null_keys": 1,
        "pending": 1,
        "held": 2,
        "pairs": 1,
    }
    assert (s["device"], s["index"]) == ("cpu", "scan")
    j.close()
    assert j.stats["comparisons"] > 0


def test_held_follows_the_windows() -> None:
    j = mr.WindowJoin(on="r.x = s.x", window=("2 rows", "3 rows"))
    j.push("r", xs(*range(9)))
    assert j.stats["held"] == 2
    j.push("s", xs(*range(9)))
    assert j.stats["held"] == 5
    k = mr.WindowJoin(on="r.x = s.x", window="3", time="ts")
    k.push("r", timed(*((t, 0) for t in range(10))))
    k.push("s", timed(*((t, 0) for t in range(10))))
    k.flush()  # clocks at 10: rows from 7 on can still be met
    assert k.stats["held"] == 6


def test_its_repr_says_what_is_joined_and_how_far_it_is() -> None:
    j = mr.WindowJoin(on="r.x = s.x", window=("2 rows", "3 rows"), index="scan")
    j.push("r", xs(1))
    text = repr(j)
    for part in ("r.x = s.x", "2 rows", "3 rows", "scan", "cpu", "1 r rows"):
        assert part in text


# --- threads, forks, memory ---


def test_several_python_threads_may_push_at_once() -> None:
    """Calls wait for each other: every row is taken once and nothing is lost."""
    j = mr.WindowJoin(on="r.x = s.x", window="100000 rows", output="count")
    results: list[pa.Table] = []
    errors: list[BaseException] = []

    def work(side: str) -> None:
        try:
            for _ in range(25):
                results.append(j.push(side, xs(*range(20))))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(side,)) for side in "rsrs"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    together = pa.concat_tables(results)
    seen = set(zip(together["side"].to_pylist(), together["seq"].to_pylist(), strict=True))
    assert seen == {(side, seq) for side in "rs" for seq in range(1000)}
    # Every r row meets the 50 equal s rows: whoever came later counted the pair.
    assert sum(together["count"].to_pylist()) == 1000 * 50 == j.stats["pairs"]


@every_index
def test_joins_in_several_threads_do_not_disturb_each_other(index: Any) -> None:
    rng = np.random.default_rng(9)
    tables = [xs(*rng.integers(0, 50, 400).tolist()) for _ in range(2)]

    def run() -> pa.Table:
        j = mr.WindowJoin(on="abs(r.x - s.x) <= 1", window="300 rows", index=index)
        found = [
            j.push(side, t.slice(at, 50)) for at in range(0, 400, 50) for side, t in zip("rs", tables, strict=True)
        ]
        return pa.concat_tables(found[1:])

    wanted, found = run(), dict[int, pa.Table]()
    threads = [threading.Thread(target=lambda n=n: found.__setitem__(n, run())) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 6
    assert all(table.equals(wanted) for table in found.values())


@every_index
def test_a_join_goes_on_in_a_forked_child_and_in_its_parent(index: Any) -> None:
    def fresh() -> mr.WindowJoin:
        j = mr.WindowJoin(on="abs(r.x - s.x) <= 1", window="300 rows", index=index, threads=2)
        j.push("r", xs(*range(200)))
        j.push("s", xs(*range(100)))
        return j

    wanted = fresh().push("s", xs(*range(100, 200)))
    j = fresh()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn of a fork beside threads
        child = os.fork()
    if child == 0:
        try:
            os._exit(0 if j.push("s", xs(*range(100, 200))).equals(wanted) else 1)
        except BaseException:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert j.push("s", xs(*range(100, 200))).equals(wanted)


def stored(j: mr.WindowJoin) -> int:
    """The bytes that a join's windows and waiting rows hold."""
    total = 0
    for window in j._engine.windows.values():
        total += sum(part.nbytes for part in _slidings(window))
        total += sum(chunk.table.get_total_buffer_size() for chunk in window.rows.chunks)
    for runs in j._progress.waiting.runs.values():
        total += sum(run.rows.payload.get_total_buffer_size() for run in runs)
    return total


def _slidings(window: Window) -> list[Any]:
    return [window.seq, window.source, window.time, window.live, *window.columns.values()]


@every_index
@pytest.mark.parametrize("window", ["200 rows", "100"])
def test_memory_stays_flat_over_many_pushes(index: Any, window: str) -> None:
    j = mr.WindowJoin(on="r.x = s.x", window=window, time="ts", index=index, output="count")
    text = ["payload " * 4] * 50
    held, sizes = [], []
    for i in range(240):
        ts = np.arange(i * 50, i * 50 + 50)
        batch = pa.table({"ts": ts, "x": ts % 17, "text": text})
        j.push("r", batch)
        j.push("s", batch)
        held.append(j.stats["held"])
        sizes.append(stored(j))
    assert max(held[120:]) == max(held[20:120])
    assert max(sizes[120:]) <= 1.05 * max(sizes[20:120])
    assert j.stats["pending"] <= 51


def test_one_huge_batch_does_not_stay_in_memory() -> None:
    j = mr.WindowJoin(on="r.x = s.x", window="10 rows", output="count")
    big = pa.table({"x": np.arange(200_000), "y": np.zeros(200_000)})
    j.push("r", big)
    j.push("s", xs(1))
    assert j.stats["held"] == 11
    assert stored(j) < 1_000_000


def test_rows_that_waited_are_freed_once_taken() -> None:
    j = mr.WindowJoin(on="r.x = s.x", window="5", time="ts", output="count")
    for i in range(100):
        j.push("r", pa.table({"ts": np.arange(i * 100, i * 100 + 100), "x": np.zeros(100, np.int64)}))
    assert j.stats["pending"] == 10_000
    full = stored(j)
    j.push("s", timed((9_990, 1)))
    assert j.stats["pending"] < 20
    j.advance("s", 9_990)  # the next call evicts; reading stats does not
    assert stored(j) < full / 5


def test_the_payload_of_many_pairs_is_that_of_their_rows() -> None:
    """Results of thousands of rows are gathered by our own kernels, from many chunks, text beside numbers."""
    rng = np.random.default_rng(8)
    given: dict[str, list[pa.Table]] = {"r": [], "s": []}
    j = mr.WindowJoin(on="abs(r.x - s.x) <= 400", window="9000 rows")
    pairs = 0
    for i, n in enumerate((5_000, 4_000, 1, 6_000, 300, 5_000)):
        side = "rs"[i % 2]
        x = rng.integers(0, 100_000, n)
        batch = pa.table({"x": x, "small": pa.array(x % 100, pa.int8()), "text": [f"{side}{v}" for v in x]})
        given[side].append(batch)
        found = j.push(side, batch)
        pairs = max(pairs, found.num_rows)
        for one in ("r", "s"):
            if found.num_rows:
                rows = pa.concat_tables(given[one]).take(found[f"{one}_seq"])
                assert found.select([f"{one}_{name}" for name in rows.column_names]).columns == rows.columns
    assert pairs > 4096


@pytest.mark.parametrize("sizes", [(512, 2047, 5), (5, 513, 1), (1, 4096, 4095, 513, 2)])
def test_rows_that_came_before_the_other_side_are_all_there(sizes: tuple[int, ...]) -> None:
    """Small and large pushes in turn, and then a step that reads the window's keys again."""
    j = mr.WindowJoin(on="r.x = s.x", window="20000 rows", output="seqs")
    end = 0
    for size in sizes:
        j.push("r", pa.table({"x": np.arange(end, end + size)}))
        end += size
    assert j.push("s", pa.table({"x": np.arange(end)})).equals(
        pa.table({"r_seq": np.arange(end), "s_seq": np.arange(end)})
    )


@pytest.mark.parametrize("candidates", [1, 41, 1000])
def test_a_self_join_is_in_order_however_its_steps_are_cut(candidates: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step of an odd number of tuples put the pairs of a row as r before all of those as s."""
    rng = np.random.default_rng(candidates)
    rows = pa.table({"x": rng.integers(0, 30, 60), "y": rng.integers(0, 5, 60)})
    arguments: dict[str, Any] = {"on": "abs(r.x - s.x) <= 3 AND r.y <> s.y", "window": "60 rows", "self_join": True}
    singly = mr.WindowJoin(**arguments)
    wanted = pa.concat_tables([singly.push("r", rows.slice(i, 1)) for i in range(60)])
    monkeypatch.setattr(matcher, "STEP_CANDIDATES", candidates)
    assert mr.WindowJoin(**arguments).push("r", rows).equals(wanted)
