"""Bench `update`: changes of `mr.OrderedIndex`, 64-bit keys and values, the regular layout in place.

- `upsert-…`: a batch of new keys in random order. Peers: `rebuild`, an index of the regular layout built from all keys
  and values, sorted and merged beforehand; `implicit on cpu`, whose update is a rebuild with the merging; `multimap`,
  the same inserts into a C++ `std::multimap`. Each batch is taken out again, untimed, so that sizes stay.
- `groups-…`: what all threads do of such a batch (the paper's parallel phase), beside one thread doing the same.
- `lookup-…-updated`: lookups after a million random changes, beside an index freshly built of the same rows.
- `mixed-…-u0` to `-u100`: batches with so many per cent updates, the rest lookups (the paper's Figure 21).
- `auto-…`: batches of 1 Ki to 4 Mi changes on a device whose transfers take a set time (`paced`), by either way and by
  the automatic choice. Real work is done by the CPU; only transfers are slowed down.

What is timed is the whole public call; in `groups` and `auto`, what stands below it.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from typing import Any

import numpy as np
import pyarrow as pa

from millrace.bench.entrants import Entrant
from millrace.bench.harness import Answer, Case, Contender, Runner
from millrace.bench.lookup import SEED, Numbers, data
from millrace.bench.options import Options
from millrace.bench.peers.ordered_multimap import OrderedMultimap
from millrace.host.device.cpu import CpuDevice
from millrace.host.hbtree.build import fill
from millrace.host.hbtree.editor import Changes, Editor
from millrace.host.hbtree.layout import LayoutName
from millrace.host.hbtree.regular import RegularTree
from millrace.host.hbtree.tree import helpers
from millrace.host.hybrid.lookup_runner import LookupRunner
from millrace.host.hybrid.paced_device import DevicePace, PacedDevice
from millrace.host.hybrid.search_engine import SearchEngine
from millrace.host.hybrid.update_costs import MODES
from millrace.host.hybrid.update_runner import UpdateRunner
from millrace.host.runtime.clock import WALL
from millrace.host.runtime.pool import cores
from millrace.index import OrderedIndex

SIZE, BATCH = 1 << 26, 1 << 20
QUICK_SIZE, QUICK_BATCH = 1 << 16, 1 << 12
SHARES = (0, 25, 50, 75, 100)
"""Per cent of updates in a mixed batch."""
GRID_SIZE, GRID = 1 << 24, (10, 12, 14, 15, 16, 17, 18, 20, 22)
ROOMY = 20
"""The power of two up to which batches have room in a tree of the grid's size."""
QUICK_GRID_SIZE, QUICK_GRID = 1 << 16, (10, 12)
PACE = DevicePace(transfer=20_000, byte=0.25)
"""Nanoseconds of a transfer and of each byte in it: 20 us and 4 GB/s, about what a small GPU's link has."""
ASKED = 1 << 10
"""Keys that are looked up to compare answers."""
REGULAR, IMPLICIT = Entrant("regular", "cpu", "cpu"), Entrant("implicit", "cpu", "cpu")


def cases(options: Options) -> Iterator[Case]:
    """Upserts first; the grid last, since it takes longest."""
    size, batch = (QUICK_SIZE, QUICK_BATCH) if options.quick else (SIZE, BATCH)
    yield _upserts(size, batch)
    yield _groups(size, batch)
    yield _lookups_after(size, batch)
    grid_size, grid = (QUICK_GRID_SIZE, QUICK_GRID) if options.quick else (GRID_SIZE, GRID)
    # A multimap of 2^26 takes minutes to fill: these show a course, and no bar stands on them.
    for share in SHARES:
        yield _mixed(grid_size, batch, share)
    for power in grid:
        # The largest batch has no room in the smaller tree, and would have it built anew.
        yield _auto(SIZE if power > ROOMY else grid_size, 1 << power)


@lru_cache(maxsize=2)
def _index(size: int, layout: LayoutName) -> OrderedIndex:
    """An index for all cases: each leaves it with the rows it had."""
    return OrderedIndex(*data(size), layout=layout, device="cpu")


