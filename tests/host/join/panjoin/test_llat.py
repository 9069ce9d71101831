"""What RaP-Table and WiB+-Tree share: both against a plain NumPy model, and the LLAT that holds their tuples."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from millrace.host.base.types import Array
from millrace.host.device.null import NullDevice
from millrace.host.join.panjoin.llat import MIN_SHARED_PROBES, Llat, LlatStructure, min_entry_capacity
from millrace.host.join.panjoin.llat_entries import FILL, LANES, NEXT, RIGHT, LlatTable
from millrace.host.join.panjoin.raptable import RapTable
from millrace.host.join.panjoin.subwindow import (
    ID_PADDING,
    InsertBatch,
    MatchRanges,
    RangeProbes,
    StructureContext,
    VisibleIntervals,
)
from millrace.host.join.panjoin.wibtree import WibTree
from millrace.host.runtime.team import Team

STRUCTURES = (RapTable, WibTree)
WIDTHS = (np.uint32, np.uint64)
both = pytest.mark.parametrize("kind", STRUCTURES)
widths = pytest.mark.parametrize("word", WIDTHS)


def make(kind: type[LlatStructure], word: type[np.unsignedinteger], capacity: int, first: int = 0) -> Any:
    """An empty structure."""
    return kind(StructureContext(np.dtype(word), capacity, NullDevice(), Team(2)), first)


def batch(words: Array, ids: Array) -> InsertBatch:
    """Sorted by word, equal words by id."""
    order = np.lexsort((ids, words))
    return InsertBatch(words[order], ids[order].astype(np.uint32))


def put(structure: LlatStructure, words: Array, size: int) -> None:
    """Insert words in batches; the n-th gets id n."""
    for start in range(0, len(words), size):
        part = words[start : start + size]
        structure.insert(batch(part, np.arange(start, start + len(part))))


def heads(llat: Llat, start: int = 0) -> list[int]:
    """The partitions from left to right."""
    found = [start]
    while (start := int(llat.metas[start, RIGHT])) >= 0:
        found.append(start)
    return found


def chain(llat: Llat, head: int) -> list[int]:
    """The entries of a partition."""
    entries = [head]
    while (head := int(llat.metas[head, NEXT])) >= 0:
        entries.append(head)
    return entries


def tuples(llat: Llat, head: int) -> tuple[Array, Array]:
    """The words and the ids of a partition."""
    at = np.concatenate(
        [np.arange(e * llat.entry_capacity, e * llat.entry_capacity + llat.metas[e, FILL]) for e in chain(llat, head)]
    )
    return llat.words[at], llat.ids[at]


def check_llat(structure: LlatStructure, words: Array, ids: Array) -> None:
    """Partitions keep to their floors, only chains' last entries have free space, and all tuples are there once."""
    llat, found = structure.llat, []
    floors = [int(llat.floors[head]) for head in heads(llat)]
    assert floors == sorted(floors)
    assert floors[0] == 0
    for head, low, high in zip(heads(llat), floors, [*floors[1:], 1 << 64], strict=True):
        assert all(llat.metas[e, FILL] == llat.entry_capacity for e in chain(llat, head)[:-1])
        own_words, own_ids = tuples(llat, head)
        assert all(low <= int(word) < high for word in own_words)
        found.append((own_words, own_ids))
    own_words, own_ids = (np.concatenate(part) for part in zip(*found, strict=True))
    order, model = np.argsort(own_ids), np.argsort(ids)
    np.testing.assert_array_equal(own_ids[order], ids[model])
    np.testing.assert_array_equal(own_words[order], words[model])
    assert len(structure) == len(words)


@dataclass
class Model:
    """All tuples in two arrays."""

    first: int
    words: Array
    ids: Array = field(default_factory=lambda: np.zeros(0, np.uint32))

    def put(self, b: InsertBatch) -> None:
        """Append."""
        self.words, self.ids = np.concatenate([self.words, b.words]), np.concatenate([self.ids, b.ids])

    def find(self, probes: RangeProbes, visible: VisibleIntervals | None) -> list[Array]:
        """Ascending positions of each probe."""
        found = []
        position = self.ids.astype(np.int64) + self.first
        for low, high, probe_tuple in zip(probes.low, probes.high, probes.probe_tuple, strict=True):
            inside = (self.words >= low) & (self.words <= high)
            if visible is not None:
                at = int(probe_tuple) * visible.stride
                inside &= (position >= visible.begin[at]) & (position < visible.end[at])
            found.append(np.sort(position[inside]))
        return found


