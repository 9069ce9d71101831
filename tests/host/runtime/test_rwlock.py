"""The readers-writer lock and the fork-safe lock: which threads hold them together, and their state after a fork."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from millrace.host.base.errors import StateError
from millrace.host.runtime.rwlock import SLOTS, ForkSafeLock, ReadWriteLock
from tests.host.runtime.test_pool import in_child


def test_readers_hold_the_lock_together_and_a_writer_alone() -> None:
    lock, inside, seen = ReadWriteLock(), threading.Barrier(2), list[str]()

    def read(slot: threading.RLock) -> None:
        with slot:
            inside.wait()  # both hold the lock
            seen.append("read")

    # Two threads may share a slot by chance; two slots are always held together.
    readers = [threading.Thread(target=read, args=(slot,)) for slot in lock._slots[:2]]

    def read_late() -> None:
        with lock.reader():
            seen.append("late")

    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    late = threading.Thread(target=read_late)

    def change() -> str:
        late.start()
        late.join(0.05)
        seen.append("changed")
        return "result"

    assert lock.write(change) == "result"
    late.join()
    assert seen == ["read", "read", "changed", "late"]


def test_a_waiting_writer_goes_before_new_readers() -> None:
    lock, inside, go_on, seen = ReadWriteLock(), threading.Event(), threading.Event(), list[str]()

    def first() -> None:
        with lock.reader():
            inside.set()
            go_on.wait()

    def second() -> None:
        with lock.reader():
            seen.append("read")

    threads = [threading.Thread(target=work) for work in (first, lambda: lock.write(lambda: seen.append("w")), second)]
    threads[0].start()
    inside.wait()
    threads[1].start()
    while not lock._writer.locked():
        pass
    threads[2].start()
    threads[2].join(0.05)
    go_on.set()
    for thread in threads:
        thread.join()
    assert seen == ["w", "read"]


@pytest.mark.parametrize("enter", ["reader", "check_entrance", "check_not_inside"])
def test_the_same_thread_cannot_enter_twice(enter: str) -> None:
    lock = ReadWriteLock()
    again: Callable[[], object] = getattr(lock, enter)

    def refused() -> None:
        with pytest.raises(StateError, match="signal handler"):
            again()
        with pytest.raises(StateError, match="signal handler"):
            lock.write(lambda: None)

    with lock.reader():
        refused()
    lock.write(refused)
    again()


def test_an_error_of_a_writer_frees_the_lock() -> None:
    lock = ReadWriteLock()
    with pytest.raises(ValueError, match="no"):
        lock.write(lambda: int("no"))
    assert lock.write(lambda: 7) == 7
    assert not any(slot._is_owned() for slot in lock._slots)  # type: ignore[attr-defined]
    assert len(lock._slots) == SLOTS


def test_the_lock_is_free_in_a_child_if_readers_held_it() -> None:
    lock, inside, go_on = ReadWriteLock(), threading.Event(), threading.Event()

    def read() -> None:
        with lock.reader():
            inside.set()
            go_on.wait()

    reader = threading.Thread(target=read)
    reader.start()
    inside.wait()
    assert in_child(lambda: lock.write(lambda: True)) == 0
    go_on.set()
    reader.join()


def test_a_reader_that_forks_does_not_hold_the_lock_in_the_child() -> None:
    lock = ReadWriteLock()
    with lock.reader():
        assert in_child(lambda: lock.write(lambda: True)) == 0
    lock.write(lambda: None)


def test_a_child_refuses_the_lock_if_a_writer_held_it() -> None:
    lock = ReadWriteLock()

    def refused() -> bool:
        for enter in (lock.reader, lambda: lock.write(lambda: None)):
            with pytest.raises(StateError, match="half changed"):
                enter()
        return in_child(refused_again) == 0

    def refused_again() -> bool:
        with pytest.raises(StateError, match="half changed"):
            lock.check()
        return True

    assert lock.write(lambda: in_child(refused)) == 0
    lock.check()


def test_a_fork_safe_lock_is_free_in_a_child() -> None:
    lock = ForkSafeLock()

    def take() -> bool:
        with lock.mutex:
            return True

    with lock.mutex:
        assert in_child(take) == 0
    assert take()
