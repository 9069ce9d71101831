"""A step in the caller's thread is not cut by signals, and one thread at a time processes tasks."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from millrace.host.live.interrupts import WithoutInterrupts, may_step
from millrace.host.live.task_queue import TaskQueue


def in_main_thread(work: Callable[[], Any]) -> Any:
    """Run something with Python's own handler of interrupts, which a test's process may ignore."""
    assert threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return work()
    finally:
        signal.signal(signal.SIGINT, before)


def test_an_interrupt_waits_for_the_end_of_the_step() -> None:
    done = []

    def step() -> None:
        with WithoutInterrupts():
            signal.raise_signal(signal.SIGINT)
            done.append("all of the step")

    with pytest.raises(KeyboardInterrupt):
        in_main_thread(step)
    assert done == ["all of the step"]


def test_without_an_interrupt_the_handler_is_as_before() -> None:
    def step() -> object:
        with WithoutInterrupts():
            pass
        return signal.getsignal(signal.SIGINT)

    assert in_main_thread(step) is signal.default_int_handler


def test_a_program_that_handles_other_signals_leaves_steps_to_the_worker() -> None:
    assert in_main_thread(may_step)
    before = signal.signal(signal.SIGUSR1, lambda number, frame: None)
    try:
        assert not in_main_thread(may_step)
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(may_step).result()
    finally:
        signal.signal(signal.SIGUSR1, before)


def queue_with(rows: list[int], capacity: int = 100) -> TaskQueue[str, str]:
    queue: TaskQueue[str, str] = TaskQueue(capacity)
    for number, count in enumerate(rows):
        queue.put(f"task {number}", count, None, waking=False)
    return queue


def test_a_caller_claims_all_tasks_or_none() -> None:
    queue = queue_with([3, 4])
    assert queue.claim(6) == []
    tasks = queue.claim(7)
    assert [task.item for task in tasks] == ["task 0", "task 1"]
    assert queue.claim(7) == [], "somebody processes tasks"
    queue.put("task 2", 1, None)
    queue.finish(tasks, [("pairs", 5)])
    assert [task.item for task in queue.claim(7)] == ["task 2"]
    assert queue.poll(0.0) == ["pairs"]


def test_a_caller_claims_no_calls_and_nothing_of_a_stopped_or_crowded_queue() -> None:
    queue = queue_with([1])
    queue.call(lambda: None, urgent=False, wait=False)
    assert queue.claim(9) == []
    stopped = queue_with([1])
    stopped.stop("over")
    assert stopped.claim(9) == []
    crowded = queue_with([1], capacity=4)
    crowded.add_results([("pairs", 4)])
    assert crowded.claim(9) == []
    assert crowded.poll(0.0) == ["pairs"]
    assert len(crowded.claim(9)) == 1


def test_a_failed_step_can_be_claimed_again_once_its_error_was_raised() -> None:
    queue = queue_with([1])
    queue.fail(queue.claim(9), MemoryError("no memory"))
    assert queue.claim(9) == []
    with pytest.raises(MemoryError):
        queue.poll(0.0)
    assert len(queue.claim(9)) == 1
