"""The cost equations of bench `live`: the paper's formulas with constants given, and constants that can be measured."""

from __future__ import annotations

from dataclasses import astuple

import pytest

from millrace.bench import live_costs, live_memory
from millrace.bench.live_costs import Constants, Steps, btree_height, insert_height, static_height

UNIT = Constants(
    search=1,
    insert=10,
    delete=100,
    search_chain=5,
    insert_chain=50,
    search_new=2,
    insert_new=20,
    search_static=3,
    match=7,
    merge=4096,
)
WINDOW, RATE = 4096, 2


def test_the_equations_add_up_the_steps_of_the_paper() -> None:
    height, halves = btree_height(WINDOW), btree_height(WINDOW / 2)
    assert live_costs.equation_2(UNIT, WINDOW, RATE) == Steps(height, 14, 100 * height, 10 * height)
    assert live_costs.equation_4(UNIT, WINDOW, RATE) == Steps(2 * halves, 14, 100 * halves, 10 * halves)
    chained = insert_height(WINDOW / 3)
    assert astuple(live_costs.equation_3(UNIT, WINDOW, RATE, 4)) == pytest.approx(
        (4 * chained * 5, 14 * (1 + 1 / 6), 0, 50 * chained)
    )
    ratio, inserted = 0.25, insert_height(512)
    search = 3 * static_height(WINDOW)
    merge = live_costs.equation_5(UNIT, WINDOW, RATE, ratio)
    assert astuple(merge) == pytest.approx((search + 2 * inserted, 14 * 1.125, 4, 20 * inserted))
    parts = live_costs.equation_6(UNIT, WINDOW, RATE, ratio)
    assert astuple(parts) == pytest.approx((search + 2, 14 * 1.125, 4, 3 * static_height(64) + 20))
    assert merge.total == pytest.approx(sum(astuple(merge)))


def test_heights_count_levels_with_leaves() -> None:
    assert btree_height(10) == insert_height(10) == 1
    assert static_height(8**5) == pytest.approx(5)
    assert btree_height(1 << 20) == pytest.approx(4, abs=0.1)


def test_constants_are_measured() -> None:
    found = live_costs.constants(512, 256)
    named = {name: getattr(found, name) for name in Constants.__dataclass_fields__}
    assert all(seconds > 0 for name, seconds in named.items() if name != "match")
    assert named["match"] >= 0


def test_memory_is_at_least_that_of_the_entries() -> None:
    window = 4096
    btree, pim, full = (
        live_memory.btree_bytes(window),
        live_memory.merge_side_bytes(window, 0.125, None),
        live_memory.merge_side_bytes(window, 1.0, None),
    )
    assert min(btree, pim) > live_memory.ENTRY * window
    assert full > pim + 2 * live_memory.ENTRY * 0.8 * window
