"""Bench `live_join` at tiny sizes: live joins and window joins give the same pairs, and every case is measured."""

from __future__ import annotations

from millrace.bench import live_join
from millrace.bench.harness import Effort, measure
from millrace.bench.options import Options


def test_all_contenders_agree_and_are_measured() -> None:
    found = list(live_join.cases(Options(quick=True)))
    assert [case.name for case in found] == ["row-1024", "sustained-1024", "threads-1024"]
    for case in found:
        result = measure(case, Effort(repeats=1, slice_seconds=0.05), lambda what, share: None)
        assert not result.missing
        assert all(one.value > 0 for one in result.measured)
