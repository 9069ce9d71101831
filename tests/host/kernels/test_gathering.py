"""Gathering of rows: the same result as Arrow's `take`, for every type."""

from __future__ import annotations

import datetime

import numpy as np
import pyarrow as pa
import pytest

from millrace.host.kernels import gathering
from millrace.host.kernels.gathering import MIN_ROWS, Gatherer
from millrace.host.runtime.team import Team

N = 5000
RNG = np.random.default_rng(5)
TABLE = pa.table(
    {
        "int8": pa.array(RNG.integers(-9, 9, N), pa.int8()),
        "half": pa.array(RNG.random(N).astype(np.float16)),
        "int32": pa.array(RNG.integers(0, 99, N), pa.int32()),
        "float64": pa.array(RNG.random(N)),
        "date": pa.array([datetime.date(2020, 1, 1) + datetime.timedelta(int(d)) for d in RNG.integers(0, 99, N)]),
        "zoned": pa.array(RNG.integers(0, 10**9, N), pa.timestamp("us", "UTC")),
        "bool": pa.array(RNG.random(N) < 0.5),
        "text": pa.array([f"t{i}" for i in range(N)]),
        "nulls": pa.array(RNG.integers(0, 9, N), mask=RNG.random(N) < 0.1),
        "list": pa.array([[i] for i in range(N)]),
    }
)


@pytest.mark.parametrize("rows", [0, 3, MIN_ROWS + 7])
@pytest.mark.parametrize("given", [TABLE, TABLE.slice(1000), pa.concat_tables([TABLE.slice(0, 9), TABLE.slice(9)])])
@pytest.mark.parametrize("nulls", [False, True])
@pytest.mark.parametrize("scattered", [False, True])
def test_rows_are_those_of_arrow(
    rows: int, given: pa.Table, nulls: bool, scattered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gathering, "MIN_INTERLEAVED_ROWS", 1000)
    numbers = RNG.integers(0, given.num_rows, rows)
    chosen = pa.array(numbers, mask=numbers % 3 == 0) if nulls else pa.array(numbers)
    team = Team(2)
    team.acquire()
    try:
        gatherer = Gatherer(given, team, scattered)
        twice = [pa.Table.from_arrays(gatherer.gather(chosen), schema=given.schema) for _ in range(2)]
    finally:
        team.depth -= 1
    for found in twice:
        assert found.equals(given.take(chosen))
        found.validate(full=True)
