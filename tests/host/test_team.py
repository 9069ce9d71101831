"""The team of threads: every part of a job is done once, whoever helps, whatever else happens."""

from __future__ import annotations

import os
import threading
import warnings

import numpy as np
import pytest

from millrace.host.jit import share
from millrace.host.memory import atomic_add, load_as, store_as, table
from millrace.host.team import MOST_PARTS, Team


@share
def _mark(given: int, part: int, parts: int) -> None:
    """Count each part's visits, and all visits together."""
    marks, total = load_as(given, 0, 0), load_as(given, 1, 0)
    store_as(marks, part, load_as(marks, part, 0) + parts)
    atomic_add(total, 1)


def marked(team: Team, parts: int) -> tuple[list[int], int]:
    marks, total = np.zeros(max(parts, 1), np.int64), np.zeros(1, np.int64)
    team.run(_mark, table(marks, total), parts)
    return marks.tolist(), int(total[0])


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("roused", [False, True])
def test_every_part_is_done_once(threads: int, roused: bool) -> None:
    team = Team(threads)
    if roused:
        team.rouse()
    for parts in (1, 2, 3, 64, 1000):
        assert marked(team, parts) == ([parts] * parts, parts)
    team.rest()
    assert marked(team, 7) == ([7] * 7, 7)


def test_more_parts_than_a_job_can_have_are_made_fewer() -> None:
    marks, total = np.zeros(MOST_PARTS + 5, np.int64), np.zeros(1, np.int64)
    Team(1).run(_mark, table(marks, total), MOST_PARTS + 5)
    assert total[0] == MOST_PARTS


def test_two_teams_of_two_threads_do_not_disturb_each_other() -> None:
    failures: list[object] = []

    def work() -> None:
        team = Team(2)
        for _ in range(200):
            team.rouse()
            if marked(team, 16) != ([16] * 16, 16):
                failures.append(team)
            team.rest()

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_a_forked_child_has_a_crew_of_its_own() -> None:
    team = Team(2)
    team.rouse()
    marked(team, 8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn of a fork beside threads
        child = os.fork()
    if child == 0:
        try:
            team.rouse()
            good = marked(team, 8) == ([8] * 8, 8)
            team.rest()
            os._exit(0 if good else 1)
        except BaseException:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert marked(team, 8) == ([8] * 8, 8)
    team.rest()
