"""Critical sections: an interrupt is raised before the change begins, or after it has ended."""

from __future__ import annotations

import _thread
import builtins
import contextvars
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from millrace.host.runtime.critical import Abandoned, Begin, critical_section, load_module
from tests.signals.interrupts import dropped_interrupts


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
    entered = contextvars.copy_context()
    # A function of C that raises a RuntimeError, as `start_new_thread` does when no thread can be started.
    monkeypatch.setattr(_thread, "start_new_thread", entered.run)

    def test() -> None:
        assert critical_section(lambda begin: threading.current_thread()) is threading.main_thread()
        with pytest.raises(ValueError, match="no"):
            critical_section(lambda begin: int("no"))

    entered.run(test)


def test_a_storm_of_interrupts_leaves_every_section_whole() -> None:
    """Each section that has begun is over when the caller goes on."""
    state, armed, interrupts = [0, 0], [False], 0

    def handler(number: int, frame: Any) -> None:
        if armed[0]:
            raise KeyboardInterrupt

    def work(begin: Begin) -> None:
        begin()
        state[0] += 1
        time.sleep(0.0005)
        state[1] += 1

    before = signal.signal(signal.SIGALRM, handler)
    with dropped_interrupts(KeyboardInterrupt):
        signal.setitimer(signal.ITIMER_REAL, 0.0001, 0.0003)
        while interrupts < 200:
            try:
                armed[0] = True
                critical_section(work)
                armed[0] = False
            except KeyboardInterrupt:
                armed[0] = False
                interrupts += 1
                assert state[0] == state[1]
        signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)
    assert critical_section(lambda begin: 7) == 7


def test_a_module_is_imported_whole(
    interrupt: Callable[[], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "slow_module.py").write_text(
        "import builtins, time\nbuiltins.interrupt_now()\ntime.sleep(0.05)\nx = 7\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(builtins, "interrupt_now", interrupt, raising=False)
    with pytest.raises(KeyboardInterrupt):
        load_module("slow_module")
    assert load_module("slow_module").x == 7
    assert sys.modules.pop("slow_module").x == 7
