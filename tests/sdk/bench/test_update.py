"""The bench of updates at tiny sizes: contenders agree, rows report what was measured. No timing is asserted."""

from __future__ import annotations

import numpy as np
import pytest

from millrace.bench import lookup, update
from millrace.bench.harness import Case, Effort, measure
from millrace.bench.options import Options
from millrace.bench.rows import BEST_FIXED, Row, result_rows
from millrace.bench.targets import TARGETS

SHORT = Effort(1, 1e-6, 1.0)


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> list[Case]:
    for name, value in {"QUICK_SIZE": 1 << 13, "QUICK_BATCH": 1 << 10, "QUICK_GRID": (10,)}.items():
        monkeypatch.setattr(update, name, value)
    monkeypatch.setattr(update, "QUICK_GRID_SIZE", 1 << 13)
    return list(update.cases(Options(quick=True)))


def rows_of(case: Case) -> list[Row]:
    result = measure(case, SHORT, lambda what, share: None)
    assert not result.missing
    return list(result_rows("update", result, {}))


def test_cases_agree_and_cover_the_targets(tiny: list[Case]) -> None:
    names = [case.name for case in tiny]
    assert names[:3] == ["upsert-2^10-into-2^13", "groups-2^10-into-2^13", "lookup-2^13-updated"]
    assert names[3:] == [*(f"mixed-2^13-u{share}" for share in update.SHARES), "auto-2^10-into-2^13"]
    rows = [row for case in tiny for row in rows_of(case)]
    compared = {(row["case"].split("-")[0], row["contender"], row["peer"]) for row in rows}
    assert {("upsert", "regular on cpu", peer) for peer in ("rebuild", "multimap", "implicit on cpu")} <= compared
    assert {("groups", "regular on cpu", "one thread"), ("lookup", "regular on cpu", "fresh build")} <= compared
    assert ("auto", "auto", BEST_FIXED) in compared
    for target in TARGETS:
        if target.bench == "update":
            assert target.rows(rows), target.text


def test_batches_are_new_keys(tiny: list[Case]) -> None:
    keys, values = update.new_keys(1 << 10, 1 << 8, np.random.default_rng(1))
    assert len(np.unique(keys)) == len(values) == 1 << 8
    assert not np.isin(keys, lookup.data(1 << 10)[0]).any()
