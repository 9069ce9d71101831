"""`pytest --inject-faults=SEED`: arms one fault point in each conformance case, and expects the oracle's output.

A call that fails by an injected fault must have changed nothing: its stats are those before it, and it is made again.
With `fallback="cpu"`, which half of the cases have, the call may instead go on on the CPU. The message of a failure has
the rule that was armed; the summary says how many cases were hit, and at which points.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from random import Random
from typing import Any, TypeVar, cast

from millrace.host.base.faults import POINTS, Arming, injected, is_injected

T = TypeVar("T")
PROPERTY = "injected faults"
MOST_RETRIES = 20
JOIN = ("window.extend", "window.evict", "output.gather", "memory.allocate")
STATE = ("state.write", "state.read", "manifest.write", "manifest.read")
INDEX = ("index.build", "index.update", "index.journal", "index.save", "index.open", "memory.allocate")
KNN = ("knn.insert", "knn.query", "knn.partition", "window.extend", "window.evict", "memory.allocate")
ON_READ = ("state.read", "manifest.read")
"""Points at which damaged data can be read again."""
FAMILIES = {"cpu": "cpu", "opencl": "gpu", "cuda-emulated": "gpu", "cuda": "gpu", "rtl": "sim", "hls": "sim"}
_seed: int | None = None
hits: Counter[str] = Counter()


def set_seed(seed: int | None) -> int | None:
    """Arms faults in the cases from now on, or no more; returns the seed before."""
    global _seed
    before, _seed = _seed, seed
    return before


def device_points(device: str) -> list[str]:
    """The points of a device."""
    family = FAMILIES.get(device.partition(":")[0], "board")
    return [name for name in POINTS if name.startswith(f"{family}.") and name != "board.load"]


def join_points(index: str, device: str) -> list[str]:
    """The points that a window join passes, most of them in every case."""
    launches = [f"{index}.launch"] if f"{index}.launch" in POINTS and device != "cpu" else []
    return [f"{index}.load", f"{index}.step", *launches, *device_points(device), *JOIN, *STATE]


class Injection:
    """What is armed in a case; makes its calls, and makes those again that fail by it."""

    def __init__(self, rule: str = "", rng: Random | None = None) -> None:
        self.rule, self.rng = rule, rng or Random(0)
        self.raised = 0

    def fallback(self, device: str) -> dict[str, Any]:
        """For half of the cases on devices: the argument that lets them go on on the CPU."""
        return {"fallback": "cpu"} if self.rule and device != "cpu" and self.rng.random() < 0.5 else {}

    def call(self, work: Callable[[], T], state: Callable[[], Any] = lambda: None, reads: bool = True) -> T:
        """The result of a call, after as many attempts as it needs; `state()` must not change by those that fail.

        `reads`: whether the call may read a stored state, and so report damaged data.
        """
        if not self.rule:
            return work()
        before = state()
        for _ in range(MOST_RETRIES):
            try:
                return work()
            except Exception as error:
                if not self._is_ours(error, reads):
                    raise
                self.raised += 1
                if state() != before:
                    raise AssertionError(f"{self.rule}: a failed call changed {before} to {state()}") from error
        raise AssertionError(f"{self.rule}: still fails after {MOST_RETRIES} attempts")

    def _is_ours(self, error: Exception, reads: bool) -> bool:
        """Whether an error is an injected one, or reports damaged data."""
        damaged = reads and ("corrupt" in self.rule or "short" in self.rule)
        return is_injected(error) or (damaged and type(error).__name__ == "StateError")

    def retried(self, operator: T, stats: Sequence[str] = ()) -> T:
        """The operator, whose methods are called as `call` does; `stats` are those that a failed call keeps."""
        if not self.rule:
            return operator
        return cast(T, _Retried(self, operator, stats))


class _Retried:
    """An operator whose calls are made again after an injected fault."""

    def __init__(self, injection: Injection, operator: Any, stats: Sequence[str]) -> None:
        self._injection, self._operator, self._stats = injection, operator, stats

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._operator, name)
        if not callable(found) or name.startswith("_"):
            return found
        return lambda *given, **named: self._injection.call(lambda: found(*given, **named), self._known, False)

    def __len__(self) -> int:
        return len(self._operator)

    def _known(self) -> dict[str, Any]:
        stats = self._operator.stats if self._stats else {}
        return {name: stats[name] for name in self._stats}


@contextmanager
def case_faults(points: Sequence[str], case_seed: object) -> Iterator[Injection]:
    """Arms one of the points for a case; without `--inject-faults`, none."""
    if _seed is None:
        yield Injection()
        return
    rng = Random(f"{_seed} {case_seed}")
    rule = _draw_rule(points, rng)
    injection = Injection(rule, rng)
    try:
        with injected(f"seed={rng.randrange(1 << 30)};{rule}") as rules:
            yield injection
    except BaseException as error:
        error.add_note(f"with --inject-faults={_seed}: MILLRACE_FAULTS={rule!r}")
        raise
    (armed,) = rules.values()
    hits.update(_outcome(armed, injection.raised))


def _outcome(armed: Arming, raised: int) -> list[str]:
    what = "not reached" if not armed.fired else "raised, then right" if raised else "absorbed"
    return [what, f"at {armed.point.name}"] if armed.fired else [what]


def _draw_rule(points: Sequence[str], rng: Random) -> str:
    point = rng.choice([name for name in points if name in POINTS])
    actions = ["raise", "raise", "raise", "oom", "sleep(1)", *(["corrupt", "short"] if point in ON_READ else [])]
    skip, count = rng.choice((0, 0, 0, 1, 1, 2, 5, 20)), rng.choice((1, 1, 1, 2, 3))
    return f"{point}={skip}+{count}*{rng.choice(actions)}"


def report() -> dict[str, int]:
    """What happened since the last report, for the summary."""
    found = dict(hits)
    hits.clear()
    return found
