"""Bench `structures`: one subwindow of BI-Sort, RaP-Table and WiB+-Tree on the CPU (PanJoin, Figures 10 to 13).

- `insert-…`: tuples put in per second, by batch. The subwindow is half full when timing begins; one that is full is
  sealed and the next one begun, and that is timed too.
- `probe-…`: tuples per second that ask for about one partner and get its position, by batch. `count-…`: the same with
  counts only, by selectivity, which is partners per tuple. The subwindow is full and sealed. The peer is NumPy on an
  array sorted beforehand: two `searchsorted`, positions expanded.
- `balance-…`: how uneven RaP-Table's partitions are after 0 to 3 adjustments (Figure 10f): the mean absolute error of
  their sizes in thousandths of the size they should have, lower is better; drawn anew in each repeat. Here tables do
  not split themselves anew on the way, as ours do and the paper's do not. The yardstick, `quantiles`, takes splitters
  from all tuples of the subwindow before, sorted: what is left then is chance, and values that fill several partitions.

As in the paper, batches are sorted before anything is timed; unlike there, words have 64 bits and the machine's cores
all work on batches that are large enough. What the whole join makes of it is in `window_join`. The insertion buffer's
size (Figure 12f) is a constant of the code, so it is not varied; that it serves batches below 1 Ki shows in `insert-…`.
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
from millrace.host.join.panjoin.index import LEAST_SHARED, STRUCTURES, structure_class
from millrace.host.join.panjoin.raptable import PARTITION, adjusted, even
from millrace.host.join.panjoin.subwindow import PAD, Batch, Intervals, Questions, Site, Structure, roomy

SUBWINDOWS = (1 << 16, 1 << 20)
BATCHES = (1, 4, 16, 64, 256, 1 << 10, 1 << 12, 1 << 14, 1 << 16)
COUNT_BATCH = 1 << 15
"""As in the paper's Figure 13b."""
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
MOST_BATCHES = 1 << 8
"""Small batches are made ready many at a time, and timed together: so many tuples, but not more batches than these."""
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
    """All structures at the same work; its kind is the first part of the name."""
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
    """A subwindow of a structure, with random tuples in it."""

    def __init__(self, name: str, rows: int, batch: int, filled: int) -> None:
        """`rows` is what the subwindow is meant for, `filled` how many tuples are put in now."""
        self._rng = np.random.default_rng([SEED, rows, batch])
        self._rows, self._batch = rows, batch
        self._turn = min(max(batch, TURN), MOST_BATCHES * batch, rows)
        self._device = CpuDevice()
        self._site = Site(WORD, rows, self._device, self._device.team)
        self._structure: Structure = structure_class(name)(self._site, 0)
        self.words = self._rng.integers(0, DOMAIN, filled, dtype=WORD)
        for first in range(0, filled, 1 << 16):
            self._structure.insert(_sorted_batch(self.words[first : first + (1 << 16)], first))

    def _rouse(self) -> None:
        """As the join does."""
        if self._batch >= LEAST_SHARED:
            self._device.team.rouse()

    @abstractmethod
    def step(self) -> tuple[float, float]:
        """One or more batches."""

    @abstractmethod
    def answer(self) -> Answer:
        """What must be the same for all structures."""

    def pause(self) -> None:
        """Leave the cores to the others."""
        self._device.team.rest()

    def close(self) -> None:
        """Give everything back."""
        self._structure.release()
        self._device.close()