def new_keys(size: int, batch: int, rng: np.random.Generator) -> tuple[Numbers, Numbers]:
    """Keys that are, all but surely, not among those of `data`, anywhere between them, each once; and values."""
    keys = data(size)[0]
    drawn = np.unique(rng.integers(keys[0], keys[-1], batch + batch // 64 + 8))
    return rng.permutation(drawn)[:batch], rng.integers(1, 1 << 62, batch)


class Step(ABC):
    """Draws the same batches as all others, and times what its subclass does with each."""

    def __init__(self, size: int, batch: int) -> None:
        self._rng = np.random.default_rng([SEED, size, batch])
        self._size, self._batch = size, batch
        self._answer: Answer = {}

    def step(self) -> tuple[float, float]:
        """A batch; the answers are looked up, and the batch is taken out again, untimed."""
        keys, values = new_keys(self._size, self._batch, self._rng)
        prepared = self.prepare(keys, values)
        start = time.perf_counter()
        self.put(prepared)
        seconds = time.perf_counter() - start
        asked = np.concatenate([keys[:ASKED], data(self._size)[0][: self._size : max(self._size // ASKED, 1)]])
        self._answer = {"value": self.find(asked)}
        self.take_out(keys)
        return self._batch, seconds

    def prepare(self, keys: Numbers, values: Numbers) -> Any:
        """What is not timed."""
        return keys, values

    @abstractmethod
    def put(self, prepared: Any) -> None:
        """What is."""

    @abstractmethod
    def find(self, keys: Numbers) -> Numbers:
        """Values by key."""

    def take_out(self, keys: Numbers) -> None:  # noqa: B027 - a step that changes nothing has nothing to take out
        """Leave everything as it was."""

    def answer(self) -> Answer:
        """Of the last batch."""
        return self._answer

    def pause(self) -> None:  # noqa: B027 - as above
        """Nothing is held but the index."""

    def close(self) -> None:  # noqa: B027 - as above
        """The index stays for the next case."""


class Updating(Step):
    """`OrderedIndex.update`."""

    def __init__(self, size: int, batch: int, layout: LayoutName) -> None:
        super().__init__(size, batch)
        self._held = _index(size, layout)

    def put(self, prepared: tuple[Numbers, Numbers]) -> None:
        self._held.update(upsert=prepared)

    def find(self, keys: Numbers) -> Numbers:
        found: Numbers = self._held.lookup(keys).fill_null(0).to_numpy()
        return found

    def take_out(self, keys: Numbers) -> None:
        self._held.update(delete=keys)


class Rebuilding(Step):
    """A new index of all rows, which were put in order before."""

    def prepare(self, keys: Numbers, values: Numbers) -> tuple[pa.Array, pa.Array]:
        old_keys, old_values = data(self._size)
        order = np.argsort(keys)
        places = np.searchsorted(old_keys, keys[order])
        merged = np.insert(old_keys, places, keys[order]), np.insert(old_values, places, values[order])
        return pa.array(merged[0]), pa.array(merged[1])

    def put(self, prepared: tuple[pa.Array, pa.Array]) -> None:
        self._built = OrderedIndex(*prepared, layout="regular", device="cpu")

    def find(self, keys: Numbers) -> Numbers:
        found: Numbers = self._built.lookup(keys).fill_null(0).to_numpy()
        del self._built
        return found


class Inserting(Step):
    """Inserts into a `std::multimap`, one thread."""

    def __init__(self, size: int, batch: int) -> None:
        super().__init__(size, batch)
        self._map = OrderedMultimap(*data(size))

    def put(self, prepared: tuple[Numbers, Numbers]) -> None:
        self._map.insert(*prepared)

    def find(self, keys: Numbers) -> Numbers:
        return self._map.find(keys)

    def take_out(self, keys: Numbers) -> None:
        self._map.erase(keys)

    def close(self) -> None:
        self._map.close()


def _facts(size: int, batch: int, **more: Any) -> dict[str, Any]:
    return {"keys": size, "changes": batch, **more}


def _upserts(size: int, batch: int) -> Case:
    contenders = [
        REGULAR.contender(partial(Updating, size, batch, "regular")),
        IMPLICIT.contender(partial(Updating, size, batch, "implicit")),
        Contender("rebuild", partial(Rebuilding, size, batch)),
        Contender("multimap", partial(Inserting, size, batch)),
    ]
    name = f"upsert-{_power(batch)}-into-{_power(size)}"
    return Case(name, "upserts/s", contenders, _facts(size, batch), rivals=frozenset({"implicit"}))


# What all threads do.


def _tree(size: int) -> RegularTree:
    """A tree of the bench's rows."""
    keys, values = data(size)
    with helpers(cores(), size) as team:
        leaves, _ = fill(_words(keys), 0, values.view(np.uint64), team)
    return RegularTree.build(leaves, 8, equals=False)


def _words(keys: Numbers) -> Any:
    return keys.view(np.uint64) ^ np.uint64(1 << 63)


def _changes(keys: Numbers, values: Numbers | None) -> Changes:
    """Upserts, or deletes."""
    order = np.argsort(keys)
    held = keys if values is None else values
    return Changes.of(_words(keys[order]), held[order].view(np.uint64), values is not None)


class Grouping(Step):
    """The groups of a batch, by so many threads; what is left over is done untimed."""

    def __init__(self, size: int, batch: int, threads: int) -> None:
        super().__init__(size, batch)
        self._tree, self._threads = _tree(size), threads

    def prepare(self, keys: Numbers, values: Numbers) -> Changes:
        return _changes(keys, values)

    def put(self, prepared: Changes) -> None:
        with helpers(self._threads, len(prepared)) as team:
            self._editor = Editor(self._tree, team)
            self._left = self._editor.in_groups(prepared)

    def find(self, keys: Numbers) -> Numbers:
        assert self._editor.rest(self._left)
        places = self._tree.lookup(_words(keys))
        found = np.where(places < 0, np.uint64(0), self._tree.values_at(np.maximum(places, 0)))
        return found.view(np.int64)

    def take_out(self, keys: Numbers) -> None:
        with helpers(self._threads, len(keys)) as team:
            assert Editor(self._tree, team).apply(_changes(keys, None))


def _groups(size: int, batch: int) -> Case:
    ours = REGULAR.contender(partial(Grouping, size, batch, cores()))
    alone = Contender("one thread", partial(Grouping, size, batch, 1))
    return Case(f"groups-{_power(batch)}-into-{_power(size)}", "changes/s", [ours, alone], _facts(size, batch))


# Lookups after updates.


class Asking:
    """Lookups in an index that has seen a million changes, or in one that has not."""

    def __init__(self, size: int, batch: int, updated: bool) -> None:
        self._index = OrderedIndex(*data(size), layout="regular", device="cpu")
        self._size, self._batch, self._rng = size, batch, np.random.default_rng(SEED)
        if updated:
            keys, values = new_keys(size, batch, self._rng)
            self._index.update(upsert=(keys, values))
            self._index.update(delete=keys)
        self._rng = np.random.default_rng(SEED)
        self._found: Any = None

    def step(self) -> tuple[float, float]:
        """A batch of lookups."""
        asked = data(self._size)[0][self._rng.integers(0, self._size, self._batch)]
        self._found = None
        start = time.perf_counter()
        self._found = self._index.lookup(asked)
        return self._batch, time.perf_counter() - start

    def answer(self) -> Answer:
        """Values."""
        return {"value": self._found.to_numpy()}

    def pause(self) -> None:
        """Forget them."""
        self._found = None

    def close(self) -> None:
        """Forget everything."""
        del self._index


def _lookups_after(size: int, batch: int) -> Case:
    ours = REGULAR.contender(partial(Asking, size, batch, True))
    fresh = Contender("fresh build", partial(Asking, size, batch, False))
    name = f"lookup-{_power(size)}-updated"
    return Case(name, "lookups/s", [ours, fresh], _facts(size, 2 * batch))


# Updates and lookups in turn.


class Mixing(Updating):
    """A share of a batch are updates, the rest lookups of keys that are there."""

    def __init__(self, size: int, batch: int, layout: LayoutName, share: int) -> None:
        super().__init__(size, batch, layout)
        self._share = share

    def prepare(self, keys: Numbers, values: Numbers) -> Any:
        cut = self._batch * self._share // 100
        return keys[:cut], values[:cut], data(self._size)[0][self._rng.integers(0, self._size, self._batch - cut)]

    def put(self, prepared: Any) -> None:
        keys, values, asked = prepared
        if len(keys):
            self._held.update(upsert=(keys, values))
        if len(asked):
            self._held.lookup(asked)


class MixingMap(Inserting):
    """The same with a `std::multimap`."""

    def __init__(self, size: int, batch: int, share: int) -> None:
        super().__init__(size, batch)
        self._share = share

    prepare = Mixing.prepare

    def put(self, prepared: Any) -> None:
        keys, values, asked = prepared
        self._map.insert(keys, values)
        self._map.find(asked)


def _mixed(size: int, batch: int, share: int) -> Case:
    contenders = [
        REGULAR.contender(partial(Mixing, size, batch, "regular", share)),
        IMPLICIT.contender(partial(Mixing, size, batch, "implicit", share)),
        Contender("multimap", partial(MixingMap, size, batch, share)),
    ]
    facts = _facts(size, batch, updates_percent=share)
    return Case(f"mixed-{_power(size)}-u{share}", "operations/s", contenders, facts)


# The choice.


class Choosing(Step):
    """Updates of a tree on a device of set speed, one way or the other, or as is chosen."""

    def __init__(self, size: int, batch: int, mode: str) -> None:
        super().__init__(size, batch)
        self._tree, self._mode = _tree(size), mode
        self._runner = LookupRunner(SearchEngine(PacedDevice(CpuDevice(1), PACE, WALL)), self._tree)
        self._updater = UpdateRunner(self._tree, self._runner)

    def prepare(self, keys: Numbers, values: Numbers) -> Changes:
        return _changes(keys, values)

    def put(self, prepared: Changes) -> None:
        assert self._updater.update(prepared, self._mode) is not None

    def find(self, keys: Numbers) -> Numbers:
        places = self._runner.lookup(_words(keys))
        found = np.where(places < 0, np.uint64(0), self._tree.values_at(np.maximum(places, 0)))
        return found.view(np.int64)

    def take_out(self, keys: Numbers) -> None:
        assert self._updater.update(_changes(keys, None), "async") is not None

    def close(self) -> None:
        self._runner.close()


def _auto(size: int, batch: int) -> Case:
    contenders = [
        Contender(mode, _starter(size, batch, mode), index=mode, device="paced", device_kind="paced") for mode in MODES
    ]
    facts = _facts(size, batch, transfer_ns=PACE.transfer, byte_ns=PACE.byte)
    return Case(f"auto-{_power(batch)}-into-{_power(size)}", "changes/s", contenders, facts, slice_share=0.2)


def _starter(size: int, batch: int, mode: str) -> Callable[[], Runner]:
    return partial(Choosing, size, batch, mode)


def _power(size: int) -> str:
    return f"2^{size.bit_length() - 1}"
