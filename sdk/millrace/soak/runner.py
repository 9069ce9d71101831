"""Runs a soak: residents that live as long as it, and episodes of short-lived operators with faults and kills.

Of each operator there is a resident with a large window and one with a small window, which is soon replaced; both
sizes get the same time. What the process holds is set against the turnovers of the large windows, which is the stricter
measure, or of the small ones in a soak that is too short for that. In each round the residents make calls and
one episode runs: an operator on a device, in two of three with one of the fault points armed that it passes, or a join
in a process that is killed. After each round, what the process holds is measured. An episode depends on the seed and
its number alone, so that one line replays it.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

from millrace.faults import fault_points, injected
from millrace.host.base.errors import ArgumentError
from millrace.host.base.faults import Arming
from millrace.registry import devices
from millrace.soak.base import SIMULATED, Operator, SoakFailure
from millrace.soak.killed import run_killed
from millrace.soak.operators import OPERATORS, RESIDENTS, operators_of
from millrace.soak.resources import LIMIT, growth, held_resources
from millrace.soak.watchdog import Watchdog

RESIDENT_ROWS, EPISODE_ROWS, SIMULATED_ROWS = 400, 200, 40
SMALL_ROWS = 24
"""The rows of small residents. A call replaces a sixth of such a window on average, so that even a busy machine makes
the hundreds of turnovers that a slope needs."""
SMALL_EPISODES = 0.3
"""The share of episodes whose windows are small as well."""
ROUND_SECONDS, MAX_ROUND_SECONDS = 1.0, 15.0
"""The residents work in a round as long as the episode before took, within these limits, so that neither starves."""
KILLED_STEPS = 60
Say = Callable[[str], None]


@dataclass
class SoakReport:
    """What a soak did."""

    seed: int
    seconds: float = 0.0
    paused: float = 0.0
    """Seconds of these in which the process was stopped from outside."""
    episodes: int = 0
    calls: int = 0
    turnovers: float = 0.0
    """Of the small windows, the fewest."""
    large_turnovers: float = 0.0
    armed: int = 0
    """Episodes with an armed fault point."""
    met: int = 0
    """Episodes whose fault point acted."""
    faults: int = 0
    kills: int = 0
    what: Counter[str] = field(default_factory=Counter)
    growths: dict[str, float | None] = field(default_factory=dict)
    levels: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Of each resource, the first and the last value of the second half."""
    window_rows: dict[str, int] = field(default_factory=dict)
    """Of each resource, the size of the windows whose turnovers it is set against."""

    def lines(self) -> list[str]:
        """The report as text."""
        ran = ", ".join(f"{count} {name}" for name, count in sorted(self.what.items()))
        paused = f" ({self.paused:.0f} s of them paused from outside)" if self.paused else ""
        lines = [
            f"seed {self.seed}: {self.seconds:.0f} s{paused}, {self.episodes} episodes ({ran}), {self.calls:,} calls "
            f"of residents, {self.turnovers:,.0f} turnovers of windows of {SMALL_ROWS} rows and "
            f"{self.large_turnovers:,.0f} of {RESIDENT_ROWS}, {self.faults} faults raised (a fault point acted in "
            f"{self.met} of {self.armed} episodes that had one), {self.kills} kills"
        ]
        for name, slope in self.growths.items():
            first, last = self.levels[name]
            slope_text = f"per 100 turnovers of windows of {self.window_rows[name]} rows"
            slope_text = "too few turnovers for a slope" if slope is None else f"{slope:+.3%} {slope_text}"
            lines.append(f"  {name}: {first:,.1f} to {last:,.1f}, {slope_text}")
        return lines

    def too_steep(self) -> list[str]:
        """The resources that grow."""
        return [f"{name} grows by {slope:.2%}" for name, slope in self.growths.items() if slope and slope > LIMIT]