class Inserting(Filled):
    """Puts batches in; full subwindows are followed by others."""

    def __init__(self, name: str, rows: int, batch: int) -> None:
        """Half full, or empty where a batch fills it."""
        self._fill = rows // 2 if batch <= rows // 2 else 0
        super().__init__(name, rows, batch, self._fill)

    def step(self) -> tuple[float, float]:
        """Some batches."""
        words = self._rng.integers(0, DOMAIN, (self._turn // self._batch, self._batch), dtype=WORD)
        # Batch sizes divide the subwindow's, so the ids to come are known.
        batches = [_sorted_batch(line, (self._fill + i * self._batch) % self._rows) for i, line in enumerate(words)]
        start = time.perf_counter()
        self._rouse()
        for batch in batches:
            if self._fill == self._rows:
                self._begin()
            self._structure.insert(batch)
            self._fill += len(batch)
        return self._turn, time.perf_counter() - start

    def _begin(self) -> None:
        full = self._structure
        full.seal()
        self._structure = full.successor(self._site, full.first + self._rows)
        full.release()
        self._fill = 0

    def answer(self) -> Answer:
        """How many tuples lie in some ranges."""
        low = np.arange(0, DOMAIN, DOMAIN // 64, dtype=WORD)
        questions = _questions(low, DOMAIN // 128)
        return {"count": _ask(self._structure, questions, want=False).counts}


class Probing(Filled):
    """Asks a full subwindow."""

    def __init__(self, name: str, rows: int, batch: int, rate: int, want: bool) -> None:
        """Sealed."""
        super().__init__(name, rows, batch, rows)
        self._structure.seal()
        self._width = max(round(rate * DOMAIN / rows), 1)
        self._want = want
        self._found: list[Matches] = []

    def step(self) -> tuple[float, float]:
        """Some batches."""
        lows = self._rng.integers(0, DOMAIN, (self._turn // self._batch, self._batch), dtype=WORD)
        asked = [_questions(line, self._width) for line in lows]
        self._found = []
        start = time.perf_counter()
        self._rouse()
        for questions in asked:
            self._found.append(self._look_up(questions))
        return self._turn, time.perf_counter() - start

    def _look_up(self, questions: Questions) -> Matches:
        return _ask(self._structure, questions, self._want)

    def answer(self) -> Answer:
        """Of all batches of the step."""
        columns = {"count": np.concatenate([one.counts for one in self._found])}
        if self._want:
            columns["position"] = np.concatenate([one.positions for one in self._found if one.positions is not None])
        return columns

    def pause(self) -> None:
        """Forget what was found."""
        self._found = []
        super().pause()


class NumpyProbing(Probing):
    """What NumPy does with the same questions on a sorted array, one thread."""

    def __init__(self, name: str, rows: int, batch: int, rate: int, want: bool) -> None:
        """The same random tuples."""
        super().__init__(next(iter(STRUCTURES)), rows, batch, rate, want)
        self._order = np.argsort(self.words, kind="stable")
        self._sorted = self.words[self._order]

    def _rouse(self) -> None:
        """Nobody to wake."""

    def _look_up(self, questions: Questions) -> Matches:
        starts = np.searchsorted(self._sorted, questions.low)
        sizes = np.searchsorted(self._sorted, questions.high, "right") - starts
        counts, begins = np.empty_like(sizes), np.empty_like(starts)
        counts[questions.who], begins[questions.who] = sizes, starts
        if not self._want:
            return Matches(counts, None)
        ends = np.cumsum(counts)
        places = np.repeat(begins - ends + counts, counts) + np.arange(ends[-1])
        return Matches(counts, self._order[places])

    def answer(self) -> Answer:
        """A tuple's partners come in the order of their words: bring them into that of their positions."""
        columns = dict(super().answer())
        if self._want:
            who = np.repeat(np.arange(len(columns["count"])), columns["count"])
            columns["position"] = columns["position"][np.lexsort((columns["position"], who))]
        return columns


def _sorted_batch(words: Words, first: int) -> Batch:
    """Tuples with ids from `first` on, by word."""
    order = np.argsort(words, kind="stable")
    ids = np.empty(len(words) + PAD, np.uint32)[: len(words)]
    np.add(order, first, out=ids, casting="unsafe")
    return Batch(roomy(words[order]), ids)


def _questions(low: Words, width: int) -> Questions:
    """Ranges of a width, sorted; who asks is the number before sorting."""
    who = np.argsort(low, kind="stable").astype(np.uint32)
    ascending = low[who]
    return Questions(ascending, ascending + np.uint64(width - 1), who, True, who)


def _ask(structure: Structure, questions: Questions, want: bool) -> Matches:
    """As the join does it; everything is in reach."""
    team, n = structure.site.team, len(questions)
    records = structure.probe(questions, None, want)
    reach = Intervals(np.array([structure.first]), np.array([structure.first + structure.site.capacity]))
    if want:
        found = match_collector.find_partners(n, questions, records, reach, 0, team)
    else:
        found = match_collector.count_partners(n, questions, records, reach, team)
    for one in records:
        one.release()
    return found


# Figure 10f. Words have 32 bits, as in the paper; the first splitters are spread evenly over all of them.


def _uniform(rng: np.random.Generator, rows: int) -> npt.NDArray[np.float64]:
    """A small part of all words."""
    return rng.uniform(10**9, 10**9 + 10**7, rows)


def _multimodal(rng: np.random.Generator, rows: int) -> npt.NDArray[np.float64]:
    """Eight normal distributions side by side."""
    return rng.normal((rng.integers(0, 8, rows) + 0.5) * 2**29, 2**24)


def _rank_size(rng: np.random.Generator, rows: int) -> npt.NDArray[np.float64]:
    """View counts, as of videos: 99 % of the values in 1 % of their range, which is 1 % of all words."""
    return np.minimum(1000 * (rng.pareto(0.8, rows) + rng.random(rows)), 2**32 // 100)


DRAWS: dict[str, Callable[[np.random.Generator, int], npt.NDArray[np.float64]]] = {
    "uniform": _uniform,
    "multimodal": _multimodal,
    "rank-size": _rank_size,
}


class Balance:
    """Tables with splitters adjusted a number of times to the tuples of the one before."""

    def __init__(self, distribution: str, adjustments: int, rows: int) -> None:
        """Nothing drawn yet."""
        self._rng = np.random.default_rng([SEED, rows])
        self._draw, self._adjustments, self._rows = DRAWS[distribution], adjustments, rows
        self._partitions = rows // PARTITION

    def step(self) -> tuple[float, float]:
        """The error, as work done in a second: it is no speed, and does not depend on the time it takes."""
        fair = self._rows / self._partitions
        return 1000 * float(np.abs(self._histograms(self._splitters())[0] - fair).mean()) / fair, 1.0

    def _splitters(self) -> Words:
        splitters: Words = even(self._partitions, np.dtype(np.uint32)).astype(np.uint64)
        for _ in range(self._adjustments):
            splitters = adjusted(*self._histograms(splitters), self._partitions)
        return splitters

    def _words(self) -> Words:
        """A subwindow's tuples, sorted."""
        words: Words = np.sort(np.clip(self._draw(self._rng, self._rows), 0, 2**32 - 1).astype(np.uint64))
        return words

    def _histograms(self, splitters: Words) -> tuple[npt.NDArray[np.int64], Words, Words]:
        """Tuples, least and largest word of each partition of a table with these splitters."""
        words = self._words()
        ends = np.append(np.searchsorted(words, splitters[1:]), len(words))
        starts = np.append(0, ends[:-1])
        return ends - starts, words[np.minimum(starts, len(words) - 1)], words[np.maximum(ends - 1, 0)]

    def answer(self) -> Answer:
        """Nobody to agree with."""
        return {}

    def pause(self) -> None:
        """Nothing is held."""

    def close(self) -> None:
        """Nothing is held."""


class QuantileBalance(Balance):
    """A table with splitters at equal distances in the sorted tuples of the one before."""

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
