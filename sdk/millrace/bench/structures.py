"""Bench `structures`: one subwindow of BI-Sort, RaP-Table and WiB+-Tree on the CPU (PanJoin, Figures 10 to 13).

- `insert-…`: tuples inserted per second, by batch. The subwindow is half full when timing starts. Sealing a full
  subwindow and starting the next one is timed too.
- `probe-…`: probing tuples per second with about one partner each, positions returned, by batch. `count-…`: the same
  with counts only, by selectivity (partners per tuple). The subwindow is full and sealed. The peer is NumPy on a sorted
  array: two `searchsorted`, positions expanded.
- `balance-…`: imbalance of RaP-Table's partitions after 0 to 3 adjustments (Figure 10f): the mean absolute error of
  their sizes in thousandths of the fair size, lower is better; new data in each repeat. As in the paper, tables do not
  split partitions while they fill; our tables in a join do. The yardstick `quantiles` takes splitters from all sorted
  tuples of the previous subwindow; its remaining error is random, plus values that fill several partitions.

As in the paper, batches are sorted before timing. Unlike the paper, words have 64 bits, and all cores work on batches
that are large enough. `window_join` measures complete joins. The size of the insertion buffer (Figure 12f) is a
constant and not varied; `insert-…` shows its effect on batches below 1 Ki.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import numpy.typing as npt

from millrace.bench.entrants import Entrant
from millrace.bench.harness import Answer, Case, Contender
from millrace.bench.options import Options
from millrace.host.device.cpu import CpuDevice
from millrace.host.join.contract import Matches
from millrace.host.join.panjoin import match_collector
from millrace.host.join.panjoin.index import STRUCTURES, structure_class
from millrace.host.join.panjoin.raptable import PARTITION, adjusted, even
from millrace.host.join.panjoin.subwindow import (
    ID_PADDING,
    InsertBatch,
    RangeProbes,
    Structure,
    StructureContext,
    VisibleIntervals,
    padded,
)
from millrace.host.runtime.team import MIN_SHARED_ROWS

SUBWINDOWS = (1 << 16, 1 << 20)
BATCHES = (1, 4, 16, 64, 256, 1 << 10, 1 << 12, 1 << 14, 1 << 16)
COUNT_BATCH = 1 << 15
"""The batch of the paper's Figure 13b."""
SELECTIVITIES = (1, 4, 16, 64, 256, 1 << 10, 1 << 12, 1 << 14)
BALANCE_ROWS = 1 << 18
ADJUSTMENTS = (0, 1, 2, 3)
QUICK_SUBWINDOWS = (1 << 14,)
QUICK_BATCHES = (1, 64, 1 << 12)
QUICK_COUNT_BATCH = 1 << 12
QUICK_SELECTIVITIES = (1, 1 << 8)
QUICK_BALANCE_ROWS = 1 << 14

DOMAIN = 1 << 40
TURN = 1 << 11
MAX_BATCHES = 1 << 8
"""Small batches are timed in groups of `TURN` tuples, but at most `MAX_BATCHES` batches."""
SLICE_SHARE = 0.1
SEED = 20_250
WORD = np.dtype(np.uint64)

Words = npt.NDArray[np.uint64]


def cases(options: Options) -> Iterator[Case]:
    """Insertion, probing, counting, balance."""
    quick = options.quick
    subwindows = QUICK_SUBWINDOWS if quick else SUBWINDOWS
    batches = QUICK_BATCHES if quick else BATCHES
    for rows in subwindows:
        yield from (_inserting(rows, batch) for batch in batches)
    for rows in subwindows:
        yield from (_probing(rows, batch, 1, want=True) for batch in batches)
    for rate in QUICK_SELECTIVITIES if quick else SELECTIVITIES:
        yield _probing(subwindows[-1], QUICK_COUNT_BATCH if quick else COUNT_BATCH, rate, want=False)
    for name in DRAWS:
        for times in ADJUSTMENTS:
            yield _balance(name, times, QUICK_BALANCE_ROWS if quick else BALANCE_ROWS)


