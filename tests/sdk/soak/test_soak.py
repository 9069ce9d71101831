"""The soak: a short run, its replay, how growth is measured, and that it finds what it is for."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

import millrace as mr
from millrace.soak import runner, watchdog
from millrace.soak.base import SoakFailure
from millrace.soak.killed import run_killed
from millrace.soak.operators import OPERATORS, operators_of
from millrace.soak.resources import growth
from millrace.soak.runner import SoakReport, replay, run_episode, soak
from tests import oracle
from tests.watchdog import WATCHDOG


@pytest.mark.parametrize("name", operators_of("cpu"))
def test_every_operator_keeps_to_the_brute_force(name: str) -> None:
    for seed in range(2):
        operator = OPERATORS[name](Random(seed), "cpu", 50)
        for _ in range(15):
            operator.step()
        operator.finish()
        operator.close()
        assert operator.turnovers > 0


@pytest.mark.parametrize("timed", [False, True])
def test_the_brute_force_equals_the_oracle(timed: bool) -> None:
    rng = np.random.default_rng(5)
    from millrace.soak.reference import KINDS, ReferenceJoin

    arguments: dict[str, Any] = {"window": "9", "time": "ts", "lateness": 2} if timed else {"window": "9 rows"}
    for kind, (on, _) in KINDS.items():
        ours, theirs = ReferenceJoin(kind, 9, timed, 2 if timed else 0), oracle.WindowJoin(on, **arguments)
        for step in range(30):
            count, side = int(rng.integers(0, 5)), int(rng.integers(0, 2))
            rows = np.stack([3 * step + rng.integers(-4, 5, count), *rng.integers(0, 12, (2, count))])
            dicts = [dict(zip(("ts", "x", "y"), row, strict=True)) for row in rows.T.tolist()]
            wanted = theirs.push("rs"[side], dicts)
            assert ours.push(side, rows).T.tolist() == [[pair[1], pair[3]] for pair in wanted]
        assert ours.flush().T.tolist() == [[pair[1], pair[3]] for pair in theirs.flush()]


def test_a_short_soak_ends_and_reports() -> None:
    said: list[str] = []
    report = soak(0.04, 3, said.append)
    assert report.episodes >= 1
    assert report.calls > 0
    assert report.lines()[0].startswith("seed 3: ")
    assert any("memory" in line for line in report.lines())


@pytest.mark.long
def test_two_minutes_of_soak() -> None:
    report = soak(2, 1, print)
    assert report.too_steep() == [], report.lines()
    assert report.episodes > 10


def test_a_wrong_output_is_found_and_names_the_line_that_replays_it(monkeypatch: pytest.MonkeyPatch) -> None:
    right = OPERATORS["ScaleGate"].expect

    def wrong(self: Any, found: Any, wanted: Any, what: str) -> None:
        right(self, found[:-1], wanted, what)

    monkeypatch.setattr(OPERATORS["ScaleGate"], "expect", wrong)
    monkeypatch.setattr(runner, "operators_of", lambda device: ["ScaleGate"])
    failing = None
    for number in range(20):
        try:
            runner._episode(4, number, ["cpu"], SoakReport(4))
        except SoakFailure as failure:
            failing = failure
            break
    assert f"--replay 'seed=4,episode={number}'" in str(failing)
    monkeypatch.setattr(runner, "usable_devices", lambda: ["cpu"])
    with pytest.raises(SoakFailure, match="ScaleGate"):
        replay(f"seed=4,episode={number}", print)


@pytest.mark.parametrize("text", ["", "seed=1", "seed=x,episode=2", "episode=1,seed=2,more=3"])
def test_a_wrong_replay_is_an_argument_error(text: str) -> None:
    with pytest.raises(mr.ArgumentError, match="seed=NUMBER"):
        replay(text, print)


def test_an_episode_is_the_same_each_time() -> None:
    reported = [run_episode(9, number, ["cpu"], SoakReport(9)) for number in (1, 1, 2)]
    assert reported[0] == reported[1] != reported[2]


def test_an_armed_fault_is_met(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "operators_of", lambda device: ["ScaleGate", "OrderedIndex"])
    monkeypatch.setattr(runner, "run_killed", lambda *arguments: (0, ""))
    report = SoakReport(5)
    for number in range(12):
        run_episode(5, number, ["cpu"], report)
    assert 4 < report.armed < 12
    assert report.met > report.armed * 2 / 3
    assert report.faults > 0


def test_growth_is_the_slope_of_what_does_not_jump() -> None:
    turnovers = [10.0 * i for i in range(100)]
    assert growth(turnovers, [100.0] * 100) == 0
    steep = growth(turnovers, [100 + 0.1 * t for t in turnovers])
    assert steep is not None
    assert 0.05 < steep < 0.1
    jumping = growth(turnovers, [100.0 + 50 * (i % 10 == 0) for i in range(100)])
    assert jumping is not None
    assert abs(jumping) < 1e-3
    assert growth(turnovers[:5], [1.0] * 5) is None


def test_a_killed_join_goes_on_from_its_state(tmp_path: Path) -> None:
    kills, summary = run_killed(Random(1), 12, tmp_path)
    assert summary == f"12 steps in {kills + 1} processes, {kills} of them killed"


def test_small_windows_turn_over_while_large_ones_get_their_time() -> None:
    residents = runner.Residents(6)
    for _ in range(3):
        residents.work(0.3)
        residents.sample()
    assert residents.turnovers() > residents.turnovers(runner.RESIDENT_ROWS) > 0
    large, small = residents.spent.values()
    assert small > 0
    assert large > 0
    report = SoakReport(6)
    residents.report(report)
    assert report.turnovers == residents.turnovers()
    assert "turnovers of windows of 24 rows" in report.lines()[0]
    assert report.growths["memory (MB)"] is None
    for operator in residents.operators:
        operator.close()


def test_what_the_process_holds_is_set_against_the_large_windows_if_they_turned_over_enough() -> None:
    residents = runner.Residents(6)
    grows = [(10.0 * i, 100.0 + i) for i in range(100)]
    for share, rows in ((1.0, runner.RESIDENT_ROWS), (0.1, runner.SMALL_ROWS)):
        large = [(share * turnovers, value) for turnovers, value in grows]
        residents.samples = {("memory (MB)", runner.RESIDENT_ROWS): large, ("memory (MB)", runner.SMALL_ROWS): grows}
        report = SoakReport(6)
        residents.report(report)
        assert report.window_rows == {"memory (MB)": rows}
        assert report.too_steep() == ["memory (MB) grows by 5.73%"]
        assert f"per 100 turnovers of windows of {rows} rows" in report.lines()[1]
    for operator in residents.operators:
        operator.close()


def test_a_hang_ends_with_the_line_that_replays_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watchdog, "MOST_TICKS", 5)
    said: list[str] = []
    hung = threading.Event()

    def end(message: str) -> None:
        said.append(message)
        hung.set()

    with watchdog.Watchdog(end, tick=0.001) as dog:
        dog.progress("episode 7")
        assert hung.wait(WATCHDOG)
    assert "episode 7" in said[0]


def test_progress_keeps_the_watchdog_quiet() -> None:
    said: list[str] = []
    with watchdog.Watchdog(said.append, tick=0.001) as dog:
        for _ in range(watchdog.MOST_TICKS):
            dog.progress("work")
            time.sleep(0.001)
            assert dog._ticks <= watchdog.MOST_TICKS
    assert said == []


PAUSED = """
import sys, time
from millrace.soak import watchdog
watchdog.MOST_TICKS, watchdog.MIN_PAUSE = 60, 2.0
with watchdog.Watchdog(tick=0.05) as dog:
    dog.progress("waits for input")
    print("ready", flush=True)
    sys.stdin.readline()
    time.sleep(1)
print(dog.paused > 0, flush=True)
"""


def test_a_paused_process_does_not_hang() -> None:
    """Three seconds without progress are a hang here; four seconds of SIGSTOP are none."""
    with subprocess.Popen([sys.executable, "-c", PAUSED], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        os.kill(child.pid, signal.SIGSTOP)
        time.sleep(4)
        child.stdin.write(b"\n")
        child.stdin.flush()
        os.kill(child.pid, signal.SIGCONT)
        assert child.stdout.read() == b"True\n"
        assert child.wait() == 0
