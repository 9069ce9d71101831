"""`mr.join` of small tables without an index, and of repeated calls: the same output as with any index."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import millrace as mr
from millrace import table_join
from millrace.join_parts import evaluated_join

CONDITIONS = [
    "abs(r.x - s.x) <= 3",
    "r.x = s.x AND r.y <> s.y",
    "r.x < s.x AND r.y > s.y AND r.x > 4",
    "s.x BETWEEN r.y AND r.x",
    "abs(r.x - s.x) <= 1 OR r.x - s.x = 7",
    "r.t = s.t",
    "r.f * 2 <= s.f",
]


def table(rng: np.random.Generator, rows: int) -> pa.Table:
    x, y = (pa.array(rng.integers(0, 20, rows), mask=rng.random(rows) < 0.15) for _ in "xy")
    text = pa.array([("a", "b", None)[i] for i in rng.integers(0, 3, rows)], pa.string())
    return pa.table({"x": x, "y": y, "t": text, "f": rng.choice([0.5, -0.0, 3.0], rows)})


@pytest.fixture
def evaluated(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of r rows of each join that was evaluated."""
    calls: list[int] = []

    def counted(plan: Any, r: Any, s: Any) -> Any:
        calls.append(len(r))
        return evaluated_join.evaluated_blocks(plan, r, s)

    monkeypatch.setattr(table_join, "evaluated_blocks", counted)
    return calls


@pytest.mark.parametrize("output", ["pairs", "seqs", "count"])
@pytest.mark.parametrize("how", ["inner", "left", "semi", "anti"])
def test_all_pairs_evaluated_equal_the_nested_loop_index(
    how: Any, output: Any, evaluated: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluated_join, "BLOCK_PAIRS", 100)
    rng, calls = np.random.default_rng(4), 0
    for on in CONDITIONS:
        for rows in ((3, 3), (0, 5), (5, 0), (1, 40), (50, 60)):
            r, s = (table(rng, size) for size in rows)
            for _ in range(2):  # the second call finds its plan prepared
                ours = mr.join(r, s, on=on, how=how, output=output)
                assert ours.equals(mr.join(r, s, on=on, how=how, output=output, index="scan")), (on, rows)
                ours.validate(full=True)
                calls += 1
    assert len(evaluated) == calls


def test_named_indexes_devices_and_larger_tables_use_an_index(evaluated: list[int]) -> None:
    small, large = pa.table({"x": [1, 2, 3]}), pa.table({"x": np.arange(100)})
    mr.join(small, small, on="r.x = s.x", index="bisort")
    mr.join(large, large, on="r.x = s.x")
    assert evaluated == []
    mr.join(small, small, on="r.x = s.x", device="cpu")
    assert evaluated == [3]


def test_a_kept_plan_is_not_used_for_other_schemas_or_arguments() -> None:
    on = "r.x < s.x"
    ints, floats = pa.table({"x": [1, 2, 3]}), pa.table({"x": [1.5, 2.5]})
    assert mr.join(ints, ints, on=on).num_rows == 3
    assert mr.join(ints, floats, on=on).column("s_x").type == pa.float64()
    assert mr.join(ints, ints, on=on, how="anti").to_pydict() == {"r_seq": [2], "r_x": [3]}
    with pytest.raises(mr.SchemaError):
        mr.join(ints, pa.table({"y": [1]}), on=on)
    for threads in (True, 1.0):
        mr.join(ints, ints, on=on, threads=1)
        with pytest.raises(mr.ArgumentError):
            mr.join(ints, ints, on=on, threads=threads)  # type: ignore[arg-type]
    named = ints.replace_schema_metadata({"a": "b"})
    assert mr.join(named, named, on=on).schema.metadata is None
