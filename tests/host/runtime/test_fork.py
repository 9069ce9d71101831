"""The fork registry: a child resets what it must, makes its own values, and knows that it is another process."""

from __future__ import annotations

import gc
import threading
import weakref
from pathlib import Path

import pytest

from millrace.host.runtime import fork
from millrace.host.runtime.fork import ProcessLocal, ProcessMark, reset_in_child
from tests.host.runtime.test_pool import in_child


class Owner:
    def __init__(self) -> None:
        self.resets = 0
        reset_in_child(self)

    def reset_after_fork(self) -> None:
        self.resets += 1


def test_owners_are_reset_in_a_child_and_only_there() -> None:
    one, two = Owner(), Owner()
    assert in_child(lambda: (one.resets, two.resets) == (1, 1)) == 0
    assert in_child(lambda: in_child(lambda: one.resets == 2) == 0) == 0
    assert (one.resets, two.resets) == (0, 0)


def test_the_registry_keeps_no_owner_alive() -> None:
    gone = weakref.ref(Owner())
    gc.collect()
    assert gone() is None


def test_a_mark_tells_whether_this_is_its_process() -> None:
    mark = ProcessMark()
    assert mark.is_here
    assert in_child(lambda: not mark.is_here and ProcessMark().is_here) == 0
    assert in_child(lambda: in_child(lambda: not mark.is_here) == 0) == 0


def test_a_process_makes_its_value_once_and_a_child_its_own() -> None:
    local = ProcessLocal(object)
    mine, inside, seen = local.get(), threading.Barrier(4), list[object]()

    def look() -> None:
        inside.wait()
        seen.append(local.get())

    threads = [threading.Thread(target=look) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [mine] * 4
    assert in_child(lambda: local.get() is not mine and local.get() is local.get()) == 0
    assert local.get() is mine


def test_a_value_whose_making_fails_is_made_by_the_next_call() -> None:
    fails = [True]

    def make() -> int:
        if fails.pop():
            fails.append(False)
            raise ValueError("not yet")
        return 7

    local = ProcessLocal(make)
    with pytest.raises(ValueError, match="not yet"):
        local.get()
    assert local.get() == 7


def test_a_fork_while_a_value_is_being_made_does_not_lock_the_child() -> None:
    local = ProcessLocal(lambda: 7)
    with local._lock:
        assert in_child(lambda: local.get() == 7) == 0


def test_only_the_registry_registers_a_fork_handler() -> None:
    root = Path(fork.__file__).resolve().parents[2]
    files = [path for room in ("host", "sdk", "gpu", "sim", "hw", "spark") for path in (root / room).rglob("*.py")]
    assert len(files) > 100
    assert [path.name for path in files if "register_at_fork(" in path.read_text()] == ["fork.py"]