def check_found(match_ranges: list[MatchRanges], expected: list[Array], want: bool) -> None:
    """The same counts, and the same positions if they are wanted."""
    (one,) = match_ranges
    assert not one.check
    counts = one.ends.astype(np.int64) - one.starts
    np.testing.assert_array_equal(counts, [len(e) for e in expected])
    if want:
        assert all(int(end) + ID_PADDING <= len(one.ids()) for end in one.ends), "as many must be readable"
        for start, end, positions in zip(one.starts, one.ends, expected, strict=True):
            np.testing.assert_array_equal(np.sort(one.ids()[start:end]).astype(np.int64) + one.first, positions)


def one_range_each(low: Array, high: Array, probe_tuple: Array, rising: bool) -> RangeProbes:
    """One range per tuple."""
    return RangeProbes(low, high, probe_tuple, rising, probe_tuple)


def some_words(rng: np.random.Generator, word: type[np.unsignedinteger], n: int, domain: int) -> Array:
    """Words of a small or large domain, at the low or the high end of all words."""
    offset = int(np.iinfo(word).max) + 1 - domain if rng.random() < 0.5 else 0
    return (rng.integers(0, domain, n, dtype=np.uint64) + np.uint64(offset)).astype(word)


def some_probes(rng: np.random.Generator, words: Array, n: int, tuples: int) -> RangeProbes:
    """Ranges around held words, narrow, wide, and of everything."""
    top = int(np.iinfo(words.dtype).max)
    middle = words[rng.integers(0, len(words), n)] if len(words) else np.zeros(n, words.dtype)
    width = int(rng.choice([0, 1, 50, 1 << 20, top]))
    low = np.array(sorted(max(int(m) - width, 0) for m in middle), words.dtype)
    if rng.random() < 0.5:
        high = np.array([min(int(w) + 2 * width, top) for w in low], words.dtype)
        return one_range_each(low, high, rng.integers(0, tuples, n, dtype=np.uint32), rising=True)
    high = np.array([min(int(w) + int(rng.random() * width), top) for w in low], words.dtype)
    return one_range_each(low, high, rng.integers(0, tuples, n, dtype=np.uint32), rising=False)


def some_intervals(rng: np.random.Generator, first: int, size: int, tuples: int) -> VisibleIntervals | None:
    """None, one for all, or one per probing tuple; also such as miss the subwindow."""
    kind = rng.integers(0, 3)
    if kind == 0:
        return None
    n = 1 if kind == 1 else max(tuples, 2)
    begin = np.sort(rng.integers(first - 5, first + size + 5, n))
    end = np.sort(begin + rng.integers(0, size + 5, n))
    return VisibleIntervals(begin, end)


@both
@widths
@pytest.mark.parametrize("seed", range(24))
def test_same_matches_as_the_model(kind: type[LlatStructure], word: type[np.unsignedinteger], seed: int) -> None:
    rng = np.random.default_rng([seed, len(kind.name), np.dtype(word).itemsize])
    capacity = int(rng.choice([1, 20, 300, 3000]))
    first = int(rng.choice([0, 5, 1 << 40]))
    domain = int(rng.choice([1, 3, 100, 1 << 30, int(np.iinfo(word).max)]))
    most = int(rng.choice([1, 7, 100, 2000]))
    structure, model = make(kind, word, capacity, first), Model(first, np.zeros(0, word))
    next_id = 0
    for _ in range(8):
        n = int(rng.integers(0, most + 1))
        ids = next_id + np.cumsum(rng.integers(1, 3, n))
        next_id = int(ids[-1]) + 1 if n else next_id
        b = batch(some_words(rng, word, n, domain), ids)
        structure.insert(b)
        model.put(b)
        probes = some_probes(rng, model.words, int(rng.integers(0, 60)), 10)
        visible, want = some_intervals(rng, first, next_id + 1, 10), bool(rng.random() < 0.7)
        check_found(structure.probe(probes, visible, want), model.find(probes, visible), want)
        if rng.random() < 0.1:
            structure, model = structure.successor(structure.context, first), Model(first, np.zeros(0, word))
            next_id = 0
    check_llat(structure, model.words, model.ids)


