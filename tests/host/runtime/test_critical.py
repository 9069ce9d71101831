"""Work that no signal breaks off: an interrupt comes before the change begins, or after it has ended."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from millrace.host.runtime.critical import Abandoned, Begin, unbroken


@pytest.fixture
def interrupt() -> Iterator[Callable[[], None]]:
    """Sends the main thread what Ctrl-C would, from whatever thread."""

    def handler(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGUSR1, handler)
    main = threading.main_thread().ident
    assert main is not None
    yield lambda: signal.pthread_kill(main, signal.SIGUSR1)
    signal.signal(signal.SIGUSR1, before)


def test_what_work_returns_and_raises() -> None:
    assert unbroken(lambda begin: 7) == 7
    with pytest.raises(ValueError, match="no"):
        unbroken(lambda begin: int("no"))


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
        unbroken(work)
    left.set()
    over.wait()
    assert seen == ["abandoned"]


def test_an_interrupt_during_the_change_comes_after_it(interrupt: Callable[[], None]) -> None:
    seen: list[int] = []

    def work(begin: Begin) -> None:
        begin()
        interrupt()
        for step in range(20):
            time.sleep(0.001)  # time enough for the main thread to go on, if it could
            seen.append(step)

    with pytest.raises(KeyboardInterrupt):
        unbroken(work)
    assert seen == list(range(20))


def test_threads_that_no_signal_reaches_do_it_themselves() -> None:
    seen: list[int] = []
    thread = threading.Thread(target=lambda: unbroken(lambda begin: seen.append(threading.get_ident())))
    thread.start()
    thread.join()
    assert seen == [thread.ident]


def test_where_no_thread_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert unbroken(lambda begin: threading.current_thread()) is threading.main_thread()
    with pytest.raises(ValueError, match="no"):
        unbroken(lambda begin: int("no"))
