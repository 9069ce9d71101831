"""Tables of few pairs are slices of a block: what a call returned never changes, and all types of columns come out."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pytest

import millrace as mr
from millrace.join_parts import small_results

ON = "abs(r.x - s.x) <= 2"


def test_results_stay_as_they_were_over_many_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(small_results, "BLOCK_BYTES", 1 << 11)
    rng = np.random.default_rng(1)
    small, scan = (mr.WindowJoin(ON, window="400 rows", index=index) for index in ("auto", "scan"))
    kept = []
    for number in range(300):
        rows = pa.table({"x": rng.integers(0, 300, 1 + number % 3), "v": rng.random(1 + number % 3)})
        side = "rs"[number % 2]
        found, expected = small.push(side, rows), scan.push(side, rows)
        kept.append((found, expected.take(pa.array(range(expected.num_rows), pa.int64())), found.to_pylist()))
    assert sum(found.num_rows for found, _, _ in kept) > 1000
    for found, expected, before in kept:
        assert found.equals(expected)
        assert found.to_pylist() == before


@pytest.mark.parametrize("extra", ["none", "narrow", "text", "nulls", "seqs"])
def test_columns_of_other_types_and_widths(extra: str) -> None:
    start = datetime(2026, 1, 1, tzinfo=UTC)

    def rows(first: int) -> pa.Table:
        columns: dict[str, pa.Array] = {"x": pa.array([first, first + 1], pa.int32())}
        if extra == "narrow":
            columns["a"] = pa.array([1, 2], pa.int8())
            columns["b"] = pa.array([start + timedelta(first), None], pa.timestamp("us", "UTC"))
            columns["c"] = pa.array([0.5, 1.5], pa.float32())
        elif extra == "text":
            columns["t"] = pa.array([f"row {first}", "x"])
        elif extra == "nulls":
            columns["n"] = pa.array([None, first], pa.int64())
        return pa.table(columns)

    output = "seqs" if extra == "seqs" else "pairs"
    with (
        mr.WindowJoin(ON, window="50 rows", output=output) as ours,  # type: ignore[arg-type]
        mr.WindowJoin(ON, window="50 rows", index="scan", output=output) as scan,  # type: ignore[arg-type]
    ):
        pairs = 0
        for number in range(40):
            side = "rs"[number % 2]
            found, expected = ours.push(side, rows(number // 2)), scan.push(side, rows(number // 2))
            assert found.equals(expected)
            assert found.to_pylist() == expected.to_pylist()
            found.validate(full=True)
            pairs += found.num_rows
    assert pairs > 100


def test_pairs_of_several_sources_have_arrays_of_their_own() -> None:
    schema = pa.schema([("x", pa.int64()), ("ts", pa.int64())])
    join = mr.WindowJoin(
        ON, window="100", time="ts", sources={"r": 2, "s": 1}, schemas={"r": schema, "s": schema}, lateness=0
    )
    join.push("r", pa.table({"x": [1], "ts": [1]}), source=1)
    join.push("s", pa.table({"x": [1], "ts": [2]}))
    assert join.flush().to_pydict()["r_source"] == [1]
