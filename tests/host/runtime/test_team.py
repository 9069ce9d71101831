"""The team of threads: every part of a job is executed once, with any number of helpers, also after a fork."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from millrace.faults import injected
from millrace.host.base.types import Array
from millrace.host.runtime import team as module
from millrace.host.runtime.fork import ProcessLocal
from millrace.host.runtime.intrinsics import atomic_add, atomic_load, load_as, store_as
from millrace.host.runtime.jit import share
from millrace.host.runtime.kernel_args import pack_words
from millrace.host.runtime.team import MAX_PARTS, Team


@share
def _mark(given: int, part: int, parts: int) -> None:
    """Count the calls of each part, and all calls."""
    marks, total = load_as(given, 0, 0), load_as(given, 1, 0)
    store_as(marks, part, load_as(marks, part, 0) + parts)
    atomic_add(total, 1)


def marked(team: Team, parts: int) -> tuple[list[int], int]:
    marks, total = np.zeros(max(parts, 1), np.int64), np.zeros(1, np.int64)
    team.run(_mark, pack_words(marks, total), parts)
    return marks.tolist(), int(total[0])


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("acquired", [False, True])
def test_every_part_is_done_once(threads: int, acquired: bool) -> None:
    team = Team(threads)
    if acquired:
        team.acquire()
    for parts in (1, 2, 3, 64, 1000):
        assert marked(team, parts) == ([parts] * parts, parts)
    team.depth -= 1
    assert marked(team, 7) == ([7] * 7, 7)


def test_the_number_of_parts_is_limited() -> None:
    marks, total = np.zeros(MAX_PARTS + 5, np.int64), np.zeros(1, np.int64)
    Team(1).run(_mark, pack_words(marks, total), MAX_PARTS + 5)
    assert total[0] == MAX_PARTS


def test_concurrent_teams_do_not_disturb_each_other() -> None:
    failures: list[object] = []

    def work() -> None:
        team = Team(2)
        for _ in range(200):
            team.acquire()
            if marked(team, 16) != ([16] * 16, 16):
                failures.append(team)
            team.depth -= 1

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


MOST_LOOKS = 1 << 34
"""How often a part looks for the other one before it gives up: longer than a loaded machine takes."""


@share
def _meet(given: int, part: int, parts: int) -> None:
    """Arrive, and wait until all parts have: one thread alone would give up."""
    arrived = load_as(given, 0, 0)
    atomic_add(arrived, 1)
    looks = 0
    while atomic_load(arrived) < parts and looks < MOST_LOOKS:
        looks += 1
    if looks == MOST_LOOKS:
        atomic_add(arrived, parts)


@pytest.mark.parametrize("way", ["run", "post"])
def test_a_job_wakes_the_helpers_that_fell_asleep_after_they_were_acquired(way: str) -> None:
    """Long work in Python before the first job, or between two jobs, lets helpers fall asleep."""
    team = Team(2)
    team.acquire()
    helpers = module._helper_threads.get()
    for _ in range(2):
        while helpers.control[module._ASLEEP // 8] < helpers.size:
            time.sleep(0.01)
        arrived = np.zeros(1, np.int64)
        given = pack_words(arrived)
        if way == "run":
            team.run(_meet, given, 2)
        else:
            team.post(_meet, given, 2, [arrived])()
        assert arrived[0] == 2
    team.depth -= 1


@share
def _slowly(given: int, part: int, parts: int) -> None:
    """Write a part of an array many times; the last time with the final values."""
    where, n, times = load_as(given, 0, 0), load_as(given, 1, 0), load_as(given, 2, 0)
    for turn in range(times, -1, -1):
        for i in range(n * part // parts, n * (part + 1) // parts):
            store_as(where, i, i + turn)


def posted(team: Team, out: Array | None = None, times: int = 20) -> tuple[Array, Callable[[], None]]:
    out = np.full(50_000, -1, np.int64) if out is None else out
    return out, team.post(_slowly, pack_words(out, len(out), times), 8, [out])


@pytest.mark.parametrize("acquired", [False, True])
def test_a_posted_job_is_done_when_it_is_finished(acquired: bool) -> None:
    """Right away, after other jobs, or twice."""
    team = Team(2)
    if acquired:
        team.acquire()
    expected = np.arange(50_000)
    out, finish = posted(team)
    finish()
    assert (out == expected).all()
    out, finish = posted(team)
    assert marked(team, 16) == ([16] * 16, 16)
    assert (out == expected).all(), "a job starts after the one before is done"
    finish()
    several = [posted(team) for _ in range(3)]
    for out, finish in reversed(several):
        finish()
        finish()
        assert (out == expected).all()
    team.depth -= 1


def test_a_posted_job_continues_while_another_team_takes_the_helpers() -> None:
    one, two = Team(2), Team(2)
    for _ in range(50):
        one.acquire()
        out, finish = posted(one, times=3)
        one.depth -= 1
        two.acquire()
        assert marked(two, 16) == ([16] * 16, 16)
        two.depth -= 1
        finish()
        assert (out == np.arange(50_000)).all()


def test_arrays_of_a_posted_job_live_until_it_is_done() -> None:
    """Even if the caller drops all its references."""
    team = Team(2)
    team.acquire()
    out, _ = posted(team, times=200)
    gone = weakref.ref(out)
    del out, _
    assert gone() is not None
    marked(team, 4)
    assert gone() is None
    team.depth -= 1


def test_a_forked_child_executes_a_posted_job_itself() -> None:
    team = Team(2)
    team.acquire()
    out, finish = posted(team, times=500)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        try:
            finish()
            os._exit(0 if (out == np.arange(50_000)).all() else 1)
        except BaseException:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    finish()
    assert (out == np.arange(50_000)).all()
    team.depth -= 1


ENDING = """
import sys
import numpy as np
from tests.host.runtime.test_team import Team, posted
team, out = Team(2), np.memmap(sys.argv[1], np.int64, "w+", shape=1 << 16)
team.acquire()
posted(team, np.asarray(out), times=60_000)
"""


def test_a_process_finishes_a_posted_job_before_it_ends(tmp_path: Path) -> None:
    """Its memory must not be freed while helpers write to it."""
    file = tmp_path / "out"
    ended = subprocess.run([sys.executable, "-c", ENDING, str(file)], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert (np.fromfile(file, np.int64) == np.arange(1 << 16)).all()


def test_a_forked_child_has_its_own_helper_threads() -> None:
    team = Team(2)
    team.acquire()
    marked(team, 8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn of a fork in a process with threads
        child = os.fork()
    if child == 0:
        try:
            team.acquire()
            good = marked(team, 8) == ([8] * 8, 8)
            team.depth -= 1
            os._exit(0 if good else 1)
        except BaseException:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert marked(team, 8) == ([8] * 8, 8)
    team.depth -= 1


@pytest.mark.parametrize("before", [(1 << 31) - 1, 1 << 31, (1 << 32) - 1])
def test_job_numbers_of_any_size_run_every_part(before: int) -> None:
    """Job numbers have 32 bits: they must neither be compared with a sign nor overflow."""
    team = Team(2)
    team.acquire()
    assert team._helpers is not None
    marked(team, 2)
    word = before << 32
    team._helpers.control[0] = word - (1 << 64) if word >= 1 << 63 else word  # no part of that job is left
    for _ in range(3):
        assert marked(team, 16) == ([16] * 16, 16)
        out, finish = posted(team, times=1)
        finish()
        assert (out == np.arange(50_000)).all()
    team.depth -= 1


def test_without_helper_threads_a_team_works_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_helper_threads", ProcessLocal(module.HelperThreads))
    team = Team(2)
    with injected("helpers.start=1*raise"):
        team.acquire(MAX_PARTS)
        assert marked(team, 8)[1] == 8
        team.depth -= 1
        team.acquire(MAX_PARTS)  # the next call tries again
        assert marked(team, 8)[1] == 8
        team.depth -= 1
