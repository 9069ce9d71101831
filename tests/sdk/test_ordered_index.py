"""`mr.OrderedIndex`: input types, refused arguments, device faults, threads, forks."""

from __future__ import annotations

import datetime as dt
import json
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import millrace as mr
from millrace import registry
from millrace.host.hbtree.layout import LAYOUTS
from tests.host import faults

NAN = float("nan")


@pytest.fixture
def faulty(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(registry.BACKENDS, "faulty", faults.MODULE)
    yield
    faults.disarm()


@pytest.mark.parametrize(
    "given", [pa.array, np.array, pd.Series, pl.Series, list, tuple, lambda x: pa.chunked_array([x[:1], x[1:]])]
)
def test_keys_values_and_queries_come_in_many_forms(given: Any) -> None:
    ix = mr.OrderedIndex(given([3, 1, 2]), given([30.5, 10.5, 20.5]))
    assert ix.lookup(given([1, 3, 4])).to_pylist() == [10.5, 30.5, None]
    assert ix.range(given([1, 3]), given([2, 0])).to_pylist() == [[10.5, 20.5], []]


def test_length_repr_and_stats() -> None:
    ix = mr.OrderedIndex(pa.array([5, None, 1]), pa.array(["a", "b", "c"]), device="cpu")
    assert len(ix) == 2
    assert repr(ix) == "<OrderedIndex: 2 int64 keys to string, implicit, 1 levels, on cpu>"
    ix.lookup([1, 2])
    ix.range(0, 9)
    stats = ix.stats
    message = {"rows": 2, "null_keys": 1, "lookups": 1, "ranges": 1, "queries": 3, "device": "cpu", "fallback": None}
    assert {name: stats[name] for name in message} == message
    assert ix.nbytes == stats["nbytes"] > stats["inner_nbytes"] > 0
    assert ix.tune() == ix.plan
    assert (ix.plan.D, ix.plan.R) == (1, 0.0)


def test_an_index_holds_no_more_than_it_must() -> None:
    keys = np.arange(1 << 20)
    assert mr.OrderedIndex(keys, keys).nbytes <= 1.2 * 2 * keys.nbytes
    assert mr.OrderedIndex(keys).nbytes <= 1.2 * keys.nbytes  # sorted: a value is a position


@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_empty_index_returns_null(layout: Any) -> None:
    ix = mr.OrderedIndex(pa.array([], pa.int32()), pa.array([], pa.string()), layout=layout)
    assert len(ix) == 0
    assert ix.lookup([1, None]).to_pylist() == [None, None]
    assert ix.lookup([]).to_pylist() == []
    assert ix.range([1, None], [5, 5]).to_pylist() == [[], None]
    assert ix.tune() == ix.plan
    assert mr.OrderedIndex(pa.array([None, None], pa.float64())).lookup(np.array([0.0, NAN])).to_pylist() == [
        None,
        None,
    ]


def test_duplicates() -> None:
    keys, values = [7, 5, 7, 7], pa.array(["a", "b", "c", "d"])
    with pytest.raises(mr.ArgumentError, match=r"2 rows with a key that another row has too, such as 7; .*'first'"):
        mr.OrderedIndex(keys, values)
    first, last = (mr.OrderedIndex(keys, values, duplicates=d) for d in ("first", "last"))
    assert (first.lookup([7]).to_pylist(), last.lookup([7]).to_pylist()) == (["a"], ["d"])
    assert first.range(7, 7).to_pylist() == last.range(7, 7).to_pylist() == [["a", "c", "d"]]
    assert len(first) == 4
    many = mr.OrderedIndex(np.repeat(np.arange(50), 999), duplicates="last")
    assert many.lookup([0, 49]).to_pylist() == [998, 50 * 999 - 1]
    assert many.range(3, 4).value_lengths().to_pylist() == [2 * 999]


def test_queries_that_the_key_type_cannot_hold_are_absent() -> None:
    ix = mr.OrderedIndex(np.array([-1, 2, 2**31 - 1], np.int32))
    assert ix.lookup(np.array([2.0, 2.5, NAN, np.inf, 1e300, -1.0])).to_pylist() == [1, None, None, None, None, 0]
    assert ix.lookup(np.array([2, 2**40, -(2**40)])).to_pylist() == [1, None, None]
    assert ix.lookup(np.array([2**64 - 1, 2], np.uint64)).to_pylist() == [None, 1]
    assert ix.range([1.5, -np.inf, 2.5, -1e300], [2.5, np.inf, 2.9, 2**40]).to_pylist() == [
        [1],
        [0, 1, 2],
        [],
        [0, 1, 2],
    ]
    doubles = mr.OrderedIndex(np.array([2.0**53, -0.0, np.inf]))
    assert doubles.lookup(np.array([2**53, 2**53 + 1, 0])).to_pylist() == [0, None, 1]
    assert doubles.range(2**53 + 1, np.inf).to_pylist() == [[2]]
    floats = mr.OrderedIndex(np.array([0.1], np.float32))
    assert floats.lookup(np.array([0.1, np.float32(0.1)])).to_pylist() == [None, 0]
    assert floats.range(0.1, 0.2).to_pylist() == [[0]]  # the nearest float32 is above 0.1


def test_times() -> None:
    ix = mr.OrderedIndex(pa.array([0, 1500, 86_400_000], pa.timestamp("ms")))
    assert ix.lookup(pa.array([0, 1], pa.date32())).to_pylist() == [0, 2]
    assert ix.lookup(pa.array([1_500_000, 1_500_001, None], pa.timestamp("us"))).to_pylist() == [1, None, None]
    assert ix.range(dt.datetime(1970, 1, 1, 0, 0, 1), dt.date(1970, 1, 2)).to_pylist() == [[1, 2]]
    days = mr.OrderedIndex(pa.array([0, 1], pa.date32()))
    assert days.range(pa.scalar(1, pa.timestamp("ns")), pa.scalar(2**63 - 1, pa.timestamp("ns"))).to_pylist() == [[1]]


@pytest.mark.parametrize(
    ("keys", "queries", "message"),
    [
        (np.array([1]), ["a"], "queries has type string"),
        (np.array([1]), pa.array([True]), "queries has type bool"),
        (np.array([1]), pa.array([1], pa.timestamp("s")), r"queries has type timestamp\[s\], the keys are int64"),
        (pa.array([1], pa.date32()), np.array([1]), "queries has type int64, the keys are date32"),
        (pa.array([1], pa.timestamp("s", "UTC")), pa.array([1], pa.timestamp("s")), "a time zone"),
        (np.array([1]), pa.array([[1]]), "queries has type list"),
    ],
)
def test_queries_of_another_kind_are_refused(keys: Any, queries: Any, message: str) -> None:
    ix = mr.OrderedIndex(keys)
    with pytest.raises(mr.KeyTypeError, match=message):
        ix.lookup(queries)
    with pytest.raises(mr.KeyTypeError):
        ix.range(queries, queries)
    assert ix.stats["queries"] == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"values": [1]}, "keys has 2 rows, values has 1: give a value for each key"),
        ({"layout": "flat"}, "layout='flat' is unknown; allowed are 'implicit', 'regular'"),
        ({"layout": None}, "layout=None is unknown"),
        ({"duplicates": "all"}, "duplicates='all' is unknown; allowed are 'error', 'first', 'last'"),
        ({"device": "abacus"}, "device='abacus' is unknown"),
        ({"device": 3}, "device=3 is unknown"),
        ({"threads": 0}, "threads=0"),
        ({"fallback": "opencl"}, "fallback='opencl' is unknown; allowed are None, 'cpu'"),
        ({"values": 5}, "values is a int; allowed is a pyarrow, NumPy, pandas or Polars array"),
    ],
)
def test_bad_arguments_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(mr.ArgumentError) as error:
        mr.OrderedIndex([1, 2], **arguments)
    assert message in str(error.value)


