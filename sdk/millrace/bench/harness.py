"""Measures contenders side by side: checks that their results are equal, then times them in turns.

Each repeat gives every contender one time slice, in turn, so that noise on the machine affects all of them. A slice is
as many rounds of steps as fit, at least one. The result is work per second: the median over the slices, and their
spread. A contender that has used its total time (`max_seconds`) gets fewer repeats.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from millrace.errors import MillraceError

Answer = Mapping[str, npt.NDArray[Any]]
"""Columns by name, in a canonical row order so that equal results compare equal."""
Progress = Callable[[str, float], None]
"""Called with the current activity and the completed fraction of the work."""
_NO_MEMORY = "it ran out of memory"


class DifferentWork(MillraceError):
    """Two contenders returned different results, so their speeds cannot be compared."""


class PeerMissing(MillraceError):
    """A peer cannot run on this machine; the message says how to fix it."""


class Runner(Protocol):
    """A started contender."""

    def step(self) -> tuple[float, float]:
        """Run one step; returns the amount of work and the seconds it took."""

    def answer(self) -> Answer:
        """The result of the last step."""

    def pause(self) -> None:
        """Called before another contender's turn: free the last result."""

    def close(self) -> None:
        """Release all resources."""


@dataclass(frozen=True)
class Contender:
    """A participant of a case. Ours have an index and a device; `start` may raise `PeerMissing`.

    A contender without `answers` is a yardstick: it does other work than the case, and its result is not compared.
    `unit` is the unit of its work if that is not the case's unit.
    """

    name: str
    start: Callable[[], Runner]
    index: str | None = None
    device: str | None = None
    device_kind: str | None = None
    answers: bool = True
    unit: str | None = None

    @property
    def ours(self) -> bool:
        """Whether this contender is ours, not a peer."""
        return self.index is not None


@dataclass(frozen=True)
class Case:
    """One comparison: contenders that do the same work, measured in the same unit (more is better).

    The results of the first `check_steps` steps are compared. Every contender does `warm_work` before it is timed, so
    that adaptive code reaches a steady state. A slice is a multiple of `round` steps, for steps that alternate.
    `slice_share` shortens the usual slice, for benches with many cases. A repeat may be cut into `turns` slices per
    contender, so that contenders with similar speeds are measured under the same conditions. Our indexes in `rivals`
    are peers of our other indexes. With a `step_unit` the result also has percentiles over single steps: in
    microseconds (`us`), or in what a runner reports as microseconds.
    """

    name: str
    unit: str
    contenders: Sequence[Contender]
    facts: Mapping[str, Any] = field(default_factory=dict)
    check_steps: int = 2
    round: int = 1
    warm_work: float = 0.0
    slice_share: float = 1.0
    turns: int = 1
    rivals: frozenset[str] = frozenset()
    step_unit: str | None = None


@dataclass(frozen=True)
class Effort:
    """How long to measure: `repeats` slices of `slice_seconds` each, at most `max_seconds` per contender in total.

    Warming up takes at most a fifteenth of `max_seconds`.
    """

    repeats: int = 7
    slice_seconds: float = 0.5
    max_seconds: float = 60.0


@dataclass(frozen=True)
class Measured:
    """A contender's speeds, one per repeat."""

    contender: Contender
    speeds: tuple[float, ...]
    steps: tuple[float, ...] = ()
    """Seconds of each timed step."""

    @property
    def percentiles(self) -> dict[str, float]:
        """Percentiles over the timed steps, in microseconds."""
        values = 1e6 * np.percentile(self.steps, [50, 90, 99, 99.9, 100])
        return dict(zip(("p50", "p90", "p99", "p999", "max"), map(float, values), strict=True))

    @property
    def value(self) -> float:
        """The median."""
        return float(np.median(self.speeds))

    @property
    def spread(self) -> dict[str, float]:
        """Minimum, maximum and quartiles."""
        lowest, first, third, highest = np.percentile(self.speeds, [0, 25, 75, 100])
        return {"min": float(lowest), "q1": float(first), "q3": float(third), "max": float(highest)}


@dataclass(frozen=True)
class Result:
    """A measured case, and the contenders that could not run, with the reason."""

    case: Case
    measured: tuple[Measured, ...]
    missing: Mapping[str, str]


