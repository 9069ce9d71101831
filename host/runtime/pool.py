"""A thread pool for tasks of the host, created on first use and again in a forked child.

Kernels release the GIL, so Python threads run them in parallel. Numba's `parallel=True` is not used: its threading
layers abort on concurrent callers and do not survive a fork. An interrupt that comes while the main thread holds a lock
of the executor would leave it locked for ever, so the main thread never calls it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from millrace.host.runtime.critical import uninterrupted
from millrace.host.runtime.fork import ProcessLocal

T = TypeVar("T")


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def size() -> int:
    """Return the number of threads in the pool: one per core, and at least two, so that every machine tests sharing."""
    return max(cores(), 2)


def run(tasks: Sequence[Callable[[], T]]) -> list[T]:
    """Run tasks in parallel and wait for all; the first error is raised after all have ended.

    The calling thread runs the first task, and then each task that no other thread has started. So a single task needs
    no other thread, and a task on the pool may itself call `run` without deadlock, even if all threads are busy.
    The main thread, in which signal handlers may raise, has another thread call; an interrupt is raised at the end.
    """
    return uninterrupted(lambda: _run(tasks))


def _run(tasks: Sequence[Callable[[], T]]) -> list[T]:
    others = [_submitted(task) for task in tasks[1:]]
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


def _submitted(task: Callable[[], T]) -> Future[T] | None:
    """Start a task on the pool; None at the end of the interpreter (in `atexit`), when the pool takes none."""
    try:
        return _pool.get().submit(task)
    except RuntimeError:
        return None


_pool = ProcessLocal(lambda: ThreadPoolExecutor(size(), thread_name_prefix="millrace"))
