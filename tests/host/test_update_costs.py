"""The choice between both ways to update: by costs, and on a device whose costs are set, in virtual time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from millrace.host.cpu import CpuDevice
from millrace.host.gate import Gate
from millrace.host.hbtree import helpers
from millrace.host.hbtree_build import fill
from millrace.host.hbtree_editor import Changes
from millrace.host.hbtree_regular import RegularTree
from millrace.host.lookup_runner import LookupRunner
from millrace.host.paced import DevicePace, PacedDevice
from millrace.host.search_engine import SearchEngine
from millrace.host.update_costs import UpdateCosts
from millrace.host.update_runner import UpdateRunner
from millrace.host.virtual_clock import VirtualClock


def test_the_crossover_is_where_both_cost_the_same() -> None:
    costs = UpdateCosts(one=300.0, all=200.0, node=20_000.0, segment=5e6, nodes=0.05)
    assert costs.crossover == 6250  # 1000 ns a change for nodes, 200 for all threads: 5 ms / 800 ns
    assert costs.choose("auto", 6000) == "sync"
    assert costs.choose("auto", 6500) == "async"
    assert (costs.choose("sync", 10**9), costs.choose("async", 1)) == ("sync", "async")
    assert UpdateCosts(one=100.0, all=200.0, segment=1.0).crossover is None
    costs.learn(nodes=0.15)
    assert costs.nodes == pytest.approx(0.1)


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_device_is_sent_what_the_mode_says(mode: str) -> None:
    clock = VirtualClock()
    words = np.arange(0, 200_000, 2, dtype=np.uint64)
    with helpers(1, 0) as team:
        leaves, _ = fill(words, 0, words, team)
    tree = RegularTree.build(leaves, 8, False, 1)
    device = PacedDevice(CpuDevice(1), DevicePace(transfer=10_000, byte=0.1), clock)
    runner = LookupRunner(SearchEngine(device, clock), tree, clock=clock)
    updater = UpdateRunner(tree, runner, clock)
    updater.measure()
    assert updater.costs.node == round(10_000 + 0.1 * tree.last_bytes)
    keys = np.arange(1, 3001, 2, dtype=np.uint64)
    begin = clock.now()
    applied = updater.update(Changes.of(keys, keys), mode)
    assert applied is not None
    spent: Any = clock.now() - begin
    if mode == "sync":
        assert spent <= applied.nodes * 2 * (10_000 + 0.1 * tree.upper_bytes + 1)
    else:
        assert spent >= 0.1 * tree.inner_nbytes
    assert runner.lookup(np.array([1, 2, 4001, 2999], np.uint64)).tolist()[2] == -1
    assert (tree.values_at(runner.lookup(keys)) == keys).all()


def test_a_gate_lets_many_read_or_one_change() -> None:
    import threading

    gate, inside, log = Gate(), threading.Barrier(2), []

    def reader() -> None:
        with gate.read():
            inside.wait(10)  # both readers are in at a time
            log.append("read")

    threads = [threading.Thread(target=reader) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with gate.change():
        late = threading.Thread(target=lambda: log.append("late") if _enter(gate) else None)
        late.start()
        late.join(0.05)
        assert log == ["read", "read"]
    late.join()
    assert log == ["read", "read", "late"]


def _enter(gate: Gate) -> bool:
    with gate.read():
        return True