@both
@widths
def test_many_probes_are_shared_by_the_team(kind: type[LlatStructure], word: type[np.unsignedinteger]) -> None:
    rng = np.random.default_rng(5)
    words = some_words(rng, word, 1000, 2000)
    structure, model = make(kind, word, 1000, 100), Model(100, words, np.arange(1000, dtype=np.uint32))
    structure.context.team.acquire()
    put(structure, words, 100)
    for width in (0, 3, 400):
        low = np.sort(words[rng.integers(0, 1000, MIN_SHARED_PROBES + 17)])
        high = low + np.minimum(np.iinfo(word).max - low, word(width))
        probes = one_range_each(low, high, np.arange(len(low), dtype=np.uint32), rising=True)
        for visible in (None, VisibleIntervals(np.arange(len(low)) // 8, 400 + np.arange(len(low)) // 4)):
            check_found(structure.probe(probes, visible, True), model.find(probes, visible), True)
            check_found(structure.probe(probes, visible, False), model.find(probes, visible), False)
    structure.context.team.depth -= 1


@both
def test_later_insertions_do_not_change_match_ranges(kind: type[LlatStructure]) -> None:
    """Later insertions split and move partitions."""
    rng = np.random.default_rng(3)
    structure, model = make(kind, np.uint32, 100), Model(0, np.zeros(0, np.uint32))
    pending: list[tuple[list[MatchRanges], list[Array]]] = []
    for start in range(0, 3000, 150):
        b = batch(some_words(rng, np.uint32, 150, 1 << 32), np.arange(start, start + 150))
        structure.insert(b)
        model.put(b)
        probes = some_probes(rng, model.words, 20, 1)
        pending.append((structure.probe(probes, None, True), model.find(probes, None)))
    for match_ranges, expected in pending:
        check_found(match_ranges, expected, True)


@both
@widths
@pytest.mark.parametrize("shape", ["equal", "increasing", "decreasing", "heavy", "heavy_low", "two", "largest"])
@pytest.mark.parametrize("size", [1, 37, 5000])
def test_memory_stays_a_small_multiple_of_the_capacity(
    kind: type[LlatStructure], word: type[np.unsignedinteger], shape: str, size: int
) -> None:
    n = 5000
    rng = np.random.default_rng(1)
    rare = rng.random(n) < 0.1
    words = {
        "equal": np.full(n, 7),
        "increasing": np.arange(n),
        "decreasing": np.arange(n)[::-1],
        "heavy": np.where(rare, rng.integers(0, 1 << 30, n), 1 << 29),
        "heavy_low": np.where(rare | (np.arange(n) > 500), np.arange(n)[::-1], 0),
        "two": rng.integers(0, 2, n),
        "largest": np.full(n, np.iinfo(word).max, np.uint64),
    }[shape].astype(word)
    structure = make(kind, word, n)
    put(structure, words, size)
    check_llat(structure, words, np.arange(n))
    # Entries reserved but never used are memory that was never touched.
    assert structure.llat.table[LlatTable.POINTER] * structure.llat.entry_capacity <= 4 * n


@both
def test_more_than_the_capacity(kind: type[LlatStructure]) -> None:
    words = np.random.default_rng(2).integers(0, 1 << 32, 4000).astype(np.uint32)
    structure = make(kind, np.uint32, 500)
    put(structure, words, 333)
    check_llat(structure, words, np.arange(4000))


def test_an_entrys_capacity_is_rounded_up() -> None:
    assert min_entry_capacity(100, 3) == 42
    assert Llat(np.dtype(np.uint32), 42, 6).entry_capacity == 48
    assert Llat(np.dtype(np.uint64), 1, 2).entry_capacity == LANES


def test_growing_keeps_what_is_there() -> None:
    structure = make(RapTable, np.uint64, 64)
    words = np.arange(64, dtype=np.uint64) << np.uint64(57)
    put(structure, words, 64)
    structure.llat.grow(100)
    check_llat(structure, words, np.arange(64))
