"""The cache of open objects: it closes what it evicts, but nothing that is in use or belongs to a parent process."""

from __future__ import annotations

import os
import threading

import pytest

from millrace.spark.cluster.open_cache import OpenCache
from tests.watchdog import WATCHDOG


class Opened:
    """Counts how often it was closed."""

    def __init__(self) -> None:
        self.closed = 0

    def close(self) -> None:
        self.closed += 1


def test_the_least_recently_used_is_closed() -> None:
    cache: OpenCache[str, Opened] = OpenCache(2)
    made = {name: Opened() for name in "abc"}
    for name in "abac":
        with cache.use(name, lambda name=name: made[name]) as found:  # type: ignore[misc]
            assert found is made[name]
    assert {name: one.closed for name, one in made.items()} == {"a": 0, "b": 1, "c": 0}
    assert len(cache) == 2
    cache.close()
    assert all(one.closed == 1 for one in made.values())
    assert len(cache) == 0


def test_what_a_thread_uses_is_closed_when_it_has_finished() -> None:
    cache: OpenCache[str, Opened] = OpenCache(1)
    used, other = Opened(), Opened()
    entered, leave = threading.Event(), threading.Event()

    def work() -> None:
        with cache.use("used", lambda: used):
            entered.set()
            leave.wait(WATCHDOG)

    thread = threading.Thread(target=work)
    thread.start()
    assert entered.wait(WATCHDOG)
    with cache.use("other", lambda: other):
        pass
    assert (used.closed, len(cache)) == (0, 1)
    leave.set()
    thread.join()
    assert (used.closed, other.closed) == (1, 0)


def test_threads_share_one_object() -> None:
    cache: OpenCache[str, Opened] = OpenCache(1)
    made: list[Opened] = []

    def open_one() -> Opened:
        made.append(Opened())
        return made[-1]

    def work() -> None:
        for _ in range(200):
            with cache.use("key", open_one) as found:
                assert found is made[0]

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [one.closed for one in made] == [0]


def test_what_fails_to_open_is_not_kept() -> None:
    cache: OpenCache[str, Opened] = OpenCache(1)
    with pytest.raises(ZeroDivisionError), cache.use("key", lambda: 1 // 0):  # type: ignore[arg-type, return-value]
        pass
    assert len(cache) == 0


def test_a_forked_process_drops_what_its_parent_opened() -> None:
    cache: OpenCache[str, Opened] = OpenCache(1)
    mine = Opened()
    with cache.use("parent", lambda: mine):
        pass
    cache._own().lock.acquire()  # as if another thread of the parent held it at the fork
    child = os.fork()
    if child == 0:
        with cache.use("child", Opened):
            pass
        cache.close()
        os._exit(mine.closed)
    cache._own().lock.release()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, "the child did not close it"
    assert len(cache) == 1
