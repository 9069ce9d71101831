"""Examples computed by hand from the contract: they test `tests/oracle.py`, the specification."""

from __future__ import annotations

import ast
import math
import sys
from pathlib import Path

import pytest

from tests.oracle import (
    Instant,
    Interval,
    Parser,
    Row,
    TimeWindow,
    Value,
    WindowJoin,
    condition,
    instant,
    join,
    key_columns,
    matches,
    parse_window,
)

SECOND = 10**9
MINUTE = 60 * SECOND


def holds(on: str, r: Row, s: Row) -> bool:
    return condition(Parser(on).parse())(r, s)


def xs(*values: Value) -> list[Row]:
    return [{"x": value} for value in values]


def at(*times: Value, x: Value = 0) -> list[Row]:
    return [{"ts": time, "x": x} for time in times]


def seqs(pairs: list[tuple[int, int, int, int]]) -> list[tuple[int, int]]:
    return [(r_seq, s_seq) for _, r_seq, _, s_seq in pairs]


# --- Independence of the oracle ------------------------------------------------------------------


def test_imports_only_the_standard_library() -> None:
    tree = ast.parse((Path(__file__).parent / "oracle.py").read_text())
    imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    imported |= {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
    assert {str(name).split(".")[0] for name in imported} <= sys.stdlib_module_names


# --- Conditions ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("on", "r", "s", "expected"),
    [
        ("r.x = s.x", 3, 3, True),
        ("r.x = s.x", 3, 4, False),
        ("r.x <> s.x", 3, 4, True),
        ("r.x <> s.x", 3, 3, False),
        ("r.x < s.x", 3, 3, False),
        ("r.x <= s.x", 3, 3, True),
        ("r.x > s.x", 4, 3, True),
        ("r.x >= s.x", 3, 3, True),
        ("abs(r.x - s.x) <= 5", 0, 5, True),
        ("abs(r.x - s.x) <= 5", 0, -6, False),
        ("r.x BETWEEN s.x - 1 AND s.x + 2", 12, 10, True),
        ("r.x BETWEEN s.x - 1 AND s.x + 2", 13, 10, False),
        ("r.x between s.x - 1 and s.x + 2", 9, 10, True),
        ("r.x BETWEEN s.x + 2 AND s.x - 2", 10, 10, False),
        ("2 * r.x - 3 < s.x", 2, 2, True),
        ("2 * r.x - 3 < s.x", 2, 1, False),
        ("-r.x = s.x", 4, -4, True),
        ("- - r.x = s.x", 4, 4, True),
        ("r.x - s.x - 1 = 0", 4, 3, True),
        ("r.x - (s.x - 1) = 0", 4, 5, True),
        ("r.x + s.x * 2 = 10", 4, 3, True),
        ("(r.x + s.x) * 2 = 14", 4, 3, True),
        ("r.x * s.x <= 12", 4, 3, True),
        ("r.x * s.x <= 12", 4, 4, False),
        ("ABS(r.x) = ABS(s.x)", -3, 3, True),
        ("r.x = s.x AND r.x > 5", 5, 5, False),
        ("r.x = s.x AND r.x > 5", 6, 6, True),
        ("r.x = s.x AND s.x BETWEEN 1 AND 5 AND r.x > 2", 3, 3, True),
        ("abs(r.x - s.x) <= 1 OR abs(r.x - s.x - 10) <= 1", 10, 0, True),
        ("abs(r.x - s.x) <= 1 OR abs(r.x - s.x - 10) <= 1", 5, 0, False),
        ("(r.x >= s.x - 1 AND r.x <= s.x) OR (r.x >= s.x + 5 AND r.x <= s.x + 6)", 6, 0, True),
        ("(r.x >= s.x - 1 AND r.x <= s.x) OR (r.x >= s.x + 5 AND r.x <= s.x + 6)", 1, 0, False),
        ("r.x < s.x AND r.x > 0 OR s.x < 0", 1, 2, True),
    ],
)
def test_a_condition_means_what_its_text_says(on: str, r: int, s: int, expected: bool) -> None:
    assert holds(on, {"x": r}, {"x": s}) is expected


