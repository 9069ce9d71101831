"""Bench `lookup`: `mr.OrderedIndex` over 64-bit keys and values, with batches of 2^20 queries in random order.

- `lookup-…-uniform`: keys drawn uniformly, values returned in query order. Peers: NumPy's `searchsorted` on the sorted
  keys (`numpy`), the same with sorted queries and results scattered back (`numpy-sorted`), and the machine's
  `random-reads`: random cache lines read per second in as much memory as keys and values take, so that the ratio is
  lookups per line (`random-reads, far`: prefetched into the second-level cache). `regular` is also compared with
  `implicit`.
- `lookup-…-zipf`: keys from a Zipf distribution with exponent 2; also against uniform keys (`implicit at uniform`).
- `range-…-match8`: ranges of eight keys; the peer is two `searchsorted` and a gather in NumPy.
- `build-…-sorted`: build from sorted keys; the yardstick `copy` is a NumPy copy of as many bytes as the index has.
- `memory-…`: bytes of keys and values per byte of the index; not a speed.

The complete public call is timed. Keys are sorted before timing starts.
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
    """Sizes in ascending order; building and memory at the largest."""
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
    """An index, built once and shared by the cases."""
    return OrderedIndex(*data(size), layout=layout, device=name)


def entrants(size: int) -> list[tuple[LayoutName, Entrant]]:
    """Both layouts on every device that can search them, up to the largest reasonable size."""
    found: list[tuple[LayoutName, Entrant]] = []
    for info in devices():
        if info.available and info.kind != "null" and size <= LARGEST_ON.get(info.kind, size):
            units = device(info.name).units
            found += [(one, Entrant(one, info.name, info.kind)) for one in LAYOUTS if UNITS[one] in units]
    return found


class Queryable(Protocol):
    """Executes a batch of queries."""

    def query(self, query_batch: Any) -> Any:
        """The results, materialized in memory."""

    def answer(self, found: Any) -> Answer:
        """The results as columns."""


class QueryRunner:
    """Runs a new random batch of queries in each step."""

    def __init__(self, make: Callable[[], Queryable], draw: Callable[[np.random.Generator], Any], count: int) -> None:
        """All contenders draw the same queries."""
        self._rng = np.random.default_rng(SEED)
        self._index_under_test, self._draw, self._count = make(), draw, count
        self._last: Any = None

    def step(self) -> tuple[float, float]:
        """Run one batch."""
        query_batch = self._draw(self._rng)
        self._last = None
        start = time.perf_counter()
        self._last = self._index_under_test.query(query_batch)
        return self._count, time.perf_counter() - start

    def answer(self) -> Answer:
        """The result of the last batch."""
        return self._index_under_test.answer(self._last)

    def pause(self) -> None:
        """Free the last result."""
        self._last = None

    def close(self) -> None:
        """Keep the index for the next case."""
        self.pause()


# Lookups.


class OurLookups:
    """`OrderedIndex.lookup`."""

    def __init__(self, size: int, layout: LayoutName, name: str) -> None:
        self._index = index_of(size, layout, name)

    def query(self, query_batch: Numbers) -> pa.Array:
        return self._index.lookup(query_batch)

    def answer(self, found: pa.Array) -> Answer:
        return {"value": found.to_numpy()}


class NumpyLookups:
    """`searchsorted`, one thread; `sort`: sort the queries first and scatter the results back."""

    def __init__(self, size: int, sort: bool) -> None:
        self._keys, self._values = data(size)
        self._sort = sort

    def query(self, query_batch: Numbers) -> Numbers:
        if not self._sort:
            return self._found(query_batch)
        order = np.argsort(query_batch)
        out = np.empty_like(query_batch)
        out[order] = self._found(query_batch[order])
        return out

    def _found(self, query_batch: Numbers) -> Numbers:
        """Values; 0 if the key does not exist."""
        positions = np.minimum(np.searchsorted(self._keys, query_batch), len(self._keys) - 1)
        return np.where(self._keys[positions] == query_batch, self._values[positions], 0)

    def answer(self, found: Numbers) -> Answer:
        return {"value": found}


def _uniform(size: int, queries: int, rng: np.random.Generator) -> Numbers:
    return data(size)[0][rng.integers(0, size, queries)]


def _zipfian(size: int, queries: int, rng: np.random.Generator) -> Numbers:
    """The key of rank k has a probability proportional to 1 / k^2; ranks are scattered over the keys."""
    ranks = np.minimum(rng.zipf(ZIPF, queries), size) - 1
    drawn: Numbers = data(size)[0][(ranks * 0x9E3779B1 + SEED) % size]
    return drawn


def _yardsticks(size: int) -> list[Contender]:
    """Random reads of the machine in `size` bytes."""
    near, far = partial(RandomReads, size), partial(RandomReads, size, far=True)
    return [
        Contender(name, reads, answers=False, unit="lines/s")
        for name, reads in (("random-reads", near), ("random-reads, far", far))
    ]


def _lookups(size: int, queries: int) -> Case:
    draw = partial(_uniform, size, queries)
    theirs = [
        Contender("numpy", partial(QueryRunner, partial(NumpyLookups, size, False), draw, queries)),
        Contender("numpy-sorted", partial(QueryRunner, partial(NumpyLookups, size, True), draw, queries)),
        *_yardsticks(BYTES_PER_KEY * size),
    ]
    facts = {"keys": size, "queries": queries, "distribution": "uniform"}
    return _case(f"lookup-{_power(size)}-uniform", "lookups/s", OurLookups, size, draw, queries, theirs, facts)


def _zipf(size: int, queries: int) -> Case:
    draw, even = partial(_zipfian, size, queries), partial(_uniform, size, queries)
    make = partial(OurLookups, size, "implicit", "cpu")
    theirs = [
        Contender("numpy", partial(QueryRunner, partial(NumpyLookups, size, False), draw, queries)),
        Contender("implicit at uniform", partial(QueryRunner, make, even, queries), answers=False),
    ]
    facts = {"keys": size, "queries": queries, "distribution": "zipf"}
    return _case(f"lookup-{_power(size)}-zipf", "lookups/s", OurLookups, size, draw, queries, theirs, facts)


def _case(
    name: str,
    unit: str,
    make: Callable[[int, LayoutName, str], Queryable],
    size: int,
    draw: Callable[[np.random.Generator], Any],
    queries: int,
    theirs: list[Contender],
    facts: dict[str, Any],
) -> Case:
    ours = [
        entrant.contender(partial(QueryRunner, partial(make, size, layout, entrant.device), draw, queries))
        for layout, entrant in entrants(size)
    ]
    return Case(name, unit, [*ours, *theirs], facts, rivals=frozenset({"implicit"}))


# Ranges.


class OurRanges:
    """`OrderedIndex.range`."""

    def __init__(self, size: int, layout: LayoutName, name: str) -> None:
        self._index = index_of(size, layout, name)

    def query(self, query_batch: tuple[Numbers, Numbers]) -> pa.ListArray:
        return self._index.range(*query_batch)

    def answer(self, found: pa.ListArray) -> Answer:
        return {"count": found.value_lengths().to_numpy(), "value": found.values.to_numpy()}


class NumpyRanges:
    """Two `searchsorted`, positions expanded, values gathered."""

    def __init__(self, size: int) -> None:
        self._keys, self._values = data(size)

    def query(self, query_batch: tuple[Numbers, Numbers]) -> tuple[Numbers, Numbers]:
        starts = np.searchsorted(self._keys, query_batch[0])
        counts = np.searchsorted(self._keys, query_batch[1], "right") - starts
        ends = np.cumsum(counts)
        positions = np.repeat(starts - ends + counts, counts) + np.arange(ends[-1])
        return counts, self._values[positions]

    def answer(self, found: tuple[Numbers, Numbers]) -> Answer:
        return {"count": found[0], "value": found[1]}


def _bounds(size: int, queries: int, rng: np.random.Generator) -> tuple[Numbers, Numbers]:
    keys = data(size)[0]
    first = rng.integers(0, size - MATCHES, queries)
    return keys[first], keys[first + MATCHES - 1]


def _ranges(size: int, queries: int) -> Case:
    draw = partial(_bounds, size, queries)
    theirs = [Contender("numpy", partial(QueryRunner, partial(NumpyRanges, size), draw, queries))]
    facts = {"keys": size, "queries": queries, "distribution": "uniform", "matches": MATCHES}
    return _case(f"range-{_power(size)}-match{MATCHES}", "ranges/s", OurRanges, size, draw, queries, theirs, facts)


# Building.


class Building:
    """Builds an index from sorted keys in each step."""

    def __init__(self, size: int, layout: LayoutName) -> None:
        self._size, self._layout = size, layout
        self._keys, self._values = (pa.array(column) for column in data(size))
        self._built: OrderedIndex | None = None

    def step(self) -> tuple[float, float]:
        """Build; freeing the previous index is not timed."""
        self._built = None
        start = time.perf_counter()
        self._built = OrderedIndex(self._keys, self._values, layout=self._layout, device="cpu")
        return self._size, time.perf_counter() - start

    def answer(self) -> Answer:
        """The result of some lookups."""
        assert self._built is not None
        rng = np.random.default_rng(SEED)
        return {"value": self._built.lookup(_uniform(self._size, 1 << 10, rng)).to_numpy()}

    def pause(self) -> None:
        """Free the index."""
        self._built = None

    def close(self) -> None:
        """Free the index."""
        self._built = None


class Copying:
    """Copies as many bytes as an implicit index of these keys has."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._bytes = np.ones(index_of(size, "implicit", "cpu").nbytes, np.uint8)
        self._copy: Any = None

    def step(self) -> tuple[float, float]:
        """Copy into new memory, as building does."""
        self._copy = None
        start = time.perf_counter()
        self._copy = self._bytes.copy()
        return self._size, time.perf_counter() - start

    def answer(self) -> Answer:
        """No result."""
        return {}

    def pause(self) -> None:
        """Free the copy."""
        self._copy = None

    def close(self) -> None:
        """Free all memory."""
        self._copy = None
        self._bytes = np.zeros(0, np.uint8)


def _build(size: int) -> Case:
    ours = [Entrant(one, "cpu", "cpu").contender(partial(Building, size, one)) for one in LAYOUTS]
    copy = Contender("copy", partial(Copying, size), answers=False)
    facts = {"keys": size, "queries": 0, "distribution": "sorted"}
    return Case(f"build-{_power(size)}-sorted", "keys/s", [*ours, copy], facts)


class Holding:
    """Keys and values as a share of the index's bytes; not a speed."""

    def __init__(self, size: int, layout: LayoutName | None) -> None:
        held = BYTES_PER_KEY * size if layout is None else index_of(size, layout, "cpu").nbytes
        self._share = BYTES_PER_KEY * size / held

    def step(self) -> tuple[float, float]:
        """Report the share as work done in one second."""
        return self._share, 1.0

    def answer(self) -> Answer:
        """No result to compare."""
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