def test_bad_columns_are_refused() -> None:
    with pytest.raises(mr.KeyTypeError, match="column keys has type string"):
        mr.OrderedIndex(["a"])
    with pytest.raises(mr.ArgumentError, match="keys has 2 dimensions"):
        mr.OrderedIndex(np.zeros((2, 2)))
    with pytest.raises(mr.ArgumentError, match="keys is a dict"):
        mr.OrderedIndex({})
    ix = mr.OrderedIndex([1, 2])
    with pytest.raises(mr.ArgumentError, match="lo has 2 rows, hi has 3"):
        ix.range([1, 2], [1, 2, 3])
    with pytest.raises(mr.ArgumentError, match="queries is a int"):
        ix.lookup(5)
    with pytest.raises(mr.SchemaError, match="values"):
        mr.OrderedIndex(
            [1], pa.UnionArray.from_dense(pa.array([0], pa.int8()), pa.array([0], pa.int32()), [pa.array([1])])
        )


def test_a_device_without_the_unit_is_refused() -> None:
    with pytest.raises(mr.DeviceUnavailable, match=r"'null' cannot run an index of layout 'implicit'.*can are cpu"):
        mr.OrderedIndex([1], device="null")


def test_changing_the_input_later_changes_nothing() -> None:
    for dtype in (np.int64, np.int16, np.float32):
        keys, values = np.arange(5), np.arange(5).astype(dtype)
        ix = mr.OrderedIndex(keys, values)
        keys[:], values[:] = 9, 9
        assert ix.lookup([0, 4]).to_pylist() == [0, 4]