def test_between_of_columns_and_quoted_names() -> None:
    assert holds("s.x BETWEEN r.lo AND r.hi", {"lo": 1, "hi": 3}, {"x": 3})
    assert not holds("s.x BETWEEN r.lo AND r.hi", {"lo": 1, "hi": 3}, {"x": 4})
    assert holds('r."odd ""name" = s."select"', {'odd "name': 1}, {"select": 1})


def test_integer_arithmetic_is_exact_as_if_unbounded() -> None:
    low, high = -(2**63), 2**64 - 1
    assert holds("s.x - r.x = 27670116110564327423", {"x": low}, {"x": high})
    assert not holds("r.x + 1 = s.x", {"x": 2**63 - 1}, {"x": -(2**63)})
    assert holds("r.x * s.x > r.x", {"x": 2**63}, {"x": 2**63})
    assert not holds("abs(r.x - s.x) <= 5", {"x": low}, {"x": 2**63 - 1})


def test_a_decimal_literal_is_exact_against_integers() -> None:
    assert holds("r.x * 0.1 = s.x", {"x": 30}, {"x": 3})
    assert holds("r.x * 1e-1 = s.x", {"x": 30}, {"x": 3})
    assert holds("abs(r.x - s.x) <= 2.5", {"x": 2**53 + 1}, {"x": 2**53 - 1})
    assert not holds("abs(r.x - s.x) <= 2.5", {"x": 3}, {"x": 0})
    assert not holds("r.x = s.x + 0.5", {"x": 2**60}, {"x": 2**60})


def test_a_decimal_literal_is_a_double_against_floats() -> None:
    assert holds("r.x <= 0.1 AND r.x = s.x", {"x": 0.1}, {"x": 0.1})
    assert holds("r.x >= 0.1 AND r.x = s.x", {"x": 0.1}, {"x": 0.1})
    assert holds("r.x = -0.1 AND r.x = s.x", {"x": -0.1}, {"x": -0.1})
    assert holds("0.1 = r.x AND r.x = s.x", {"x": 0.1}, {"x": 0.1})
    assert not holds("r.x + 0.2 = s.x", {"x": 0.1}, {"x": 0.3})  # 0.30000000000000004
    assert holds("r.x + 0.2 > s.x", {"x": 0.1}, {"x": 0.3})


def test_float_arithmetic_is_ieee_double_as_written() -> None:
    r: Row = {"a": 1e16, "b": 1.0}
    assert holds("(r.a + r.b) - r.a = s.x", r, {"x": 0.0})
    assert holds("r.a - r.a + r.b = s.x", r, {"x": 1.0})
    assert holds("r.a * 10 > s.x", {"a": 1e308}, {"x": 1.7e308})  # infinity
    assert holds("r.a = s.x", {"a": math.inf}, {"x": math.inf})
    assert holds("r.a < s.x", {"a": -math.inf}, {"x": -1.7e308})


def test_integers_and_floats_compare_as_exact_numbers() -> None:
    big = 2**53
    assert not holds("r.x = s.x", {"x": big + 1}, {"x": float(big)})
    assert holds("r.x > s.x", {"x": big + 1}, {"x": float(big)})
    assert holds("r.x < s.x", {"x": 2**64 - 1}, {"x": float(2**64)})
    assert holds("r.x > s.x", {"x": -(2**63)}, {"x": -math.inf})
    assert not holds("r.x * 0.1 = s.x", {"x": 1}, {"x": 0.1})  # exactly one tenth is no double


def test_arithmetic_of_integers_and_floats_takes_the_nearest_double_first() -> None:
    big = 2**53
    assert holds("r.x - s.x = 0", {"x": big + 1}, {"x": float(big)})
    assert holds("r.x + s.x > 0", {"x": 10**400}, {"x": 1.0})


