"""`WindowJoin`, `KnnJoin` and `LiveJoin` as state machines, in step with an equal join to which nothing happens.

Rules: push, advance, flush, state, restore (with another index or device), fork, interrupt, fault. Each run allows a
random subset of them (a swarm): runs without some rules get further with the others. A failure shrinks to few steps.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

import millrace as mr
from millrace.host.base.faults import MARK, injected
from tests.host.runtime.test_pool import in_child
from tests.signals.interrupts import Interrupt, raise_at_number
from tests.signals.subjects import LiveRun, same

EXAMPLES, LONG_EXAMPLES, STEPS = 6, 300, 25
RULES = ("advance", "flush", "state", "restore", "fork", "interrupt", "fault")
SIDES, ROWS = st.sampled_from("rs"), st.lists(st.integers(0, 12), max_size=30)
FAULTS = (
    *("window.extend=1*raise", "window.evict=1*raise", "output.gather=1*raise", "memory.allocate=1*oom"),
    *("bisort.step=1*raise", "knn.query=1*raise", "bisort.load=1*raise"),
)
OTHERS: list[dict[str, Any]] = [
    *({"index": index} for index in ("bisort", "rap", "wib", "pim", "chain", "btree", "scan")),
    {"index": "bisort", "device": "opencl"},
]


def allowed(name: str) -> Callable[[Any], bool]:
    """Whether the swarm has a rule."""
    return lambda machine: name in machine.swarm


def check_injected(error: Exception) -> None:
    """Only injected faults are expected."""
    if MARK not in str(error):
        raise error


class StreamMachine(RuleBasedStateMachine):
    """Two equal joins; `hit` is interrupted, restored and so on, `spared` is not."""

    timed = False

    def make(self, **other: Any) -> Any:
        raise NotImplementedError

    def restored(self, delta: mr.StateDelta, other: dict[str, Any]) -> Any:
        raise NotImplementedError

    def table(self, xs: list[int], at: int) -> pa.Table:
        cells = {"x": pa.array(xs, pa.int64()), "y": pa.array([x * 7 % 5 for x in xs], pa.int64())}
        if self.timed:
            cells["ts"] = pa.array(np.arange(len(xs)) // 3 + at, pa.int64())
        return pa.table(cells)

    @initialize(swarm=st.sets(st.sampled_from(RULES)))
    def begin(self, swarm: set[str]) -> None:
        self.swarm, self.stored, self.now = swarm, dict[str, bytes](), {"r": 0, "s": 0}
        self.hit, self.spared, self.on_device = self.make(), self.make(index="scan"), False

    def both(self, call: Callable[[Any], Any], wanted: Any = None) -> None:
        """Call both joins; the results are equal."""
        assert same(call(self.hit), call(self.spared) if wanted is None else wanted)

    def moved(self, side: str, rows: int) -> int:
        at = self.now[side]
        self.now[side] += rows // 3
        return at

    @rule(side=SIDES, xs=ROWS)
    def push(self, side: str, xs: list[int]) -> None:
        table = self.table(xs, self.moved(side, len(xs)))
        self.both(lambda join: join.push(side, table))

    @precondition(allowed("advance"))
    @rule(side=SIDES, by=st.integers(0, 9))
    def advance(self, side: str, by: int) -> None:
        if self.timed:
            self.now[side] += by
            self.both(lambda join: join.advance(side, self.now[side]))

    @precondition(allowed("flush"))
    @rule()
    def flush(self) -> None:
        self.both(lambda join: join.flush())

    def store(self) -> mr.StateDelta:
        delta: mr.StateDelta = self.hit.state()
        self.stored.update(delta.added)
        for name in delta.removed:
            del self.stored[name]
        return delta

    @precondition(allowed("state"))
    @rule()
    def state(self) -> None:
        self.store()

    @precondition(allowed("restore"))
    @rule(other=st.sampled_from(OTHERS))
    def restore(self, other: dict[str, Any]) -> None:
        self.hit = self.restored(self.store(), other)
        self.on_device = "device" in other

    @precondition(allowed("fork"))
    @rule(side=SIDES, xs=ROWS)
    def fork(self, side: str, xs: list[int]) -> None:
        table = self.table(xs, self.moved(side, len(xs)))
        wanted = self.spared.push(side, table)
        if not self.on_device:  # OpenCL does not work in a child of a process that has used it
            assert in_child(lambda: bool(self.hit.push(side, table).equals(wanted))) == 0
        assert self.hit.push(side, table).equals(wanted)

    @precondition(allowed("interrupt"))
    @rule(side=SIDES, xs=ROWS, point=st.integers(0, 600))
    def interrupt(self, side: str, xs: list[int], point: int) -> None:
        table = self.table(xs, self.moved(side, len(xs)))
        wanted = self.spared.push(side, table)
        try:
            found = raise_at_number(point, lambda: self.hit.push(side, table))
        except Interrupt:
            found = self.hit.recover()
            found = self.hit.push(side, table) if found is None else found
        assert found.equals(wanted)

    @precondition(allowed("fault"))
    @rule(side=SIDES, xs=ROWS, fault=st.sampled_from(FAULTS))
    def fault(self, side: str, xs: list[int], fault: str) -> None:
        table = self.table(xs, self.moved(side, len(xs)))
        wanted = self.spared.push(side, table)
        found = None
        with injected(fault):
            try:
                found = self.hit.push(side, table)
            except (RuntimeError, MemoryError, mr.MillraceError) as error:
                check_injected(error)
        assert (self.hit.push(side, table) if found is None else found).equals(wanted)


class WindowMachine(StreamMachine):
    """A count window."""

    arguments: ClassVar[dict[str, Any]] = {"on": "abs(r.x - s.x) <= 1", "window": "25 rows"}

    def make(self, **other: Any) -> Any:
        return mr.WindowJoin(**{**self.arguments, **other})

    def restored(self, delta: mr.StateDelta, other: dict[str, Any]) -> Any:
        return mr.WindowJoin.restore(delta.manifest, self.stored, **{**self.arguments, **other})


class TimedMachine(WindowMachine):
    """A time window: rows wait for the other side."""

    timed = True
    arguments: ClassVar[dict[str, Any]] = {
        "on": "r.x = s.x and r.y < 4",
        "window": "6",
        "time": "ts",
        "lateness": 2,
        "output": "count",
    }


class KnnMachine(StreamMachine):
    """Nearest neighbours."""

    arguments: ClassVar[dict[str, Any]] = {"on": ("x", "y"), "k": 2, "window": "25 rows", "how": "left"}

    def make(self, **other: Any) -> Any:
        threads: dict[str, Any] = {"threads": 1} if other else {}
        return mr.KnnJoin(**self.arguments, **threads)

    def restored(self, delta: mr.StateDelta, other: dict[str, Any]) -> Any:
        device = {"device": other["device"]} if "device" in other else {"options": {"partitions": 2}}
        return mr.KnnJoin.restore(delta.manifest, self.stored, **{**self.arguments, **device})


class LiveMachine(RuleBasedStateMachine):
    """A live join: `spared` is a window join that gets the same rows."""

    schema = pa.schema([("x", pa.int64())])
    arguments: ClassVar[dict[str, Any]] = {"on": "abs(r.x - s.x) <= 1", "window": "25 rows"}

    @initialize(swarm=st.sets(st.sampled_from((*RULES, "poll"))))
    def begin(self, swarm: set[str]) -> None:
        self.swarm, self.stored = swarm, dict[str, bytes]()
        schemas = {"r": self.schema, "s": self.schema}
        self.given = {**self.arguments, "schemas": schemas}
        self.run = LiveRun(mr.LiveJoin(**self.given))
        self.spared, self.rows = mr.WindowJoin(**self.given), 0
        self.wanted: list[pa.Table] = []

    def table(self, side: str, xs: list[int]) -> pa.Table:
        table = pa.table({"x": pa.array(xs, pa.int64())})
        self.wanted.append(self.spared.push(side, table))
        return table

    def put_all(self, side: str, xs: list[int], call: Callable[[pa.Table], int]) -> None:
        assert call(self.table(side, xs)) == self.rows
        self.rows += len(xs)

    @rule(side=SIDES, xs=ROWS)
    def put(self, side: str, xs: list[int]) -> None:
        self.put_all(side, xs, lambda table: self.run.live.put(side, table))

    @precondition(allowed("poll"))
    @rule()
    def poll(self) -> None:
        self.run.poll()

    @precondition(allowed("flush"))
    @rule()
    def flush(self) -> None:
        self.run.flush()
        assert self.run.take().equals(pa.concat_tables([*self.wanted, self.spared.flush()]))
        self.wanted = []

    @precondition(allowed("restore"))
    @rule(other=st.sampled_from(OTHERS[:-1]))
    def restore(self, other: dict[str, Any]) -> None:
        delta = self.run.live.state()
        self.stored.update(delta.added)
        for name in delta.removed:
            del self.stored[name]
        self.end()
        self.run = LiveRun(mr.LiveJoin.restore(delta.manifest, self.stored, **{**self.given, **other}), self.run.tables)

    @precondition(allowed("fork"))
    @rule()
    def fork(self) -> None:
        def refused() -> bool:
            with pytest.raises(mr.StateError, match="forked"):
                self.run.live.poll()
            return True

        assert in_child(refused) == 0

    @precondition(allowed("interrupt"))
    @rule(side=SIDES, xs=ROWS, point=st.integers(0, 120), poll=st.booleans())
    def interrupt(self, side: str, xs: list[int], point: int, poll: bool) -> None:
        def put(table: pa.Table) -> int:
            try:
                return raise_at_number(point, lambda: self.run.live.put(side, table))
            except Interrupt:
                first = self.run.live.recover()
                return first if isinstance(first, int) else self.run.live.put(side, table)

        if not poll:
            self.put_all(side, xs, put)
            return
        try:
            raise_at_number(point, self.run.poll)
        except Interrupt:
            self.run.recover()

    @precondition(allowed("fault"))
    @rule(side=SIDES, xs=ROWS)
    def fault(self, side: str, xs: list[int]) -> None:
        self.run.flush()  # so that no earlier task meets the fault, whose error another call would raise
        with injected("live.step=1*raise"):
            self.put_all(side, xs, lambda table: self.run.live.put(side, table))
            try:
                self.run.flush()
            except RuntimeError as error:
                check_injected(error)

    def end(self) -> None:
        with pytest.warns(ResourceWarning) if self.run.live.stats.unpolled else ExitStack():
            self.run.live.__exit__(None, None, None)

    def teardown(self) -> None:
        if hasattr(self, "run"):
            self.run.flush()
            assert self.run.take().equals(pa.concat_tables([*self.wanted, self.spared.flush()]))
            self.end()


def run_machine(machine: type[RuleBasedStateMachine], examples: int, derandomize: bool) -> None:
    # A handled signal makes a live join leave all steps to its worker, which is not interrupted.
    before = signal.signal(signal.SIGUSR2, lambda number, frame: None)
    try:
        run_state_machine_as_test(
            machine,
            settings=settings(
                max_examples=examples,
                stateful_step_count=STEPS,
                deadline=None,
                derandomize=derandomize,
                suppress_health_check=list(HealthCheck),
                phases=(Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink),
            ),
        )
    finally:
        signal.signal(signal.SIGUSR2, before)


MACHINES = [WindowMachine, TimedMachine, KnnMachine, LiveMachine]


@pytest.mark.parametrize("machine", MACHINES)
def test_nothing_is_lost_whatever_happens(machine: type[RuleBasedStateMachine]) -> None:
    run_machine(machine, EXAMPLES, derandomize=True)


@pytest.mark.long
@pytest.mark.parametrize("machine", MACHINES)
def test_nothing_is_lost_in_many_runs(machine: type[RuleBasedStateMachine]) -> None:
    run_machine(machine, LONG_EXAMPLES, derandomize=False)
