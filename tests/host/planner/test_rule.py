"""The static rule of `index="auto"`, held against the measured cells of the bench's grid."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

import pytest

from millrace.host.planner.rule import Rule, structure_for

RESULTS = Path(__file__).resolve().parents[3] / "benchmarks/results/window_join-2026-11-17.jsonl"
WANTED = 0.85


def test_small_batches_with_few_partners_get_wib_and_all_others_bisort() -> None:
    rule = Rule(tiny_batch=0, small_batch=1000, max_partners=10_000)
    assert structure_for(999, 10, rule)[0] == "wib"
    assert structure_for(1000, 0, rule)[0] == "bisort"
    assert structure_for(100, 100, rule)[0] == "bisort"
    assert structure_for(1, 9999, rule)[0] == "wib"


def test_the_smallest_steps_get_bisort() -> None:
    rule = Rule(tiny_batch=50, small_batch=1000, max_partners=10_000)
    assert [structure_for(batch, 2, rule)[0] for batch in (1, 50, 51)] == ["bisort", "bisort", "wib"]


@pytest.mark.parametrize(("batch", "fan_out"), [(1, 2), (700, 2), (70_000, 2), (900, 1e6)])
def test_the_reason_names_the_choice_the_workload_and_the_limit(batch: int, fan_out: float) -> None:
    name, reason = structure_for(batch, fan_out, Rule())
    assert reason.startswith(f"{name} for batches of {batch:,} tuples with {fan_out:,.1f} partners each: ")
    assert any(f"{limit:,}" in reason for limit in (Rule().tiny_batch, Rule().small_batch, Rule().max_partners))
    assert "\n" not in reason


def test_the_rule_is_near_the_best_fixed_index_in_every_measured_cell() -> None:
    speeds: dict[str, dict[str, float]] = defaultdict(dict)
    workload: dict[str, tuple[int, float]] = {}
    for line in RESULTS.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        if row["case"].startswith("grid-") and row["index"] != "auto":
            speeds[row["case"]][row["index"]] = row["value"]
            workload[row["case"]] = row["batch"], row["selectivity"]
    assert len(speeds) == 50
    for case, by_index in speeds.items():
        chosen, _ = structure_for(*workload[case], Rule(tiny_batch=0))  # measured before small steps existed
        assert by_index[chosen] >= WANTED * max(by_index.values()), case
