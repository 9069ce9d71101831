"""Joins, indexes and devices in `with` statements, and `WindowJoin.run`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import millrace as mr
from millrace import registry
from tests.host import faults

TABLE = pa.table({"x": [1, 2, 3], "ts": [1, 2, 3]})


@pytest.fixture
def closed(monkeypatch: pytest.MonkeyPatch) -> list[faults.FaultyDevice]:
    """The devices of the family `faulty` that were closed."""
    monkeypatch.setitem(registry.BACKENDS, "faulty", faults.MODULE)
    found: list[faults.FaultyDevice] = []
    monkeypatch.setattr(faults.FaultyDevice, "close", lambda device: found.append(device))
    return found


def test_leaving_the_block_frees_the_devices_of_a_join(closed: list[Any]) -> None:
    with mr.WindowJoin("r.x = s.x", window="5 rows", index="scan", device="faulty") as j:
        j.push("r", TABLE)
        assert j.push("s", TABLE).num_rows == 3
        assert not closed
    assert len(closed) == 1
    calls = (
        lambda: j.push("r", TABLE),
        lambda: j.push_both(TABLE, TABLE, [0, 1] * 3),
        lambda: j.advance("r", 1),
        j.flush,
        j.close,
        j.state,
        lambda: j.run([]),
        j.tune,
    )
    for call in calls:
        with pytest.raises(mr.StateError, match="closed"):
            call()
    assert j.stats["pairs"] == 3


def test_rows_that_wait_are_warned_of() -> None:
    with (
        pytest.warns(ResourceWarning, match=r"left with 3 rows.*close\(\)"),
        mr.WindowJoin("r.x = s.x", window="5", time="ts") as j,
    ):
        j.push("r", TABLE)
    with pytest.raises(mr.StateError):
        j.close()


def test_a_join_that_was_closed_warns_of_nothing() -> None:
    with mr.WindowJoin("r.x = s.x", window="5", time="ts") as j:
        j.push("r", TABLE)
        j.push("s", TABLE)
        assert j.close().num_rows == 1


def test_an_error_in_the_block_is_raised(closed: list[Any]) -> None:
    with (
        pytest.raises(KeyError),
        mr.WindowJoin("r.x = s.x", window="5 rows", index="scan", device="faulty"),
    ):
        raise KeyError
    assert len(closed) == 1


@pytest.mark.parametrize("device", ["cpu", "faulty"])
@pytest.mark.parametrize("layout", ["implicit", "regular"])
def test_leaving_the_block_frees_an_index(closed: list[Any], device: str, layout: Any, tmp_path: Any) -> None:
    with mr.OrderedIndex(np.arange(100), device=device, layout=layout) as ix:
        assert ix.lookup([5]).to_pylist() == [5]
    assert len(closed) == (device == "faulty")
    calls = (
        lambda: ix.lookup([1]),
        lambda: ix.range(1, 2),
        lambda: ix.update(delete=[1]),
        ix.tune,
        ix.close,
        lambda: len(ix),
        lambda: ix.plan,
        lambda: ix.nbytes,
        lambda: ix.stats,
        lambda: ix.save(tmp_path / "index"),
    )
    for call in calls:
        with pytest.raises(mr.StateError, match="released"):
            call()
    assert repr(ix) == "<OrderedIndex: released>"
    with pytest.raises(mr.StateError), ix:
        ix.lookup([1])


def test_leaving_the_block_closes_a_device() -> None:
    with mr.device("cpu", threads=1) as device:
        buffer = device.alloc(3, np.dtype(np.int64))
        device.write(buffer, 0, np.arange(3))
    for call in (
        lambda: device.alloc(3, np.dtype(np.int64)),
        lambda: device.write(buffer, 0, np.arange(3)),
        lambda: device.read(buffer, 0, 3),
        lambda: device.free(buffer),
        lambda: device.launch("scan", [], []),
    ):
        with pytest.raises(mr.StateError, match="'cpu' was released"):
            call()
    device.close()
    assert device.counters()


# run


def batches(rows: int = 40) -> list[tuple[Any, ...]]:
    rng = np.random.default_rng(1)
    found: list[tuple[Any, ...]] = []
    for number in range(10):
        table = pa.table({"x": rng.integers(0, 9, rows), "ts": np.arange(rows) + number * rows // 2})
        found.append(("rs"[number % 2], table))
    return found


@pytest.mark.parametrize("more", [{"window": "30 rows"}, {"window": "9", "time": "ts"}], ids=str)
def test_run_yields_what_pushes_and_close_return(more: dict[str, Any]) -> None:
    one, two = (mr.WindowJoin("r.x = s.x", **more) for _ in range(2))
    wanted = [*(one.push(side, batch) for side, batch in batches()), one.close()]
    found = list(two.run(batches()))
    assert all(table.num_rows for table in found)
    assert [t.to_pydict() for t in found] == [t.to_pydict() for t in wanted if t.num_rows]
    with pytest.raises(mr.StateError):
        two.push("r", TABLE)


def test_run_takes_sources_and_any_iterable() -> None:
    j = mr.WindowJoin("r.x = s.x", window="9", time="ts", sources={"r": 2})
    found = list(j.run(iter([("r", TABLE, 0), ("r", TABLE, 1), ("s", TABLE)])))
    assert pa.concat_tables(found).num_rows == 6


def test_run_stops_at_an_error_and_the_join_goes_on() -> None:
    j = mr.WindowJoin("r.x = s.x", window="9 rows")
    bad: Any
    for bad in (("r",), "r", ("r", TABLE, 0, 1), 5):
        with pytest.raises(mr.ArgumentError, match="item 1 of batches"):
            list(j.run([("r", TABLE), bad]))
    running = j.run([("s", TABLE), ("r", TABLE)])
    next(running)
    running.close()  # type: ignore[attr-defined]
    assert j.push("r", TABLE).num_rows == 3
