"""Cases of bench `knn` for partitions (ADS-kNN): how well maps divide the work, and how they follow a shift.

The streams are like taxis in a town: most on a long island, some all around, some at two airports.

- `neighbours-8`: tuples of r per neighbour query, at 8 partitions; the bar is 0.3 queries per tuple.
- `balance-8`: the mean load of the partitions divided by the busiest one's; the bar is 1 / 1.2.
- `partitioned-…`: the stream in 8 partitions, against one partition and against round robin.
- `shift-r`: a cloud whose centre moves by r (8 r standard deviations) while a window passes, then a window more;
  against the speed before the shift, and against a map that is never replaced.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import cache, partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

import millrace as mr
from millrace.bench.harness import Answer, Case, Contender
from millrace.bench.knn_runners import FixedSpeed, KnnRunner
from millrace.host.knn.index import PointQueries
from millrace.host.knn.join_core import PointShape
from millrace.host.knn.maps import MAP_KINDS, MapKind
from millrace.host.knn.partitioned import PartitionedIndex, Partitioning
from millrace.host.runtime.pool import cores

Columns = npt.NDArray[np.float64]
PARTITIONS = 8
MAX_NEIGHBOUR_QUERIES, MAX_BUSIEST = 0.3, 1.2
SHIFTS = (0.2, 0.4, 0.6, 0.8, 1.0)
DEVIATION = 0.125
SHIFT_SHARE = 4
"""Windows of shifting streams have so many times fewer rows."""


@cache
def town(number: int, seed: int) -> Columns:
    """Points of taxis: two columns, in kilometres."""
    rng = np.random.default_rng(seed)
    along, across = rng.normal(0, 5.5, number), rng.normal(0, 1.1, number)
    wide = rng.random(number) < 0.35
    along[wide], across[wide] = rng.normal(0, 9, (2, wide.sum()))
    flying = rng.random(number)
    for airport, (x, y) in enumerate(((16.0, -12.0), (8.0, 2.0))):
        here = (flying > 0.04 * airport) & (flying < 0.04 * (airport + 1))
        along[here], across[here] = rng.normal(y, 0.4, here.sum()), rng.normal(x, 0.4, here.sum())
    return np.stack([across, along])


def cloud(number: int, centre: float, seed: int) -> Columns:
    """Points around (0.5, centre)."""
    return np.random.default_rng(seed).normal(np.array([[0.5], [centre]]), DEVIATION, (2, number))


def partition_cases(points: int, slide: int, k: int) -> Iterator[Case]:
    """All cases; windows have `points` rows."""
    facts = {"points": points, "slide": slide, "k": k, "partitions": PARTITIONS}
    kinds = [kind for kind in MAP_KINDS if kind != "roundrobin"]
    for name, unit, bar in (
        (f"neighbours-{PARTITIONS}", "tuples/neighbour query", 1 / MAX_NEIGHBOUR_QUERIES),
        (f"balance-{PARTITIONS}", "mean/busiest load", 1 / MAX_BUSIEST),
    ):
        even = name.startswith("balance")
        ours = [_ours(kind, partial(DividedWork, kind, points, slide, k, even)) for kind in kinds]
        dealt = Contender("roundrobin", partial(DividedWork, "roundrobin", points, slide, k, even))
        yield Case(name, unit, [*ours, dealt, Contender("bar", partial(FixedSpeed, bar), answers=False)], facts)
    short = f"{points // 1_000_000}M" if points >= 1_000_000 else f"{points // 1000}K"
    streams = [_ours(kind, partial(TownStream, points, slide, k, {"map": kind})) for kind in kinds]
    peers: dict[str, dict[str, Any]] = {"one partition": {"partitions": 1}, "roundrobin": {"map": "roundrobin"}}
    streams += [Contender(name, partial(TownStream, points, slide, k, given)) for name, given in peers.items()]
    yield Case(f"partitioned-{short}-k{k}", "tuples/s", streams, facts)
    window = points // SHIFT_SHARE
    for shift in SHIFTS:
        ours = [_ours(how, partial(ShiftedStream, window, slide, k, how, shift)) for how in ("instant", "lazy")]
        never = Contender("never", partial(ShiftedStream, window, slide, k, "never", shift))
        before = Contender("before", partial(ShiftedStream, window, slide, k, "instant", 0.0), answers=False)
        yield Case(f"shift-{shift}", "tuples/s", [*ours, never, before], {**facts, "points": window, "shift": shift})


def _ours(name: str, start: Any) -> Contender:
    return Contender(f"{name} on cpu", start, name, "cpu", "cpu")


class DividedWork(KnnRunner):
    """How a map divides the work of a stream: counts, not seconds."""

    def __init__(self, kind: MapKind, points: int, slide: int, k: int, even: bool) -> None:
        """Fill the window, and search once: the first map is built."""
        how = Partitioning(PARTITIONS, kind, "instant", cores())
        self._index = PartitionedIndex(how, PointShape(2))
        self._window, self._slide, self._k, self._even, self._steps = points, slide, k, even, 0
        self._index.insert(list(town(points, 1)))
        self._search(0)

    def _search(self, seed: int) -> None:
        queries = PointQueries(list(town(self._slide, 1000 + seed)))
        self._found = self._index.query(queries, self._k).positions

    def step(self) -> tuple[float, float]:
        """Slide the window and search; returns what the case compares: a count, and what it is divided by."""
        loads, counts = self._index.loads, self._index.counters()
        self._steps += 1
        self._index.insert(list(town(self._slide, 2000 + self._steps)))
        self._index.expire(self._index.end - self._window)
        self._search(self._steps)
        now, done = self._index.counters(), self._index.loads - loads
        if self._even:
            return float(done.mean()), float(done.max())
        return now["home"] - counts["home"], max(now["neighbour"] - counts["neighbour"], 1)


class TownStream(KnnRunner):
    """`mr.KnnJoin` with a full window of taxis; each step pushes a slide to both sides."""

    def __init__(self, points: int, slide: int, k: int, options: dict[str, Any]) -> None:
        """Fill the window."""
        given = {"partitions": PARTITIONS, **options}
        self._join = mr.KnnJoin(on=("x", "y"), k=k, window=f"{points} rows", output="seqs", options=given)
        self._slide, self._steps = slide, 0
        self._join.push("s", _table(town(points, 1)))
        self._join.push("r", _table(town(slide, 1000)))

    def step(self) -> tuple[float, float]:
        """Push s, then r."""
        self._steps += 1
        return self._push(town(self._slide, 2000 + self._steps), town(self._slide, 1000 + self._steps))

    def _push(self, s: Columns, r: Columns) -> tuple[float, float]:
        tables = _table(s), _table(r)
        start = time.perf_counter()
        self._join.push("s", tables[0])
        self._found = self._join.push("r", tables[1])["s_seq"]
        return 2 * self._slide, time.perf_counter() - start

    def answer(self) -> Answer:
        """The row numbers of the neighbours, in query order."""
        return {"neighbours": self._found.to_numpy()}

    def close(self) -> None:
        """Free the window."""
        self._join.close()


class ShiftedStream(TownStream):
    """The same with a cloud of points, after its centre has moved by `shift` and a window more has passed."""

    def __init__(self, points: int, slide: int, k: int, replace: str, shift: float) -> None:
        """Fill the window, and move the cloud."""
        options: dict[str, Any] = {"partitions": PARTITIONS, "replace": replace}
        self._join = mr.KnnJoin(on=("x", "y"), k=k, window=f"{points} rows", output="seqs", options=options)
        self._slide, self._steps, self._centre = slide, 0, 0.5
        self._join.push("s", _table(cloud(points, self._centre, 1)))
        moves = max(points // slide, 1)
        for number in range(2 * moves):
            self._centre = 0.5 + shift * min(1.0, (number + 1) / moves)
            self.step()

    def step(self) -> tuple[float, float]:
        """Push s, then r."""
        self._steps += 1
        s, r = (cloud(self._slide, self._centre, 10 * self._steps + side) for side in range(2))
        return self._push(s, r)


def _table(points: Columns) -> pa.Table:
    return pa.table({"x": points[0], "y": points[1]})
