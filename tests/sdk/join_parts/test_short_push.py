"""The short way of a push of few plain rows gives what the general way gives, and is taken only where it suits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import millrace as mr
from millrace.host.base.faults import InjectedFault, injected
from millrace.join_parts.short_push import ShortPush
from millrace.window_join import WindowJoin

TYPES = [pa.int64(), pa.int32(), pa.uint64(), pa.uint32(), pa.timestamp("us"), pa.date32(), pa.float64(), pa.int8()]
SHORT = {"int64", "int32", "uint64", "uint32", "timestamp[us]"}
SIZES = [1, 300, 2, 700, 1, 1, 40, 512, 513, 3, 5, 1, 200, 1, 0, 1]


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each push that could take the short way did."""
    found: list[bool] = []
    push = WindowJoin._push_few

    def counted(self: WindowJoin, *given: Any) -> pa.Table | None:
        result = push(self, *given)
        found.append(result is not None)
        return result

    monkeypatch.setattr(WindowJoin, "_push_few", counted)
    return found


def batches(kind: pa.DataType, nulls: float = 0.0, text: bool = False) -> list[tuple[str, pa.Table]]:
    rng = np.random.default_rng(5)
    made = []
    for number, rows in enumerate(SIZES * 4):
        keys = rng.integers(0, 100, rows)
        x = pa.array(keys, mask=rng.random(rows) < nulls).cast(pa.int32() if kind == pa.date32() else pa.int64())
        columns = {"v": pa.array(rng.random(rows)), "x": x.cast(kind)}
        if text:
            columns["t"] = pa.array([str(key) for key in keys], pa.string())
        made.append(("rs"[(number // 2) % 2], pa.table(columns)))
    return made


def results(rows: list[tuple[str, pa.Table]], on: str, **arguments: Any) -> list[pa.Table]:
    with mr.WindowJoin(on, **{"window": "600 rows", "index": "bisort", **arguments}) as join:
        return [join.push(*one) for one in rows]


def general(rows: list[tuple[str, pa.Table]], on: str, monkeypatch: pytest.MonkeyPatch, **arguments: Any) -> Any:
    with monkeypatch.context() as patch:
        patch.setattr(ShortPush, "bind", lambda *_: None)
        return results(rows, on, **arguments)


@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_types_of_keys(kind: pa.DataType, taken: list[bool], monkeypatch: pytest.MonkeyPatch) -> None:
    rows, on = batches(kind), "r.x = s.x"
    found = results(rows, on)
    assert any(taken) == (str(kind) in SHORT or kind == pa.date32())
    assert found == general(rows, on, monkeypatch)


@pytest.mark.parametrize(
    "change",
    [{}, {"window": "1 rows"}, {"window": ("30 rows", "2000 rows")}, {"output": "seqs"}, {"output": "count"}],
    ids=str,
)
@pytest.mark.parametrize("index", ["bisort", "auto", "wib"])
def test_arguments(index: str, change: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    rows, on = batches(pa.int64()), "abs(r.x - s.x) <= 1"
    assert results(rows, on, index=index, **change) == general(rows, on, monkeypatch, index=index, **change)


@pytest.mark.parametrize("given", [{"nulls": 0.02}, {"text": True}], ids=str)
def test_rows_that_do_not_suit(given: Any, taken: list[bool], monkeypatch: pytest.MonkeyPatch) -> None:
    rows, on = batches(pa.int64(), **given), "abs(r.x - s.x) <= 1"
    assert results(rows, on) == general(rows, on, monkeypatch)
    assert any(taken)


def test_slices_and_chunks(taken: list[bool], monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [(side, table.slice(table.num_rows // 3)) for side, table in batches(pa.int64())]
    for number in range(0, len(rows), 3):  # two chunks, the second sometimes without rows
        side, table = rows[number]
        rows[number] = side, pa.concat_tables([table, table.slice(0, number % 2)])
    on = "abs(r.x - s.x) <= 1"
    assert results(rows, on) == general(rows, on, monkeypatch)
    assert any(taken)
    assert not all(taken)


def test_a_failure_changes_nothing(taken: list[bool]) -> None:
    rows, on = batches(pa.int64()), "abs(r.x - s.x) <= 1"
    expected = results(rows, on)
    points = ("window.extend", "bisort.step", "output.gather")
    with mr.WindowJoin(on, window="600 rows", index="bisort") as join:
        found, failed = [], 0
        for number, one in enumerate(rows):
            with injected(f"{points[number % 3]}=1*raise"):
                try:
                    found.append(join.push(*one))
                except InjectedFault:
                    failed += 1
            if len(found) == number:
                found.append(join.push(*one))
    assert found == expected
    assert failed > len(rows) // 2
    assert any(taken)


def test_state_after_short_pushes(taken: list[bool]) -> None:
    rows, on = batches(pa.int64()), "abs(r.x - s.x) <= 1"
    expected = results(rows, on)
    half = len(rows) // 2
    with mr.WindowJoin(on, window="600 rows", index="bisort") as join:
        found = [join.push(*one) for one in rows[:half]]
        delta = join.state()
        stats = join.stats
    assert taken.count(True) > half // 2
    with mr.WindowJoin.restore(delta.manifest, delta.added, on=on, window="600 rows", index="bisort") as join:
        assert join.stats["rows"] == stats["rows"]
        found += [join.push(*one) for one in rows[half:]]
    assert found == expected
