"""The worker thread of a live join: takes tasks from its queue and runs them, until it is stopped.

If only a few rows wait and nobody processes tasks, the thread that puts them does (`help`): that saves two switches of
threads. The worker is a daemon and is stopped at the exit of the interpreter, before modules are torn down. A forked
child has no such thread: there the owner refuses all calls (`is_here`). Signals never interrupt a task: Python runs
handlers in the main thread only, which processes tasks only where it can delay them (`interrupts.py`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any
from weakref import WeakMethod, WeakSet

from millrace.host.base.faults import fault_point
from millrace.host.live.interrupts import WithoutInterrupts, may_step
from millrace.host.live.task_queue import Task, TaskQueue
from millrace.host.runtime.critical import uninterrupted
from millrace.host.runtime.fork import ProcessMark

FEW_ROWS = 1 << 10
"""Up to so many rows are processed by the thread that puts them: waking the worker takes longer."""
MAX_ROWS = 1 << 16
"""Rows that are taken from the queue for one step, at most, unless one task has more."""
LEFT = "the live join ended with the interpreter"
Step = Callable[[Sequence[Task[Any]]], list[tuple[Any, int]]]
"""Processes tasks of rows; returns results, each with its number of rows."""

_workers: WeakSet[LiveWorker] = WeakSet()


class LiveWorker:
    """A thread that serves one queue."""

    def __init__(self, queue: TaskQueue[Any, Any], step: Step) -> None:
        """Start the thread. `step` is a method; the thread ends when its object is gone."""
        self._queue = queue
        self._mark = ProcessMark()
        self._thread = threading.Thread(
            target=_serve, args=(queue, WeakMethod(step)), name="millrace-live", daemon=True
        )
        uninterrupted(self._thread.start)
        _workers.add(self)

    @property
    def is_here(self) -> bool:
        """Whether the thread belongs to this process; false in a forked child."""
        return self._mark.is_here

    def stop(self, reason: str) -> None:
        """Stop the thread after its current step, and wait for it."""
        if self.is_here:
            self._queue.stop(reason)
            self._queue.wait_for_step()
            if threading.current_thread() is not self._thread:
                self._thread.join()

    def help(self, step: Step) -> None:
        """Process the tasks that wait in this thread, if they are few rows and nobody else processes tasks."""
        try:
            if may_step():
                with WithoutInterrupts():
                    if tasks := self._queue.claim(FEW_ROWS):
                        _process(self._queue, tasks, step)
        finally:
            self._queue.wake_worker()


def _serve(queue: TaskQueue[Any, Any], method: WeakMethod[Step]) -> None:
    while tasks := queue.take(MAX_ROWS, lambda: method() is not None):
        _process(queue, tasks, method())
        del tasks  # while the thread waits, it holds nothing


def _process(queue: TaskQueue[Any, Any], tasks: Sequence[Task[Any]], step: Step | None) -> None:
    call = tasks[0].call
    try:
        if call is not None:
            queue.finish(tasks, *call())
        elif step is not None:
            fault_point("live.step")
            queue.finish(tasks, step(tasks))
    except BaseException as error:
        queue.fail(tasks, error)


def _stop_all() -> None:
    for worker in list(_workers):
        worker.stop(LEFT)


# Before the interpreter waits for threads that are not daemons, which may wait for results; `concurrent.futures` too
# registers here.
with suppress(RuntimeError):  # too late for a hook: a handler of atexit imports this
    threading._register_atexit(_stop_all)  # type: ignore[attr-defined]