def run_episode(seed: int, number: int, device_names: list[str], report: SoakReport) -> str:
    """One episode; returns what ran."""
    rng = Random(f"soak {seed} {number}")
    if rng.random() < 0.08:
        with TemporaryDirectory() as folder:
            kills, summary = run_killed(rng, KILLED_STEPS, Path(folder))
        report.kills += kills
        report.what["killed"] += 1
        return summary
    device = rng.choice(device_names)
    name = rng.choice(operators_of(device))
    most_rows = SMALL_ROWS if rng.random() < SMALL_EPISODES else EPISODE_ROWS
    rows = SIMULATED_ROWS if device in SIMULATED else rng.randrange(2, most_rows)
    steps = 6 if device in SIMULATED else rng.randrange(5, 60)
    drawn = rng.getstate()
    rule = draw_rule(rng, lambda watching: _run_steps(name, device, rows, steps, drawn, watching, SoakReport(seed))[1])
    summary, passed = _run_steps(name, device, rows, steps, drawn, rule, report)
    report.armed += bool(rule)
    report.met += any(arming.fired for arming in passed.values())
    report.what[name] += 1
    return summary


def _run_steps(
    name: str, device: str, rows: int, steps: int, drawn: Any, rule: str, report: SoakReport
) -> tuple[str, dict[str, Arming]]:
    """Run an operator with a rule, from a state of the random numbers on; returns a summary, and what the rule did."""
    rng = Random()
    rng.setstate(drawn)
    with injected(rule) as armed:
        operator = OPERATORS[name](rng, device, rows)
        try:
            for _ in range(steps):
                operator.step()
            operator.finish()
        except Exception as error:
            error.add_note(f"{operator.describe()} with faults {rule or 'none'}")
            raise
        finally:
            report.faults += operator.raised
            operator.close()
    return f"{operator.describe()} {rule}", armed


def draw_rule(rng: Random, watch: Callable[[str], dict[str, Arming]]) -> str:
    """For two of three episodes, a rule for one of the points that its operator passes, found by a run that watches.

    The points are drawn before that run: threads may make it pass others the next time.
    """
    if rng.random() < 1 / 3:
        return ""
    names = [one.name for one in fault_points()]
    rng.shuffle(names)
    skip, times = rng.choice((0, 0, 1, 5, 20)), rng.choice(("1*", "1*", "3*", "5*30%"))
    action, seed = rng.choice(("raise", "raise", "oom", "sleep(2)")), rng.randrange(1 << 30)
    passed = watch(";".join(f"{name}=0%raise" for name in names))
    name = next((name for name in names if passed[name].hits), None)
    if name is None:
        return ""
    return f"seed={seed};{name}={skip if skip < passed[name].hits else 0}+{times}{action}"


