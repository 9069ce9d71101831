"""Bench `lookup`: `mr.OrderedIndex` over 64-bit keys and values, asked batches of 2^20 queries in random order.

- `lookup-…-uniform`: values of keys drawn evenly, answers in query order. Peers: NumPy's `searchsorted` on the sorted
  keys (`numpy`), the same with queries sorted first and answers scattered back (`numpy-sorted`), and the machine:
  `random-reads` is how many random cache lines it reads a second in as much memory as keys and values take, so that
  the ratio is lookups per line (`random-reads, far`: the same, asked for into the second-level cache). `regular` is
  compared with `implicit` too.
- `lookup-…-zipf`: keys drawn by Zipf's law with exponent 2, beside the same index asked evenly (`implicit at uniform`).
- `range-…-match8`: ranges of eight keys; the peer is two `searchsorted` and a gather in NumPy.
- `build-…-sorted`: from sorted keys; the yardstick `copy` copies as many bytes as the result has, by NumPy.
- `memory-…`: bytes of keys and values for each byte that the index holds; it is no speed.

What is timed is the whole public call. Keys are sorted before anything is timed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millrace.bench.entrants import LARGEST_ON, Entrant
from millrace.bench.harness import Answer, Case, Contender
from millrace.bench.options import Options
from millrace.bench.peers.random_reads import RandomReads
from millrace.host.hbtree.layout import LAYOUTS, LayoutName
from millrace.host.hybrid.search_engine import UNITS
from millrace.index import OrderedIndex
from millrace.registry import device, devices

SIZES = (1 << 23, 1 << 26)
QUERIES = 1 << 20
QUICK_SIZES = (1 << 16,)
QUICK_QUERIES = 1 << 14
MATCHES = 8
ZIPF = 2.0
BYTES_PER_KEY = 16
"""A key and a value of 8 bytes each."""
SEED = 31_337
Numbers = npt.NDArray[np.int64]


def cases(options: Options) -> Iterator[Case]:
    """By size, small first; building and memory at the largest."""
    sizes, queries = (QUICK_SIZES, QUICK_QUERIES) if options.quick else (SIZES, QUERIES)
    for size in sizes:
        yield _lookups(size, queries)
        yield _zipf(size, queries)
        yield _ranges(size, queries)
    yield _build(sizes[-1])
    yield _memory(sizes[-1])


@lru_cache(maxsize=1)
def data(size: int) -> tuple[Numbers, Numbers]:
    """Distinct random keys in ascending order, and their values."""
    rng = np.random.default_rng([SEED, size])
    gaps = rng.integers(1, (1 << 63) // size, size)
    values = rng.integers(-(1 << 62), 1 << 62, size)
    return np.cumsum(gaps) - (1 << 62), values


@lru_cache(maxsize=2)
def index_of(size: int, layout: LayoutName, name: str) -> OrderedIndex:
    """An index, made once for the cases that ask it."""
    return OrderedIndex(*data(size), layout=layout, device=name)


def entrants(size: int) -> list[tuple[LayoutName, Entrant]]:
    """Both layouts on every device that can search them, up to what makes sense there."""
    found: list[tuple[LayoutName, Entrant]] = []
    for info in devices():
        if info.available and info.kind != "null" and size <= LARGEST_ON.get(info.kind, size):
            units = device(info.name).units
            found += [(one, Entrant(one, info.name, info.kind)) for one in LAYOUTS if UNITS[one] in units]
    return found


class Asked(Protocol):
    """Something that answers a batch of questions."""

    def ask(self, questions: Any) -> Any:
        """The answers, complete in memory."""

    def answer(self, found: Any) -> Answer:
        """Columns of them."""


class Asking:
    """Asks the same kind of questions, drawn anew for each step."""

    def __init__(self, make: Callable[[], Asked], draw: Callable[[np.random.Generator], Any], count: int) -> None:
        """All draw the same questions."""
        self._rng = np.random.default_rng(SEED)
        self._asked, self._draw, self._count = make(), draw, count
        self._last: Any = None

    def step(self) -> tuple[float, float]:
        """A batch."""
        questions = self._draw(self._rng)
        self._last = None
        start = time.perf_counter()
        self._last = self._asked.ask(questions)
        return self._count, time.perf_counter() - start

    def answer(self) -> Answer:
        """Of the last batch."""
        return self._asked.answer(self._last)

    def pause(self) -> None:
        """Forget the last answers."""
        self._last = None

    def close(self) -> None:
        """The index stays for the next case."""
        self.pause()


# Lookups.


class OurLookups:
    """`OrderedIndex.lookup`."""

    def __init__(self, size: int, layout: LayoutName, name: str) -> None:
        self._index = index_of(size, layout, name)

    def ask(self, questions: Numbers) -> pa.Array:
        return self._index.lookup(questions)

    def answer(self, found: pa.Array) -> Answer:
        return {"value": found.to_numpy()}


class NumpyLookups:
    """`searchsorted`, one thread; `sort`: in ascending order, answers scattered back."""

    def __init__(self, size: int, sort: bool) -> None:
        self._keys, self._values = data(size)
        self._sort = sort

    def ask(self, questions: Numbers) -> Numbers:
        if not self._sort:
            return self._found(questions)
        order = np.argsort(questions)
        out = np.empty_like(questions)
        out[order] = self._found(questions[order])
        return out

    def _found(self, questions: Numbers) -> Numbers:
        """Values, 0 where there is no such key."""
        places = np.minimum(np.searchsorted(self._keys, questions), len(self._keys) - 1)
        return np.where(self._keys[places] == questions, self._values[places], 0)

    def answer(self, found: Numbers) -> Answer:
        return {"value": found}


def _uniform(size: int, queries: int, rng: np.random.Generator) -> Numbers:
    return data(size)[0][rng.integers(0, size, queries)]


def _zipfian(size: int, queries: int, rng: np.random.Generator) -> Numbers:
    """The key of rank k is drawn with a probability of 1 / k^2; ranks lie anywhere among the keys."""
    ranks = np.minimum(rng.zipf(ZIPF, queries), size) - 1
    drawn: Numbers = data(size)[0][(ranks * 0x9E3779B1 + SEED) % size]
    return drawn


def _yardsticks(size: int) -> list[Contender]:
    """The machine, reading at random in so many bytes."""
    near, far = partial(RandomReads, size), partial(RandomReads, size, far=True)
    return [
        Contender(name, reads, answers=False, unit="lines/s")
        for name, reads in (("random-reads", near), ("random-reads, far", far))
    ]


def _lookups(size: int, queries: int) -> Case:
    draw = partial(_uniform, size, queries)
    theirs = [
        Contender("numpy", partial(Asking, partial(NumpyLookups, size, False), draw, queries)),
        Contender("numpy-sorted", partial(Asking, partial(NumpyLookups, size, True), draw, queries)),
        *_yardsticks(BYTES_PER_KEY * size),
    ]
    facts = {"keys": size, "queries": queries, "distribution": "uniform"}
    return _case(f"lookup-{_power(size)}-uniform", "lookups/s", OurLookups, size, draw, queries, theirs, facts)


def _zipf(size: int, queries: int) -> Case:
    draw, even = partial(_zipfian, size, queries), partial(_uniform, size, queries)
    make = partial(OurLookups, size, "implicit", "cpu")
    theirs = [
        Contender("numpy", partial(Asking, partial(NumpyLookups, size, False), draw, queries)),
        Contender("implicit at uniform", partial(Asking, make, even, queries), answers=False),
    ]
    facts = {"keys": size, "queries": queries, "distribution": "zipf"}
    return _case(f"lookup-{_power(size)}-zipf", "lookups/s", OurLookups, size, draw, queries, theirs, facts)


def _case(
    name: str,
    unit: str,
    make: Callable[[int, LayoutName, str], Asked],
    size: int,
    draw: Callable[[np.random.Generator], Any],
    queries: int,
    theirs: list[Contender],
    facts: dict[str, Any],
) -> Case:
    ours = [
        entrant.contender(partial(Asking, partial(make, size, layout, entrant.device), draw, queries))
        for layout, entrant in entrants(size)
    ]
    return Case(name, unit, [*ours, *theirs], facts, rivals=frozenset({"implicit"}))


# Ranges.


class OurRanges:
    """`OrderedIndex.range`."""

    def __init__(self, size: int, layout: LayoutName, name: str) -> None:
        self._index = index_of(size, layout, name)

    def ask(self, questions: tuple[Numbers, Numbers]) -> pa.ListArray:
        return self._index.range(*questions)

    def answer(self, found: pa.ListArray) -> Answer:
        return {"count": found.value_lengths().to_numpy(), "value": found.values.to_numpy()}


class NumpyRanges:
    """Two `searchsorted`, positions expanded, values gathered."""

    def __init__(self, size: int) -> None:
        self._keys, self._values = data(size)

    def ask(self, questions: tuple[Numbers, Numbers]) -> tuple[Numbers, Numbers]:
        starts = np.searchsorted(self._keys, questions[0])
        counts = np.searchsorted(self._keys, questions[1], "right") - starts
        ends = np.cumsum(counts)
        places = np.repeat(starts - ends + counts, counts) + np.arange(ends[-1])
        return counts, self._values[places]

    def answer(self, found: tuple[Numbers, Numbers]) -> Answer:
        return {"count": found[0], "value": found[1]}


def _bounds(size: int, queries: int, rng: np.random.Generator) -> tuple[Numbers, Numbers]:
    keys = data(size)[0]
    first = rng.integers(0, size - MATCHES, queries)
    return keys[first], keys[first + MATCHES - 1]


def _ranges(size: int, queries: int) -> Case:
    draw = partial(_bounds, size, queries)
    theirs = [Contender("numpy", partial(Asking, partial(NumpyRanges, size), draw, queries))]
    facts = {"keys": size, "queries": queries, "distribution": "uniform", "matches": MATCHES}
    return _case(f"range-{_power(size)}-match{MATCHES}", "ranges/s", OurRanges, size, draw, queries, theirs, facts)


# Building.


class Building:
    """Builds an index of sorted keys in each step."""

    def __init__(self, size: int, layout: LayoutName) -> None:
        self._size, self._layout = size, layout
        self._keys, self._values = (pa.array(column) for column in data(size))
        self._built: OrderedIndex | None = None

    def step(self) -> tuple[float, float]:
        """Build; giving the last one back is not timed."""
        self._built = None
        start = time.perf_counter()
        self._built = OrderedIndex(self._keys, self._values, layout=self._layout, device="cpu")
        return self._size, time.perf_counter() - start

    def answer(self) -> Answer:
        """A few lookups."""
        assert self._built is not None
        rng = np.random.default_rng(SEED)
        return {"value": self._built.lookup(_uniform(self._size, 1 << 10, rng)).to_numpy()}

    def pause(self) -> None:
        """Forget it."""
        self._built = None

    def close(self) -> None:
        """Forget it."""
        self._built = None


class Copying:
    """Copies as many bytes as an implicit index of these keys has."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._bytes = np.ones(index_of(size, "implicit", "cpu").nbytes, np.uint8)
        self._copy: Any = None

    def step(self) -> tuple[float, float]:
        """Into new memory, as building does."""
        self._copy = None
        start = time.perf_counter()
        self._copy = self._bytes.copy()
        return self._size, time.perf_counter() - start

    def answer(self) -> Answer:
        """It answers nothing."""
        return {}

    def pause(self) -> None:
        """Forget the copy."""
        self._copy = None

    def close(self) -> None:
        """Give the memory back."""
        self._copy = None
        self._bytes = np.zeros(0, np.uint8)


