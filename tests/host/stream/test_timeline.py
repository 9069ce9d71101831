"""Clocks and waiting rows: which rows are late, which source is slowest, and in which order rows are taken."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millrace.host.base.errors import SchemaError
from millrace.host.base.words import key_type
from millrace.host.data.timescale import TimeScale
from millrace.host.data.tuples import Tuples
from millrace.host.stream.timeline import Clocks, Waiting

MIN, MAX = -(2**63), 2**63 - 1


def tuples(times: list[int], source: int, first: int) -> Tuples:
    seq = np.arange(first, first + len(times), dtype=np.int64)
    sources = np.full(len(times), source, np.int32)
    return Tuples(seq, sources, np.array(times, np.int64), np.ones(len(times), np.bool_), {}, pa.table({"n": seq}))


def known(times: list[int | None]) -> tuple[Any, Any]:
    return np.array([0 if t is None else t for t in times], np.int64), np.array([t is not None for t in times])


def test_a_source_without_rows_has_no_clock_and_blocks_all_others() -> None:
    clocks = Clocks((None, None)).moved(0, 5)
    assert clocks.of(0) == 5
    assert clocks.of(1) is None
    assert clocks.frontier() is None
    assert clocks.slowest_source() == 1


def test_the_frontier_is_the_least_clock_and_its_first_source() -> None:
    clocks = Clocks((None, None, None)).moved(0, 7).moved(1, 5).moved(2, 5)
    assert clocks.frontier() == (5, 1)
    assert clocks.slowest_source() == 1


def test_a_clock_is_the_largest_timestamp_minus_the_lateness() -> None:
    clocks = Clocks((None,), lateness=3).moved(0, 10).moved(0, 4)
    assert clocks.of(0) == 7


def test_a_flush_moves_every_clock_one_tick_past_the_newest_timestamp() -> None:
    clocks = Clocks((None, None), lateness=3, tick=2).moved(0, 10).flush()
    assert [clocks.of(0), clocks.of(1)] == [12, 12]
    assert clocks.moved(1, 20).of(1) == 17
    assert Clocks((None,)).flush().of(0) is None


def test_a_finer_unit_keeps_the_instants() -> None:
    clocks = Clocks((4, None), lateness=1, flushed=3).rescaled(1000, tick=1, lateness=1000)
    assert [clocks.of(0), clocks.of(1)] == [3001, 3001]
    assert clocks.moved(0, 9000).of(0) == 8000


@settings(deadline=None)
@given(
    start=st.none() | st.integers(-20, 20),
    flushed=st.none() | st.integers(-20, 20),
    lateness=st.integers(0, 6) | st.just(2**70),
    times=st.lists(st.none() | st.integers(-20, 20) | st.sampled_from([MIN, MAX]), max_size=15),
)
def test_late_is_decided_row_by_row(
    start: int | None, flushed: int | None, lateness: int, times: list[int | None]
) -> None:
    clocks = Clocks((start,), lateness=lateness, flushed=flushed)
    wanted, moving = [], clocks
    for time in times:
        clock = moving.of(0)
        wanted.append(time is not None and clock is not None and time < clock)
        if time is not None:
            moving = moving.moved(0, time)
    values, mask = known(times)
    assert clocks.late(0, values, mask).tolist() == wanted


def test_everything_is_late_past_the_end_of_time() -> None:
    clocks = Clocks((None,)).moved(0, MAX).flush()
    values, mask = known([MAX, None, 0])
    assert clocks.late(0, values, mask).tolist() == [True, False, True]


pushes = st.lists(
    st.tuples(st.sampled_from(["r", "s"]), st.integers(0, 1), st.lists(st.integers(0, 12), max_size=6)), max_size=12
)


@settings(deadline=None)
@given(pushes=pushes, stops=st.lists(st.tuples(st.integers(0, 13), st.integers(0, 3)), max_size=6))
def test_rows_are_taken_in_the_total_order_up_to_the_frontier(
    pushes: list[tuple[Any, int, list[int]]], stops: list[tuple[int, int]]
) -> None:
    waiting, model, seqs = Waiting(), list[tuple[int, int, int]](), dict[tuple[str, int], int]()
    ranks: dict[Any, int] = {"r": 0, "s": 2}
    frontiers = sorted(stops)
    for i, (side, source, times) in enumerate(pushes):
        first = seqs.get((side, source), 0)
        seqs[side, source] = first + len(times)
        waiting = waiting.push(side, tuples(times, source, first))
        model += [(t, ranks[side] + source, first + n) for n, t in enumerate(times)]
        assert len(waiting) == len(model)
        for frontier in frontiers[i : i + 1]:
            taken, waiting = waiting.take(frontier, ranks)
            ready = sorted(row for row in model if row[:2] <= frontier)
            model = [row for row in model if row[:2] > frontier]
            for one in ("r", "s"):
                wanted = [row for row in ready if (row[1] >= 2) == (one == "s")]
                rows = taken[one]
                found = [] if rows is None else list(zip(rows.time, rows.source + ranks[one], rows.seq, strict=True))
                assert found == wanted
                if rows is not None:
                    assert rows.payload["n"].to_pylist() == rows.seq.tolist()
            assert len(waiting) == len(model)


def test_many_small_pushes_make_few_runs() -> None:
    waiting = Waiting()
    for i in range(500):
        waiting = waiting.push("r", tuples([i], 0, i))
    assert len(waiting) == 500
    assert len(waiting.runs["r"]) <= 9


def test_taking_leaves_the_earlier_value_untouched() -> None:
    before = Waiting().push("r", tuples([3, 1, 2], 0, 0))
    taken, after = before.take((2, 0), {"r": 0, "s": 1})
    assert taken["r"] is not None
    assert taken["r"].seq.tolist() == [1, 2]
    assert (len(before), len(after)) == (3, 1)


def column(data_type: pa.DataType) -> Any:
    return key_type("r.ts", data_type)


def test_a_scale_is_as_fine_as_its_finest_part_and_no_finer() -> None:
    scale = TimeScale().with_length(90 * 10**9).with_column(column(pa.timestamp("s")), "r.ts")
    assert scale.unit == 10**9
    assert scale.ticks(90 * 10**9) == 90
    finer = scale.with_column(column(pa.timestamp("ms")), "s.ts")
    assert finer.factor_from(scale) == 1000
    assert finer.step() == 1
    assert finer.times(np.array([7]), column(pa.timestamp("s")), "r.ts").tolist() == [7000]


def test_one_tick_is_that_of_the_finest_column_even_where_a_window_is_finer() -> None:
    scale = TimeScale().with_length(1).with_column(column(pa.timestamp("s")), "r.ts")
    assert scale.unit == 1
    assert scale.step() == 10**9


def test_a_time_that_does_not_fit_the_finest_unit_is_refused() -> None:
    scale = TimeScale().with_column(column(pa.timestamp("s")), "r.ts").with_column(column(pa.timestamp("ns")), "s.ts")
    with pytest.raises(SchemaError, match=r"r\.ts.*64 bits"):
        scale.times(np.array([2**40]), column(pa.timestamp("s")), "r.ts")


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (pa.timestamp("s"), pa.timestamp("s", "UTC")),
        (pa.timestamp("s"), pa.int64()),
        (pa.int64(), pa.date32()),
        (pa.date32(), pa.timestamp("s", "UTC")),
    ],
    ids=str,
)
def test_times_of_different_kinds_are_refused(first: pa.DataType, second: pa.DataType) -> None:
    scale = TimeScale().with_column(column(first), "r.ts")
    with pytest.raises(SchemaError, match=r"s\.ts"):
        scale.with_column(column(second), "s.ts")


def test_an_instant_at_the_epoch_needs_no_finer_scale() -> None:
    scale = TimeScale().with_instant(0, "time", False, "ts=0")
    assert scale.ticks(0) == 0
    assert TimeScale(unit=10**9).with_instant(0, "time", False, "ts=0").unit == 10**9
