"""Of several comparisons the more selective drives the search, and the answer is the same whichever does."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import millrace as mr
from millrace.host.base.codes import CodeTable
from millrace.host.base.types import SIDES, Side
from millrace.host.data.timescale import TimeScale
from millrace.host.expr.plan import bind
from millrace.host.planner.selectivity import most_selective
from millrace.host.stream.intake import make_intake
from millrace.predicate import parse

WIDE, NARROW = "r.a < s.a", "r.b > s.b"


def tables(rows: int) -> dict[Side, pa.Table]:
    """`r.a < s.a` holds for nearly all pairs, `r.b > s.b` for nearly none."""
    rng = np.random.default_rng(1)
    return {
        "r": pa.table({"a": rng.integers(0, 10, rows), "b": rng.integers(0, 1000, rows)}),
        "s": pa.table({"a": rng.integers(5, 1000, rows), "b": rng.integers(900, 2000, rows)}),
    }


def driver(on: str, rows: int = 3000) -> str:
    given, condition = tables(rows), parse(on)
    schemas = {side: given[side].schema for side in SIDES}
    sides = {
        side: make_intake(side, condition, schemas[side], None, CodeTable())
        .read(given[side], np.arange(rows), 0, TimeScale(unit=1))
        .tuples
        for side in SIDES
    }
    plan = most_selective(bind(condition, schemas), sides)
    assert plan.searchable
    return plan.searches["s"][0].key.label


@pytest.mark.parametrize("on", [f"{WIDE} AND {NARROW}", f"{NARROW} AND {WIDE}"])
def test_the_more_selective_of_two_inequalities_drives(on: str) -> None:
    assert driver(on) == "s.b"


def test_an_equality_drives_whatever_stands_beside_it() -> None:
    assert driver("r.a < s.a AND r.b = s.b") == "s.b"


def test_empty_tables_have_a_plan_too() -> None:
    assert driver(f"{WIDE} AND {NARROW}", rows=0) in ("s.a", "s.b")


def test_the_answer_does_not_depend_on_the_order_of_the_terms() -> None:
    given = tables(400)
    found = [
        mr.join(given["r"], given["s"], on=on, index=index, output="seqs")
        for on in (f"{WIDE} AND {NARROW}", f"{NARROW} AND {WIDE}")
        for index in ("bisort", "scan")
    ]
    assert found[0].num_rows > 0
    assert all(one.equals(found[0]) for one in found)