def _case(
    name: str, rows: int, batch: int, selectivity: int, start: Callable[[str], Filled], peers: list[Contender]
) -> Case:
    """All structures with the same work; the operation is the first part of the name."""
    operation = name.partition("-")[0]
    facts = {
        "operation": operation,
        "subwindow": rows,
        "batch": batch,
        "selectivity": selectivity,
        "distribution": "uniform",
    }
    ours = [Entrant(one, "cpu", "cpu").contender(partial(start, one)) for one in STRUCTURES]
    return Case(name, "tuples/s", [*ours, *peers], facts, slice_share=SLICE_SHARE)


def _inserting(rows: int, batch: int) -> Case:
    return _case(f"insert-{_power(rows)}-batch{batch}", rows, batch, 0, partial(Inserting, rows=rows, batch=batch), [])


def _probing(rows: int, batch: int, rate: int, want: bool) -> Case:
    name = f"{'probe' if want else 'count'}-{_power(rows)}-batch{batch}-sel{rate}"
    peer = Contender("numpy", partial(NumpyProbing, "numpy", rows, batch, rate, want))
    return _case(name, rows, batch, rate, partial(Probing, rows=rows, batch=batch, rate=rate, want=want), [peer])


def _power(rows: int) -> str:
    return f"2^{rows.bit_length() - 1}"


class Filled:
    """A subwindow filled with random tuples."""

    def __init__(self, name: str, rows: int, batch: int, filled: int) -> None:
        """`rows` is the capacity of the subwindow, `filled` the number of tuples inserted now."""
        self._rng = np.random.default_rng([SEED, rows, batch])
        self._rows, self._batch = rows, batch
        self._turn = min(max(batch, TURN), MAX_BATCHES * batch, rows)
        self._device = CpuDevice()
        self._context = StructureContext(WORD, rows, self._device, self._device.team)
        self._structure: Structure = structure_class(name)(self._context, 0)
        self.words = self._rng.integers(0, DOMAIN, filled, dtype=WORD)
        for first in range(0, filled, 1 << 16):
            self._structure.insert(_sorted_batch(self.words[first : first + (1 << 16)], first))

    def _acquire_threads(self) -> None:
        """Acquire the helper threads for batches that are shared among threads, as the join does."""
        if self._batch >= MIN_SHARED_ROWS:
            self._device.team.acquire()

    @abstractmethod
    def step(self) -> tuple[float, float]:
        """Run one or more batches."""

    @abstractmethod
    def answer(self) -> Answer:
        """The result, equal for all structures."""

    def pause(self) -> None:
        """Release the helper threads, so that the other contenders can use the cores."""
        self._device.team.depth -= 1

    def close(self) -> None:
        """Release all resources."""
        self._structure.release()
        self._device.close()


