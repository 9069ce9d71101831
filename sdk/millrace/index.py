"""`mr.OrderedIndex`: an ordered index, an HB+-Tree, searched and updated by the CPU or by CPU and device together.

On the CPU one kernel does it all: queries become words, walk the tree and leave values and their validity behind. With
another device, buckets of queries go through the pipeline (`hybrid/lookup_runner.py`): the device walks the inner
levels that the plan gives it, the host the rest. The rows of the two layouts are in `index_packed` and `index_loose`.
An update builds the first anew and changes the second in place, while whoever asks waits (`runtime/rwlock.py`). The
paper is the thesis's appendix A. Limits: 2**31 keys; one call of `range` returns up to 2**31 - 1 values, as a
`pyarrow.ListArray` can hold.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from millrace.host.base.errors import ArgumentError, DeviceFault, DeviceUnavailable, StateError
from millrace.host.base.types import Array, Mask
from millrace.host.base.words import all_true, both, every, key_type, native
from millrace.host.device.contract import Device
from millrace.host.device.cpu import CpuDevice
from millrace.host.expr.key_floor import Floor, check_kinds, floor_words
from millrace.host.hbtree.layout import LAYOUTS, LayoutName
from millrace.host.hbtree.tree import Positions, helpers
from millrace.host.hybrid.balance import Plan
from millrace.host.hybrid.lookup_runner import Finish, LookupRunner
from millrace.host.hybrid.search_engine import UNITS, SearchEngine
from millrace.host.hybrid.update_costs import MODES
from millrace.host.hybrid.update_runner import Applied, DeviceLost, UpdateRunner
from millrace.host.runtime import pool
from millrace.host.runtime.critical import Begin, unbroken
from millrace.host.runtime.rwlock import Gate, Turns
from millrace.host.runtime.team import Team
from millrace.index_parts import file
from millrace.index_parts.implicit_rows import PackedRows
from millrace.index_parts.regular_rows import LooseRows
from millrace.index_parts.rows import DUPLICATES, make_rows, plain_words, with_own_values
from millrace.index_parts.update_input import Update, read_update
from millrace.ingest.checks import choice, whole
from millrace.ingest.columns import as_array, as_one, as_values, is_scalar
from millrace.registry import check_name, device_with

FALLBACKS = (None, "cpu")
TUNING_QUERIES = 1 << 19


class OrderedIndex:
    """Keys in order, each with a value (without `values`: its row number).

    >>> import millrace as mr, pyarrow as pa
    >>> ix = mr.OrderedIndex(pa.array([30, 10, 20]), pa.array(["c", "a", "b"]))
    >>> ix.lookup([10, 15, 30]).to_pylist()
    ['a', None, 'c']
    >>> ix.range([10, 21], [20, 29]).to_pylist()
    [['a', 'b'], []]

    `layout`: `"implicit"` (smallest and fastest) or `"regular"`. `duplicates`: `"error"`, or `"first"` or `"last"`,
    which keep all rows: `lookup` gives the first or last of equal keys, `range` all. `fallback="cpu"` goes on there
    when the device fails or is too small. Without it the fault is raised; the index then answers later calls on the
    CPU, and `stats["fell_back"]` says so. `threads`: how many work on one call (default: all cores).
    """

    def __init__(
        self,
        keys: Any,
        values: Any = None,
        layout: str = "implicit",
        duplicates: str = "error",
        device: str = "auto",
        threads: int | None = None,
        fallback: str | None = None,
    ) -> None:
        """Sort the keys, unless they are sorted, and build the tree; see the class for the arguments."""
        choice("layout", layout, LAYOUTS)
        choice("duplicates", duplicates, DUPLICATES)
        self._set_up(layout, duplicates, device, threads, fallback)
        column = as_array(keys, "keys")
        kind = key_type("keys", column.type)
        with helpers(self._threads, len(column)) as team:
            given = None if values is None else as_values(values)
            hybrid = None if self._layout == "regular" else not self._on_cpu
            rows, nodes = make_rows(column, given, kind, duplicates, hybrid, team)
        own = rows if isinstance(values, pa.Array | pa.ChunkedArray) else with_own_values(rows)
        if self._layout == "regular":
            self._hold(LooseRows.of(own, duplicates, self._threads))
        else:
            self._hold(PackedRows(own, duplicates, not self._on_cpu, self._threads, nodes))

    def _set_up(self, layout: str, duplicates: str, device: Any, threads: Any, fallback: Any) -> None:
        """Check what can be checked before any row is read, and open the device."""
        choice("fallback", fallback, FALLBACKS)
        if not (isinstance(device, str) and device == "auto"):
            check_name(device)
        self._threads = min(whole("threads", threads, 1) if threads is not None else pool.cores(), pool.size())
        self._layout: LayoutName = "regular" if layout == "regular" else "implicit"
        self._duplicates, self._fallback = duplicates, fallback
        self._given_threads = threads
        self._device: Device | None = self._open(device)
        self._device_name, self._pid = self._device.name, os.getpid()
        self._on_cpu = isinstance(self._device, CpuDevice)
        self._fell_back: str | None = None
        self._left: Device | None = None
        self._runner: LookupRunner | None = None
        self._engaging, self._gate, self._updating = Turns(), Gate(), Turns()
        # For reading batches: the memory that sorting takes is kept from one to the next.
        self._team = Team(self._threads)
        self._counts = {"lookups": 0, "ranges": 0, "queries": 0, "updates": 0, "changes": 0}
        self._updater: UpdateRunner | None = None
        self._last_update: Applied | None = None

    def _open(self, name: str) -> Device:
        return device_with(UNITS[self._layout], f"an index of layout {self._layout!r}", name, self._given_threads)

    def _hold(self, rows: PackedRows | LooseRows) -> None:
        """The first rows of an index; they go to the device."""
        self._rows = rows
        if not self._on_cpu:
            try:
                self._runner = self._engaged(rows)
            except BaseException:
                self.close()  # nobody gets this index, nor its device
                raise

    def _engaged(self, rows: PackedRows | LooseRows) -> LookupRunner | None:
        """A runner for rows, on a device opened in this process; nothing where the CPU is to go on alone."""
        try:
            if self._device is None or self._pid != os.getpid():
                self._device, self._pid = self._open(self._device_name), os.getpid()
            return LookupRunner(SearchEngine(self._device), rows.tree)
        except (DeviceUnavailable, DeviceFault) as error:
            if self._fallback is None:
                raise
            self._give_up(error)
            return None

    def _give_up(self, error: Exception) -> None:
        """Leave the device for good; others may be at work on it, so it stays open."""
        self._fell_back = f"from {self._device_name} to cpu: {error}"
        self._left = self._device or self._left
        self._runner, self._device, self._updater = None, None, None

    # Questions.

    def lookup(self, queries: Any, trace: str | os.PathLike[str] | None = None) -> pa.Array:
        """The value of each key asked for, null where it is absent (or null, or no value of the key type).

        `trace`: a file for a trace of the pipeline, for Chrome or Perfetto; only where a device takes part.

        >>> import millrace as mr, numpy as np
        >>> mr.OrderedIndex(np.array([5, 3])).lookup(np.array([3, 4, 5])).to_pylist()
        [1, None, 0]
        """
        column = as_array(queries, "queries")
        if trace is not None and self._ready() is None:
            raise ArgumentError(
                f"trace={os.fspath(trace)!r}: this index answers on the CPU alone, without a pipeline to trace: "
                f"open it with a device, such as device='opencl'"
            )
        with self._gate.read():
            found = self._look_up(column, trace)
        self._counts["lookups"] += 1
        self._counts["queries"] += len(column)
        return found

    def _look_up(self, column: pa.Array, trace: str | os.PathLike[str] | None) -> pa.Array:
        rows = self._rows
        if pa.types.is_null(column.type):
            return pa.nulls(len(column), rows.value_type)
        raw, flip, mask = self._words(column)
        runner = self._ready()
        if runner is not None:
            words, finish = rows.device_words(raw, flip)
            found = self._on_device(runner, words, finish, trace)
            if found is not None:
                return rows.device_values(raw, flip, found, mask)
        return rows.lookup(raw, flip, mask)

    def range(self, lo: Any, hi: Any) -> pa.ListArray:
        """Per pair of bounds the values with `lo <= key <= hi`, in key order, then input order.

        Bounds are scalars or arrays of equal length. `lo > hi` gives an empty list, a null bound a null list.

        >>> import millrace as mr, numpy as np
        >>> mr.OrderedIndex(np.array([1, 3, 5, 7])).range(2, 5.5).to_pylist()
        [[1, 2]]
        """
        low, high = _bounds(lo, hi)
        with self._gate.read():
            found = self._ranges(low, high)
        self._counts["ranges"] += 1
        self._counts["queries"] += len(low)
        return found

    def _ranges(self, low: pa.Array, high: pa.Array) -> pa.ListArray:
        (low_words, low_there), (high_words, high_there), valid = self._ends(low, high)
        # An end that no key can reach makes the range empty: a low word above the high one.
        reachable = both(low_there, high_there)
        if not all_true(reachable):
            low_words = np.where(reachable, low_words, low_words.dtype.type(1))
            high_words = np.where(reachable, high_words, high_words.dtype.type(0))
        runner = self._ready()
        found = None if runner is None else self._on_device(runner, low_words, self._rows.range_finish)
        return self._rows.ranges(low_words, high_words, found, valid)

    def tune(self) -> Plan:
        """Find the depth D and the share R that make host and device finish together; `plan` keeps them.

        On the CPU there is nothing to share, so nothing is measured.
        """
        with self._gate.read():
            runner = self._ready()
            if runner is not None and len(self._rows):
                try:
                    runner.tune(self._rows.sample(TUNING_QUERIES))
                except DeviceFault as error:
                    self._fault(error)
        return self.plan

    @property
    def plan(self) -> Plan:
        """Who walks which levels: the host 0 to D - 1, and level D for the share R of the queries.

        Its `crossover`, known after the first update, is the batch from which `update` takes `async` by itself.
        """
        with self._gate.read():
            runner, updater = self._runner, self._updater
            if runner is None:
                return Plan(D=self._rows.tree.levels)
            return replace(runner.plan, crossover=None if updater is None else updater.crossover)

    # Changes.

    def update(self, upsert: Any = None, delete: Any = None, mode: str = "auto") -> None:
        """Delete keys, then insert keys with values, in place of all rows that have them; all or nothing.

        `upsert=(keys, values)`, or `upsert=keys` where values are row numbers: new ones take the next numbers. Of
        equal keys in a batch the last wins. Calls in other threads see the index as it was before, or after, and so
        does whoever catches an interrupt (Ctrl-C). `mode`, for the regular layout on a device: `"sync"` sends each
        inner node that changed, meanwhile, `"async"` all of them at once, afterwards; `"auto"` takes what costs less.
        The implicit layout is built anew.

        >>> import millrace as mr, pyarrow as pa
        >>> ix = mr.OrderedIndex(pa.array([1, 2, 3]), pa.array(["a", "b", "c"]), layout="regular")
        >>> ix.update(upsert=([2, 9], ["B", "i"]), delete=[1])
        >>> ix.range(0, 10).to_pylist()
        [['B', 'c', 'i']]
        """
        choice("mode", mode, MODES)
        unbroken(lambda begin: self._update(upsert, delete, mode, begin))

    def _update(self, upsert: Any, delete: Any, mode: str, begin: Begin) -> None:
        self._gate.check()
        with self._updating.taken():
            rows, team = self._rows, self._team
            team.rouse()
            try:
                update = read_update(upsert, delete, rows.kind, rows.wanted_type, rows.next_row, team)
            finally:
                team.rest()
            begin()
            self._apply(rows, update, mode)
            team.arena.give(update.batch.words)
            team.arena.give(update.batch.rows)

    def _apply(self, rows: PackedRows | LooseRows, update: Update, mode: str) -> None:
        if isinstance(rows, PackedRows) or rows.must_rebuild(update):
            self._exchange(rows.rebuilt(update), update)
            return
        if not rows.tree.is_owned:
            rows = replace(rows, tree=rows.tree.owned())
            self._exchange(rows)
        with self._gate.change():
            rows = self._in_place(rows, update, mode)
            self._count(update)
        if rows.is_wasteful:
            # The update is done: a device that fails now has what it needs.
            with suppress(DeviceFault, DeviceUnavailable):
                self._exchange(rows.rebuilt())

    def _in_place(self, rows: LooseRows, update: Update, mode: str) -> LooseRows:
        """Change the tree, or build it anew where that cannot be; a device that fails is left if that is allowed."""
        try:
            applied = self._update_runner(rows).update(rows.changes(update), mode)
        except (DeviceFault, DeviceUnavailable) as error:  # it failed, or the tree has outgrown it
            if isinstance(error, DeviceLost) or self._fallback is not None:
                self._give_up(error)
            if self._fallback is None:
                kind = DeviceUnavailable if isinstance(error, DeviceUnavailable) else DeviceFault
                raise kind(f"{error}; nothing was changed") from error
            applied = self._update_runner(rows).update(rows.changes(update), mode)
        if applied is None:
            # Some changes may have been made, which are made again; the rows that they refer to are needed.
            rows = replace(rows, store=rows.settled(update).store).rebuilt(update)
            self._install(rows, self._runner_for(rows))
        else:
            self._rows = rows = rows.settled(update)
            self._last_update = applied
        return rows

    def _update_runner(self, rows: LooseRows) -> UpdateRunner:
        """The one of this tree and this device; what updates cost is remembered."""
        runner, old = self._ready(), self._updater
        if old is not None and old.tree is rows.tree and old.runner is runner:
            return old
        costs = old.costs if old is not None and old.runner is not None and runner is not None else None
        self._updater = made = UpdateRunner(rows.tree, runner, costs=costs)
        return made

    def _exchange(self, rows: PackedRows | LooseRows, update: Update | None = None) -> None:
        """Other rows take the place of those here, on the device first; whoever is asking is let finish."""
        runner = self._runner_for(rows)
        with self._gate.change():
            self._install(rows, runner)
            if update is not None:
                self._count(update)

    def _count(self, update: Update) -> None:
        """Together with the rows, inside the gate: whoever asks sees both as they were before, or after."""
        self._counts["updates"] += 1
        self._counts["changes"] += len(update.batch)

    def _runner_for(self, rows: PackedRows | LooseRows) -> LookupRunner | None:
        return None if self._ready() is None else self._engaged(rows)

    def _install(self, rows: PackedRows | LooseRows, runner: LookupRunner | None) -> None:
        old, self._runner, self._rows = self._runner, runner, rows
        if old is not None:
            with suppress(DeviceFault):  # the new one is there, and in force
                old.close()

    # On a device.

    def _ready(self) -> LookupRunner | None:
        """The runner of this process, or nothing where the CPU answers."""
        if self._on_cpu or self._fell_back is not None:
            return None
        with self._engaging.taken():
            if self._runner is not None and self._pid != os.getpid():
                self._runner = self._engaged(self._rows)
        return self._runner

    def _on_device(
        self, runner: LookupRunner, words: Array, finish: Finish, trace: str | os.PathLike[str] | None = None
    ) -> Positions | None:
        """Positions by way of the device; nothing where it failed and the CPU may go on."""
        try:
            return runner.lookup(words, finish, trace)
        except DeviceFault as error:
            self._fault(error)
            return None

    def _fault(self, error: DeviceFault) -> None:
        """The device is left; the fault is raised unless the user allowed to go on."""
        self._give_up(error)
        if self._fallback is None:
            raise DeviceFault(f"{error}; the index itself is whole and answers on the CPU from now on") from error

    # In words and positions.

    def _words(self, column: pa.Array) -> tuple[Array, int, Mask | None]:
        """Queries as numbers, the bits to flip to make words of them, and which can be found at all (None: all)."""
        asked, kind = key_type("queries", column.type), self._rows.kind
        check_kinds("queries", asked, kind)
        values, valid = native(column, asked)
        if asked.dtype == kind.dtype and asked.ns == kind.ns:
            raw, flip = plain_words(values)
            return raw, flip, None if all_true(valid) else valid
        floor = floor_words(values, asked, kind)
        usable = both(valid, floor.exact)
        return np.ascontiguousarray(floor.words), 0, None if all_true(usable) else usable

    def _ends(self, low: pa.Array, high: pa.Array) -> tuple[tuple[Array, Mask], tuple[Array, Mask], Mask]:
        """Words of both bounds, rounded inwards; where there is such a word; where neither bound is null."""
        below, low_valid = self._floor(low, "lo")
        above, high_valid = self._floor(high, "hi")
        words, there = below.words, every(len(below.words))
        if not all_true(below.exact):
            inexact, most = ~below.exact, np.iinfo(words.dtype).max
            beyond = inexact & (words == most)
            up = inexact & ~beyond if below.below is None else inexact & ~beyond & ~below.below
            words, there = np.where(up, words + words.dtype.type(1), words), ~beyond
        reach = every(len(above.words)) if above.below is None else ~above.below
        ends = np.ascontiguousarray(words), np.ascontiguousarray(above.words)
        return (ends[0], there), (ends[1], reach), both(low_valid, high_valid)

    def _floor(self, column: pa.Array, label: str) -> tuple[Floor, Mask]:
        kind = self._rows.kind
        if pa.types.is_null(column.type):
            none = np.zeros(len(column), np.bool_)
            return Floor(np.zeros(len(column), kind.word), every(len(column))), none
        asked = key_type(label, column.type)
        check_kinds(label, asked, kind)
        values, valid = native(column, asked)
        return floor_words(values, asked, kind), valid

    # Keeping, and telling.

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the index to a file, all or nothing; `open` maps it into memory."""
        with self._gate.read():
            file.save(Path(path), self._rows)

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        device: str = "auto",
        threads: int | None = None,
        fallback: str | None = None,
    ) -> OrderedIndex:
        """An index that `save` wrote; a file that is damaged, or of a newer version, is a `StateError`."""
        stored = file.load(Path(path))
        index = cls.__new__(cls)
        index._set_up(stored.layout, stored.duplicates, device, threads, fallback)
        index._hold(stored.rows(not index._on_cpu, index._threads))
        return index

    def close(self) -> None:
        """Give the device back when whoever is asking has finished; from then on the CPU answers, alone.

        >>> import millrace as mr
        >>> with_device = mr.OrderedIndex([5, 3])
        >>> with_device.close()
        >>> with_device.lookup([3]).to_pylist()
        [1]
        """
        with self._updating.taken(), self._gate.change():
            if self._on_cpu:
                return
            if self._fell_back is None:
                self._give_up(StateError("the index was closed"))
            left, self._left = self._left, None
            if left is not None and self._pid == os.getpid():
                left.close()

    def __len__(self) -> int:
        """How many keys, equal ones counted each, null ones not."""
        with self._gate.read():
            return len(self._rows)

    @property
    def nbytes(self) -> int:
        """Bytes of keys, values and inner nodes in the host's memory."""
        with self._gate.read():
            return self._rows.nbytes

    @property
    def stats(self) -> dict[str, Any]:
        """Rows, the tree's shape, what has been asked, where it ran, and the device's counters."""
        with self._gate.read():
            return self._stats()

    def _stats(self) -> dict[str, Any]:
        rows, runner, device = self._rows, self._runner, self._device
        told: dict[str, Any] = {
            "rows": len(rows),
            "null_keys": rows.null_keys,
            "key_type": rows.kind.name,
            "value_type": str(rows.value_type),
            "layout": self._layout,
            "levels": rows.tree.levels,
            "fanout": rows.tree.fanout,
            "nbytes": rows.nbytes,
            "inner_nbytes": rows.inner_nbytes,
            **self._counts,
            "device": self._device_name if self._fell_back is None else "cpu",
            "fell_back": self._fell_back,
            "last_update": None if self._last_update is None else asdict(self._last_update),
        }
        if runner is not None:
            last = runner.last
            told["retuned"] = runner.retuned
            told["last_run"] = None if last is None else last.stats()
        return told | ({} if device is None else device.counters())

    def __repr__(self) -> str:
        """What it holds and where it runs."""
        where = self._device_name if self._fell_back is None else "cpu (fallen back)"
        try:
            with self._gate.read():
                rows = self._rows
                return (
                    f"<OrderedIndex: {len(rows):,} {rows.kind.name} keys to {rows.value_type}, "
                    f"{self._layout}, {rows.tree.levels} levels, on {where}>"
                )
        except StateError:
            return "<OrderedIndex: half changed when this process was forked>"


def _bounds(lo: Any, hi: Any) -> tuple[pa.Array, pa.Array]:
    """Both bounds as arrays of equal length; a scalar counts for every row of the other."""
    columns = [as_one(x, name) if is_scalar(x) else as_array(x, name) for x, name in ((lo, "lo"), (hi, "hi"))]
    rows = [len(column) for x, column in zip((lo, hi), columns, strict=True) if not is_scalar(x)]
    if len(set(rows)) > 1:
        raise ArgumentError(f"lo has {rows[0]:,} rows, hi has {rows[1]:,}: bring a pair of bounds per range")
    low, high = (
        column.take(pa.array(np.zeros(rows[0], np.int64))) if is_scalar(x) and rows else column
        for x, column in zip((lo, hi), columns, strict=True)
    )
    return low, high
