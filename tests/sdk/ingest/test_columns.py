"""Columns from users that Arrow would read as other values are refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import millrace as mr
from millrace.ingest.columns import as_array, as_one


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (np.array([1 << 40, 5], "M8[D]"), "date32"),
        (np.array([5, -(1 << 31) - 1], "M8[D]")[::-1], "date32"),
        (np.array([1], "M8[7D]"), "steps of 7 D"),
        (np.array([1], "M8[25s]"), "steps of 25 s"),
        (np.array([1], "m8[10ns]"), "steps of 10 ns"),
        ([np.datetime64(0, "s"), np.datetime64(1, ("s", 25))], "steps of 25 s"),
    ],
)
def test_times_that_arrow_would_change_are_refused(given: Any, reason: str) -> None:
    with pytest.raises(mr.ArgumentError, match=reason):
        as_array(given, "keys")
    with pytest.raises(mr.ArgumentError, match=reason):
        [as_one(one, "key") for one in given]


def test_a_day_beyond_the_dates_is_not_found_as_another_day() -> None:
    index = mr.OrderedIndex(pa.array([0], pa.date32()))
    with pytest.raises(mr.ArgumentError, match="date32"):
        index.lookup(np.array([1 << 32], "M8[D]"))


def test_days_and_other_times_of_numpy_keep_their_values() -> None:
    days = np.array(["NaT", "1969-12-31", "2024-02-29"], "M8[D]")
    assert as_array(days, "keys").to_pylist() == days.tolist()
    assert as_array(days[::-1], "keys").to_pylist() == days[::-1].tolist()
    for unit in ("s", "ms", "us", "ns"):
        assert as_array(np.array([7], f"M8[{unit}]"), "keys") == pa.array([7], pa.timestamp(unit))
    assert as_array(np.array([], "M8[D]"), "keys") == pa.array([], pa.date32())
