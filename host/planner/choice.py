"""Which index and device a join uses, and why: the one module that decides, read by the calls and by `explain`.

Between the structures of one family of indexes, `auto.py` chooses while the join runs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from millrace.host.base.types import SIDES
from millrace.host.expr.plan import PlanKind, SearchShape, key_rank
from millrace.host.join.registry import load_index, serving
from millrace.host.planner import calibration
from millrace.host.planner.calibration import CPU

SPO = "spo"
GPU_KINDS = ("opencl", "cuda")
"""How the kinds of devices begin that offer every unit."""
SELECTIVE: tuple[PlanKind, ...] = ("equality", "band", "multi-band")
"""Kinds of condition with few partners per tuple, usually."""


@dataclass(frozen=True)
class IndexChoice:
    """The indexes that a join may use, best first, and the reason for this order."""

    candidates: tuple[str, ...]
    serving: tuple[str, ...]
    """All indexes that can search the condition."""
    reason: str

    def first(self, runs: Callable[[str], bool]) -> str | None:
        """The best candidate that runs on a device; None if there is none."""
        return next((name for name in self.candidates if runs(name)), None)

    def first_on(self, kind: str) -> str | None:
        """The best candidate that may run on a device of a kind; its units are checked once the device is open."""
        if kind == "cpu":
            return self.first(lambda name: True)
        engine = load_index("bisort").needs  # all that FPGAs and their simulations offer
        gpu = kind.startswith(GPU_KINDS)
        return self.first(lambda name: bool(needs := load_index(name).needs) and (gpu or needs <= engine))


def choose_index(shape: SearchShape, counting: bool, named: str = "auto") -> IndexChoice:
    """The choice for conditions of a shape; `named` is the user's index.

    Two order keys of the same rank, such as two bands or two inequalities, are searched together; of a band and an
    inequality, the band alone is searched. Behind an equality two order keys always are: groups may be large, and then
    a search by one key leaves half of a group to check. A join of tables reviews that by a sample (`selectivity.py`).
    If a tuple matches much of its window and all pairs are wanted, a vectorised scan is faster than any index. If only
    counts are wanted, BI-Sort does not read the tuples that it counts.
    """
    able = tuple(serving(shape))
    if named != "auto":
        return IndexChoice((named,), able, "the index was named")
    if SPO in able:
        spo_first = tuple(sorted(able, key=lambda name: name != SPO))
        if len({key_rank(shape.keys[side][i]) for side in SIDES for i in range(2)}) == 1:
            return IndexChoice(spo_first, able, f"two keys of the kind {shape.keys['s'][0]!r} are searched together")
        if shape.kind == "equality":
            return IndexChoice(spo_first, able, "two order keys behind an equality are searched together with it")
    if shape.kind in SELECTIVE:
        return IndexChoice(able, able, f"a condition of the kind {shape.kind!r} has few partners per tuple")
    if counting and shape.kind != "two inequalities":  # one may be checked on the pairs, so they are needed
        return IndexChoice(able, able, "only counts are wanted, which take no reading of the partners")
    scan_first = tuple(sorted(able, key=lambda name: name != "scan"))
    why = f"with the kind {shape.kind!r} a tuple has many partners: comparing all of them is fastest"
    return IndexChoice(scan_first, able, why if len(able) > 1 else "no other index can search this condition")


def auto_devices(threads: int | None) -> dict[str, str]:
    """The devices that `device="auto"` tries, best first, each with the reason."""
    best = calibration.calibration(threads).device
    no_winner = "`millrace calibrate` on this machine found no faster device"
    if best == CPU:
        return {CPU: no_winner}
    return {best: "it won `millrace calibrate` on this machine", CPU: f"{best} cannot be used for this"}
