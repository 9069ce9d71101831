"""What a fault does, point by point: `millrace faults --table` makes the table of docs/howto/failures.md with it.

Each operator runs once with every point watched, which shows the points that it passes, and then once for each of them
with that point failing. The output is compared with the brute force all the time, so an outcome is also a proof that
nothing was lost or repeated.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from random import Random

from millrace.faults import fault_points, injected
from millrace.soak.base import SIMULATED, Operator
from millrace.soak.operators import OPERATORS, operators_of

STEPS, ROWS = 30, 60
MANY_SHAPES = ("WindowJoin", "LiveJoin", "KnnJoin", "tables")
"""Operators that have many indexes, conditions or options."""
SIMULATED_STEPS, SIMULATED_ROWS = 8, 30
UNCHANGED, FELL_BACK, ABSORBED = "raises", "CPU", "absorbed"
MEANING = {
    UNCHANGED: "the call raises, nothing has changed, and making it again gives the right output",
    FELL_BACK: 'with `fallback="cpu"` the call goes on on the CPU; without, it raises as above',
    ABSORBED: "the call does without, and its output is right",
}
ELSEWHERE = {
    "board": "tests/boards",
    "link": "tests/boards",
    "spark": "tests/spark/stream",
    "helpers": "tests/host/runtime",
    "cpu.write": "tests/host/base",
    "cpu.read": "tests/host/base",
}
"""Areas and points that no operator of the table passes, and the tests that do."""


@dataclass(frozen=True)
class Case:
    """An operator that is made the same way each time."""

    operator: str
    device: str
    seed: int

    def run(self, rule: str) -> tuple[Operator, dict[str, int]]:
        """Run it with a rule; returns it, and how often each point of the rule was passed."""
        simulated = self.device in SIMULATED
        with injected(rule) as rules:
            operator = OPERATORS[self.operator](
                Random(f"fault table {self.seed}"), self.device, SIMULATED_ROWS if simulated else ROWS
            )
            try:
                for _ in range(SIMULATED_STEPS if simulated else STEPS):
                    operator.step()
                operator.finish()
            finally:
                operator.close()
        return operator, {name: arming.hits for name, arming in rules.items() if arming.hits}


def passed_points(devices: Iterable[str], seeds: int) -> dict[tuple[str, str], tuple[Case, int]]:
    """For each operator and point that it passes, a case that does and how often; found by watching."""
    watched = ";".join(f"{point.name}=0%raise" for point in fault_points())
    found: dict[tuple[str, str], tuple[Case, int]] = {}
    for device in devices:
        for operator in operators_of(device):
            for seed in range(1 if device in SIMULATED else seeds if operator in MANY_SHAPES else 3):
                case = Case(operator, device, seed)
                for name, hits in case.run(watched)[1].items():
                    found.setdefault((operator, name), (case, hits))
    return found


def outcome(case: Case, point: str, hits: int) -> str:
    """What happens if the point fails once, about half-way through the case."""
    operator, _ = case.run(f"{point}={hits // 2}+1*raise")
    if operator.raised:
        return UNCHANGED
    return FELL_BACK if operator.fell_back else ABSORBED


def outcomes(devices: Iterable[str], seeds: int = 240) -> Iterator[tuple[str, str, str]]:
    """Operator, point and outcome, for all points that an operator passes.

    `seeds`: cases that are drawn to find them; enough that every operator gets each of its indexes many times.
    """
    for (operator, point), (case, hits) in passed_points(devices, seeds).items():
        yield operator, point, outcome(case, point, hits)


def covering_tests(point: str) -> str | None:
    """The tests of a point that no operator passes."""
    return ELSEWHERE.get(point) or ELSEWHERE.get(point.partition(".")[0])


def table_lines(found: Iterable[tuple[str, str, str]]) -> list[str]:
    """The table in Markdown."""
    cells = {(point, operator): what for operator, point, what in found}
    names = list(OPERATORS)
    lines = ["| point | what is done there | " + " | ".join(f"`{name}`" for name in names) + " |"]
    lines.append("| --- " * (len(names) + 2) + "|")
    for point in fault_points():
        row = [cells.get((point.name, name), "") for name in names]
        if tests := covering_tests(point.name):  # also if an operator came by: helpers start once in a process
            row = [f"see {tests}", *[""] * (len(names) - 1)]
        lines.append(f"| `{point.name}` | {point.what} | " + " | ".join(row) + " |")
    lines += ["", *(f"*{name}*: {text}." for name, text in MEANING.items())]
    return lines
