"""The expected result of a case: the oracle runs once, and its result is used for every index and device.

`coverage` says what the case exercises; the suite sums this up and enforces how often each must occur.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from tests.conformance.cases import Advance, Call, Case, Flush, Push, PushBoth
from tests.oracle import Count, Pair, RowWindow, TimeWindow, Tuple, WindowJoin


@dataclass
class Expected:
    """The oracle's result; the lists of ends say where the pairs and counts of each call end."""

    pairs: list[Pair] = field(default_factory=list)
    counts: list[Count] = field(default_factory=list)
    pair_ends: list[int] = field(default_factory=list)
    count_ends: list[int] = field(default_factory=list)
    stats: list[dict[str, Any]] = field(default_factory=list)
    coverage: dict[str, bool] = field(default_factory=dict)

    def add(self, pairs: list[Pair], join: WindowJoin) -> None:
        self.pairs += pairs
        self.counts += join.counts
        self.pair_ends.append(len(self.pairs))
        self.count_ends.append(len(self.counts))
        self.stats.append(join.stats)


def expect(case: Case) -> Expected:
    """Runs the oracle: one entry per call, and one more for the `close` at the end."""
    given = case.arguments
    join = WindowJoin(
        case.on,
        case.window,
        time=given.get("time"),
        lateness=case.lateness,
        sources=given.get("sources"),
        self_join=given.get("self_join", False),
        tick=case.tick,
    )
    expected = Expected()
    for call in case.calls:
        expected.add(_run(case, join, call), join)
    last = join.stats
    expected.add(join.close(), join)
    expected.coverage = {
        "pairs": bool(expected.pairs),
        "late": last["late"] > 0,
        "edge": _edge_tie(join),
    }
    return expected


def _run(case: Case, join: WindowJoin, call: Call) -> list[Pair]:
    if isinstance(call, Push):
        return join.push(call.side, case.feeds[call.side].known(call.start, call.stop), call.source)
    if isinstance(call, PushBoth):
        return join.push_both(case.feeds["r"].known(*call.r), case.feeds["s"].known(*call.s), call.arrival)
    if isinstance(call, Advance):
        return join.advance(call.side, case.known_time(call), call.source)
    if isinstance(call, Flush):
        return join.flush()
    join.counts = []  # a checkpoint takes no tuples
    return []


def _edge_tie(join: WindowJoin) -> bool:
    """Returns whether matching tuples are exactly on the bound in time, or last inside or first outside in rows."""
    if isinstance(join.window, TimeWindow):
        return _tie_in_time(join, join.window)
    return any(_tie_in_rows(join, join.window, new) for side in "rs" for new in join.taken[side])


def _tie_in_time(join: WindowJoin, window: TimeWindow) -> bool:
    by_time: dict[int, list[Tuple]] = defaultdict(list)
    for s in join.taken["s"]:
        by_time[s.ts].append(s)
    for r in join.taken["r"]:
        for bound in (-window.before, window.after):
            if any(s is not r and join.holds(r.row, s.row) for s in by_time[r.ts - bound]):
                return True
    return False


def _tie_in_rows(join: WindowJoin, window: RowWindow, new: Tuple) -> bool:
    """Checks the last partner inside the window and the first one outside it."""
    others, size = (join.taken["s"], window.s) if new.side == "r" else (join.taken["r"], window.r)
    edge = [others[new.met - distance] for distance in (size, size + 1) if new.met >= distance]
    rows = [(new.row, other.row) if new.side == "r" else (other.row, new.row) for other in edge]
    return any(join.holds(r, s) for r, s in rows)
