"""Traces: valid Trace Event Format that shows the overlap of stages."""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from millrace.host.base.errors import ArgumentError
from millrace.host.device.virtual_clock import VirtualClock
from millrace.host.hybrid import trace
from millrace.host.hybrid.balance import Plan
from millrace.host.hybrid.lookup_runner import LookupRunner
from millrace.host.hybrid.paced_device import DevicePace, HostPace, PacedDevice, PacedTree
from millrace.host.hybrid.pipeline import Bucket
from millrace.host.hybrid.search_engine import SearchEngine
from millrace.host.hybrid.trace import Traced
from tests.host.stand_ins import FlatDevice, FlatTree

WORDS = np.arange(0, 4000, 7, dtype=np.uint64)
LEVELS = 3


def traced(path: Path, depth: int, plan: Plan | None = None, size: int = 1000) -> Any:
    clock = VirtualClock()
    device = PacedDevice(FlatDevice(), DevicePace(300, 0.5, 100, (15.0,) * LEVELS), clock)
    tree = PacedTree(FlatTree(WORDS, LEVELS), HostPace((10.0,) * LEVELS, 30.0), clock)
    runner = LookupRunner(SearchEngine(device, clock), tree, plan, 100, depth, clock)
    runner.lookup(np.arange(size, dtype=np.uint64), trace_to=path)
    return json.loads(path.read_text())


def spans(report: Any) -> list[Any]:
    return [event for event in report["traceEvents"] if event["ph"] == "X"]


def overlap(one: Any, other: Any) -> bool:
    """By more than a picosecond, the resolution of the microseconds."""
    return bool(one["ts"] + 1e-6 < other["ts"] + other["dur"] and other["ts"] + 1e-6 < one["ts"] + one["dur"])


def stages_that_overlap(report: Any) -> set[tuple[str, str]]:
    """Pairs of stages of different buckets."""
    pairs = set()
    for one, other in combinations(spans(report), 2):
        if one["args"]["bucket"] != other["args"]["bucket"] and overlap(one, other):
            pairs.add(tuple(sorted((one["cat"][:2], other["cat"][:2]))))
    return pairs


def test_one_bucket_at_a_time_overlaps_nothing(tmp_path: Path) -> None:
    assert stages_that_overlap(traced(tmp_path / "trace.json", 1, Plan(1, 0.5))) == set()


def test_pipelined_the_host_works_in_parallel_to_the_device(tmp_path: Path) -> None:
    found = stages_that_overlap(traced(tmp_path / "trace.json", 2))
    assert ("T2", "T4") in found
    assert not {("T1", "T2"), ("T2", "T3")} & found


@pytest.mark.parametrize("depth", [3, 4])
def test_with_two_buckets_on_the_device_transfers_are_hidden_behind_searches(tmp_path: Path, depth: int) -> None:
    found = stages_that_overlap(traced(tmp_path / "trace.json", depth))
    assert {("T2", "T4"), ("T1", "T2"), ("T2", "T3")} <= found
    assert ("T2", "T2") not in found
    assert ("T4", "T4") not in found


def test_a_balanced_run_shows_the_hosts_walk(tmp_path: Path) -> None:
    found = stages_that_overlap(traced(tmp_path / "trace.json", 4, Plan(1, 0.5)))
    assert {("T0", "T2"), ("T2", "T4")} <= found
    assert ("T0", "T4") not in found


@pytest.mark.parametrize("depth", [1, 2, 3, 4])
def test_events_are_complete_and_rows_have_names_and_no_two_events_at_a_time(tmp_path: Path, depth: int) -> None:
    report = traced(tmp_path / "trace.json", depth, Plan(1, 0.5))
    events = spans(report)
    assert len(events) == 10 * 5
    assert min(event["ts"] for event in events) == 0
    for event in events:
        assert {"ph", "name", "cat", "pid", "tid", "ts", "dur", "args"} == set(event)
        assert event["dur"] > 0
    names = {
        (event["pid"], event["tid"]): event["args"]["name"]
        for event in report["traceEvents"]
        if event["name"] == "thread_name"
    }
    rows = {(event["pid"], event["tid"]) for event in events}
    assert rows == set(names)
    assert len(set(names.values())) == len(names)
    for row in rows:
        here = [event for event in events if (event["pid"], event["tid"]) == row]
        assert all(names[row].startswith(event["cat"]) for event in here)
        assert not any(overlap(one, other) for one, other in combinations(here, 2))
    processes = [e["args"]["name"] for e in report["traceEvents"] if e["name"] == "process_name"]
    assert processes == ["host", "device paced"]
    assert report["otherData"]["D"] == 1
    assert report["otherData"]["depth"] == depth


def test_times_are_microseconds(tmp_path: Path) -> None:
    report = traced(tmp_path / "trace.json", 1)
    searches = [event["dur"] for event in spans(report) if event["cat"] == "T2 search"]
    assert searches == [pytest.approx((100 + 100 * 15 * LEVELS) / 1000)] * 10


def test_several_runs_stand_below_each_other(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    made = [Bucket(0, 0, 5), Bucket(1, 5, 5)]
    for bucket in made:
        bucket.spans = [(1000 * stage, 1000 * stage + 10) for stage in range(5)]
    trace.write(path, Traced(made, {"device": "x"}, "one"), Traced(made[:1], {"depth": 3}, "other"))
    report = json.loads(path.read_text())
    processes = {e["pid"]: e["args"]["name"] for e in report["traceEvents"] if e["name"] == "process_name"}
    assert list(processes.values()) == ["one: host", "one: device x", "other: host", "other: device"]
    assert len(processes) == 4
    assert {event["pid"] for event in spans(report)} == set(processes)
    assert report["otherData"] == {"one": {"device": "x"}, "other": {"depth": 3}}


def test_a_run_without_queries_has_an_empty_trace(tmp_path: Path) -> None:
    report = traced(tmp_path / "trace.json", 3, size=0)
    assert spans(report) == []
    assert report["otherData"]["queries"] == 0


def test_an_older_trace_is_replaced_and_no_temporary_file_is_left(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text("old")
    traced(path, 2)
    assert [entry.name for entry in tmp_path.iterdir()] == ["trace.json"]


def test_a_trace_that_cannot_be_written_is_an_error_that_names_it(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    for path in (tmp_path / "missing" / "trace.json", folder):
        with pytest.raises(ArgumentError, match=r"trace '.*' cannot be written: .*; give a file"):
            trace.write(path, Traced([], {}))
    assert list(folder.iterdir()) == []
    assert [entry.name for entry in tmp_path.iterdir()] == ["folder"]


def test_a_trace_that_fails_leaves_the_older_one(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text("old")
    with pytest.raises(TypeError):
        trace.write(path, Traced([], {"what": object()}))
    assert path.read_text() == "old"
