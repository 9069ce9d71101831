"""The choice between both update modes: from costs, and on a device with configured costs, in virtual time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from millrace.host.device.cpu import CpuDevice
from millrace.host.device.virtual_clock import VirtualClock
from millrace.host.hbtree.build import fill
from millrace.host.hbtree.editor import Changes, Editor
from millrace.host.hbtree.regular import RegularTree
from millrace.host.hbtree.tree import helpers
from millrace.host.hybrid.lookup_runner import LookupRunner
from millrace.host.hybrid.paced_device import DevicePace, PacedDevice
from millrace.host.hybrid.search_engine import SearchEngine
from millrace.host.hybrid.update_costs import UpdateCosts
from millrace.host.hybrid.update_runner import UpdateRunner


def test_the_crossover_is_where_both_cost_the_same() -> None:
    costs = UpdateCosts(one=300.0, all=200.0, node=20_000.0, segment=5e6, nodes=0.05)
    assert costs.crossover == 6250  # 1000 ns a change for nodes, 200 for all threads: 5 ms / 800 ns
    assert costs.choose("auto", 6000, 6000) == "sync"
    assert costs.choose("auto", 6500, 6500) == "async"
    assert costs.choose("auto", 20_000, 1000) == "sync"  # deletes send no nodes
    assert (costs.choose("sync", 10**9, 10**9), costs.choose("async", 1, 1)) == ("sync", "async")
    assert UpdateCosts(one=100.0, all=200.0, segment=1.0).crossover is None


def test_the_first_count_replaces_what_was_assumed_and_no_time_does() -> None:
    costs = UpdateCosts(nodes=0.05, one=100.0)
    costs.count(0, 0, 1000)  # no upserts, nothing known
    assert costs.nodes == 0.05
    costs.count(0, 1, 1000)  # too few to replace anything
    costs.count(300, 2000, 1000)
    assert costs.nodes == pytest.approx(0.15)
    costs.count(100, 2000, 1000)
    assert costs.nodes == pytest.approx(0.1)
    costs.count(250, 500, 1000)  # of half as many, half as much
    assert costs.nodes == pytest.approx(0.2)
    costs.learn(one=300.0)
    assert costs.one == pytest.approx(200.0)


def test_one_slow_update_does_not_rule_its_way_out() -> None:
    costs = UpdateCosts(one=400.0, all=200.0, node=20_000.0, segment=14e6, nodes=0.002)
    costs.learn(one=60_000.0)
    assert costs.choose("auto", 1000, 1000) == "sync"
    for _ in range(9):
        costs.learn(one=60_000.0)  # it is slow indeed
    assert costs.choose("auto", 1000, 1000) == "async"


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


ONE, ALL = 400, 200
"""Nanoseconds of a change by one thread and by all."""


def _paced_updates(clock: VirtualClock, byte: float) -> UpdateRunner:
    """Updates of a tree on a device behind a link that takes so many nanoseconds a byte."""
    words = np.arange(0, 1 << 21, 8, dtype=np.uint64)
    with helpers(1, 0) as team:
        leaves, _ = fill(words, 0, words, team)
    tree = RegularTree.build(leaves, 8, False, 2)
    device = PacedDevice(CpuDevice(1), DevicePace(transfer=20_000, byte=byte), clock)
    return UpdateRunner(tree, LookupRunner(SearchEngine(device, clock), tree, clock=clock), clock)


def _spent(mode: str, batch: int, byte: float, clock: VirtualClock) -> list[int]:
    """What each of a few updates takes, after one from which the choice learns."""
    updater, rng, spent = _paced_updates(clock, byte), np.random.default_rng(batch), []
    for _ in range(6):
        keys = np.sort(rng.choice(1 << 18, batch, replace=False)).astype(np.uint64) * np.uint64(8) + np.uint64(1)
        begin = clock.now()
        assert updater.update(Changes.of(keys, keys), mode) is not None
        spent.append(clock.now() - begin)
        assert updater.update(Changes.of(keys, keys, upserts=False), "async" if mode == "auto" else mode) is not None
    return spent[1:]


@pytest.mark.parametrize("byte", [0.25, 4.0], ids=["quick link", "slow link"])
@pytest.mark.parametrize("power", range(6, 16))
def test_the_choice_is_never_below_nine_tenths_of_the_better_way(
    power: int, byte: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, apply = VirtualClock(), Editor.apply

    def paced(editor: Editor, changes: Changes) -> bool:
        clock.sleep_until(clock.now() + len(changes) * (ONE if editor._team.threads == 1 else ALL))
        return apply(editor, changes)

    monkeypatch.setattr(Editor, "apply", paced)
    chosen, sync, at_once = (sum(_spent(mode, 1 << power, byte, clock)) for mode in ("auto", "sync", "async"))
    assert min(sync, at_once) / chosen >= 0.9
