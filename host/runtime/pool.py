"""The runtime's own threads, made when first used and anew in a forked child.

Kernels release the GIL, so plain threads run them side by side. Numba's own `parallel=True` is not used: its thread
layers abort on concurrent callers and die after a fork.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
_pools: dict[int, ThreadPoolExecutor] = {}
_lock = threading.Lock()


def cores() -> int:
    """The cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def size() -> int:
    """The threads of the pool: one per core, and at least two, so that hand-over is always exercised."""
    return max(cores(), 2)


def submit(task: Callable[[], T]) -> Future[T]:
    """Run one task on the pool."""
    return _pool().submit(task)


def run(tasks: Sequence[Callable[[], T]]) -> list[T]:
    """Run tasks side by side and wait for all; the first error is raised after all have ended.

    The caller's thread works too: it does the first task and then whatever no other thread has begun. So a single
    task costs no hand-over, and a task on the pool may itself call `run` however busy the pool is.
    """
    others = [submit(task) for task in tasks[1:]]
    results: list[T] = []
    errors: list[BaseException] = []
    for task, future in zip(tasks, [None, *others], strict=False):
        try:
            results.append(task() if future is None or future.cancel() else future.result())
        except BaseException as error:
            errors.append(error)
    if errors:
        raise errors[0]
    return results


def _pool() -> ThreadPoolExecutor:
    pid = os.getpid()
    pool = _pools.get(pid)
    if pool is None:
        with _lock:
            pool = _pools.get(pid)
            if pool is None:
                _pools.clear()
                pool = _pools[pid] = ThreadPoolExecutor(size(), thread_name_prefix="millrace")
    return pool


def _renew_lock() -> None:
    """A fork may have happened while another thread held the lock: the child gets a fresh one."""
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock)
