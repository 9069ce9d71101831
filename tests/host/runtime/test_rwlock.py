"""The gate and turns: who may be inside together, and what a forked child finds."""

from __future__ import annotations

import threading

import pytest

from millrace.host.base.errors import StateError
from millrace.host.runtime.rwlock import Gate, Turns
from tests.host.runtime.test_pool import in_child


def test_readers_are_inside_together_and_a_change_alone() -> None:
    gate, inside, seen = Gate(), threading.Barrier(2), list[str]()

    def read() -> None:
        with gate.read():
            inside.wait()  # both are here
            seen.append("read")

    readers = [threading.Thread(target=read) for _ in range(2)]

    def read_late() -> None:
        with gate.read():
            seen.append("late")

    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    with gate.change():
        late = threading.Thread(target=read_late)
        late.start()
        late.join(0.05)
        seen.append("changed")
    late.join()
    assert seen == ["read", "read", "changed", "late"]


def test_a_child_finds_the_gate_open_where_readers_were() -> None:
    gate, inside, go_on = Gate(), threading.Event(), threading.Event()

    def read() -> None:
        with gate.read():
            inside.set()
            go_on.wait()

    def enter() -> bool:
        with gate.change():
            return True

    reader = threading.Thread(target=read)
    reader.start()
    inside.wait()
    assert in_child(enter) == 0
    go_on.set()
    reader.join()


def test_a_reader_that_forks_is_let_out_in_the_child() -> None:
    gate = Gate()

    def leave_and_enter() -> bool:
        reading.__exit__(None, None, None)
        with gate.change():
            return True

    reading = gate.read()
    reading.__enter__()
    assert in_child(leave_and_enter) == 0
    reading.__exit__(None, None, None)
    with gate.change():
        pass


def test_a_child_finds_the_gate_shut_where_something_was_changing() -> None:
    gate = Gate()

    def refused() -> bool:
        for enter in (gate.read, gate.change):
            with pytest.raises(StateError, match="half changed"), enter():
                pass
        return in_child(refused_again) == 0

    def refused_again() -> bool:
        with pytest.raises(StateError, match="half changed"):
            gate.check()
        return True

    with gate.change():
        assert in_child(refused) == 0
    gate.check()


def test_a_child_finds_turns_free() -> None:
    turns = Turns()

    def take() -> bool:
        with turns.taken():
            return True

    with turns.taken():
        assert in_child(take) == 0
    assert take()
