"""`OrderedIndex.update`: input, refused arguments, what other threads see, and the state after device faults."""

from __future__ import annotations

import os
import signal
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import millrace as mr
from millrace import registry
from millrace.host.device.cpu import CpuDevice
from millrace.host.hbtree.editor import Editor
from millrace.host.hbtree.layout import LAYOUTS
from millrace.host.hybrid import update_runner
from millrace.host.hybrid.paced_device import DevicePace, PacedDevice
from millrace.host.runtime.clock import WallClock
from millrace.index_parts import base, regular_rows
from tests.host import faults
from tests.host.trees_checked import TreeChecker
from tests.watchdog import WATCHDOG

both_layouts = pytest.mark.parametrize("layout", LAYOUTS)


@pytest.fixture
def faulty(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(registry.BACKENDS, "faulty", faults.MODULE)
    yield
    faults.disarm()


@pytest.fixture
def interrupt() -> Iterator[Callable[[], None]]:
    """Interrupts the main thread like Ctrl-C, from any thread."""

    def handler(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGUSR1, handler)
    main = threading.main_thread().ident
    assert main is not None
    yield lambda: signal.pthread_kill(main, signal.SIGUSR1)
    signal.signal(signal.SIGUSR1, before)


def in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Update in place, however large the batch is."""
    monkeypatch.setattr(regular_rows, "LARGE_SHARE", 1e9)


@both_layouts
def test_the_contract(layout: Any) -> None:
    ix = mr.OrderedIndex([5, 1, 5, 3], pa.array(list("abcd")), layout=layout, duplicates="first")
    ix.update(upsert=([5, 7, 7], ["x", "y", "z"]), delete=[1, 7, 99])
    assert ix.range(0, 10).to_pylist() == [["d", "x", "z"]]
    assert len(ix) == 3
    ix.update(delete=[5], upsert=([5], ["again"]))
    assert ix.lookup([5, 1]).to_pylist() == ["again", None]
    ix.update()
    ix.update(upsert=([], []), delete=[])
    assert ix.stats["updates"] == 4
    numbered = mr.OrderedIndex(pa.array([30, None, 10]), layout=layout)
    numbered.update(upsert=pa.array([20, None, 30]))
    numbered.update(upsert=([10], None))
    assert numbered.lookup([10, 20, 30]).to_pylist() == [6, 3, 5]
    assert numbered.stats["null_keys"] == 2


@both_layouts
@pytest.mark.parametrize("device", ["cpu", "opencl:0"])
def test_values_that_become_null(layout: Any, device: str) -> None:
    ix = mr.OrderedIndex(np.arange(1000), np.arange(1000), layout=layout, device=device)
    ix.update(upsert=(np.array([7, 8]), pa.array([None, 80])))
    assert ix.lookup([6, 7, 8]).to_pylist() == [6, None, 80]
    ix.update(upsert=([9], [90]), delete=[6])
    assert ix.range(6, 10).to_pylist() == [[None, 80, 90, 10]]


@both_layouts
@pytest.mark.parametrize("first", [np.arange(9000).astype(np.int16), pa.array([None, *range(8999)])])
def test_an_array_that_changes_afterwards_changes_no_result(layout: Any, first: Any) -> None:
    """Values that are not inline: too narrow, or with nulls among them."""
    ix = mr.OrderedIndex(np.arange(9000), first, layout=layout, device="cpu")
    kind = np.int16 if isinstance(first, np.ndarray) else np.int64
    many, few = np.full(2000, 7, kind), np.full(3, 8, kind)
    ix.update(upsert=(np.arange(2000), many))
    ix.update(upsert=(np.arange(3), few))
    many[:], few[:] = -1, -2
    assert ix.lookup([0, 2, 3, 1999]).to_pylist() == [8, 8, 7, 7]


@both_layouts
def test_keys_and_values_of_other_types(layout: Any) -> None:
    ix = mr.OrderedIndex(pa.array([1, 2], pa.int32()), pa.array([1.5, 2.5], pa.float32()), layout=layout)
    ix.update(upsert=([3], [3]), delete=[2.0, 2.5, 2**40])
    assert ix.range(0, 9).to_pylist() == [[1.5, 3.0]]
    for upsert, message in (
        (([2**40], [1]), "key 1099511627776 in row 0 is no int32"),
        (([1.5], [1]), "key 1.5 in row 0"),
        (([1, 2], [1]), "upsert has 2 keys and 1 values"),
        ([1, 2], "upsert has no values; this index's are float"),
    ):
        with pytest.raises(mr.ArgumentError, match=message):
            ix.update(upsert=upsert)
    with pytest.raises(mr.KeyTypeError, match="upsert has type string"):
        ix.update(upsert=(["a"], [1]))
    with pytest.raises(mr.KeyTypeError, match="delete has type timestamp"):
        ix.update(delete=pa.array([1], pa.timestamp("s")))
    with pytest.raises(mr.SchemaError, match="values of type string that are no float"):
        ix.update(upsert=([1], ["x"]))
    with pytest.raises(mr.ArgumentError, match="mode='fast' is unknown; allowed are 'auto', 'sync', 'async'"):
        ix.update(mode="fast")  # type: ignore[arg-type]
    with pytest.raises(mr.ArgumentError, match="this index was made without"):
        mr.OrderedIndex([1], layout=layout).update(upsert=([1], [2]))
    assert ix.range(0, 9).to_pylist() == [[1.5, 3.0]]
    assert ix.stats["updates"] == 1


@both_layouts
def test_an_opened_index_leaves_its_file_alone(layout: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    in_place(monkeypatch)
    path = tmp_path / "index"
    mr.OrderedIndex(np.arange(5000), layout=layout).save(path)
    before = path.read_bytes()
    ix = mr.OrderedIndex.open(path, device="cpu")
    ix.update(upsert=np.arange(4000, 9000), delete=np.arange(100))
    assert path.read_bytes() == before
    ix.save(path)
    again = mr.OrderedIndex.open(path, device="cpu")
    assert again.range(0, 9999).to_pylist() == [[*range(100, 4000), *range(5000, 10_000)]]
    again.update(upsert=[1])
    assert again.lookup([1]).to_pylist() == [10_000]


@pytest.mark.parametrize("kind", [pa.int64(), pa.string()])
def test_memory_after_many_random_updates(kind: pa.DataType) -> None:
    """A million changes in all, at a size where every big leaf is split, emptied and reused many times."""
    rng = np.random.default_rng(1)

    def values(count: int) -> pa.Array:
        return pa.array(rng.integers(0, 1 << 40, count)).cast(kind)

    ix = mr.OrderedIndex(np.arange(0, 1 << 40, 1 << 24), values(1 << 16), layout="regular", device="cpu")
    held = np.zeros(1, np.int64)
    for step in range(100):
        keys = rng.integers(0, 1 << 40, 10_000)
        if step % 2:
            ix.update(upsert=(keys[:5000], values(5000)), delete=rng.choice(held, 5000))
        else:
            ix.update(upsert=(keys, values(10_000)), delete=None if step < 50 else rng.choice(held, 10_000))
        held = keys
    rows = pa.chunked_array([ix.range(0, 1 << 40).flatten()])
    fresh = mr.OrderedIndex(np.arange(len(ix)), rows.combine_chunks(), layout="regular", device="cpu")
    assert ix.nbytes <= 1.5 * fresh.nbytes
    TreeChecker(ix._rows.tree).check()  # type: ignore[arg-type]


@both_layouts
@pytest.mark.parametrize("device", ["cpu", "opencl:0"])
def test_readers_see_the_old_or_the_new(layout: Any, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every update sets one new value for all keys and moves the upper half; every result is of one update."""
    in_place(monkeypatch)
    size, steps, stop = 4000, 12, threading.Event()
    keys = np.arange(size) * 3
    ix = mr.OrderedIndex(keys, np.zeros(size, np.int64), layout=layout, device=device)
    wrong: list[Any] = []
    seen: set[int] = set()

    def read(is_lookup: int) -> None:
        last = 0
        while not stop.is_set() or not seen:
            if is_lookup:
                found = ix.lookup(keys[: size // 2]).to_numpy()
            else:
                found = ix.range(0, 10**6).flatten().to_numpy()
            kinds = set(found.tolist())
            if len(kinds) != 1 or min(kinds) < last or len(found) < size // 2:
                wrong.append((is_lookup, kinds, last, len(found)))
                return
            last = kinds.pop()
            seen.add(last)

    readers = [threading.Thread(target=read, args=(is_lookup,)) for is_lookup in (0, 1, 1)]
    for reader in readers:
        reader.start()
    upper = keys[size // 2 :]
    for step in range(1, steps + 1):
        fresh = np.concatenate([keys[: size // 2], keys[size // 2 :] + step])
        ix.update(upsert=(fresh, np.full(size, step)), delete=upper, mode=("sync", "async")[step % 2])
        upper = fresh[size // 2 :]
    stop.set()
    for reader in readers:
        reader.join()
    assert not wrong
    assert ix.lookup(upper).to_pylist() == [steps] * len(upper)


@pytest.mark.usefixtures("faulty")
@pytest.mark.parametrize("device", ["cpu", "faulty"])
@pytest.mark.parametrize("step", ["in_groups", "apply_leftover", "merge"])
def test_calls_during_an_update_see_the_state_before_or_after(
    step: str, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another thread calls in the middle of a change: it waits, and gets the state after it."""
    in_place(monkeypatch)
    ix = mr.OrderedIndex(np.arange(0, 90_000, 3), layout="regular", device=device)
    done, started, seen = getattr(Editor, step), threading.Event(), dict[str, Any]()

    def read_all() -> None:
        started.set()
        seen["len"] = len(ix)
        seen["nbytes"], seen["plan"], seen["stats"], seen["repr"] = ix.nbytes, ix.plan, ix.stats, repr(ix)

    reader = threading.Thread(target=read_all)

    def then_read(*given: Any) -> Any:
        found = done(*given)
        reader.start()
        started.wait()
        reader.join(0.1)  # enough time to finish, if it did not wait
        return found

    with monkeypatch.context() as patch:
        patch.setattr(Editor, step, then_read)
        ix.update(upsert=np.arange(30_000, 60_000), delete=np.arange(30_000), mode="async")
    reader.join()
    stats = {
        name: value for name, value in ix.stats.items() if name in ("rows", "nbytes", "updates", "changes", "levels")
    }
    assert stats["rows"] == len(ix) == 30_000 + 10_000
    assert (stats["updates"], stats["changes"]) == (1, 60_000)
    assert {name: seen["stats"][name] for name in stats} == stats
    assert {"len": len(ix), "nbytes": ix.nbytes, "plan": ix.plan, "repr": repr(ix)}.items() <= seen.items()


@pytest.mark.usefixtures("faulty")
@pytest.mark.parametrize("device", ["cpu", "faulty"])
@pytest.mark.parametrize(
    ("owner", "step"),
    [(Editor, "in_groups"), (Editor, "apply_leftover"), (Editor, "merge"), (regular_rows.RegularRows, "with_update")],
)
def test_an_interrupt_in_the_middle_leaves_a_complete_index(
    owner: Any, step: str, device: str, monkeypatch: pytest.MonkeyPatch, interrupt: Callable[[], None]
) -> None:
    in_place(monkeypatch)
    keys = np.arange(0, 90_000, 3)
    values = np.arange(len(keys)).astype(np.int16)
    ix = mr.OrderedIndex(keys, values, layout="regular", device=device)
    ix.update(upsert=([1], [1]))
    done = getattr(owner, step)

    def interrupted(*given: Any) -> Any:
        found = done(*given)
        interrupt()
        return found

    more = np.arange(30_000, 60_000)
    with monkeypatch.context() as patch:
        patch.setattr(owner, step, interrupted)
        with pytest.raises(KeyboardInterrupt):
            ix.update(upsert=(more, np.full(len(more), 7, np.int16)), delete=np.arange(30_000))
    assert ix.lookup(more).to_pylist() == [7] * len(more)
    assert (len(ix), ix.stats["updates"]) == (len(more) + 10_000, 2)
    assert ix.range(0, 99_999).flatten()[len(more) :].to_pylist() == values[20_000:].tolist()
    TreeChecker(ix._rows.tree).check()  # type: ignore[arg-type]
    ix.update(delete=more)
    assert len(ix) == 10_000


@pytest.mark.usefixtures("faulty")
@pytest.mark.parametrize(
    ("layout", "mode", "number"),
    [
        *(("implicit", "async", 1), ("implicit", "sync", 2), ("regular", "async", 1), ("regular", "async", 2)),
        *(("regular", "sync", 1), ("regular", "sync", 5), ("regular", "sync", 40)),
    ],
)
def test_a_fault_leaves_the_old_index_in_force(
    layout: Any, mode: Any, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_place(monkeypatch)
    monkeypatch.setattr(update_runner, "SYNC_GROUP", 512)
    keys = np.arange(0, 60_000, 3)
    ix = mr.OrderedIndex(keys, layout=layout, device="faulty")
    ix.update(upsert=[1])  # the costs of sending are measured now
    before = ix.range(0, 10**6).to_pylist()
    queries = np.arange(60_000)
    found_before = ix.lookup(queries)
    faults.arm("write", number)
    with pytest.raises(mr.DeviceFault, match="faulty device lost its write"):
        ix.update(upsert=np.arange(10_000, 30_000), delete=np.arange(0, 9000), mode=mode)
    assert ix.range(0, 10**6).to_pylist() == before
    assert ix.lookup(queries).equals(found_before)
    assert ix.stats["device"] == "faulty"  # the device is still used, and its results are right
    ix.update(upsert=np.arange(10_000, 30_000), delete=np.arange(0, 9000), mode=mode)
    cpu = mr.OrderedIndex(keys, layout=layout, device="cpu")
    cpu.update(upsert=[1])
    cpu.update(upsert=np.arange(10_000, 30_000), delete=np.arange(0, 9000))
    assert (ix.lookup(queries).is_null().to_numpy(False) == cpu.lookup(queries).is_null().to_numpy(False)).all()
    assert ix.stats["device"] == "faulty"


@pytest.mark.usefixtures("faulty")
@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_fault_with_fallback_continues_without_the_device(
    layout: Any, mode: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_place(monkeypatch)
    ix = mr.OrderedIndex(np.arange(0, 30_000, 3), layout=layout, device="faulty", fallback="cpu")
    faults.arm("write", 1)
    ix.update(upsert=np.arange(10_000, 20_000), mode=mode)
    assert ix.lookup([10_001, 3]).to_pylist() == [10_001, 1]
    assert ix.stats["device"] == "cpu"
    assert "lost its write" in ix.stats["fallback"]
    ix.update(delete=[3])
    assert ix.lookup([3]).to_pylist() == [None]


@pytest.mark.usefixtures("faulty")
@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_tree_that_outgrows_its_device(mode: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    in_place(monkeypatch)
    keys, more = np.arange(0, 900_000, 3), np.arange(1, 300_000, 3)  # a third of the leaves split
    first = mr.OrderedIndex(keys, layout="regular", device="faulty")
    memory = first._rows.tree.nodes.nbytes + 100
    monkeypatch.setattr(faults.FaultyDevice, "memory", memory, raising=False)
    alone = mr.OrderedIndex(keys, layout="regular", device="faulty")
    with pytest.raises(mr.DeviceUnavailable, match=rf"which has {memory:,}: .* too few.*; nothing was changed"):
        alone.update(upsert=more, mode=mode)
    assert alone.lookup([1, 3]).to_pylist() == [None, 1]
    assert (len(alone), alone.stats["device"]) == (len(keys), "faulty")
    ix = mr.OrderedIndex(keys, layout="regular", device="faulty", fallback="cpu")
    ix.update(upsert=more, mode=mode)
    assert ix.lookup(more).to_pylist() == list(range(len(keys), len(keys) + len(more)))
    assert ix.stats["device"] == "cpu"
    assert f"which has {memory:,}" in ix.stats["fallback"]


def in_child(body: Callable[[], bool]) -> int:
    """Fork, call `body` in the child, and return the child's exit code (0: it returned true)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn of a fork with threads
        child = os.fork()
    if child == 0:
        signal.alarm(WATCHDOG)  # a child that waits for ever is killed, and the test fails
        try:
            os._exit(0 if body() else 1)
        except BaseException:
            os._exit(2)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@contextmanager
def stopped_in(owner: Any, step: str, work: Callable[[], None]) -> Iterator[None]:
    """Run `work` in another thread, which stops after a step."""
    done, there, go_on = getattr(owner, step), threading.Event(), threading.Event()

    def stop(*given: Any) -> Any:
        found = done(*given)
        there.set()
        go_on.wait()
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, step, stop)
        thread = threading.Thread(target=work)
        thread.start()
        there.wait()
        patch.undo()
        try:
            yield
        finally:
            go_on.set()
            thread.join()


@pytest.mark.usefixtures("faulty")
@pytest.mark.parametrize("device", ["cpu", "faulty"])
def test_a_child_forked_in_the_middle_of_a_change_gets_a_state_error(
    device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_place(monkeypatch)
    ix = mr.OrderedIndex(np.arange(0, 90_000, 3), layout="regular", device=device)
    calls: list[Callable[[], Any]] = [
        *(lambda: ix.lookup([3]), lambda: ix.range(0, 9), lambda: len(ix), lambda: ix.nbytes, lambda: ix.stats),
        *(lambda: ix.plan, ix.tune, lambda: ix.update(delete=[3]), lambda: ix.save(tmp_path / "index")),
    ]

    def refused() -> bool:
        for call in calls:
            with pytest.raises(mr.StateError, match="forked while another thread was changing"):
                call()
        again = mr.OrderedIndex([5, 6], device=device)
        return "half changed" in repr(ix) and again.lookup([6]).to_pylist() == [1]

    with stopped_in(Editor, "in_groups", lambda: ix.update(upsert=np.arange(60_000), mode="async")):
        assert in_child(refused) == 0
    assert len(ix) == 70_000
    assert in_child(lambda: len(ix) == 70_000 and ix.lookup([3]).to_pylist() == [30_003]) == 0


@pytest.mark.usefixtures("faulty")
@both_layouts
@pytest.mark.parametrize("device", ["cpu", "faulty"])
def test_a_child_forked_before_a_change_starts_can_continue(layout: Any, device: str) -> None:
    """The thread that reads its batch, and holds the locks, is not in the child."""
    ix = mr.OrderedIndex(np.arange(0, 90_000, 3), layout=layout, device=device)

    def can_continue() -> bool:
        ix.update(upsert=[1], delete=[3])
        return bool(ix.range(0, 6).to_pylist() == [[0, 30_000, 2]])

    with stopped_in(base, "read_update", lambda: ix.update(delete=[0])), ix._runner_lock.mutex:
        assert in_child(can_continue) == 0
    assert ix.range(0, 6).to_pylist() == [[1, 2]]


class SetClock(WallClock):
    """Time passes only while a thread sleeps."""

    def __init__(self) -> None:
        self._time = 0

    def now(self) -> int:
        return self._time

    def sleep_until(self, when: int) -> None:
        self._time = max(self._time, when)


@pytest.mark.usefixtures("faulty")
def test_the_plan_shows_where_updates_change_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """A device that takes 10 us per transfer and 2 ns per byte: the costs of updates can be calculated."""

    def fresh() -> mr.OrderedIndex:
        clock = SetClock()
        paced = PacedDevice(CpuDevice(1), DevicePace(10_000, 2.0, 0.0, (0.0,) * 9), clock)
        monkeypatch.setattr(faults, "open_device", lambda name, threads: paced)
        monkeypatch.setattr(base, "UpdateRunner", partial(update_runner.UpdateRunner, clock=clock))
        return mr.OrderedIndex(keys, layout="regular", device="faulty")

    keys = np.arange(0, 200_000, 2)
    ix = fresh()
    assert ix.plan.crossover is None
    ix.update(delete=[5], mode="sync")  # deletes change no inner node, so the costs stay the same
    # A node of 9 lines takes 10,000 + 2 * 576 ns. A change is assumed to send 0.02 nodes, which takes less than the
    # 400 ns of the thread that changes; all threads take 200 ns. The segment is 521 such nodes (192 keys each) in one
    # transfer, and 9 + 1 upper nodes of 17 lines in another.
    segment = 2 * 10_000 + 2 * (521 * 576 + 10 * 1088)
    assert ix.plan.crossover == ceil(segment / (max(400, 0.02 * 11_152) - 200)) == 3210
    assert "updates asynchronous from 3,210 changes" in repr(ix.plan)
    for changes, mode in ((3209, "sync"), (3210, "async")):
        ix = fresh()
        ix.update(upsert=keys[:changes])
        assert ix.stats["last_update"]["mode"] == mode