def measure(case: Case, effort: Effort, progress: Progress) -> Result:
    """Start all contenders, check that their results agree, and time them in turns."""
    runners: dict[str, Runner] = {}
    missing: dict[str, str] = {}
    try:
        for contender in case.contenders:
            progress(f"{case.name}: preparing {contender.name}", 0.0)
            try:
                runners[contender.name] = contender.start()
            except PeerMissing as reason:
                missing[contender.name] = str(reason)
            except MemoryError:
                if contender.ours:
                    raise
                missing[contender.name] = _NO_MEMORY
        missing |= _check(case, runners, progress)
        _warm(case, runners, effort, progress)
        with _quick_collection():
            speeds, steps = _race(case, runners, effort, progress)
    finally:
        for runner in runners.values():
            runner.close()
    present = [c for c in case.contenders if c.name in runners]
    return Result(case, tuple(Measured(c, tuple(speeds[c.name]), tuple(steps[c.name])) for c in present), missing)


def _check(case: Case, runners: dict[str, Runner], progress: Progress) -> dict[str, str]:
    """Run the first steps, which also warm up; all compared contenders must return equal results.

    A peer that runs out of memory is closed and removed; the reason is returned.
    """
    failed: dict[str, str] = {}
    for _ in range(case.check_steps):
        expected: tuple[str, Answer] | None = None
        for contender in [c for c in case.contenders if c.name in runners]:
            name = contender.name
            progress(f"{case.name}: checking {name}", 0.0)
            try:
                answer = _first_answer(contender, runners[name])
            except MemoryError:
                if contender.ours:
                    raise
                runners.pop(name).close()
                failed[name] = _NO_MEMORY
                continue
            if expected is None or answer is None:
                expected = expected if answer is None else (name, answer)
            elif (difference := _difference(expected[1], answer)) is not None:
                raise DifferentWork(f"{case.name}: {name} and {expected[0]} return different results: {difference}")
    return failed


def _first_answer(contender: Contender, runner: Runner) -> Answer | None:
    """The result of one step; None for a yardstick."""
    runner.step()
    answer = runner.answer() if contender.answers else None
    runner.pause()
    return answer


def _warm(case: Case, runners: Mapping[str, Runner], effort: Effort, progress: Progress) -> None:
    """Run untimed work."""
    for name, runner in runners.items():
        progress(f"{case.name}: warming up {name}", 0.0)
        work = seconds = 0.0
        while work < case.warm_work and seconds < effort.max_seconds / 15:
            done, took = runner.step()
            work, seconds = work + done, seconds + took
        runner.pause()


def _difference(expected: Answer, given: Answer) -> str | None:
    if list(expected) != list(given):
        return f"columns {', '.join(given)}, not {', '.join(expected)}"
    for name, column in expected.items():
        if len(column) != len(given[name]):
            return f"{len(given[name])} rows, not {len(column)}"
        differs = np.flatnonzero(column != given[name])
        if len(differs):
            at = int(differs[0])
            return f"{name} of row {at} is {given[name][at]}, not {column[at]}"
    return None


def _race(
    case: Case, runners: Mapping[str, Runner], effort: Effort, progress: Progress
) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Each contender's speeds, one per slice, and the seconds of its steps."""
    speeds: dict[str, list[float]] = {name: [] for name in runners}
    steps: dict[str, list[float]] = {name: [] for name in runners}
    spent = dict.fromkeys(runners, 0.0)
    repeats = effort.repeats * case.turns
    for repeat in range(repeats):
        for number, (name, runner) in enumerate(runners.items()):
            share = (repeat + number / len(runners)) / repeats
            progress(f"{case.name}: repeat {repeat + 1} of {repeats}, {name}", share)
            if spent[name] < effort.max_seconds:
                amount, taken = _slice(runner, effort.slice_seconds * case.slice_share, case.round)
                runner.pause()
                seconds = sum(taken)
                spent[name] += seconds
                speeds[name].append(amount / seconds)
                if case.step_unit is not None:
                    steps[name] += taken
    return speeds, steps


def _slice(runner: Runner, min_seconds: float, steps_in_round: int) -> tuple[float, list[float]]:
    """Complete rounds until the time is used up, timed by the runner itself; returns the seconds of each step."""
    amount = seconds = 0.0
    taken: list[float] = []
    with _no_collection():
        while seconds < min_seconds:
            for _ in range(steps_in_round):
                done, took = runner.step()
                amount += done
                taken.append(max(took, 1e-9))
                seconds += taken[-1]
    return amount, taken


@contextmanager
def _quick_collection() -> Iterator[None]:
    """Exclude existing objects from the collections between slices, which could take longer than a short slice."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


@contextmanager
def _no_collection() -> Iterator[None]:
    """Run Python's garbage collector between slices, not inside them."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
