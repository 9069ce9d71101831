"""Which of our indexes take part in a bench of window joins, on which devices, and up to what size each makes sense.

An index that this version does not have is not among the contenders. To add one, give it a largest window.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from millrace.bench.harness import Contender, Runner
from millrace.bench.ours import OurSession
from millrace.bench.stream import Stream, starter
from millrace.bench.workload import Workload
from millrace.registry import devices, join_pairs

LARGEST_WINDOW = {
    "scan": 1 << 16,
    "btree": 1 << 20,
    "bisort": 1 << 23,
    "rap": 1 << 23,
    "wib": 1 << 23,
    "auto": 1 << 23,
}
"""The indexes that take part, each up to the window where it still makes sense."""
LARGEST_SCAN = 1 << 28
"""The most comparisons (batch times window) in a step of `scan`."""
LARGEST_COUNTED = 1 << 26
"""The most matches in a step of an index that walks over matches to count them."""
COUNT_WITHOUT_WALKING = frozenset({"bisort", "auto"})
SETTLES = {"auto": 2}
"""An index that chooses needs its windows anew once to see what comes, and once more to hold what it chose then."""
LARGEST_ON = {"opencl-cpu": 1 << 16, "hls": 1 << 16, "rtl": 1 << 12}
"""The largest window on kinds of device that are there to be checked, not to be fast."""


@dataclass(frozen=True)
class Entrant:
    """One of our indexes on a device of a kind."""

    index: str
    device: str
    kind: str

    @property
    def name(self) -> str:
        """As in `btree on cpu`; a device whose name hides what it is, such as an OpenCL CPU, says so."""
        shown = "" if self.device.partition(":")[0] == self.kind else f" ({self.kind})"
        return f"{self.index} on {self.device}{shown}"

    def contender(self, start: Callable[[], Runner]) -> Contender:
        """This entrant, doing what `start` starts."""
        return Contender(self.name, start, self.index, self.device, self.kind, settles=SETTLES.get(self.index, 1))

    def starts(self, workload: Workload) -> Callable[[], Stream]:
        """A window join of ours, whose pairs come in the order of the contract."""
        return starter(partial(OurSession, index=self.index, device=self.device), workload, ordered=True)


def entrants() -> list[Entrant]:
    """Every index on every device that can run it here; `auto` on the CPU, like the peers."""
    kinds = {info.name: info.kind for info in devices()}
    fixed = [(index, device) for index, device in join_pairs() if index != "auto"]
    return [Entrant(index, device, kinds[device]) for index, device in [*fixed, ("auto", "cpu")]]


def ours(workload: Workload, everyone: Sequence[Entrant]) -> list[Contender]:
    """Those of ours that a workload makes sense for."""
    return [entrant.contender(entrant.starts(workload)) for entrant in everyone if suits(entrant, workload)]


def suits(entrant: Entrant, workload: Workload) -> bool:
    """Whether a step takes a bearable time."""
    index = entrant.index
    if workload.window > min(LARGEST_WINDOW.get(index, 0), LARGEST_ON.get(entrant.kind, workload.window)):
        return False
    if index == "scan":
        return workload.batch * workload.window <= LARGEST_SCAN
    walks = workload.output == "count" and index not in COUNT_WITHOUT_WALKING
    return not walks or workload.batch * workload.rate <= LARGEST_COUNTED


def yardstick(index: str, what: str, workload: Workload, everyone: Sequence[Entrant]) -> list[Contender]:
    """An index of ours on the CPU at other work than the case's, as a peer of who does the case: none if not there."""
    found = [e for e in everyone if (e.index, e.device) == (index, "cpu")]
    return [Contender(f"{index} at {what}", e.starts(workload), answers=False) for e in found]
