"""Which of our indexes take part in the window-join benches, on which devices, and up to which window.

An index that this version lacks is skipped. To add an index, give it a largest window in `LARGEST_WINDOW`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from millrace.bench.harness import Contender, Runner
from millrace.bench.ours import OurSession
from millrace.bench.stream import Stream, starter
from millrace.bench.workload import Workload
from millrace.ingest.choices import IndexName
from millrace.registry import devices, join_pairs

LARGEST_WINDOW = {
    "scan": 1 << 16,
    "btree": 1 << 20,
    "bisort": 1 << 23,
    "rap": 1 << 23,
    "wib": 1 << 23,
    "auto": 1 << 23,
}
"""The participating indexes, each with the largest window that it can process in reasonable time."""
LARGEST_SCAN = 1 << 28
"""Maximum comparisons (batch times window) in a step of `scan`."""
LARGEST_COUNTED = 1 << 26
"""Maximum matches in a step of an index that visits every match to count it."""
COUNT_WITHOUT_WALKING = frozenset({"bisort", "auto"})
LARGEST_ON = {"opencl-cpu": 1 << 16, "hls": 1 << 16, "rtl": 1 << 12}
"""The largest window on device kinds that exist for checking, not for speed."""


@dataclass(frozen=True)
class Entrant:
    """One of our indexes on a device."""

    index: str
    device: str
    kind: str

    @property
    def name(self) -> str:
        """For example `btree on cpu`; the kind is added if the name does not show it, as for an OpenCL CPU."""
        shown = "" if self.device.partition(":")[0] == self.kind else f" ({self.kind})"
        return f"{self.index} on {self.device}{shown}"

    def contender(self, start: Callable[[], Runner]) -> Contender:
        """This entrant as a contender that runs what `start` returns."""
        return Contender(self.name, start, self.index, self.device, self.kind)

    def starts(self, workload: Workload) -> Callable[[], Stream]:
        """Starts our window join; its pairs have the order of the contract."""
        return starter(partial(OurSession, index=self.index, device=self.device), workload, ordered=True)


def entrants() -> list[Entrant]:
    """Every index on every available device that can run it; `auto` only on the CPU, like the peers."""
    kinds = {info.name: info.kind for info in devices()}
    fixed: list[tuple[IndexName, str]] = [(index, device) for index, device in join_pairs() if index != "auto"]
    return [Entrant(index, device, kinds[device]) for index, device in [*fixed, ("auto", "cpu")]]


def ours(workload: Workload, everyone: Sequence[Entrant]) -> list[Contender]:
    """Our contenders for a workload."""
    return [entrant.contender(entrant.starts(workload)) for entrant in everyone if suits(entrant, workload)]


def suits(entrant: Entrant, workload: Workload) -> bool:
    """Whether a step takes a reasonable time."""
    index = entrant.index
    if workload.window > min(LARGEST_WINDOW.get(index, 0), LARGEST_ON.get(entrant.kind, workload.window)):
        return False
    if index == "scan":
        return workload.batch * workload.window <= LARGEST_SCAN
    walks = workload.output == "count" and index not in COUNT_WITHOUT_WALKING
    return not walks or workload.batch * workload.rate <= LARGEST_COUNTED


def yardstick(index: str, what: str, workload: Workload, everyone: Sequence[Entrant]) -> list[Contender]:
    """Our index on the CPU with another workload than the case's, as a peer; empty if there is no such index."""
    found = [e for e in everyone if (e.index, e.device) == (index, "cpu")]
    return [Contender(f"{index} at {what}", e.starts(workload), answers=False) for e in found]
