"""The thread pool: nested tasks do not deadlock, errors are raised after all tasks, a forked child has its own."""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable
from functools import partial

import pytest

from millrace.host.runtime import pool
from tests.watchdog import WATCHDOG


def test_results_come_in_the_order_of_the_tasks() -> None:
    assert pool.run([partial(int, n) for n in range(50)]) == list(range(50))
    assert pool.run([]) == []


def test_the_main_thread_runs_no_task() -> None:
    """Signal handlers may raise there, and would leave the locks of tasks and of the pool locked."""
    assert threading.get_ident() not in pool.run([threading.get_ident] * 20)


def test_a_single_task_runs_on_the_callers_thread() -> None:
    seen: list[tuple[list[int], int]] = []
    thread = threading.Thread(target=lambda: seen.append((pool.run([threading.get_ident]), threading.get_ident())))
    thread.start()
    thread.join()
    assert seen[0][0] == [seen[0][1]]


def test_tasks_on_a_busy_pool_may_themselves_run_tasks() -> None:
    """Every thread of the pool runs a task that waits for inner tasks: these must still be executed."""
    width = 4 * max(pool.cores(), 2)
    everyone = threading.Barrier(max(pool.cores(), 2))

    def outer(n: int, wait: bool) -> int:
        if wait:
            everyone.wait()
        return sum(pool.run([partial(pow, n, 2) for _ in range(8)]))

    executor = pool._pool.get()
    futures = [executor.submit(partial(outer, n, n < everyone.parties)) for n in range(width)]
    assert [f.result(timeout=WATCHDOG) for f in futures] == [8 * n * n for n in range(width)]


def test_nesting_three_levels_deep_ends() -> None:
    def level(depth: int) -> int:
        return 1 if depth == 0 else sum(pool.run([partial(level, depth - 1)] * 4))

    assert level(4) == 4**4


def test_the_first_error_is_raised_after_all_tasks_have_ended() -> None:
    done: list[int] = []

    def task(n: int) -> None:
        done.append(n)
        if n in (3, 5):
            raise ValueError(f"task {n}")

    with pytest.raises(ValueError, match="task 3"):
        pool.run([partial(task, n) for n in range(10)])
    assert sorted(done) == list(range(10))


def test_an_interrupt_in_the_callers_own_task_waits_for_the_others() -> None:
    done: list[int] = []

    def interrupted() -> None:
        raise KeyboardInterrupt

    tasks: list[Callable[[], None]] = [interrupted, *(partial(done.append, n) for n in range(20))]
    with pytest.raises(KeyboardInterrupt):
        pool.run(tasks)
    assert sorted(done) == list(range(20))


def test_many_callers_at_once_share_the_pool() -> None:
    results: dict[int, list[int]] = {}

    def caller(n: int) -> None:
        results[n] = pool.run([partial(pow, n, k) for k in range(20)])

    threads = [threading.Thread(target=caller, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {n: [n**k for k in range(20)] for n in range(8)}


def in_child(body: Callable[[], bool]) -> int:
    """Fork, call `body` in the child, and return the child's exit code (0: it returned true)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn of a fork in a process with threads
        child = os.fork()
    if child == 0:
        try:
            os._exit(0 if body() else 1)
        except BaseException:
            os._exit(2)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_forked_child_has_threads_of_its_own() -> None:
    assert pool.run([partial(int, 1), partial(int, 2)]) == [1, 2]
    assert in_child(lambda: pool.run([partial(int, n) for n in range(20)]) == list(range(20))) == 0
    assert pool.run([partial(int, n) for n in range(20)]) == list(range(20))


def test_a_fork_while_the_pool_is_being_made_does_not_lock_the_child() -> None:
    with pool._pool._lock:
        assert in_child(lambda: pool.run([partial(int, 7)]) == [7]) == 0
