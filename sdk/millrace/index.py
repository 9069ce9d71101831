"""`mr.OrderedIndex`: an ordered index (HB+-Tree), searched and updated by the CPU or by CPU and device together.

On the CPU, one kernel does a lookup: it converts queries to words, walks the tree, and writes values and their
validity. With another device, buckets of queries run through the pipeline (`hybrid/lookup_runner.py`): the device walks
the inner levels that the plan assigns to it, the host the others. The rows of the two layouts are in
`index_parts/implicit_rows.py` and `index_parts/regular_rows.py`. An update rebuilds the first and changes the second in
place, while readers wait (`index_parts/base.py`). Statistics are in `index_parts/described.py`. The paper is the
thesis's appendix A. Limits: 2**31 keys; one call of `range` returns up to 2**31 - 1 values, the capacity of a
`pyarrow.ListArray`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Any

import numpy as np
import pyarrow as pa

from millrace.host.base.errors import ArgumentError, DeviceFault, StateError
from millrace.host.base.types import Array
from millrace.host.base.words import KeyType, all_true, arrow_type, from_words, key_type, mask_and
from millrace.host.hbtree.layout import LAYOUTS, LayoutName
from millrace.host.hbtree.tree import helpers
from millrace.host.hybrid.balance import Plan
from millrace.host.hybrid.update_costs import MODES, UpdateMode
from millrace.host.runtime.critical import critical_section, uninterrupted
from millrace.host.runtime.first_use import MAX_ROWS
from millrace.index_parts import file
from millrace.index_parts.described import DescribedIndex
from millrace.index_parts.implicit_rows import ImplicitRows
from millrace.index_parts.neighbours import Which, neighbour_words
from millrace.index_parts.query_words import bound_columns, bound_words, query_words
from millrace.index_parts.regular_rows import RegularRows
from millrace.index_parts.results import flipped
from millrace.index_parts.rows import make_rows, with_own_values
from millrace.index_parts.update_input import as_columns
from millrace.ingest.checks import as_path, choice
from millrace.ingest.choices import DUPLICATES, Duplicates, Fallback
from millrace.ingest.columns import as_array, as_one, as_values, is_scalar
from millrace.ingest.memory_limits import check_index_memory

TUNING_QUERIES = 1 << 19
ITERATED = 1 << 14
"""Keys that iteration turns into Python objects at a time."""


class OrderedIndex(DescribedIndex):
    """Keys in order, each with a value (without `values`: its row number).

    >>> import millrace as mr, pyarrow as pa
    >>> ix = mr.OrderedIndex(pa.array([30, 10, 20]), pa.array(["c", "a", "b"]))
    >>> ix.lookup([10, 15, 30]).to_pylist()
    ['a', None, 'c']
    >>> ix.range([10, 21], [20, 29]).to_pylist()
    [['a', 'b'], []]

    Args:
        keys (array): Integers, floats, dates or timestamps, in any order: an Arrow or NumPy array, or a list. Null
            keys are skipped and counted.
        values (array | None): A value per key, of any Arrow type; None: the value is the key's row number.
        layout: `"implicit"` (smallest and fastest; an update rebuilds it) or `"regular"` (changes in place).
        duplicates: `"error"`, or `"first"` or `"last"`, which keep all rows: `lookup` returns the first or last of
            equal keys, `range` all.
        device: `"cpu"`, `"opencl[:i]"`, `"cuda[:i]"` or `"auto"`.
        threads: The most threads of a call, 1 to 1,024; None is one per core.
        fallback: `"cpu"` continues there if the device fails or is too small. With None the fault is raised; later
            calls then run on the CPU, and `stats["fallback"]` says so.

    Raises:
        ArgumentError: An argument is not allowed, equal keys were not expected, or the keys cannot fit in memory.
        KeyTypeError: Keys of this type have no order here; the message lists the types that work.
        DeviceUnavailable: The device cannot be used, or has no room.
    """

    def __init__(
        self,
        keys: Any,
        values: Any = None,
        *,
        layout: LayoutName = "implicit",
        duplicates: Duplicates = "error",
        device: str = "auto",
        threads: int | None = None,
        fallback: Fallback | None = None,
    ) -> None:
        """Sort the keys, unless they are sorted, and build the tree; see the class for the arguments."""
        choice("layout", layout, LAYOUTS)
        choice("duplicates", duplicates, DUPLICATES)
        check_index_memory(keys)  # before anything is copied
        self._set_up(layout, duplicates, device, threads, fallback)
        column = as_array(keys, "keys")
        kind = key_type("keys", column.type)
        check_index_memory(column, kind.word.itemsize)
        with helpers(self._threads, len(column) if len(column) > MAX_ROWS else 0) as team:
            value_column = None if values is None else as_values(values)
            hybrid = None if self._layout == "regular" else not self._on_cpu
            rows, nodes = make_rows(column, value_column, kind, duplicates, hybrid, team)
        own = with_own_values(rows, lent=not isinstance(values, pa.Array | pa.ChunkedArray))
        if self._layout == "regular":
            self._set_rows(RegularRows.of(own, duplicates, self._threads))
        else:
            self._set_rows(ImplicitRows(own, duplicates, not self._on_cpu, self._threads, nodes))

    def _set_rows(self, rows: ImplicitRows | RegularRows) -> None:
        """Set the first rows of an index, and send their inner nodes to the device."""
        self._rows = rows
        self._kinds = {
            "key_type": rows.kind.name,
            "value_type": str(rows.value_type),
            "fanout": rows.tree.fanout,
        }
        self._status.set_rows(rows)
        if not self._on_cpu:
            try:
                self._runner = self._make_runner(rows)
            except BaseException:
                self.close()  # the caller gets no index, so the device must be closed here
                raise

    # Queries.

    def lookup(self, queries: Any, *, trace: str | os.PathLike[str] | None = None) -> pa.Array:
        """The value of each key in `queries`, null if it is absent (or null, or not representable in the key type).

        >>> import millrace as mr, numpy as np
        >>> mr.OrderedIndex(np.array([5, 3])).lookup(np.array([3, 4, 5])).to_pylist()
        [1, None, 0]

        Args:
            queries (array): Keys: an Arrow or NumPy array, a list; of another width or unit than the index's, if need
                be.
            trace: A file for a trace of the pipeline, for Chrome or Perfetto; only with a device.

        Raises:
            ArgumentError: `trace` was given for an index on the CPU alone.
            KeyTypeError: The queries are of another kind of type than the keys.
            StateError: The index is freed, or changing in this thread.
            DeviceFault: The device failed, and `fallback` is None.
        """
        column = as_array(queries, "queries", are_queries=True)
        if trace is not None:
            trace = as_path("trace", trace)
        with self._rwlock.reader():
            self._rwlock.check()
            if trace is not None and self._ready() is None:
                raise ArgumentError(
                    f"trace={os.fspath(trace)!r}: this index runs on the CPU alone, without a pipeline to trace: "
                    f"open it with a device, such as device='opencl'"
                )
            found = self._look_up(column, trace)
            self._status.count(lookups=1, queries=len(column))
            return found

    def _look_up(self, column: pa.Array, trace: str | os.PathLike[str] | None) -> pa.Array:
        rows = self._rows
        if pa.types.is_null(column.type):
            return pa.nulls(len(column), rows.value_type)
        raw, flip, mask = query_words(column, self._rows.kind)
        runner = self._ready()
        if runner is not None:
            words, finish = rows.device_words(raw, flip)
            found = self._on_device(runner, words, finish, trace)
            if found is not None:
                return rows.device_values(raw, flip, found, mask)
        return rows.lookup(raw, flip, mask)

    def range(self, lo: Any, hi: Any) -> pa.ListArray:
        """The values with `lo <= key <= hi` for each pair of bounds, in key order, then input order.

        Bounds are scalars or arrays of equal length. `lo > hi` gives an empty list, a null bound a null list.

        >>> import millrace as mr, numpy as np
        >>> mr.OrderedIndex(np.array([1, 3, 5, 7])).range(2, 5.5).to_pylist()
        [[1, 2]]

        Args:
            lo (array or scalar): The lower bounds, included.
            hi (array or scalar): The upper bounds, included; as many as `lo`.

        Raises:
            ArgumentError: The lengths differ, or the values found would not fit in memory.
            KeyTypeError: The bounds are of another kind of type than the keys.
            StateError: The index is freed, or changing in this thread.
        """
        low, high = bound_columns(lo, hi)
        with self._rwlock.reader():
            self._rwlock.check()
            found = self._ranges(low, high)
            self._status.count(ranges=1, queries=len(low))
            return found

    def _ranges(self, low: pa.Array, high: pa.Array) -> pa.ListArray:
        (low_words, low_there), (high_words, high_there), valid = bound_words(low, high, self._rows.kind)
        # A bound outside the key type makes the range empty: set the low word above the high one.
        possible = mask_and(low_there, high_there)
        if not all_true(possible):
            low_words = np.where(possible, low_words, low_words.dtype.type(1))
            high_words = np.where(possible, high_words, high_words.dtype.type(0))
        runner = self._ready()
        found = None if runner is None else self._on_device(runner, low_words, self._rows.range_finish)
        return self._rows.ranges(low_words, high_words, found, valid)

    def floor(self, queries: Any) -> pa.Array:
        """The value of the largest key that is not above each query; null if there is none, or the query is null.

        Of equal keys, the row that `lookup` returns.

        >>> import millrace as mr
        >>> prices = mr.OrderedIndex([900, 930, 1000], ["a", "b", "c"])
        >>> prices.floor([929, 930, 1200, 100]).to_pylist()
        ['a', 'b', 'c', None]

        Args:
            queries (array): Keys: an Arrow or NumPy array, a list; of another width or unit than the index's, if need
                be.

        Raises:
            KeyTypeError: The queries are of another kind of type than the keys.
            StateError: The index is freed, or changing in this thread.
        """
        return self._neighbours(queries, "floor")

    def ceil(self, queries: Any) -> pa.Array:
        """The value of the smallest key that is not below each query; otherwise like `floor`.

        Args:
            queries (array): Keys: an Arrow or NumPy array, a list; of another width or unit than the index's, if need
                be.

        Raises:
            KeyTypeError: The queries are of another kind of type than the keys.
            StateError: The index is freed, or changing in this thread.
        """
        return self._neighbours(queries, "ceil")

    def nearest(self, queries: Any) -> pa.Array:
        """The value of the key with the smallest distance to each query; of two at the same distance, the smaller key.

        Null if the index is empty, or the query is null or NaN; otherwise like `floor`.

        >>> import millrace as mr
        >>> mr.OrderedIndex([10, 20], ["low", "high"]).nearest([-5, 15, 15.5]).to_pylist()
        ['low', 'low', 'high']

        Args:
            queries (array): Keys: an Arrow or NumPy array, a list; of another width or unit than the index's, if need
                be.

        Raises:
            KeyTypeError: The queries are of another kind of type than the keys.
            StateError: The index is freed, or changing in this thread.
        """
        return self._neighbours(queries, "nearest")

    def _neighbours(self, queries: Any, which: Which) -> pa.Array:
        column = as_array(queries, "queries", are_queries=True)
        with self._rwlock.reader():
            self._rwlock.check()
            words, there = neighbour_words(self._rows, column, which)
            found = self._rows.lookup(words, 0, None if all_true(there) else there)
            self._status.count(lookups=1, queries=len(column))
            return found

    def __contains__(self, key: Any) -> bool:
        """Whether a key is in the index; null and NaN are not."""
        column = as_one(key, "key")
        with self._rwlock.reader():
            self._rwlock.check()
            rows = self._rows
            if pa.types.is_null(column.type):
                return False
            raw, flip, mask = query_words(column, rows.kind)
            words = flipped(raw, flip)
            found, there = rows.at_most(words)
        return bool((there & (found == words))[0]) and (mask is None or bool(mask[0]))

    def __getitem__(self, key: Any) -> Any:
        """The value of one key, as a Python object; an absent key raises a `KeyError`. `lookup` takes many keys.

        >>> import millrace as mr
        >>> ix = mr.OrderedIndex([30, 10, 20], ["c", "a", "b"])
        >>> ix[10], 15 in ix, list(ix)
        ('a', False, [10, 20, 30])
        """
        if isinstance(key, slice) or not is_scalar(key):
            raise ArgumentError(f"[{key!r:.80}] is not one key: use lookup(keys) for many, range(lo, hi) for a range")
        if key not in self:
            raise KeyError(key)
        return self.lookup(as_one(key, "key"))[0].as_py()

    def __iter__(self) -> Iterator[Any]:
        """All keys in order, as Python objects; equal keys each. Later updates do not change what it returns."""
        with self._rwlock.reader():
            self._rwlock.check()
            words, kind = self._rows.words(), self._rows.kind
        return _keys(words, kind)

    def tune(self) -> Plan:
        """Find the depth D and the share R with which host and device finish together; `plan` shows them.

        On the CPU there is nothing to balance, so nothing is measured.
        """
        with self._rwlock.reader():
            self._rwlock.check()
            runner = self._ready()
            if runner is not None and len(self._rows):
                try:
                    uninterrupted(partial(runner.tune, self._rows.sample(TUNING_QUERIES)))
                except DeviceFault as error:
                    self._handle_fault(error)
        return self.plan

    @property
    def plan(self) -> Plan:
        """The load balance: the host walks levels 0 to D - 1, and level D for the share R of the queries.

        Its `crossover`, known after the first update, is the batch size from which `update` chooses `async`.
        """
        with self._rwlock.reader():
            self._rwlock.check()
            runner, updater = self._runner, self._updater
            if runner is None:
                return Plan(D=self._rows.tree.levels)
            return replace(runner.plan, crossover=None if updater is None else updater.crossover)

    # Updates.

    def update(self, *, upsert: Any = None, delete: Any = None, mode: UpdateMode = "auto") -> None:
        """Delete keys, then upsert keys with values, replacing all rows with these keys; all or nothing.


        >>> import millrace as mr, pyarrow as pa
        >>> ix = mr.OrderedIndex(pa.array([1, 2, 3]), pa.array(["a", "b", "c"]), layout="regular")
        >>> ix.update(upsert=([2, 9], ["B", "i"]), delete=[1])
        >>> ix.range(0, 10).to_pylist()
        [['B', 'c', 'i']]

        Args:
            upsert (tuple[array, array] | array | None): `(keys, values)`, or `keys` if values are row numbers: new
                rows take the next numbers. Of equal keys in a batch the last wins.
            delete (array | None): Keys to delete; those that are absent are ignored.
            mode: For the regular layout on a device: `"sync"` sends each changed inner node during the update,
                `"async"` sends all of them afterwards, `"auto"` chooses the cheaper one.

        Raises:
            ArgumentError: An argument is not allowed.
            KeyTypeError: A key is not exact in the index's key type.
            DeviceFault: The device failed, and `fallback` is None; the old index stays in use.
        """
        choice("mode", mode, MODES)
        self._rwlock.check_entrance()
        columns = as_columns(upsert, delete)
        done: list[bool] = []
        self._unconfirmed = done
        critical_section(lambda begin: self._update(columns, mode, begin, done))
        if self._unconfirmed is done:
            self._unconfirmed = []

    # Files, closing.

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the index to a file atomically; `open` maps it into memory.

        Args:
            path: The file; one that exists is replaced when the new one is complete.

        Raises:
            ArgumentError: `path` is no path, or cannot be written; an existing file is unchanged.
        """
        target = as_path("path", path)
        with self._rwlock.reader():
            self._rwlock.check()
            file.save(target, self._rows)

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        device: str = "auto",
        threads: int | None = None,
        fallback: Fallback | None = None,
    ) -> OrderedIndex:
        """Open an index that `save` wrote; a damaged file, or one of a newer version, raises `StateError`.

        The file stays mapped while the index is in use: replace it by another `save`, and never truncate it (the
        process would end with SIGBUS).

        Args:
            path: The file that `save` wrote.
            device: As in `OrderedIndex`.
            threads: As in `OrderedIndex`; None is one per core.
            fallback: As in `OrderedIndex`.

        Raises:
            ArgumentError: `path` is no path, or cannot be read.
            StateError: The file is damaged, or of a newer version.
            DeviceUnavailable: The device cannot be used, or has no room.
        """
        return cls._from_stored(file.load(as_path("path", path)), device, threads, fallback)

    @classmethod
    def _from_stored(cls, stored: file.Stored, device: str, threads: int | None, fallback: Any) -> OrderedIndex:
        index = cls.__new__(cls)
        index._set_up(stored.layout, stored.duplicates, device, threads, fallback)
        index._set_rows(stored.rows(not index._on_cpu, index._threads))
        return index

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle and copy as the bytes that `save` writes; every copy is an index of its own, on the same device."""
        with self._rwlock.reader():
            self._rwlock.check()
            data = file.dump(self._rows)
        return _restored, (type(self), data, self._given_device, self._given_threads, self._fallback)

    def close(self) -> None:
        """Close the device when running calls have finished; later calls run on the CPU only.

        >>> import millrace as mr
        >>> with_device = mr.OrderedIndex([5, 3])
        >>> with_device.close()
        >>> with_device.lookup([3]).to_pylist()
        [1]
        """
        self._rwlock.check_entrance()
        uninterrupted(partial(self._release, free=False))

    def __enter__(self) -> OrderedIndex:
        """Use the index in a `with` statement, whose end frees its memory and its device."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Free everything when running calls have finished; later calls raise a `StateError`."""
        self._rwlock.check_not_inside()
        with suppress(StateError):
            uninterrupted(partial(self._release, free=True))

    def __len__(self) -> int:
        """Number of keys; equal keys count separately, null keys do not count."""
        with self._rwlock.reader():
            self._rwlock.check()
            return len(self._rows)


def _keys(words: Array, kind: KeyType) -> Iterator[Any]:
    """Words as Python objects, some at a time."""
    for first in range(0, len(words), ITERATED):
        numbers = from_words(words[first : first + ITERATED], kind.dtype).astype(kind.stored)
        yield from pa.Array.from_buffers(arrow_type(kind), len(numbers), pa.array(numbers).buffers()).to_pylist()


def _restored(
    made: type[OrderedIndex], data: bytes, device: str, threads: int | None, fallback: Fallback | None
) -> OrderedIndex:
    """The index that `__reduce__` stored."""
    return made._from_stored(file.parse(data), device, threads, fallback)