def test_nan_is_null_stored_or_computed() -> None:
    for other in (math.nan, 1.0, math.inf):
        assert not holds("r.x = s.x", {"x": math.nan}, {"x": other})
        assert not holds("r.x <> s.x", {"x": math.nan}, {"x": other})
    assert not holds("r.x - s.x <> 1", {"x": math.inf}, {"x": math.inf})
    assert not holds("r.x * s.x < 1", {"x": math.inf}, {"x": 0.0})
    assert not holds("abs(r.x - s.x) <= 5", {"x": math.inf}, {"x": math.inf})


def test_minus_zero_equals_zero() -> None:
    assert holds("r.x = s.x", {"x": -0.0}, {"x": 0.0})
    assert not holds("r.x < s.x", {"x": -0.0}, {"x": 0.0})


@pytest.mark.parametrize("op", ["=", "<>", "<", "<=", ">", ">="])
def test_a_term_with_a_null_operand_is_not_true(op: str) -> None:
    for r, s in ((None, 1), (1, None), (None, None)):
        assert not holds(f"r.x {op} s.x", {"x": r}, {"x": s})
        assert not holds(f"r.x + 1 {op} -s.x", {"x": r}, {"x": s})


def test_null_in_one_band_does_not_spoil_another() -> None:
    assert holds("s.x BETWEEN r.a AND 5 OR s.x BETWEEN r.b AND 9", {"a": None, "b": 7}, {"x": 8})


def test_timestamps_and_intervals() -> None:
    noon = instant("2024-05-01 12:00:00")
    later = Instant(noon.ns + 5 * MINUTE)
    for five in (
        "INTERVAL '5' MINUTE",
        "INTERVAL '5 minutes'",
        "INTERVAL '300' SECOND",
        "interval '5 minute'",
    ):
        assert holds(f"s.t = r.t + {five}", {"t": noon}, {"t": later})
        assert holds(f"s.t - {five} = r.t", {"t": noon}, {"t": later})
        assert holds(f"s.t - r.t = {five}", {"t": noon}, {"t": later})
        assert holds(f"abs(r.t - s.t) <= {five}", {"t": noon}, {"t": later})
        assert not holds(f"abs(r.t - s.t) < {five}", {"t": noon}, {"t": later})
        assert holds(f"r.t - s.t >= -{five}", {"t": noon}, {"t": later})
    assert not holds("abs(r.t - s.t) <= INTERVAL '5' MINUTE", {"t": noon}, {"t": Instant(later.ns + 1)})
    assert holds("r.t BETWEEN s.t - INTERVAL '1' HOUR AND s.t", {"t": noon}, {"t": later})
    assert holds("r.t < s.t AND r.t >= TIMESTAMP '2024-05-01 12:00:00'", {"t": noon}, {"t": later})
    assert not holds("r.t < s.t AND r.t < DATE '2024-05-01'", {"t": noon}, {"t": later})


