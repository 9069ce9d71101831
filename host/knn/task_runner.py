"""Runs mapper-joiners on threads: carries their messages, and bounds the number of active tasks.

Each thread takes whatever can be done next: a message for an operator that no thread is in, or the next task. So
threads share the roles of mapper and core, and spend their time where the work is (thesis, appendix C 5.4). An operator
handles one message at a time. Task t starts once all tasks up to t - 2n are finished.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence

from millrace.host.knn.mapper_joiner import RUNNER, Done, MapperJoiner, Message, Task
from millrace.host.runtime import pool


class TaskRunner:
    """Runs tasks on operators."""

    def __init__(self, operators: Sequence[MapperJoiner]) -> None:
        """Nothing runs yet."""
        self._operators = operators
        self._changed = threading.Condition()
        self._inboxes: list[deque[Message]] = [deque() for _ in operators]
        self._busy = [False] * len(operators)
        self._tasks: deque[Task] = deque()
        self._unfinished: dict[int, int] = {}
        """The active tasks, and how many cores work on each."""
        self._failed = False

    def run(self, tasks: Sequence[Task], threads: int) -> None:
        """Run tasks, in the order of their numbers, and wait until all are finished. An error leaves this unusable."""
        self._tasks.extend(tasks)
        pool.run([self._work] * threads)

    def _work(self) -> None:
        """Handle messages until all tasks are finished, or a thread has failed."""
        try:
            while (claimed := self._claim()) is not None:
                number, message = claimed
                for to, sent in self._operators[number].handle(message):
                    self._deliver(to, sent)
                with self._changed:
                    self._busy[number] = False
                    self._changed.notify_all()
        except BaseException:
            with self._changed:
                self._failed = True
                self._changed.notify_all()
            raise

    def _claim(self) -> tuple[int, Message] | None:
        """Take the next thing to do, and mark its operator as busy; None if there is nothing left."""
        with self._changed:
            while not self._failed and (self._tasks or self._unfinished):
                for number, inbox in enumerate(self._inboxes):
                    if inbox and not self._busy[number]:
                        self._busy[number] = True
                        return number, inbox.popleft()
                if self._may_start():
                    task = self._tasks.popleft()
                    self._unfinished[task.number] = len(self._operators)
                    number = task.number % len(self._operators)
                    self._inboxes[number].appendleft(task)
                    continue
                self._changed.wait()
            return None

    def _may_start(self) -> bool:
        """Whether the next task may become active."""
        if not self._tasks:
            return False
        oldest = min(self._unfinished, default=self._tasks[0].number)
        return self._tasks[0].number - oldest < 2 * len(self._operators)

    def _deliver(self, to: int, message: Message) -> None:
        with self._changed:
            if to != RUNNER:
                self._inboxes[to].append(message)
            elif isinstance(message, Done):
                self._unfinished[message.task.number] -= 1
                if not self._unfinished[message.task.number]:
                    del self._unfinished[message.task.number]
            self._changed.notify_all()
