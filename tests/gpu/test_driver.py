"""Checks of a launch before it runs on a GPU, and the macros for the compilers."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import millrace as mr
from millrace.gpu import driver
from millrace.host.device.null import NullBuffer

MAX_ROWS = 1 << 31


def buffers(unit: str, word: Any = np.uint64, size: int = 10) -> list[NullBuffer]:
    return [NullBuffer(size, np.dtype(word if slot.words else np.uint32)) for slot in driver.UNITS[unit].slots]


def check(unit: str, given: list[NullBuffer], *scalars: int) -> driver.Work:
    return driver.check("toy", unit, given, scalars)


@pytest.mark.parametrize(
    ("unit", "scalars", "rows", "groups"),
    [
        ("bisort_merger", (0, 0, 2), 0, 1),
        ("bisort_merger", (3, 4, 2), 7, 1),
        ("bisort_merger", (5, 5, 2), 10, 2),
        ("bisort_indexer", (10, 3), 4, 4),
        ("bisort_indexer", (0, 3), 0, 1),
        ("bisort_prober", (10, 3, 6), 6, 6),
        ("bisort_prober", (0, 1, 0), 0, 1),
        ("hb_search_implicit", (6, 0, 1), 6, 6),
        ("hb_search_regular", (0, 0, 0, 0), 0, 1),
        ("hb_lookup", (6, 1, 10), 6, 6),
    ],
)
def test_rows_and_groups(unit: str, scalars: tuple[int, ...], rows: int, groups: int) -> None:
    work = check(unit, buffers(unit), *scalars)
    assert (work.rows, work.groups(1), work.scalars) == (rows, groups, scalars)
    assert work.word_bits == 64
    assert check(unit, buffers(unit, np.uint32, 20), *scalars).word_bits == 32


@pytest.mark.parametrize(
    ("word", "group", "per_group"),
    [(np.uint64, 128, 16), (np.uint32, 128, 8), (np.uint64, 8, 1), (np.uint32, 8, 8), (np.uint32, 2, 2)],
)
def test_a_team_of_a_lines_words_walks_with_a_query_unless_groups_are_smaller(
    word: Any, group: int, per_group: int
) -> None:
    for queries in (1, per_group, per_group + 1, 100 * per_group):
        work = check("hb_search_implicit", buffers("hb_search_implicit", word, 2000), queries, 1, 3)
        assert work.groups(group) == -(-queries // per_group)


@pytest.mark.parametrize(("limit", "group"), [(1, 1), (3, 2), (96, 64), (128, 128), (1024, 128)])
def test_groups_are_powers_of_two(limit: int, group: int) -> None:
    assert driver.group_of(limit) == group


def test_an_unknown_unit_lists_those_there_are() -> None:
    with pytest.raises(mr.DeviceFault, match=r"'toy' has no unit 'scan_prober'.*bisort_merger"):
        check("scan_prober", [])


def test_a_wrong_number_of_buffers_or_scalars_names_those_wanted() -> None:
    with pytest.raises(mr.DeviceFault, match=r"words, index and the scalars n, step; given 1 buffers and 2 scalars"):
        check("bisort_indexer", buffers("bisort_indexer")[:1], 1, 1)
    with pytest.raises(mr.DeviceFault, match="given 2 buffers and 1 scalars"):
        check("bisort_indexer", buffers("bisort_indexer"), 1)


@pytest.mark.parametrize("position", range(6))
def test_every_buffer_must_hold_its_type(position: int) -> None:
    for unit in ("bisort_merger", "bisort_prober"):
        given = buffers(unit)
        name = driver.UNITS[unit].slots[position].name
        given[position] = NullBuffer(10, np.dtype(np.int64))
        with pytest.raises(mr.DeviceFault, match=f"{unit}: {name} holds int64"):
            check(unit, given, *(1,) * len(driver.UNITS[unit].scalars))


def test_words_of_two_widths_are_refused() -> None:
    given = buffers("bisort_merger")
    given[2] = NullBuffer(10, np.dtype(np.uint32))
    with pytest.raises(mr.DeviceFault, match="b_words holds uint32, it must hold uint64"):
        check("bisort_merger", given, 1, 1, 1)


@pytest.mark.parametrize(
    ("unit", "scalars", "name"),
    [
        ("bisort_merger", (11, 0, 2), "a_words"),
        ("bisort_merger", (0, 11, 2), "b_words"),
        ("bisort_merger", (6, 5, 2), "out_words"),
        ("bisort_indexer", (11, 2), "words"),
        ("bisort_prober", (10, 1, 11), "low"),
        ("hb_search_implicit", (11, 0, 1), "queries"),
        ("hb_search_regular", (11, 0, 0, 0), "queries"),
        ("hb_lookup", (1, 1, 11), "leaf_words"),
    ],
)
def test_a_buffer_that_is_too_small_is_named(unit: str, scalars: tuple[int, ...], name: str) -> None:
    with pytest.raises(mr.DeviceFault, match=rf"{unit}: {name} has 10 elements.*needs 11"):
        check(unit, buffers(unit), *scalars)


@pytest.mark.parametrize("unit", driver.UNITS)
def test_each_buffer_is_measured(unit: str) -> None:
    for position, slot in enumerate(driver.UNITS[unit].slots):
        given = buffers(unit, size=100)
        given[position] = NullBuffer(0, given[position].dtype)
        with pytest.raises(mr.DeviceFault, match=f"{unit}: {slot.name} has 0 elements"):
            check(unit, given, *(1,) * len(driver.UNITS[unit].scalars))


@pytest.mark.parametrize(
    ("unit", "scalars", "message"),
    [
        ("bisort_merger", (-1, 0, 1), "a_n=-1"),
        ("bisort_merger", (MAX_ROWS, 1, 1), f"{MAX_ROWS + 1} rows"),
        ("bisort_merger", (0, MAX_ROWS + 1, 1), f"b_n={MAX_ROWS + 1}"),
        ("bisort_indexer", (5, 0), "step=0, allowed are 1"),
        ("bisort_indexer", (5, -3), "step=-3"),
        ("bisort_prober", (5, 1, -1), "m=-1"),
        ("hb_search_implicit", (5, 3, 2), "from=3, but there are 2 levels"),
        ("hb_search_regular", (5, 3, 2, 0), "from=3, but there are 2 levels"),
        ("hb_lookup", (5, 2, MAX_ROWS + 1), f"n={MAX_ROWS + 1}"),
    ],
)
def test_scalars_out_of_range_are_refused(unit: str, scalars: tuple[int, ...], message: str) -> None:
    with pytest.raises(mr.DeviceFault, match=f"{unit}: {message}"):
        check(unit, buffers(unit, size=MAX_ROWS + 1), *scalars)


def test_the_longest_runs_are_taken() -> None:
    assert check("bisort_merger", buffers("bisort_merger", size=MAX_ROWS), MAX_ROWS, 0, 1).rows == MAX_ROWS
    assert (
        check("bisort_prober", buffers("bisort_prober", size=MAX_ROWS), MAX_ROWS, MAX_ROWS, MAX_ROWS).rows == MAX_ROWS
    )


def test_a_written_buffer_is_shared_with_no_other_but_read_ones_may_be() -> None:
    given = buffers("bisort_prober")
    given[3] = given[2]
    assert check("bisort_prober", given, 1, 1, 1).rows == 1
    given[5] = given[4]
    with pytest.raises(mr.DeviceFault, match="starts is written to"):
        check("bisort_prober", given, 1, 1, 1)
    given = buffers("bisort_merger")
    given[4] = given[0]
    with pytest.raises(mr.DeviceFault, match="out_words is written to"):
        check("bisort_merger", given, 1, 1, 1)


@pytest.mark.parametrize("unit", driver.UNITS)
def test_a_kernel_takes_what_the_table_says(unit: str) -> None:
    """Name, order and type of every parameter, read from the source."""
    text = driver.source(unit)
    assert not re.search(r"^\s*#include", text, re.MULTILINE)
    (parameters,) = re.findall(rf"^KERNEL {unit}\((.*?)\)", text, re.DOTALL | re.MULTILINE)
    found = [" ".join(part.split()) for part in parameters.split(",")]
    slots = []
    for slot in driver.UNITS[unit].slots:
        kind = "WORD" if slot.words else "float" if slot.floats else "U32"
        slots.append(f"GLOBAL {'' if slot.written else 'const '}{kind} *RESTRICT {slot.name}")
    assert found == [*slots, *(f"U32 {name}" for name in driver.UNITS[unit].scalars)]


def test_a_nodes_buffer_too_small_for_the_levels_is_refused() -> None:
    """One line per level in the implicit layout; the upper levels and one last-level node in the regular one."""
    assert check("hb_search_implicit", buffers("hb_search_implicit", size=24), 1, 1, 3).rows == 1
    with pytest.raises(mr.DeviceFault, match=r"nodes has 23 elements.*needs 24"):
        check("hb_search_implicit", buffers("hb_search_implicit", size=23), 1, 1, 3)
    with pytest.raises(mr.DeviceFault, match=r"nodes has 47 elements.*needs 48"):
        check("hb_lookup", buffers("hb_lookup", np.uint32, 47), 1, 3, 1)
    with pytest.raises(mr.DeviceFault, match=r"nodes has 371 elements.*needs 372"):
        check("hb_search_regular", buffers("hb_search_regular", np.uint32, 371), 1, 0, 2, 100)


def test_starts_are_needed_below_the_root_only() -> None:
    for unit, more in (("hb_search_implicit", ()), ("hb_search_regular", (0,))):
        given = buffers(unit, size=100)
        position = [slot.name for slot in driver.UNITS[unit].slots].index("at")
        given[position] = NullBuffer(0, np.dtype(np.uint32))
        assert check(unit, given, 5, 0, 1, *more).rows == 5
        with pytest.raises(mr.DeviceFault, match="at has 0 elements"):
            check(unit, given, 5, 1, 1, *more)


@pytest.mark.parametrize("votes", [driver.BARRIER, driver.SUBGROUP])
def test_only_units_with_teams_know_other_ways_to_vote(votes: str) -> None:
    for unit in driver.UNITS.values():
        assert (votes in driver.defines(unit, 32, votes=votes)) == unit.teams
        assert votes not in driver.defines(unit, 32)


def test_every_kernel_file_is_in_the_table() -> None:
    assert {path.stem for path in driver.KERNELS.glob("*.cu")} == set(driver.UNITS)