class Inserting(Filled):
    """Inserts batches; a full subwindow is sealed and a new one started."""

    def __init__(self, name: str, rows: int, batch: int) -> None:
        """Start half full, or empty if one batch fills it."""
        self._fill = rows // 2 if batch <= rows // 2 else 0
        super().__init__(name, rows, batch, self._fill)

    def step(self) -> tuple[float, float]:
        """Run some batches."""
        words = self._rng.integers(0, DOMAIN, (self._turn // self._batch, self._batch), dtype=WORD)
        # Batch sizes divide the subwindow size, so the ids are known in advance.
        batches = [_sorted_batch(line, (self._fill + i * self._batch) % self._rows) for i, line in enumerate(words)]
        start = time.perf_counter()
        self._acquire_threads()
        for batch in batches:
            if self._fill == self._rows:
                self._begin()
            self._structure.insert(batch)
            self._fill += len(batch)
        return self._turn, time.perf_counter() - start

    def _begin(self) -> None:
        full = self._structure
        full.seal()
        self._structure = full.successor(self._context, full.first + self._rows)
        full.release()
        self._fill = 0

    def answer(self) -> Answer:
        """The number of tuples in some key ranges."""
        low = np.arange(0, DOMAIN, DOMAIN // 64, dtype=WORD)
        probes = _range_probes(low, DOMAIN // 128)
        return {"count": _probe_structure(self._structure, probes, want=False).counts}


class Probing(Filled):
    """Probes a full subwindow."""

    def __init__(self, name: str, rows: int, batch: int, rate: int, want: bool) -> None:
        """Fill and seal the subwindow."""
        super().__init__(name, rows, batch, rows)
        self._structure.seal()
        self._width = max(round(rate * DOMAIN / rows), 1)
        self._want = want
        self._found: list[Matches] = []

    def step(self) -> tuple[float, float]:
        """Run some batches."""
        lows = self._rng.integers(0, DOMAIN, (self._turn // self._batch, self._batch), dtype=WORD)
        probe_batches = [_range_probes(line, self._width) for line in lows]
        self._found = []
        start = time.perf_counter()
        self._acquire_threads()
        for probes in probe_batches:
            self._found.append(self._look_up(probes))
        return self._turn, time.perf_counter() - start

    def _look_up(self, probes: RangeProbes) -> Matches:
        return _probe_structure(self._structure, probes, self._want)

    def answer(self) -> Answer:
        """The results of all batches of the step."""
        columns = {"count": np.concatenate([one.counts for one in self._found])}
        if self._want:
            columns["position"] = np.concatenate([one.positions for one in self._found if one.positions is not None])
        return columns

    def pause(self) -> None:
        """Free the results."""
        self._found = []
        super().pause()


class NumpyProbing(Probing):
    """The same probes on a sorted array in NumPy, one thread."""

    def __init__(self, name: str, rows: int, batch: int, rate: int, want: bool) -> None:
        """Sort the same random tuples."""
        super().__init__(next(iter(STRUCTURES)), rows, batch, rate, want)
        self._order = np.argsort(self.words, kind="stable")
        self._sorted = self.words[self._order]

    def _acquire_threads(self) -> None:
        """NumPy uses no helper threads."""

    def _look_up(self, probes: RangeProbes) -> Matches:
        starts = np.searchsorted(self._sorted, probes.low)
        sizes = np.searchsorted(self._sorted, probes.high, "right") - starts
        counts, begins = np.empty_like(sizes), np.empty_like(starts)
        counts[probes.probe_tuple], begins[probes.probe_tuple] = sizes, starts
        if not self._want:
            return Matches(counts, None)
        ends = np.cumsum(counts)
        positions = np.repeat(begins - ends + counts, counts) + np.arange(ends[-1])
        return Matches(counts, self._order[positions])

    def answer(self) -> Answer:
        """Sort each tuple's partners by position; NumPy returns them in word order."""
        columns = dict(super().answer())
        if self._want:
            probe_tuple = np.repeat(np.arange(len(columns["count"])), columns["count"])
            columns["position"] = columns["position"][np.lexsort((columns["position"], probe_tuple))]
        return columns


def _sorted_batch(words: Words, first: int) -> InsertBatch:
    """Tuples with ids from `first` on, sorted by word."""
    order = np.argsort(words, kind="stable")
    ids = np.empty(len(words) + ID_PADDING, np.uint32)[: len(words)]
    np.add(order, first, out=ids, casting="unsafe")
    return InsertBatch(padded(words[order]), ids)


def _range_probes(low: Words, width: int) -> RangeProbes:
    """Ranges of a width, sorted; a range keeps its number from before the sort."""
    probe_tuple = np.argsort(low, kind="stable").astype(np.uint32)
    ascending = low[probe_tuple]
    return RangeProbes(ascending, ascending + np.uint64(width - 1), probe_tuple, True, probe_tuple)


def _probe_structure(structure: Structure, probes: RangeProbes, want: bool) -> Matches:
    """Probe as the join does; the visible interval is the whole subwindow."""
    team, n = structure.context.team, len(probes)
    match_ranges = structure.probe(probes, None, want)
    visible = VisibleIntervals(np.array([structure.first]), np.array([structure.first + structure.context.capacity]))
    if want:
        found = match_collector.find_partners(n, probes, match_ranges, visible, 0, team)
    else:
        found = match_collector.count_partners(n, probes, match_ranges, visible, team)
    for one in match_ranges:
        one.release()
    return found


# Figure 10f. Words have 32 bits, as in the paper; the first splitters are spread evenly over the word range.


def _uniform(rng: np.random.Generator, rows: int) -> npt.NDArray[np.float64]:
    """Uniform over a small part of the word range."""
    return rng.uniform(10**9, 10**9 + 10**7, rows)


def _multimodal(rng: np.random.Generator, rows: int) -> npt.NDArray[np.float64]:
    """Eight normal distributions side by side."""
    return rng.normal((rng.integers(0, 8, rows) + 0.5) * 2**29, 2**24)


def _rank_size(rng: np.random.Generator, rows: int) -> npt.NDArray[np.float64]:
    """Like view counts of videos: 99% of the values in 1% of their range, which is 1% of the word range."""
    return np.minimum(1000 * (rng.pareto(0.8, rows) + rng.random(rows)), 2**32 // 100)


DRAWS: dict[str, Callable[[np.random.Generator, int], npt.NDArray[np.float64]]] = {
    "uniform": _uniform,
    "multimodal": _multimodal,
    "rank-size": _rank_size,
}


class Balance:
    """Tables whose splitters were adjusted several times, each time to the previous table's tuples."""

    def __init__(self, distribution: str, adjustments: int, rows: int) -> None:
        """No data is drawn yet."""
        self._rng = np.random.default_rng([SEED, rows])
        self._draw, self._adjustments, self._rows = DRAWS[distribution], adjustments, rows
        self._partitions = rows // PARTITION

    def step(self) -> tuple[float, float]:
        """Report the error as work done in one second; it is not a speed."""
        fair = self._rows / self._partitions
        return 1000 * float(np.abs(self._histograms(self._splitters())[0] - fair).mean()) / fair, 1.0

    def _splitters(self) -> Words:
        splitters: Words = even(self._partitions, np.dtype(np.uint32)).astype(np.uint64)
        for _ in range(self._adjustments):
            splitters = adjusted(*self._histograms(splitters), self._partitions)
        return splitters

    def _words(self) -> Words:
        """The sorted words of a new subwindow."""
        words: Words = np.sort(np.clip(self._draw(self._rng, self._rows), 0, 2**32 - 1).astype(np.uint64))
        return words

    def _histograms(self, splitters: Words) -> tuple[npt.NDArray[np.int64], Words, Words]:
        """Tuple count, smallest and largest word of each partition of a table with these splitters."""
        words = self._words()
        ends = np.append(np.searchsorted(words, splitters[1:]), len(words))
        starts = np.append(0, ends[:-1])
        return ends - starts, words[np.minimum(starts, len(words) - 1)], words[np.maximum(ends - 1, 0)]

    def answer(self) -> Answer:
        """No result to compare."""
        return {}

    def pause(self) -> None:
        """Nothing is held."""

    def close(self) -> None:
        """Nothing is held."""


class QuantileBalance(Balance):
    """A table with splitters at the quantiles of the previous table's tuples."""

    def _splitters(self) -> Words:
        splitters: Words = self._words()[np.arange(self._partitions) * self._rows // self._partitions]
        splitters[0] = 0
        return splitters


def _balance(distribution: str, adjustments: int, rows: int) -> Case:
    facts = {
        "operation": "balance",
        "subwindow": rows,
        "adjustments": adjustments,
        "partitions": rows // PARTITION,
        "distribution": distribution,
    }
    contender = Entrant("rap", "cpu", "cpu").contender(partial(Balance, distribution, adjustments, rows))
    quantiles = Contender("quantiles", partial(QuantileBalance, distribution, adjustments, rows), answers=False)
    return Case(
        f"balance-{distribution}-adjusted{adjustments}",
        "error in 1/1000 of the fair size",
        [contender, quantiles],
        facts,
        check_steps=1,
    )
