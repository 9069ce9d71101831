"""Bench `update`: changes of `mr.OrderedIndex`, 64-bit keys and values, the regular layout in place.

- `upsert-…`: a batch of new keys in random order. Peers: `rebuild`, an index of the regular layout built from all keys
  and values, already sorted and merged; `implicit on cpu`, whose update merges and rebuilds; `multimap`, the same
  inserts into a C++ `std::multimap`. Each batch is deleted again, untimed, so that sizes stay constant.
- `groups-…`: the parallel phase of such a batch (as in the paper), against one thread with the same work.
- `lookup-…-updated`: lookups after a million random changes, against a fresh index with the same rows.
- `mixed-…-u0` to `-u100`: batches with that percentage of updates, the rest lookups (the paper's Figure 21).
- `auto-…`: batches of 1 Ki to 4 Mi changes on a device with simulated transfer times (`paced`), in each update mode and
  with the automatic choice. The CPU does the work; only transfers are slowed down.

The complete public call is timed; in `groups` and `auto`, the internal function below it.
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
"""Percentage of updates in a mixed batch."""
GRID_SIZE, GRID = 1 << 24, (10, 12, 14, 15, 16, 17, 18, 20, 22)
MAX_GRID_POWER = 20
"""Batches up to 2 to this power fit into a tree of the grid's size."""
QUICK_GRID_SIZE, QUICK_GRID = 1 << 16, (10, 12)
PACE = DevicePace(transfer=20_000, byte=0.25)
"""Nanoseconds per transfer and per byte: 20 us and 4 GB/s, about the link of a small GPU."""
CHECKED_KEYS = 1 << 10
"""Number of keys looked up to compare results."""
REGULAR, IMPLICIT = Entrant("regular", "cpu", "cpu"), Entrant("implicit", "cpu", "cpu")


def cases(options: Options) -> Iterator[Case]:
    """Upserts first; the grid last, because it takes longest."""
    size, batch = (QUICK_SIZE, QUICK_BATCH) if options.quick else (SIZE, BATCH)
    yield _upserts(size, batch)
    yield _groups(size, batch)
    yield _lookups_after(size, batch)
    grid_size, grid = (QUICK_GRID_SIZE, QUICK_GRID) if options.quick else (GRID_SIZE, GRID)
    # A multimap of 2^26 takes minutes to fill, so these cases use a smaller size; they have no target.
    for share in SHARES:
        yield _mixed(grid_size, batch, share)
    for power in grid:
        # The largest batch does not fit into the smaller tree and would force a rebuild.
        yield _auto(SIZE if power > MAX_GRID_POWER else grid_size, 1 << power)


@lru_cache(maxsize=2)
def _index(size: int, layout: LayoutName) -> OrderedIndex:
    """An index shared by all cases: each case restores its rows."""
    return OrderedIndex(*data(size), layout=layout, device="cpu")


