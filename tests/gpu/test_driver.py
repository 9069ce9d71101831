"""What a launch is checked for before a GPU sees it, and what the compilers are given."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import millrace as mr
from millrace.gpu import driver
from millrace.host.null import NullBuffer

LONGEST = 1 << 31


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
    ],
)
def test_rows_and_groups(unit: str, scalars: tuple[int, ...], rows: int, groups: int) -> None:
    work = check(unit, buffers(unit), *scalars)
    assert (work.rows, work.groups(1), work.scalars) == (rows, groups, scalars)
    assert work.word_bits == 64
    assert check(unit, buffers(unit, np.uint32), *scalars).word_bits == 32


def test_an_unknown_unit_lists_those_there_are() -> None:
    with pytest.raises(mr.DeviceFault, match=r"'toy' has no unit 'scan_prober'.*bisort_merger"):
        check("scan_prober", [])


def test_a_wrong_number_of_buffers_or_scalars_names_those_wanted() -> None:
    with pytest.raises(mr.DeviceFault, match=r"words, index and the scalars n, step; given 1 buffers and 2 scalars"):
        check("bisort_indexer", buffers("bisort_indexer")[:1], 1, 1)
    with pytest.raises(mr.DeviceFault, match="given 2 buffers and 1 scalars"):
        check("bisort_indexer", buffers("bisort_indexer"), 1)


@pytest.mark.parametrize("place", range(6))
def test_every_buffer_must_hold_its_type(place: int) -> None:
    for unit in ("bisort_merger", "bisort_prober"):
        given = buffers(unit)
        name = driver.UNITS[unit].slots[place].name
        given[place] = NullBuffer(10, np.dtype(np.int64))
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
    ],
)
def test_a_buffer_that_is_too_small_is_named(unit: str, scalars: tuple[int, ...], name: str) -> None:
    with pytest.raises(mr.DeviceFault, match=rf"{unit}: {name} has 10 elements.*needs 11"):
        check(unit, buffers(unit), *scalars)


@pytest.mark.parametrize("unit", driver.UNITS)
def test_each_buffer_is_measured(unit: str) -> None:
    for place, slot in enumerate(driver.UNITS[unit].slots):
        given = buffers(unit)
        given[place] = NullBuffer(0, given[place].dtype)
        with pytest.raises(mr.DeviceFault, match=f"{unit}: {slot.name} has 0 elements"):
            check(unit, given, *(1,) * len(driver.UNITS[unit].scalars))


@pytest.mark.parametrize(
    ("unit", "scalars", "message"),
    [
        ("bisort_merger", (-1, 0, 1), "a_n=-1"),
        ("bisort_merger", (LONGEST, 1, 1), f"{LONGEST + 1} rows"),
        ("bisort_merger", (0, LONGEST + 1, 1), f"b_n={LONGEST + 1}"),
        ("bisort_indexer", (5, 0), "step=0, allowed are 1"),
        ("bisort_indexer", (5, -3), "step=-3"),
        ("bisort_prober", (5, 1, -1), "m=-1"),
    ],
)
def test_scalars_out_of_range_are_refused(unit: str, scalars: tuple[int, ...], message: str) -> None:
    with pytest.raises(mr.DeviceFault, match=f"{unit}: {message}"):
        check(unit, buffers(unit, size=LONGEST + 1), *scalars)


def test_the_longest_runs_are_taken() -> None:
    assert check("bisort_merger", buffers("bisort_merger", size=LONGEST), LONGEST, 0, 1).rows == LONGEST
    assert check("bisort_prober", buffers("bisort_prober", size=LONGEST), LONGEST, LONGEST, LONGEST).rows == LONGEST


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
    slots = [
        f"GLOBAL {'' if slot.written else 'const '}{'WORD' if slot.words else 'U32'} *RESTRICT {slot.name}"
        for slot in driver.UNITS[unit].slots
    ]
    assert found == [*slots, *(f"U32 {name}" for name in driver.UNITS[unit].scalars)]


def test_every_kernel_file_is_in_the_table() -> None:
    assert {path.stem for path in driver.KERNELS.glob("*.cu")} == set(driver.UNITS)