@pytest.mark.parametrize("call", ["write", "launch", "wait", "read"])
def test_a_lost_device_is_a_fault_and_later_lookups_run_on_the_cpu(faulty: None, call: str) -> None:
    ix = mr.OrderedIndex(np.arange(100) * 2, device="faulty")
    assert ix.lookup([4, 5]).to_pylist() == [2, None]
    faults.arm(call, 1)
    with pytest.raises(mr.DeviceFault, match=f"lost its {call}.*answers on the CPU from now on"):
        ix.lookup([4, 5])
    assert ix.lookup([4, 5]).to_pylist() == [2, None]
    assert ix.range(4, 7).to_pylist() == [[2, 3]]
    assert ix.stats["device"] == "cpu"
    assert "faulty to cpu" in ix.stats["fallback"]
    assert "fallen back" in repr(ix)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_fallback_completes_the_current_call(faulty: None, layout: Any) -> None:
    for call in ("lookup", "range", "tune"):
        ix = mr.OrderedIndex(np.arange(100) * 2, device="faulty", layout=layout, fallback="cpu")
        assert not ix.stats["fallback"]
        faults.arm("launch", 1)
        if call == "lookup":
            assert ix.lookup([4, 5]).to_pylist() == [2, None]
        elif call == "range":
            assert ix.range(4, 7).to_pylist() == [[2, 3]]
        else:
            assert ix.stats["levels"] == ix.tune().D
        assert "lost its launch" in ix.stats["fallback"]


@pytest.fixture
def closed(faulty: None, monkeypatch: pytest.MonkeyPatch) -> list[faults.FaultyDevice]:
    """The faulty devices that were closed."""
    found: list[faults.FaultyDevice] = []
    monkeypatch.setattr(faults.FaultyDevice, "close", lambda device: found.append(device))
    return found


@pytest.mark.parametrize("layout", LAYOUTS)
def test_close_closes_the_device_once(closed: list[faults.FaultyDevice], layout: Any) -> None:
    ix = mr.OrderedIndex(np.arange(100) * 2, device="faulty", layout=layout)
    assert ix.lookup([4, 5]).to_pylist() == [2, None]
    assert not closed
    ix.close()
    ix.close()
    assert len(closed) == 1
    faults.arm("launch", 1)
    assert ix.lookup([4, 5]).to_pylist() == [2, None]
    assert ix.range(4, 7).to_pylist() == [[2, 3]]
    assert faults.disarm(), "the device is not used any more"
    assert "the index was closed" in ix.stats["fallback"]


def test_a_failed_device_is_closed_too(closed: list[faults.FaultyDevice]) -> None:
    ix = mr.OrderedIndex(np.arange(100), device="faulty")
    faults.arm("launch", 1)
    with pytest.raises(mr.DeviceFault):
        ix.lookup([4])
    ix.close()
    assert len(closed) == 1
    faults.arm("alloc", 1)
    with pytest.raises(mr.DeviceFault):
        mr.OrderedIndex(np.arange(100), device="faulty")
    assert len(closed) == 2, "the device of an index that was not made is closed"


def test_an_index_too_large_for_the_device(faulty: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faults.FaultyDevice, "memory", 100, raising=False)
    keys = np.arange(10_000)
    with pytest.raises(mr.DeviceUnavailable, match=r"need [\d,]+ bytes on device 'faulty', which has 100"):
        mr.OrderedIndex(keys, device="faulty")
    ix = mr.OrderedIndex(keys, device="faulty", fallback="cpu")
    assert ix.lookup([77]).to_pylist() == [77]
    assert "which has 100" in ix.stats["fallback"]


def test_tuning_keeps_the_results(faulty: None) -> None:
    keys = np.arange(5000) * 3
    ix = mr.OrderedIndex(keys, device="faulty")
    plan = ix.tune()
    assert plan == ix.plan
    assert 0 <= plan.D <= ix.stats["levels"]
    assert ix.lookup(keys).to_pylist() == list(range(5000))


def test_a_trace_shows_the_pipeline_and_needs_one(tmp_path: Path) -> None:
    keys = np.arange(0, 1 << 16, 2)
    ix = mr.OrderedIndex(keys, device="opencl")
    found = ix.lookup(np.arange(1 << 16), trace=tmp_path / "trace.json")
    assert found.null_count == 1 << 15
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert {event["cat"].split()[0] for event in events if event["ph"] == "X"} >= {"T1", "T2", "T3", "T4"}
    with pytest.raises(mr.ArgumentError, match=r"trace='t.json'.*on the CPU alone"):
        mr.OrderedIndex(keys, device="cpu").lookup([1], trace="t.json")


def test_many_threads_look_up_at_a_time() -> None:
    keys = np.random.default_rng(0).permutation(100_000)
    ix = mr.OrderedIndex(keys)
    wanted = np.empty(len(keys), np.int64)
    wanted[keys] = np.arange(len(keys))
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: ix.lookup(np.arange(len(keys))), range(16)))
    assert all((one.to_numpy() == wanted).all() for one in found)


@pytest.mark.parametrize("device", ["cpu", "faulty"])
def test_a_forked_child_looks_up_too(faulty: None, device: str) -> None:
    ix = mr.OrderedIndex(np.arange(50_000), device=device)
    assert ix.lookup(np.arange(50_000)).null_count == 0
    child = os.fork()
    if child == 0:
        os._exit(0 if ix.lookup(np.arange(50_000)).to_pylist() == list(range(50_000)) else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_too_many_values_of_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("millrace.index_parts.results.MAX_VALUES", 10)
    ix = mr.OrderedIndex(np.arange(8))
    assert ix.range([0], [7]).value_lengths().to_pylist() == [8]
    with pytest.raises(mr.ArgumentError, match="hold at least 16 values; allowed are 10 a call"):
        ix.range([0, 0], [7, 7])
