"""Critical sections: an interrupt is raised before the change begins, or after it has ended."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from millrace.host.runtime.critical import Abandoned, Begin, critical_section


@pytest.fixture
def interrupt() -> Iterator[Callable[[], None]]:
    """Interrupts the main thread like Ctrl-C, from any thread."""

    def handler(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGUSR1, handler)
    main = threading.main_thread().ident
    assert main is not None
    yield lambda: signal.pthread_kill(main, signal.SIGUSR1)
    signal.signal(signal.SIGUSR1, before)


def test_results_and_errors_are_passed_on() -> None:
    assert critical_section(lambda begin: 7) == 7
    with pytest.raises(ValueError, match="no"):
        critical_section(lambda begin: int("no"))


def test_an_interrupt_before_the_change_abandons_it(interrupt: Callable[[], None]) -> None:
    left, over = threading.Event(), threading.Event()
    seen: list[str] = []

    def work(begin: Begin) -> None:
        interrupt()
        left.wait()
        try:
            begin()
            seen.append("changed")
        except Abandoned:
            seen.append("abandoned")
        over.set()

    with pytest.raises(KeyboardInterrupt):
        critical_section(work)
    left.set()
    over.wait()
    assert seen == ["abandoned"]


def test_an_interrupt_during_the_change_is_raised_after_it(interrupt: Callable[[], None]) -> None:
    seen: list[int] = []

    def work(begin: Begin) -> None:
        begin()
        interrupt()
        for step in range(20):
            time.sleep(0.001)  # time enough for the main thread to continue, if it could
            seen.append(step)

    with pytest.raises(KeyboardInterrupt):
        critical_section(work)
    assert seen == list(range(20))


def test_other_threads_than_the_main_one_run_the_section_themselves() -> None:
    seen: list[int] = []
    thread = threading.Thread(target=lambda: critical_section(lambda begin: seen.append(threading.get_ident())))
    thread.start()
    thread.join()
    assert seen == [thread.ident]


def test_without_another_thread_the_main_one_runs_the_section(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert critical_section(lambda begin: threading.current_thread()) is threading.main_thread()
    with pytest.raises(ValueError, match="no"):
        critical_section(lambda begin: int("no"))
