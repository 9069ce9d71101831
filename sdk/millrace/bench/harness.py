"""Measures contenders side by side: checks that they give the same answer, then times them in turns.

Every repeat gives each contender a slice of time, one after the other, so that a noisy moment hits all alike; a slice
is as many rounds of steps as fit, at least one. What is reported is the amount of work per second: the median over the
slices, and their spread. A contender so slow that it has used up its share of the time gets fewer repeats.
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
"""Columns by name, brought into an order in which equal answers are equal."""
Progress = Callable[[str, float], None]
"""Told what is under way, and what share of the whole is done."""
_NO_MEMORY = "it ran out of memory"


class DifferentWork(MillraceError):
    """Two contenders gave different answers, so their speeds cannot be compared."""


class PeerMissing(MillraceError):
    """A peer cannot run here; the message says what would mend it."""


class Runner(Protocol):
    """A contender at work."""

    def step(self) -> tuple[float, float]:
        """Do one step: the amount of work done, and the seconds it took."""

    def answer(self) -> Answer:
        """The result of the last step."""

    def pause(self) -> None:
        """The others' turn: let go of the last result."""

    def close(self) -> None:
        """Give everything back."""


@dataclass(frozen=True)
class Contender:
    """Someone who can do a case. Ours name an index and a device; `start` may raise `PeerMissing`.

    One that does not `answer` is a yardstick: it does other work than the case's, whose answer is not compared with
    anyone's; `unit` says what it is counted in, where that is not the case's unit.
    """

    name: str
    start: Callable[[], Runner]
    index: str | None = None
    device: str | None = None
    device_kind: str | None = None
    answers: bool = True
    unit: str | None = None
    settles: int = 1
    """How many times the usual warm-up it needs."""

    @property
    def ours(self) -> bool:
        """Whether this is us, rather than a peer."""
        return self.index is not None


@dataclass(frozen=True)
class Case:
    """One line of comparison: contenders that do the same work, measured in the same unit (more is better).

    The answers of the first `check_steps` steps are compared. Every contender does `warm_work` before it is timed, so
    that whatever adapts has settled. A slice ends only after whole rounds of `round` steps, for steps that differ by
    turns. Where there are many cases, each takes a `slice_share` of the usual slice. A repeat may be cut into `turns`
    slices of each contender, so that those whose speeds are close meet the same moments. Our indexes in `rivals` are
    peers of our others. `prepare` is called before anybody starts.
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
    prepare: Callable[[], None] | None = None


@dataclass(frozen=True)
class Effort:
    """How long to measure: `repeats` slices of `slice_seconds` each, `most_seconds` in all per contender.

    Warming up takes a fifteenth of `most_seconds` at most.
    """

    repeats: int = 7
    slice_seconds: float = 0.5
    most_seconds: float = 60.0


@dataclass(frozen=True)
class Measured:
    """A contender's speeds, one per repeat."""

    contender: Contender
    speeds: tuple[float, ...]

    @property
    def value(self) -> float:
        """The median."""
        return float(np.median(self.speeds))

    @property
    def spread(self) -> dict[str, float]:
        """Extremes and quartiles."""
        least, first, third, most = np.percentile(self.speeds, [0, 25, 75, 100])
        return {"min": float(least), "q1": float(first), "q3": float(third), "max": float(most)}


@dataclass(frozen=True)
class Result:
    """A measured case, and which contenders could not take part, with the reason."""

    case: Case
    measured: tuple[Measured, ...]
    missing: Mapping[str, str]


def measure(case: Case, effort: Effort, progress: Progress) -> Result:
    """Start everyone, check that all agree, and time them in turns."""
    runners: dict[str, Runner] = {}
    missing: dict[str, str] = {}
    try:
        if case.prepare is not None:
            case.prepare()
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
            speeds = _race(case, runners, effort, progress)
    finally:
        for runner in runners.values():
            runner.close()
    present = [c for c in case.contenders if c.name in runners]
    return Result(case, tuple(Measured(c, tuple(speeds[c.name])) for c in present), missing)


def _check(case: Case, runners: dict[str, Runner], progress: Progress) -> dict[str, str]:
    """The first steps, which also warm everything up, must give all who answer the same answer.

    A peer that runs out of memory is closed and taken out; the reason is returned.
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
                raise DifferentWork(f"{case.name}: {name} and {expected[0]} give different answers: {difference}")
    return failed


def _first_answer(contender: Contender, runner: Runner) -> Answer | None:
    """One step's answer; nothing of a contender that does not answer."""
    runner.step()
    answer = runner.answer() if contender.answers else None
    runner.pause()
    return answer


def _warm(case: Case, runners: Mapping[str, Runner], effort: Effort, progress: Progress) -> None:
    """Work that is not timed."""
    times = {contender.name: contender.settles for contender in case.contenders}
    for name, runner in runners.items():
        progress(f"{case.name}: warming up {name}", 0.0)
        work = seconds = 0.0
        while work < times[name] * case.warm_work and seconds < times[name] * effort.most_seconds / 15:
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


def _race(case: Case, runners: Mapping[str, Runner], effort: Effort, progress: Progress) -> dict[str, list[float]]:
    speeds: dict[str, list[float]] = {name: [] for name in runners}
    spent = dict.fromkeys(runners, 0.0)
    repeats = effort.repeats * case.turns
    for repeat in range(repeats):
        for number, (name, runner) in enumerate(runners.items()):
            share = (repeat + number / len(runners)) / repeats
            progress(f"{case.name}: repeat {repeat + 1} of {repeats}, {name}", share)
            if spent[name] < effort.most_seconds:
                amount, seconds = _slice(runner, effort.slice_seconds * case.slice_share, case.round)
                runner.pause()
                spent[name] += seconds
                speeds[name].append(amount / seconds)
    return speeds


def _slice(runner: Runner, least_seconds: float, steps_in_round: int) -> tuple[float, float]:
    """Whole rounds until the time is used up, timed by the runner itself."""
    amount = seconds = 0.0
    with _no_collection():
        while seconds < least_seconds:
            for _ in range(steps_in_round):
                done, took = runner.step()
                amount += done
                seconds += max(took, 1e-9)
    return amount, seconds


@contextmanager
def _quick_collection() -> Iterator[None]:
    """What lives now is not looked at by the collections between slices, which would take longer than short slices."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


@contextmanager
def _no_collection() -> Iterator[None]:
    """Python's cycle collector runs between slices, not inside them."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
