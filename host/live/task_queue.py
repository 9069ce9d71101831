"""The queue between the callers of a live join and its worker thread: tasks in order of arrival, and their results.

Callers put rows, which are numbered over all of them, or calls (flush, state, …), which the worker runs in their turn.
A task stays at the head of the queue until it is done: a failure loses nothing. Rows beyond `capacity` make `put` wait.
One thread at a time processes tasks: the worker, or a caller that has put a few rows and found the worker idle. The
worker waits while `capacity` result rows are not polled, except if an urgent call is in the queue.

Errors: a refusal (`MillraceError`) of one task of rows drops that task, as a join that refuses a batch does not change;
any other error keeps the task. Either way the next call of any thread raises it, and only then the worker goes on.

Interrupts: a signal handler may raise between any two steps of a caller in the main thread. Each change is one line
without a call, where no signal comes: a task is in the queue or it is not, and all counts of rows follow from the
queue. What the main thread takes is kept for `recover` until it is returned. Callers wait without the lock, for a lock
of their own, and look again from time to time: so a wake-up that an interrupt has prevented only costs time.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from millrace.host.base.errors import DeviceFault, MillraceError, StateError
from millrace.host.base.faults import fault_point
from millrace.host.runtime.call_lock import reentered

Item = TypeVar("Item")
Result = TypeVar("Result")
RECHECK = 0.5
"""Seconds after which a waiting thread looks again."""
LATENCIES = 1 << 14
"""The latest tasks whose latency is kept."""


@dataclass(frozen=True)
class Reply:
    """What a call in the queue has returned or raised, once it is done."""

    done: list[Any] = field(default_factory=list)
    """The result, once known."""
    errors: list[BaseException] = field(default_factory=list)


@dataclass(frozen=True, eq=False)
class Task(Generic[Item]):
    """Rows numbered from `first` on, or a call without rows."""

    first: int
    rows: int
    item: Item | None
    call: Callable[[], Any] | None = None
    reply: Reply | None = None
    urgent: bool = False
    closing: bool = False
    since: float = 0.0

    @property
    def end(self) -> int:
        """The number of the next row."""
        return self.first + self.rows

    @property
    def is_alone(self) -> bool:
        """Whether the task cannot be processed together with others."""
        return self.call is not None or self.reply is not None


class TaskQueue(Generic[Item, Result]):
    """Tasks that wait, and results that were not polled."""

    def __init__(self, capacity: int, first: int = 0) -> None:
        """An empty queue; `first` is the number of the next row."""
        self.capacity = capacity
        self._lock = threading.RLock()
        self._latches: deque[threading.Lock] = deque()
        """Each is released to wake the caller that waits for it."""
        self.unreturned: list[Result] | None = None
        """Results that the main thread has taken and not returned yet."""
        self.unreturned_first: int | None = None
        """The number of the first row that the main thread has put, until it is returned."""
        self.unreturned_reply: Reply | None = None
        """The reply to the call of the main thread, until it is returned."""
        self._work = threading.Condition(self._lock)
        """The worker waits for it."""
        self._processor: int | None = None
        """The thread that processes tasks, if any."""
        self._tasks: deque[Task[Item]] = deque()
        self._done_end = first
        self._results: deque[Result] = deque()
        self.unpolled = 0
        """Result rows that were not polled."""
        self._error: BaseException | None = None
        self._single = 0
        """Tasks to be taken one by one, after several at once have failed."""
        self._closed = ""
        self._stopped = False
        self.latencies: deque[float] = deque(maxlen=LATENCIES)
        """Seconds from `put` to the result, of the latest tasks."""

    # --- callers ---

    @property
    def end(self) -> int:
        """The number of the next row."""
        return self._tasks[-1].end if self._tasks else self._done_end

    @property
    def waiting(self) -> int:
        """Rows that the worker has not finished."""
        return self.end - self._done_end

    def check_entrance(self) -> None:
        """Raise a `StateError` if this thread is changing the queue: a signal handler has interrupted it."""
        if self._lock._is_owned():  # type: ignore[attr-defined]
            raise reentered("live join")

    def put(self, item: Item, rows: int, timeout: float | None, confirmed: bool = False, waking: bool = True) -> int:
        """Append rows; return the number of the first. Waits while the queue is full; raises after `timeout` seconds.

        Rows that are more than the capacity are taken when the queue is empty. With `confirmed`, waits until they are
        processed, and raises what the worker raises for them: then they were not taken. Not `waking`: the caller tries
        to `claim` the tasks, and calls `wake_worker` in any case.
        """
        reply = Reply() if confirmed else None
        end = None if timeout is None else time.monotonic() + timeout
        fault_point("live.put")
        while True:
            with self._lock:
                self._check()
                if not self.waiting or self.waiting + rows <= self.capacity:
                    task = Task(self.end, rows, item, reply=reply, since=time.perf_counter())
                    main = is_main()
                    self._tasks += (task,)
                    if main:
                        self.unreturned_first, self.unreturned_reply = task.first, None
                    if waking or reply is not None:
                        self.wake_worker()
                    break
                if end is not None and time.monotonic() >= end:
                    raise StateError(
                        f"{self.waiting} rows wait and {rows} more exceed capacity={self.capacity}: poll() results, "
                        f"which frees room, wait longer, or give a larger capacity. Nothing was put"
                    )
            self._sleep(lambda: not self.waiting or self.waiting + rows <= self.capacity or self._has_news(), end)
        if reply is not None:
            self._await(task, reply)
        return task.first

    def call(self, work: Callable[[], Any], urgent: bool, wait: bool = True, closing: str = "") -> Any:
        """Run a call after all earlier tasks, in the worker; return its result, unless the caller does not `wait`.

        With `closing`, later calls raise a `StateError` with this text, unless the call fails.
        """
        reply = Reply()
        with self._lock:
            self._check()
            task: Task[Item] = Task(self.end, 0, None, work, reply if wait else None, urgent, bool(closing))
            main = is_main()
            self._tasks += (task,)
            self._closed = closing
            if main and wait:
                self.unreturned_first, self.unreturned_reply = None, reply
            self.wake_worker()
        return self._await(task, reply) if wait else None

    def _await(self, task: Task[Item], reply: Reply) -> Any:
        """Wait until the worker has finished a task; return its result or raise its error, or that of an earlier one.

        If a signal handler raises here, the task is done nevertheless; `wait_for_reply` and `poll` give the results.
        """
        while True:
            with self._lock:
                if reply.done:
                    return reply.done[0]
                if reply.errors or self._error or self._stopped:
                    if self.unreturned_reply is reply:
                        self.unreturned_reply = None
                    if self.unreturned_first == task.first:
                        self.unreturned_first = None
                    if self._stopped:
                        raise StateError(self._closed)
                    if task.closing:
                        self._closed = ""
                    if reply.errors:
                        raise reply.errors[0]
                    self._tasks.remove(task)  # an earlier task has failed, so the worker has not begun this one
                    self._raise_error()
            self._sleep(lambda: bool(reply.done or reply.errors or self._error or self._stopped), None)

    def wait_for_reply(self, reply: Reply) -> Any:
        """Wait for the call of a caller that was interrupted; return its result. It is None if the call failed."""
        while True:
            with self._lock:
                if reply.done:
                    return reply.done[0]
                if reply.errors or self._stopped or all(task.reply is not reply for task in self._tasks):
                    return None
            self._sleep(lambda: bool(reply.done or reply.errors or self._stopped), None)

    def poll(self, timeout: float | None, ending: bool = False) -> list[Result]:
        """All results that were not polled, in order; if there are none, waits for some, for `timeout` seconds.

        A closed queue without results raises a `StateError`; with `ending`, it returns nothing. The main thread then
        sets `unreturned` to None, when it returns them.
        """
        end = None if timeout is None else time.monotonic() + timeout
        main = is_main()
        while True:
            with self._lock:
                self._raise_error()
                self.wake_worker()  # a caller that was interrupted may have left a task
                before = self.unreturned if main else None
                if self._results or before:
                    found = [*(before or ()), *self._results]
                    empty: deque[Result] = deque()
                    if main:
                        self._results, self.unpolled, self.unreturned = empty, 0, found
                    else:
                        self._results, self.unpolled = empty, 0
                    self.wake_worker()
                    return found
                if self._closed and not ending:
                    raise StateError(self._closed)
                if self._closed or (end is not None and time.monotonic() >= end):
                    found = []
                    if main:
                        self.unreturned = found
                    return found
            self._sleep(lambda: bool(self._results) or self._has_news(), end)

    def _sleep(self, ready: Callable[[], bool], end: float | None) -> None:
        """Wait until a condition may hold or the time is over. Not under the lock; the caller looks again."""
        latch = threading.Lock()
        latch.acquire()
        with self._lock:
            if ready():
                return
            self._latches.append(latch)
        latch.acquire(timeout=RECHECK if end is None else max(min(RECHECK, end - time.monotonic()), 0.0))
        with self._lock, suppress(ValueError):
            self._latches.remove(latch)

    def _wake_callers(self) -> None:
        while self._latches:
            self._latches.popleft().release()

    def _has_news(self) -> bool:
        """Whether a waiting caller must look: the queue is closed, or an error is there."""
        return bool(self._closed) or self._error is not None

    def _check(self) -> None:
        self._raise_error()
        if self._closed:
            raise StateError(self._closed)

    def _raise_error(self) -> None:
        """Raise the worker's error, once."""
        error, self._error = self._error, None
        if error is not None:
            self.wake_worker()
            raise error

    @property
    def closed(self) -> bool:
        """Whether the queue takes no more calls."""
        return bool(self._closed)

    # --- the worker, and callers that process their own rows ---

    def wake_worker(self) -> None:
        """Wake the worker if tasks wait for it."""
        with self._lock:
            if self._processor is None and self._may_go_on():
                self._work.notify()

    def claim(self, most: int) -> list[Task[Item]]:
        """All tasks, if they are rows, at most `most`, and nobody processes tasks; otherwise none. They stay here."""
        with self._lock:
            if self._processor is not None or self._stopped or self._single or not self._may_go_on():
                return []
            if self.waiting > most or any(task.is_alone for task in self._tasks):
                return []
            self._processor = threading.get_ident()
            return list(self._tasks)

    def take(self, most: int, is_used: Callable[[], bool] = lambda: True) -> list[Task[Item]]:
        """The next tasks, which stay in the queue: one call, or rows, at most `most` or one task; none at the end.

        The end is a stop, or that the owner is not used any more, which is noticed from time to time.
        """
        with self._lock:
            while is_used() and not self._work.wait_for(
                lambda: self._stopped or (self._processor is None and self._may_go_on()), RECHECK
            ):
                pass
            if self._stopped or not is_used():
                return []
            self._processor = threading.get_ident()
            first = self._tasks[0]
            if first.is_alone or self._single:
                return [first]
            taken: list[Task[Item]] = []
            for task in self._tasks:
                if task.is_alone or (taken and task.end - first.first > most):
                    break
                taken.append(task)
            return taken

    def _may_go_on(self) -> bool:
        if not self._tasks or self._error is not None:
            return False
        return self.unpolled < self.capacity or any(task.urgent for task in self._tasks)

    def finish(self, tasks: Sequence[Task[Item]], results: Sequence[tuple[Result, int]], returned: Any = None) -> None:
        """Remove finished tasks from the head, and keep their results, with the rows of each, for `poll`."""
        now = time.perf_counter()
        with self._lock:
            self.add_results(results)
            self._remove(tasks)
            for task in tasks:
                if task.reply is not None:
                    task.reply.done.append(returned)
                if task.call is None:
                    self.latencies.append(now - task.since)
            self._processed()

    def _processed(self) -> None:
        """The end of a step."""
        self._processor = None
        self.wake_worker()
        self._wake_callers()

    def _remove(self, tasks: Sequence[Task[Item]]) -> None:
        self._done_end = tasks[-1].end
        for _ in tasks:
            self._tasks.popleft()
        self._single = max(self._single - len(tasks), 0)
        self._stopped = self._stopped or tasks[-1].closing

    def fail(self, tasks: Sequence[Task[Item]], error: BaseException) -> None:
        """Tasks at the head have failed. Several are tried again one by one."""
        with self._lock:
            # A device may work again: its rows stay, as after any error that is not about the rows themselves.
            refused = isinstance(error, MillraceError) and not isinstance(error, DeviceFault)
            if len(tasks) > 1:
                self._single = len(tasks)
            elif tasks[0].reply is not None:
                tasks[0].reply.errors.append(error)
                self._done_end = tasks[0].end
                self._tasks.popleft()
            else:
                self._error = error
                if refused:
                    self._remove(tasks)
            self._processed()

    def results(self, also_taken: bool) -> tuple[list[Result], int]:
        """The results that were not polled, which stay; and the number of the next row that is not done.

        `also_taken`: also those that a caller has taken that was interrupted before it returned them.
        """
        with self._lock:
            taken = self.unreturned if also_taken else None
            return [*(taken or ()), *self._results], self._done_end

    def add_results(self, results: Sequence[tuple[Result, int]]) -> None:
        """Keep results for `poll`, each with its rows."""
        with self._lock:
            for result, rows in results:
                self._results.append(result)
                self.unpolled += rows
            self._wake_callers()

    def clear_results(self) -> None:
        """Drop the results that were not polled."""
        with self._lock:
            self._results.clear()
            self.unreturned = None

    def stop(self, reason: str) -> None:
        """Make the worker end after its current step, and later calls raise a `StateError`."""
        with self._lock:
            self._closed = self._closed or reason
            self._stopped = True
            self._work.notify_all()
            self._wake_callers()

    def wait_for_step(self) -> None:
        """Wait until no other thread processes tasks."""
        while self._processor not in (None, threading.get_ident()):
            self._sleep(lambda: self._processor in (None, threading.get_ident()), None)


def is_main() -> bool:
    """Whether this is the main thread, the only one that signal handlers interrupt."""
    return threading.get_ident() == threading.main_thread().ident