def test_instants_are_exact_nanoseconds() -> None:
    assert instant("1970-01-01") == Instant(0)
    assert instant("1970-01-02 00:00:01.000000007") == Instant(86401 * SECOND + 7)
    assert instant("1970-01-01T01:00:00+01:00") == Instant(0) == instant("1969-12-31 23:30:00-00:30")
    assert instant("1969-12-31 23:59:59.5Z") == Instant(-SECOND // 2)
    assert instant("2024-02-29") - instant("2023-02-28") == Interval(366 * 86400 * SECOND)


@pytest.mark.parametrize(
    "on",
    [
        "",
        "r.x",
        "r.x =",
        "r.x = s.x AND",
        "x = s.x",
        "r.x == s.x",
        "r.x = s.x)",
        "(r.x = s.x",
        "NOT r.x = s.x",
        "r.x / 2 = s.x",
        "r.t = s.t + INTERVAL '5' MONTH",
        "r.x < s.x < 3",
    ],
)
def test_what_is_not_in_the_grammar_is_refused(on: str) -> None:
    with pytest.raises(SyntaxError):
        Parser(on).parse()


def test_at_least_one_term_relates_r_and_s() -> None:
    with pytest.raises(SyntaxError, match="relates"):
        key_columns(Parser("r.x > 5 AND s.x < 3").parse())


# --- Count windows -------------------------------------------------------------------------------


def test_a_tuple_joins_the_last_n_of_the_other_side_that_arrived_before_it() -> None:
    j = WindowJoin("r.x = s.x", "2 rows")
    assert j.push("s", xs(1, 1, 1)) == []
    assert seqs(j.push("r", xs(1))) == [(0, 1), (0, 2)]
    assert seqs(j.push("s", xs(1))) == [(0, 3)]
    assert seqs(j.push("r", xs(1, 1))) == [(1, 2), (1, 3), (2, 2), (2, 3)]
    assert j.flush() == []
    assert j.close() == []


def test_rows_of_one_batch_do_not_join_each_other() -> None:
    j = WindowJoin("r.x = s.x", "5 rows")
    assert j.push("r", xs(1, 1, 1)) == []


def test_asymmetric_count_windows_name_the_side_they_hold() -> None:
    j = WindowJoin("r.x = s.x", ("1 rows", "3 rows"))  # r's window holds 1, s's 3
    j.push("s", xs(1, 1, 1, 1))
    assert seqs(j.push("r", xs(1, 1))) == [(0, 1), (0, 2), (0, 3), (1, 1), (1, 2), (1, 3)]
    assert seqs(j.push("s", xs(1))) == [(1, 4)]


def test_splitting_batches_changes_nothing() -> None:
    unsplit, split = (WindowJoin("r.x <= s.x", "3 rows") for _ in range(2))
    r, s = xs(1, 5, None, 3), xs(2, 2, 4, 9)
    together = unsplit.push("r", r) + unsplit.push("s", s)
    apart = [pair for row in r for pair in split.push("r", [row])]
    apart += [pair for row in s for pair in split.push("s", [row])]
    assert together == apart
    assert split.push("r", []) == []
    assert unsplit.stats == split.stats


def test_push_both_is_one_row_pushes_in_the_order_of_arrival() -> None:
    both, single = (WindowJoin("r.x = s.x", "2 rows") for _ in range(2))
    pairs = both.push_both(xs(1, 1), xs(1, 1, 1), [1, 0, 1, 1, 0])
    expected = []
    for side in "srssr":
        expected += single.push(side, xs(1))
    assert pairs == expected
    assert seqs(pairs) == [(0, 0), (0, 1), (0, 2), (1, 1), (1, 2)]


def test_a_null_key_fills_its_slot_and_matches_nothing() -> None:
    j = WindowJoin("r.x <> s.x", "1 rows")
    j.push("s", xs(1, None))
    assert j.push("r", xs(2)) == []
    assert j.stats["null_keys"] == 1


def test_one_sided_terms_filter_pairs_but_the_row_fills_its_window() -> None:
    j = WindowJoin("r.x = s.x AND s.y > 5", "1 rows")
    j.push("s", [{"x": 1, "y": 9}, {"x": 1, "y": 0}])
    assert j.push("r", xs(1)) == []
    assert j.stats["null_keys"] == 0
    j.push("s", [{"x": 1, "y": None}])
    assert j.stats["null_keys"] == 0  # y is in no term that relates r and s


def test_a_pair_that_satisfies_several_bands_appears_once() -> None:
    j = WindowJoin("abs(r.x - s.x) <= 5 OR abs(r.x - s.x) <= 7", "9 rows")
    j.push("s", xs(1))
    assert seqs(j.push("r", xs(1, 7))) == [(0, 0), (1, 0)]


def test_counts_have_one_row_per_tuple_taken_zeros_included() -> None:
    j = WindowJoin("r.x = s.x", "2 rows")
    j.push("s", xs(1, 2, None))
    assert j.counts == [("s", 0, 0, 0), ("s", 0, 1, 0), ("s", 0, 2, 0)]
    j.push("r", xs(2, 1))
    assert j.counts == [("r", 0, 0, 1), ("r", 0, 1, 0)]
    j.flush()
    assert j.counts == []
    assert j.stats["pairs"] == 1


def test_stats_of_a_count_window() -> None:
    j = WindowJoin("r.x = s.x", ("2 rows", "4 rows"))
    j.push("r", xs(1, 1, math.nan))
    j.push("s", xs(1, 1))
    assert j.stats == {
        "rows": {"r": 3, "s": 2},
        "late": 0,
        "null_times": 0,
        "null_keys": 1,
        "pending": 0,
        "held": 2 + 2,
        "pairs": 2,
    }


def test_after_close_every_call_fails() -> None:
    j = WindowJoin("r.x = s.x", "1 rows")
    j.close()
    with pytest.raises(RuntimeError):
        j.push("r", [])


# --- Time windows --------------------------------------------------------------------------------


def test_window_texts() -> None:
    assert parse_window("10 minutes") == TimeWindow(10 * MINUTE, 10 * MINUTE)
    assert parse_window("1000") == TimeWindow(1000, 1000)
    assert parse_window(("1 second", "2 minutes")) == TimeWindow(SECOND, 2 * MINUTE)


def test_every_pair_within_t_whatever_the_interleaving() -> None:
    r, s = at(0, 4, 10), at(2, 6, 8)
    expected = [(0, 0), (1, 0), (1, 1), (2, 2)]
    for script in (["r", "s"], ["s", "r"]):
        j = WindowJoin("r.x = s.x", "2", time="ts")
        found = []
        for side in script:
            found += j.push(side, r if side == "r" else s)
        found += j.close()
        assert seqs(found) == expected
    j = WindowJoin("r.x = s.x", "2", time="ts")
    assert seqs(j.push_both(r, s, [1, 0, 1, 0, 0, 1]) + j.close()) == expected


def test_the_bound_itself_is_inside() -> None:
    j = WindowJoin("r.x = s.x", "5", time="ts")
    j.push("r", at(0, 11))
    assert seqs(j.push("s", at(5, 6)) + j.close()) == [(0, 0), (1, 1)]
    j = WindowJoin("r.x = s.x", "0", time="ts")
    j.push("r", at(1, 2))
    assert seqs(j.push("s", at(2, 3)) + j.close()) == [(1, 0)]


def test_asymmetric_time_window() -> None:
    j = WindowJoin("r.x = s.x", ("1", "3"), time="ts")  # -1 <= r.ts - s.ts <= 3
    j.push("s", at(10))
    assert seqs(j.push("r", at(8, 9, 13, 14)) + j.close()) == [(1, 0), (2, 0)]


def test_units_align_and_time_may_be_a_pair_of_names() -> None:
    j = WindowJoin("r.x = s.x", "1 second", time=("t", "u"))
    j.push("r", [{"t": Instant(0), "x": 1}, {"t": Instant(5 * SECOND), "x": 1}])
    s: list[Row] = [{"u": Instant(SECOND), "x": 1}, {"u": Instant(SECOND + 1), "x": 1}]
    assert seqs(j.push("s", s) + j.close()) == [(0, 0)]


def test_rows_are_taken_in_order_of_time_then_side_then_source_then_seq() -> None:
    j = WindowJoin("r.x = s.x", "100", time="ts", sources={"r": 2, "s": 1})
    j.push("s", at(5, 5))
    j.push("r", at(5), source=1)
    j.push("r", at(5, 6), source=0)
    assert [count[:3] for count in j.counts] == [("r", 0, 0), ("r", 1, 0)]
    j.close()
    assert [count[:3] for count in j.counts] == [("s", 0, 0), ("s", 0, 1), ("r", 0, 1)]


def test_a_row_is_taken_when_no_source_can_deliver_an_earlier_one() -> None:
    j = WindowJoin("r.x = s.x", "100", time="ts")
    j.push("s", at(5))
    assert (j.counts, j.stats["pending"]) == ([], 1)
    j.push("r", at(5))  # s's clock is 5 and s comes after r: taken. The s row waits: r may still bring a 5.
    assert (j.counts, j.stats["pending"]) == ([("r", 0, 0, 0)], 1)
    assert seqs(j.advance("r", 6)) == [(0, 0)]
    assert j.counts == [("s", 0, 0, 1)]


def test_pairs_come_by_the_later_tuple_then_by_the_partner_in_its_own_order() -> None:
    j = WindowJoin("r.x = s.x", "100", time="ts", lateness=100, sources={"r": 2, "s": 1})
    j.push("r", at(3, 1), source=0)
    j.push("r", at(2), source=1)
    j.push("s", at(4, 2))
    # In order: r0#1 at 1, r1#0 at 2, s#1 at 2, r0#0 at 3, s#0 at 4.
    assert j.close() == [(0, 1, 0, 1), (1, 0, 0, 1), (0, 0, 0, 1), (0, 1, 0, 0), (1, 0, 0, 0), (0, 0, 0, 0)]


def test_a_row_below_its_own_sources_clock_is_dropped_and_uses_up_its_seq() -> None:
    j = WindowJoin("r.x = s.x", "100", time="ts", lateness=2)
    j.push("r", at(10, 8, 7, None, 9))  # the clock is at 8: 8 is in time, 7 is late
    assert (j.stats["late"], j.stats["null_times"], j.stats["rows"]["r"]) == (1, 1, 5)
    assert seqs(j.push("s", at(0)) + j.close()) == [(1, 0), (4, 0), (0, 0)]


def test_lateness_is_judged_row_by_row_by_the_rows_own_source() -> None:
    j = WindowJoin("r.x = s.x", "100", time="ts", sources={"r": 2, "s": 1})
    j.push("r", at(10), source=0)
    j.push("r", at(3, 4, 3), source=1)
    assert j.stats["late"] == 1


def test_a_null_key_moves_the_clock_and_a_late_row_does_not() -> None:
    j = WindowJoin("r.x = s.x", "100", time="ts")
    j.push("r", [*at(1), *at(5, x=None)])
    assert j.clock(("r", 0)) == 5
    j.push("r", at(2))
    assert (j.clock(("r", 0)), j.stats["late"], j.stats["null_keys"]) == (5, 1, 1)


def test_advance_moves_a_silent_sources_clock_minus_lateness() -> None:
    j = WindowJoin("r.x = s.x", "10", time="ts", lateness=3)
    j.push("r", at(5, 9))
    j.advance("s", 8)
    assert (j.clock(("s", 0)), j.counts) == (5, [("r", 0, 0, 0)])  # r's own clock is 6
    j.advance("s", 2)
    assert j.clock(("s", 0)) == 5
    j.push("s", at(4, 5))
    assert j.stats["late"] == 1


def test_flush_moves_every_clock_one_tick_past_the_newest_timestamp() -> None:
    j = WindowJoin("r.x = s.x", "10", time="ts", lateness=50)
    j.push("r", at(5))
    j.push("s", at(7))
    assert seqs(j.flush()) == [(0, 0)]
    assert j.clock(("r", 0)) == j.clock(("s", 0)) == 8
    j.flush()
    assert j.clock(("r", 0)) == 8
    j.push("r", at(7, 8))
    assert j.stats["late"] == 1
    j.push("s", at(20))
    assert j.clock(("s", 0)) == 8  # 20 - 50 is below the flush


def test_flush_counts_an_advance_as_a_timestamp_and_ticks_in_the_finer_unit() -> None:
    j = WindowJoin("r.x = s.x", "1 second", time="ts", tick=1000)
    j.push("r", at(Instant(5 * SECOND)))
    j.advance("s", Instant(9 * SECOND))
    j.flush()
    assert j.clock(("r", 0)) == 9 * SECOND + 1000


def test_flush_before_anything_does_nothing() -> None:
    j = WindowJoin("r.x = s.x", "1", time="ts")
    assert j.flush() == []
    assert j.clock(("r", 0)) is None
    assert j.close() == []


def test_rows_wait_for_a_silent_source() -> None:
    j = WindowJoin("r.x = s.x", "10", time="ts", sources={"r": 1, "s": 2})
    j.push("r", at(1, 2, 3))
    j.push("s", at(1, 9), source=0)
    assert (j.stats["pending"], j.stats["held"]) == (5, 0)
    j.advance("s", 3, source=1)
    assert (j.stats["pending"], j.stats["held"]) == (1, 4)


def test_held_rows_of_a_time_window_are_those_a_future_row_could_match() -> None:
    j = WindowJoin("r.x = s.x", ("3", "1"), time="ts")  # an r row is of use until ts + 3, an s row until ts + 1
    j.push("r", at(0, 4))
    j.push("s", at(0, 3, 4))
    assert j.stats["held"] == 1 + 1  # every clock at 4: r 4, s 3; s 4 still waits for r to pass 4
    assert j.stats["pending"] == 1
    j.advance("r", 7)
    assert j.stats["held"] == 1 + 2  # s's clock still at 4
    j.advance("s", 7)
    assert j.stats["held"] == 1 + 0
    j.flush()
    assert j.stats["held"] == 0


def test_a_count_window_with_time_counts_in_the_order_of_time() -> None:
    j = WindowJoin("r.x = s.x", "1 rows", time="ts", lateness=10)
    j.push("s", at(3, 1, None, 2))
    j.push("r", at(4, 2))
    # In order: s#1 at 1, r#1 at 2, s#3 at 2, s#0 at 3, r#0 at 4; the null time is no tuple.
    assert seqs(j.close()) == [(1, 1), (1, 3), (1, 0), (0, 0)]
    assert j.stats["held"] == 2


# --- Self-joins ----------------------------------------------------------------------------------


def test_self_join_gives_both_ways_and_never_a_row_with_itself() -> None:
    j = WindowJoin("r.x <= s.x", "2 rows", self_join=True)
    pairs = j.push("r", xs(1, 1, 2))
    assert seqs(pairs) == [(1, 0), (0, 1), (0, 2), (1, 2)]
    assert j.counts == [("r", 0, 0, 0), ("r", 0, 1, 2), ("r", 0, 2, 2)]
    assert j.stats["rows"] == {"r": 3, "s": 0}
    assert j.stats["held"] == 2


def test_self_join_with_asymmetric_count_windows() -> None:
    j = WindowJoin("r.x = s.x", ("1 rows", "2 rows"), self_join=True)
    assert seqs(j.push("r", xs(1, 1, 1))) == [(1, 0), (0, 1), (2, 0), (2, 1), (1, 2)]


def test_self_join_in_time_with_several_sources() -> None:
    j = WindowJoin("r.x = s.x", ("0", "5"), time="ts", sources={"r": 2}, self_join=True)
    j.push("r", at(1, 3), source=1)
    assert j.push("r", at(3), source=0) == [(0, 0, 1, 0)]  # taken before the 3 of source 1, which waits
    assert j.close() == [(1, 1, 1, 0), (1, 1, 0, 0), (0, 0, 1, 1)]


# --- Joins of tables -----------------------------------------------------------------------------


def test_join_of_tables() -> None:
    r, s = xs(2, None, 1, 3), xs(1, 2, 2, None)
    assert join(r, s, "r.x = s.x") == [(0, 1), (0, 2), (2, 0)]
    assert join(r, s, "r.x = s.x", "left") == [(0, 1), (0, 2), (1, None), (2, 0), (3, None)]
    assert join(r, s, "r.x = s.x", "semi") == [(0, None), (2, None)]
    assert join(r, s, "r.x = s.x", "anti") == [(1, None), (3, None)]
    assert matches(r, s, "r.x > s.x") == [[0], [], [], [0, 1, 2]]