def new_keys(size: int, batch: int, rng: np.random.Generator) -> tuple[Numbers, Numbers]:
    """Distinct random keys in the range of `data`, almost certainly not in it, and values."""
    keys = data(size)[0]
    drawn = np.unique(rng.integers(keys[0], keys[-1], batch + batch // 64 + 8))
    return rng.permutation(drawn)[:batch], rng.integers(1, 1 << 62, batch)


class Step(ABC):
    """Draws the same batches as all contenders and times what its subclass does with each."""

    def __init__(self, size: int, batch: int) -> None:
        self._rng = np.random.default_rng([SEED, size, batch])
        self._size, self._batch = size, batch
        self._answer: Answer = {}

    def step(self) -> tuple[float, float]:
        """Apply a batch (timed); then look up some keys and delete the batch (untimed)."""
        keys, values = new_keys(self._size, self._batch, self._rng)
        prepared = self.prepare(keys, values)
        start = time.perf_counter()
        self.put(prepared)
        seconds = time.perf_counter() - start
        lookup_keys = np.concatenate(
            [keys[:CHECKED_KEYS], data(self._size)[0][: self._size : max(self._size // CHECKED_KEYS, 1)]]
        )
        self._answer = {"value": self.find(lookup_keys)}
        self.take_out(keys)
        return self._batch, seconds

    def prepare(self, keys: Numbers, values: Numbers) -> Any:
        """Preparation, not timed."""
        return keys, values

    @abstractmethod
    def put(self, prepared: Any) -> None:
        """Apply the batch; this is timed."""

    @abstractmethod
    def find(self, keys: Numbers) -> Numbers:
        """The values of keys."""

    def take_out(self, keys: Numbers) -> None:  # noqa: B027 - a step without changes has nothing to delete
        """Delete the batch again."""

    def answer(self) -> Answer:
        """The result of the last batch."""
        return self._answer

    def pause(self) -> None:  # noqa: B027 - as above
        """Nothing to free."""

    def close(self) -> None:  # noqa: B027 - as above
        """Keep the index for the next case."""


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
    """Builds a new index from all rows, already sorted."""

    def prepare(self, keys: Numbers, values: Numbers) -> tuple[pa.Array, pa.Array]:
        old_keys, old_values = data(self._size)
        order = np.argsort(keys)
        positions = np.searchsorted(old_keys, keys[order])
        merged = np.insert(old_keys, positions, keys[order]), np.insert(old_values, positions, values[order])
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


# The parallel phase.


def _tree(size: int) -> RegularTree:
    """A tree with the bench's rows."""
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
    """Processes the groups of a batch with `threads` threads; the remaining changes are applied untimed."""

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
        assert self._editor.apply_leftover(self._left)
        positions = self._tree.lookup(_words(keys))
        found = np.where(positions < 0, np.uint64(0), self._tree.values_at(np.maximum(positions, 0)))
        return found.view(np.int64)

    def take_out(self, keys: Numbers) -> None:
        with helpers(self._threads, len(keys)) as team:
            assert Editor(self._tree, team).apply(_changes(keys, None))


def _groups(size: int, batch: int) -> Case:
    ours = REGULAR.contender(partial(Grouping, size, batch, cores()))
    alone = Contender("one thread", partial(Grouping, size, batch, 1))
    return Case(f"groups-{_power(batch)}-into-{_power(size)}", "changes/s", [ours, alone], _facts(size, batch))


# Lookups after updates.


class LookupsAfterUpdates:
    """Lookups in an index after a million changes, or in a fresh one."""

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
        """Run a batch of lookups."""
        lookup_keys = data(self._size)[0][self._rng.integers(0, self._size, self._batch)]
        self._found = None
        start = time.perf_counter()
        self._found = self._index.lookup(lookup_keys)
        return self._batch, time.perf_counter() - start

    def answer(self) -> Answer:
        """The values found."""
        return {"value": self._found.to_numpy()}

    def pause(self) -> None:
        """Free the result."""
        self._found = None

    def close(self) -> None:
        """Free the index."""
        del self._index


def _lookups_after(size: int, batch: int) -> Case:
    ours = REGULAR.contender(partial(LookupsAfterUpdates, size, batch, True))
    fresh = Contender("fresh build", partial(LookupsAfterUpdates, size, batch, False))
    name = f"lookup-{_power(size)}-updated"
    return Case(name, "lookups/s", [ours, fresh], _facts(size, 2 * batch))


# Mixed updates and lookups.


class Mixing(Updating):
    """A share of a batch is updates, the rest lookups of existing keys."""

    def __init__(self, size: int, batch: int, layout: LayoutName, share: int) -> None:
        super().__init__(size, batch, layout)
        self._share = share

    def prepare(self, keys: Numbers, values: Numbers) -> Any:
        cut = self._batch * self._share // 100
        return keys[:cut], values[:cut], data(self._size)[0][self._rng.integers(0, self._size, self._batch - cut)]

    def put(self, prepared: Any) -> None:
        keys, values, lookup_keys = prepared
        if len(keys):
            self._held.update(upsert=(keys, values))
        if len(lookup_keys):
            self._held.lookup(lookup_keys)


class MixingMap(Inserting):
    """The same with a `std::multimap`."""

    def __init__(self, size: int, batch: int, share: int) -> None:
        super().__init__(size, batch)
        self._share = share

    prepare = Mixing.prepare

    def put(self, prepared: Any) -> None:
        keys, values, lookup_keys = prepared
        self._map.insert(keys, values)
        self._map.find(lookup_keys)


def _mixed(size: int, batch: int, share: int) -> Case:
    contenders = [
        REGULAR.contender(partial(Mixing, size, batch, "regular", share)),
        IMPLICIT.contender(partial(Mixing, size, batch, "implicit", share)),
        Contender("multimap", partial(MixingMap, size, batch, share)),
    ]
    facts = _facts(size, batch, updates_percent=share)
    return Case(f"mixed-{_power(size)}-u{share}", "operations/s", contenders, facts)


# The automatic choice.


class Choosing(Step):
    """Updates of a tree on a device with simulated speed, in a fixed mode or the automatic one."""

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
        positions = self._runner.lookup(_words(keys))
        found = np.where(positions < 0, np.uint64(0), self._tree.values_at(np.maximum(positions, 0)))
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