class Residents:
    """Operators that live as long as the soak, in two sizes, and how much they hold."""

    def __init__(self, seed: int) -> None:
        """New ones, on the CPU."""
        self.groups = {rows: _new_residents(seed, rows) for rows in (RESIDENT_ROWS, SMALL_ROWS)}
        self.spent = dict.fromkeys(self.groups, 0.0)
        for operator in self.operators:  # compiles or loads the kernels, which does not count as time of the soak
            operator.step()
        self.calls = 0
        self.samples: dict[tuple[str, int], list[tuple[float, float]]] = {}
        """Of each resource and size of windows, turnovers and values."""

    @property
    def operators(self) -> list[Operator]:
        """All of them."""
        return [one for group in self.groups.values() for one in group]

    def turnovers(self, rows: int = SMALL_ROWS) -> float:
        """The fewest turnovers of any resident of this size."""
        return min(one.turnovers for one in self.groups[rows])

    def work(self, seconds: float) -> None:
        """Make calls: of the size that had less time, by the resident that is most behind."""
        until = time.monotonic() + seconds
        while (now := time.monotonic()) < until:
            rows = min(self.spent, key=self.spent.__getitem__)
            min(self.groups[rows], key=lambda one: one.turnovers).step()
            self.spent[rows] += time.monotonic() - now
            self.calls += 1

    def sample(self) -> None:
        """Measure what the process holds, and the states of the residents, each beside its own turnovers."""
        for name, value in held_resources().items():
            for rows in self.groups:
                self.samples.setdefault((name, rows), []).append((self.turnovers(rows), value))
        for rows, group in self.groups.items():
            for one in group:
                if one.state_bytes:
                    name = f"state of {one.name} of {rows} rows (bytes)"
                    self.samples.setdefault((name, rows), []).append((one.turnovers, float(one.state_bytes)))

    def report(self, into: SoakReport) -> None:
        """Add the slopes to a report; large windows come first."""
        into.calls, into.turnovers = self.calls, self.turnovers()
        into.large_turnovers = self.turnovers(RESIDENT_ROWS)
        for (name, rows), samples in self.samples.items():
            if into.growths.get(name) is not None:
                continue
            latter = samples[len(samples) // 2 :]
            into.growths[name], into.window_rows[name] = growth(*zip(*samples, strict=True)), rows
            into.levels[name] = latter[0][1], latter[-1][1]


def _new_residents(seed: int, rows: int) -> list[Operator]:
    return [OPERATORS[name](Random(f"{seed} {name} {rows}"), "cpu", rows) for name in RESIDENTS]


def usable_devices() -> list[str]:
    """The CPU, often, and every other device of this machine that is not a stand-in."""
    others = [info.name for info in devices() if info.available and info.kind not in ("null", "cpu", "fpga")]
    return ["cpu"] * max(3, len(others)) + [name for name in others if operators_of(name)]


def soak(minutes: float, seed: int, say: Say) -> SoakReport:
    """Run for some minutes; raises a `SoakFailure` that names the line that replays it."""
    report, device_names, residents = SoakReport(seed), usable_devices(), Residents(seed)
    begin = said_at = time.monotonic()
    try:
        with Watchdog() as watchdog:
            episode_seconds = 0.0
            while time.monotonic() - begin < 60 * minutes:
                watchdog.progress(f"the residents of millrace soak --seed {seed}")
                residents.work(min(max(ROUND_SECONDS, episode_seconds), MAX_ROUND_SECONDS))
                started = time.monotonic()
                watchdog.progress(f"replay it: {_replay_line(seed, report.episodes)}")
                _episode(seed, report.episodes, device_names, report)
                episode_seconds = time.monotonic() - started
                report.episodes += 1
                residents.sample()
                if time.monotonic() - said_at > 10:
                    said_at = time.monotonic()
                    say(_progress_line(said_at - begin, report, residents))
            watchdog.progress(f"the last comparison of millrace soak --seed {seed}")
            for operator in residents.operators:
                operator.finish()
    finally:
        for operator in residents.operators:
            operator.close()
    report.seconds, report.paused = time.monotonic() - begin, watchdog.paused
    residents.report(report)
    return report


def _progress_line(seconds: float, report: SoakReport, residents: Residents) -> str:
    return (
        f"{seconds:6.0f} s  {report.episodes} episodes, {residents.turnovers():.0f} and "
        f"{residents.turnovers(RESIDENT_ROWS):.0f} turnovers, {report.faults} faults, {report.kills} kills, "
        f"{residents.samples['memory (MB)', SMALL_ROWS][-1][1]:.0f} MB"
    )


def _episode(seed: int, number: int, device_names: list[str], report: SoakReport) -> None:
    try:
        run_episode(seed, number, device_names, report)
    except Exception as error:
        notes = "; ".join(getattr(error, "__notes__", []))
        line = _replay_line(seed, number)
        raise SoakFailure(f"{type(error).__name__}: {error} ({notes}); replay it: {line}") from error


def _replay_line(seed: int, number: int) -> str:
    return f"millrace soak --replay 'seed={seed},episode={number}'"


def replay(text: str, say: Say) -> None:
    """Run one episode again."""
    parts = dict(part.strip().partition("=")[::2] for part in text.split(","))
    if set(parts) != {"seed", "episode"} or not all(value.isdigit() for value in parts.values()):
        raise ArgumentError(f"--replay {text!r}: allowed is 'seed=NUMBER,episode=NUMBER', as a soak prints it")
    say(run_episode(int(parts["seed"]), int(parts["episode"]), usable_devices(), SoakReport(int(parts["seed"]))))
