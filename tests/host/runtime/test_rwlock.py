"""The readers-writer lock and the fork-safe lock: which threads hold them together, and their state after a fork."""

from __future__ import annotations

import threading

import pytest

from millrace.host.base.errors import StateError
from millrace.host.runtime.rwlock import ForkSafeLock, ReadWriteLock
from tests.host.runtime.test_pool import in_child


def test_readers_hold_the_lock_together_and_a_writer_alone() -> None:
    lock, inside, seen = ReadWriteLock(), threading.Barrier(2), list[str]()

    def read() -> None:
        with lock.read():
            inside.wait()  # both hold the lock
            seen.append("read")

    readers = [threading.Thread(target=read) for _ in range(2)]

    def read_late() -> None:
        with lock.read():
            seen.append("late")

    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    with lock.write():
        late = threading.Thread(target=read_late)
        late.start()
        late.join(0.05)
        seen.append("changed")
    late.join()
    assert seen == ["read", "read", "changed", "late"]


def test_the_lock_is_free_in_a_child_if_readers_held_it() -> None:
    lock, inside, go_on = ReadWriteLock(), threading.Event(), threading.Event()

    def read() -> None:
        with lock.read():
            inside.set()
            go_on.wait()

    def enter() -> bool:
        with lock.write():
            return True

    reader = threading.Thread(target=read)
    reader.start()
    inside.wait()
    assert in_child(enter) == 0
    go_on.set()
    reader.join()


def test_a_reader_that_forks_does_not_hold_the_lock_in_the_child() -> None:
    lock = ReadWriteLock()

    def leave_and_enter() -> bool:
        reading.__exit__(None, None, None)
        with lock.write():
            return True

    reading = lock.read()
    reading.__enter__()
    assert in_child(leave_and_enter) == 0
    reading.__exit__(None, None, None)
    with lock.write():
        pass


def test_a_child_refuses_the_lock_if_a_writer_held_it() -> None:
    lock = ReadWriteLock()

    def refused() -> bool:
        for enter in (lock.read, lock.write):
            with pytest.raises(StateError, match="half changed"), enter():
                pass
        return in_child(refused_again) == 0

    def refused_again() -> bool:
        with pytest.raises(StateError, match="half changed"):
            lock.check()
        return True

    with lock.write():
        assert in_child(refused) == 0
    lock.check()


def test_a_fork_safe_lock_is_free_in_a_child() -> None:
    lock = ForkSafeLock()

    def take() -> bool:
        with lock.held():
            return True

    with lock.held():
        assert in_child(take) == 0
    assert take()
