"""`mr.join(batch_rows=…)`: the same rows in small tables, errors at the call, resources freed at the end."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import millrace as mr
from millrace.ingest.arguments import OpenedEngine
from millrace.ingest.choices import HOWS, OUTPUTS
from millrace.join_parts import table_batches
from tests.host import faults

ON = "abs(r.x - s.x) <= 2"


def tables(rows: int = 900) -> tuple[pa.Table, pa.Table]:
    rng = np.random.default_rng(rows)
    columns = [pa.array(rng.integers(0, 500, rows), mask=rng.random(rows) < 0.05) for _ in range(2)]
    r, s = (pa.table({"x": column, "name": [f"n{i}" for i in range(rows)]}) for column in columns)
    return r, s


@pytest.fixture
def closed(monkeypatch: pytest.MonkeyPatch) -> list[OpenedEngine]:
    """The engines that were closed."""
    found: list[OpenedEngine] = []
    close = OpenedEngine.close

    def note(engine: OpenedEngine) -> None:
        found.append(engine)
        close(engine)

    monkeypatch.setattr(OpenedEngine, "close", note)
    return found


@pytest.mark.parametrize("output", OUTPUTS)
@pytest.mark.parametrize("how", HOWS)
def test_the_tables_together_are_the_result(how: Any, output: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_batches, "FIRST_ROWS", 50)
    r, s = tables()
    wanted = mr.join(r, s, ON, how=how, output=output)
    for batch_rows in (1, 7, 1000, 10**9):
        if batch_rows == 1 and output == "pairs":
            continue
        found = list(mr.join(r, s, ON, how=how, output=output, batch_rows=batch_rows))
        assert pa.concat_tables(found).combine_chunks().equals(wanted.combine_chunks())
        assert all(table.num_rows == batch_rows for table in found[:-1])
        assert 0 < found[-1].num_rows <= batch_rows


@pytest.mark.parametrize("device", ["cpu", "opencl"])
def test_devices_and_indexes_give_the_same(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_batches, "FIRST_ROWS", 200)
    r, s = tables()
    found = pa.concat_tables(mr.join(r, s, ON, device=device, index="bisort", batch_rows=333))
    assert found.combine_chunks().equals(mr.join(r, s, ON).combine_chunks())


def test_an_empty_result_is_one_empty_table() -> None:
    r, s = pa.table({"x": [1]}), pa.table({"x": [90]})
    (only,) = mr.join(r, s, ON, batch_rows=5)
    assert only.equals(mr.join(r, s, ON))
    (only,) = mr.join(r.slice(0, 0), s, ON, batch_rows=5)
    assert only.schema.equals(mr.join(r, s, ON).schema)


@pytest.mark.parametrize("batch_rows", [0, -1, 1.5, "9", True])
def test_bad_arguments_are_raised_at_the_call(batch_rows: Any, closed: list[OpenedEngine]) -> None:
    r, s = tables(5)
    with pytest.raises(mr.ArgumentError, match="batch_rows"):
        mr.join(r, s, ON, batch_rows=batch_rows)
    with pytest.raises(mr.SchemaError):
        mr.join(r, s.drop_columns("x"), ON, batch_rows=5)
    with pytest.raises(mr.ArgumentError):
        mr.join(r, s, ON, how="sideways", batch_rows=5)  # type: ignore[call-overload]
    with pytest.raises(mr.DeviceUnavailable):
        mr.join(r, s, ON, device="fpga:none", batch_rows=5)
    assert not closed


def test_resources_are_freed_at_the_end(closed: list[OpenedEngine]) -> None:
    r, s = tables(50)
    found = mr.join(r, s, ON, batch_rows=5)
    for _ in found:
        assert not closed
    assert len(closed) == 1
    with pytest.raises(StopIteration):
        next(found)
    assert len(closed) == 1


@pytest.mark.parametrize("started", [False, True])
def test_resources_are_freed_when_closed_or_collected(closed: list[OpenedEngine], started: bool) -> None:
    r, s = tables(50)
    first = mr.join(r, s, ON, batch_rows=5)
    if started:
        next(first)
    first.close()
    first.close()
    assert len(closed) == 1
    assert list(first) == []
    second = mr.join(r, s, ON, batch_rows=5)
    if started:
        next(second)
    del second
    gc.collect()
    assert len(closed) == 2
    with mr.join(r, s, ON, batch_rows=5) as third:
        next(third)
    assert len(closed) == 3


def test_a_fault_is_raised_or_warned_of(closed: list[OpenedEngine], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(mr.registry.BACKENDS, "faulty", "tests.host.faults")
    r, s = tables(300)
    faults.arm("launch", 1)
    with pytest.raises(mr.DeviceFault):
        list(mr.join(r, s, ON, index="bisort", device="faulty", batch_rows=10))
    assert len(closed) == 1
    faults.arm("launch", 1)
    with pytest.warns(RuntimeWarning, match="mr.join fell back"):
        found = list(mr.join(r, s, ON, index="bisort", device="faulty", fallback="cpu", batch_rows=10))
    assert pa.concat_tables(found).combine_chunks().equals(mr.join(r, s, ON).combine_chunks())