def _build(size: int) -> Case:
    ours = [Entrant(one, "cpu", "cpu").contender(partial(Building, size, one)) for one in LAYOUTS]
    copy = Contender("copy", partial(Copying, size), answers=False)
    facts = {"keys": size, "queries": 0, "distribution": "sorted"}
    return Case(f"build-{_power(size)}-sorted", "keys/s", [*ours, copy], facts)


class Holding:
    """How much of what an index holds is keys and values: no speed, and no matter of time."""

    def __init__(self, size: int, layout: LayoutName | None) -> None:
        held = BYTES_PER_KEY * size if layout is None else index_of(size, layout, "cpu").nbytes
        self._share = BYTES_PER_KEY * size / held

    def step(self) -> tuple[float, float]:
        """As work done in a second."""
        return self._share, 1.0

    def answer(self) -> Answer:
        """Nobody to agree with."""
        return {}

    def pause(self) -> None:
        """Nothing is held."""

    def close(self) -> None:
        """Nothing is held."""


def _memory(size: int) -> Case:
    ours = [Entrant(one, "cpu", "cpu").contender(partial(Holding, size, one)) for one in LAYOUTS]
    plain = Contender("keys and values", partial(Holding, size, None), answers=False)
    facts = {"keys": size, "queries": 0, "distribution": "sorted"}
    return Case(
        f"memory-{_power(size)}", "bytes of keys and values per byte held", [*ours, plain], facts, check_steps=1
    )


def _power(size: int) -> str:
    return f"2^{size.bit_length() - 1}"
