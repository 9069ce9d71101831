"""`mr.WindowJoin` with time: windows, clocks, lateness, several sources, waiting rows; examples written by hand."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import millrace as mr
from tests.sdk.window_join_cases import counts, every_index, everything, pairs, timed, xs

# --- time windows ---


@every_index
def test_a_time_window_gives_every_pair_within_it_once_whatever_the_interleaving(index: Any) -> None:
    r, s = timed((1, 0), (4, 0), (9, 0)), timed((2, 0), (4, 0), (6, 0), (11, 0))
    wanted = {(i, k) for i, a in enumerate([1, 4, 9]) for k, b in enumerate([2, 4, 6, 11]) if abs(a - b) <= 2}
    for order in (["r", "s"], ["s", "r"]):
        j = mr.WindowJoin(on="r.x = s.x", window="2", time="ts", index=index)
        found = [j.push(side, r if side == "r" else s) for side in order] + [j.close()]
        got = [p for part in found for p in pairs(part)]
        assert len(got) == len(set(got))
        assert set(got) == wanted


def test_an_asymmetric_time_window_bounds_r_minus_s() -> None:
    """`window=("A", "B")` means -A <= r.ts - s.ts <= B."""
    j = mr.WindowJoin(on="r.x = s.x", window=("1", "3"), time="ts")
    # -1 <= 10 - s <= 3: s from 7 to 11.
    assert everything(j, ("r", timed((10, 0))), ("s", timed(*((t, 0) for t in range(5, 14))))) == [
        (0, 2),
        (0, 3),
        (0, 4),
        (0, 5),
        (0, 6),
    ]


def test_a_window_of_no_length_needs_equal_times() -> None:
    j = mr.WindowJoin(on="r.x = s.x", window="0", time="ts")
    assert everything(j, ("r", timed((1, 0), (2, 0))), ("s", timed((1, 0), (2, 0), (3, 0)))) == [(0, 0), (1, 1)]


def stamps(unit: str, *ticks: int, tz: str | None = None) -> pa.Table:
    times = pa.array(ticks, pa.int64()).view(pa.timestamp(unit, tz))
    return pa.table({"ts": times, "x": pa.array([0] * len(ticks), pa.int64())})


def test_units_align_to_the_finer() -> None:
    j = mr.WindowJoin(on="r.x = s.x", window="1 second", time="ts")
    assert everything(
        j, ("r", stamps("s", 10)), ("s", stamps("ns", 9 * 10**9 - 1, 9 * 10**9, 11 * 10**9, 11 * 10**9 + 1))
    ) == [(0, 1), (0, 2)]


def test_dates_meet_timestamps_and_windows_may_be_finer_than_either() -> None:
    j = mr.WindowJoin(on="r.x = s.x", window="1500 ms", time="ts")
    days = pa.table({"ts": pa.array([date(1970, 1, 2)]), "x": pa.array([0])})
    assert everything(j, ("r", days), ("s", stamps("s", 86_398, 86_399, 86_401, 86_402))) == [(0, 1), (0, 2)]


def test_zoned_times_are_instants_whatever_the_zone() -> None:
    j = mr.WindowJoin(on="r.x = s.x", window="0 seconds", time="ts")
    assert everything(
        j, ("r", stamps("s", 100, tz="Europe/Berlin")), ("s", stamps("s", 100, tz="America/New_York"))
    ) == [(0, 0)]


def test_the_two_sides_may_name_their_time_columns_differently() -> None:
    j = mr.WindowJoin(on="r.x = s.x", window="1", time=("at", "ts"))
    assert everything(j, ("r", pa.table({"at": [4], "x": [0]})), ("s", timed((5, 0)))) == [(0, 0)]


@pytest.mark.parametrize("text", ["2 minutes", "120 s", "120000 ms", timedelta(minutes=2), "120000000 us"])
def test_a_length_of_time_may_be_written_in_any_unit(text: Any) -> None:
    j = mr.WindowJoin(on="r.x = s.x", window=text, time="ts")
    assert everything(j, ("r", stamps("s", 0)), ("s", stamps("s", 120, 121))) == [(0, 0)]


def test_extreme_times_do_not_wrap() -> None:
    low, high = -(2**63), 2**63 - 1
    j = mr.WindowJoin(on="r.x = s.x", window="5", time="ts", lateness=3)
    assert everything(j, ("r", timed((low, 0), (high, 0))), ("s", timed((low + 5, 0), (high - 5, 0), (high, 0)))) == [
        (0, 0),
        (1, 1),
        (1, 2),
    ]


# --- the order of taking, clocks and lateness ---


def test_a_row_is_taken_when_no_source_can_come_before_it() -> None:
    """(t, side, source) is taken when every source q has clock > t, or clock = t and q >= (side, source)."""
    j = mr.WindowJoin(on="r.x = s.x", window="9", time="ts", output="count")
    assert counts(j.push("r", timed((5, 0)))) == []
    # s's clock is at 5, after r in the order: r's row can be taken, s's row waits for r to pass 5.
    assert counts(j.push("s", timed((5, 0)))) == [("r", 0, 0, 0)]
    assert j.stats["pending"] == 1
    # At clock 5 r may still push a row of time 5, which would come before s's.
    assert counts(j.push("r", timed((5, 0)))) == [("r", 0, 1, 0)]
    assert counts(j.advance("r", 6)) == [("s", 0, 0, 2)]


def test_rows_are_taken_by_time_then_side_then_source_then_seq() -> None:
    j = mr.WindowJoin(on="r.x = s.x", window="0", time="ts", sources={"r": 2, "s": 2}, output="count")
    assert counts(j.push("s", timed((1, 0), (1, 0)), source=1)) == []
    assert counts(j.push("s", timed((1, 0)), source=0)) == []
    assert counts(j.push("r", timed((1, 0)), source=1)) == []
    assert counts(j.push("r", timed((1, 0), (2, 0)), source=0)) == [("r", 0, 0, 0), ("r", 1, 0, 0)]
    assert counts(j.close()) == [("s", 0, 0, 2), ("s", 1, 0, 2), ("s", 1, 1, 2), ("r", 0, 1, 0)]


def test_a_row_below_its_own_sources_clock_is_late_and_one_at_it_is_not() -> None:
    j = mr.WindowJoin(on="r.x = s.x", window="100", time="ts", lateness=3)
    j.push("r", timed((10, 0), (7, 0), (6, 0), (8, 0)))
    assert j.stats["late"] == 1
    j.push("s", timed((1, 0)))  # another source has a clock of its own
    assert j.stats["late"] == 1
    assert pairs(j.close()) == [(1, 0), (3, 0), (0, 0)]


def test_lateness_lets_disorder_in_and_holds_rows_back_for_it() -> None:
    j = mr.WindowJoin(on="r.x = s.x", window="0", time="ts", lateness=2)
    j.push("r", timed((5, 0)))
    assert j.push("s", timed((5, 0))).num_rows == 0  # both clocks are at 3
    assert j.push("r", timed((7, 0), (5, 0))).num_rows == 0
    assert j.push("s", timed((8, 0))).num_rows == 0  # r's clock is at 5: s's row of time 5 must wait
    assert pairs(j.close()) == [(0, 0), (2, 0)]


def test_lateness_in_a_unit_of_time() -> None:
    j = mr.WindowJoin(on="r.x = s.x", window="1 minute", time="ts", lateness="30 seconds")
    j.push("r", stamps("s", 100, 70, 69))
    assert j.stats["late"] == 1


def test_advance_moves_a_silent_source_and_below_its_clock_changes_nothing() -> None:
    j = mr.WindowJoin(on="r.x = s.x", window="5", time="ts")
    j.push("r", timed((1, 0), (4, 0)))
    j.push("s", timed((2, 0)))
    assert j.stats["pending"] == 1
    before = j.stats
    assert j.advance("s", 1).num_rows == 0
    assert j.stats == before
    assert pairs(j.advance("s", 4)) == [(1, 0)]
    j.push("s", timed((3, 0)))
    assert j.stats["late"] == 1


def test_advance_returns_the_pairs_it_completes() -> None:
    j = mr.WindowJoin(on="r.x = s.x", window="5", time="ts")
    j.push("s", timed((2, 0)))
    j.push("r", timed((1, 0)))
    assert pairs(j.advance("r", 3)) == [(0, 0)]


@pytest.mark.parametrize(
    "ts",
    [
        datetime(1970, 1, 1, 0, 0, 3),
        np.datetime64(3, "s"),
        np.datetime64(3 * 10**9, "ns"),
        pd.Timestamp(3, unit="s"),
        pa.scalar(3000, pa.timestamp("ms")),
        date(1970, 1, 2),
    ],
    ids=lambda ts: type(ts).__module__,
)
def test_advance_takes_any_point_in_time(ts: Any) -> None:
    j = mr.WindowJoin(on="r.x = s.x", window="5 seconds", time="ts")
    j.push("s", stamps("s", 2))
    j.push("r", stamps("s", 1))
    assert pairs(j.advance("r", ts)) == [(0, 0)]


def test_advance_of_a_zoned_stream_takes_zoned_instants() -> None:
    j = mr.WindowJoin(on="r.x = s.x", window="5 seconds", time="ts")
    j.push("s", stamps("s", 2, tz="UTC"))
    j.push("r", stamps("s", 1, tz="UTC"))
    assert pairs(j.advance("r", datetime(1970, 1, 1, 0, 0, 3, tzinfo=UTC))) == [(0, 0)]


def test_advance_to_a_finer_instant_than_the_columns_is_exact() -> None:
    j = mr.WindowJoin(on="r.x = s.x", window="5 seconds", time="ts")
    j.push("r", stamps("s", 3))
    j.push("s", stamps("s", 1))
    # One nanosecond before r's row: it still waits. At it: taken.
    assert j.advance("s", np.datetime64(3 * 10**9 - 1, "ns")).num_rows == 0
    assert j.stats["pending"] == 1
    assert pairs(j.advance("s", np.datetime64(3 * 10**9, "ns"))) == [(0, 0)]


@pytest.mark.parametrize("window", ["5 rows", "5 seconds", "0 seconds"])
def test_advance_may_come_before_any_row_and_to_the_epoch(window: str) -> None:
    j = mr.WindowJoin(on="r.x = s.x", window=window, time="ts")
    assert j.advance("s", datetime(1970, 1, 1)).num_rows == 0
    assert j.push("r", stamps("s", 0)).num_rows == 0
    assert j.stats["pending"] == 0  # s's clock is at r's time and s comes after r: taken


def test_flush_moves_every_clock_one_tick_past_the_newest_timestamp() -> None:
    j = mr.WindowJoin(on="r.x = s.x", window="5", time="ts", lateness=2)
    j.push("r", timed((4, 0)))
    j.push("s", timed((6, 0)))
    assert pairs(j.flush()) == [(0, 0)]
    assert j.stats["pending"] == 0
    # The clock is at 7, whatever the lateness: the row of time 6 is late, that of time 7 is taken at once.
    assert pairs(j.push("r", timed((6, 0), (7, 0)))) == [(2, 0)]
    assert j.stats["late"] == 1


def test_one_tick_is_that_of_the_finest_time_column() -> None:
    j = mr.WindowJoin(on="r.x = s.x", window="5 seconds", time="ts")
    j.push("r", stamps("ms", 4000))
    j.push("s", stamps("s", 4))
    j.flush()
    j.push("r", stamps("ms", 4000, 4001))
    assert j.stats["late"] == 1
    j.push("s", stamps("s", 4, 5))
    assert j.stats["late"] == 2


def test_flush_counts_what_a_source_was_advanced_to() -> None:
    j = mr.WindowJoin(on="r.x = s.x", window="5", time="ts")
    j.advance("r", 10)
    j.flush()
    j.push("s", timed((10, 0), (11, 0)))
    assert j.stats["late"] == 1


def test_flush_of_an_unused_join_and_without_time_gives_nothing() -> None:
    j = mr.WindowJoin(on="r.x = s.x", window="5", time="ts")
    assert j.flush().num_rows == 0
    k = mr.WindowJoin(on="r.x = s.x", window="5 rows")
    k.push("r", xs(1))
    assert k.flush().num_rows == 0
    assert pairs(k.push("s", xs(1))) == [(0, 0)]


def test_close_flushes_and_then_every_call_is_a_state_error() -> None:
    j = mr.WindowJoin(on="r.x = s.x", window="5", time="ts")
    j.push("r", timed((1, 0)))
    j.push("s", timed((9, 0), (9, 0)))
    j.push("r", timed((9, 0)))
    assert pairs(j.close()) == [(1, 0), (1, 1)]
    calls: list[Callable[[], Any]] = [
        lambda: j.push("r", timed((10, 0))),
        lambda: j.push_both(timed(), timed(), []),
        lambda: j.advance("r", 10),
        lambda: j.flush(),
        lambda: j.close(),
        lambda: j.state(),
    ]
    for call in calls:
        with pytest.raises(mr.StateError, match="closed"):
            call()
    assert j.stats["pairs"] == 2  # looking is still allowed


def test_a_count_window_with_time_counts_in_the_order_of_time() -> None:
    j = mr.WindowJoin(on="r.x <= s.x", window="1 rows", time="ts")
    # Order: r1 s2 s3 r5 s6. s2 and s3 meet r1; r5 meets s3; s6 meets r5.
    assert everything(j, ("r", timed((1, 0), (5, 0))), ("s", timed((2, 0), (3, 0), (6, 0)))) == [
        (0, 0),
        (0, 1),
        (1, 1),
        (1, 2),
    ]


# --- several sources ---


def test_a_side_with_several_sources_waits_for_all_and_names_them_in_the_output() -> None:
    j = mr.WindowJoin(on="r.x = s.x", window="5", time="ts", sources={"r": 2})
    j.push("r", timed((3, 0)), source=0)
    assert j.push("s", timed((4, 0), (6, 0))).num_rows == 0
    found = j.push("r", timed((5, 0), (7, 0)), source=1)
    assert found.column_names[:4] == ["r_seq", "s_seq", "r_source", "s_source"]
    assert found.schema.field("r_source").type == pa.int32()
    assert found.num_rows == 0  # source 0 of r is still at 3
    found = j.advance("r", 7, source=0)
    rows = [(row["r_source"], row["r_seq"], row["s_source"], row["s_seq"]) for row in found.to_pylist()]
    # s4 meets r3; r5 meets s4; s6 meets r3 and r5.
    assert rows == [(0, 0, 0, 0), (1, 0, 0, 0), (0, 0, 0, 1), (1, 0, 0, 1)]


def test_each_source_has_its_own_seq_and_clock() -> None:
    j = mr.WindowJoin(on="r.x = s.x", window="50", time="ts", sources={"r": 2, "s": 1}, output="seqs")
    j.push("r", timed((10, 0)), source=0)
    j.push("r", timed((1, 0), (2, 0)), source=1)
    assert j.stats["late"] == 0
    j.push("s", timed((20, 0)))
    found = j.close()
    assert found.column_names == ["r_seq", "s_seq", "r_source", "s_source"]
    assert list(zip(found["r_source"].to_pylist(), found["r_seq"].to_pylist(), strict=True)) == [(1, 0), (1, 1), (0, 0)]


def test_one_source_each_leaves_the_source_columns_out() -> None:
    j = mr.WindowJoin(on="r.x = s.x", window="5", time="ts", sources={"r": 1, "s": 1})
    assert j.push("r", timed((1, 0))).column_names == ["r_seq", "s_seq", "r_ts", "r_x"]


# --- max_pending ---


def test_beyond_max_pending_push_names_the_silent_source_and_changes_nothing() -> None:
    j = mr.WindowJoin(on="r.x = s.x", window="5", time="ts", sources={"s": 2}, max_pending=3)
    j.push("s", timed((100, 0)), source=0)
    j.push("r", timed((1, 0), (2, 0)))
    before = j.stats
    with pytest.raises(mr.StateError) as caught:
        j.push("r", timed((3, 0)))
    message = str(caught.value)
    assert "source 1 of side 's'" in message
    assert "max_pending=3" in message
    assert "advance" in message
    assert j.stats == before
    j.advance("s", 50, source=1)
    j.push("r", timed((3, 0)))
    assert j.stats["rows"]["r"] == 3


def test_what_a_call_takes_at_once_does_not_count_as_waiting() -> None:
    j = mr.WindowJoin(on="r.x = s.x", window="5", time="ts", max_pending=1)
    j.advance("s", 100)
    j.push("r", timed(*((t, 0) for t in range(50))))
    assert j.stats["pending"] == 0
