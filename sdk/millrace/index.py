"""`mr.OrderedIndex`: a read-only ordered index, an HB+-Tree, searched by the CPU or by CPU and device together.

On the CPU one kernel does it all: queries become words, walk the tree and leave values and their validity behind. With
another device, buckets of queries go through the pipeline (`millrace.host.lookup_runner`): the device walks the inner
levels that the plan gives it, the host the rest. The paper is the thesis's appendix A. Limits: 2**31 keys; one call of
`range` returns up to 2**31 - 1 values, as a `pyarrow.ListArray` can hold; an index does not change.
"""

from __future__ import annotations

import os
import threading
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millrace import index_file
from millrace.checks import choice, whole
from millrace.column import as_array, as_one, as_values, is_scalar
from millrace.host import hbtree_search as hs
from millrace.host import pool
from millrace.host.balance import Plan
from millrace.host.cpu import CpuDevice
from millrace.host.device import Device
from millrace.host.errors import ArgumentError, DeviceFault, DeviceUnavailable
from millrace.host.hbtree import HBTree, helpers
from millrace.host.hbtree_layout import LAYOUTS, LayoutName
from millrace.host.hbtree_values import gather, spread
from millrace.host.key_floor import Floor, check_kinds, floor_words
from millrace.host.lookup_runner import Finish, LookupRunner
from millrace.host.search_engine import UNITS, SearchEngine
from millrace.host.words import Array, Mask, all_true, both, every, key_type, native
from millrace.index_rows import DUPLICATES, Rows, make_rows, plain_words, with_own_values
from millrace.registry import check_name, device_with

FALLBACKS = (None, "cpu")
MOST_VALUES = (1 << 31) - 1
TUNING_QUERIES = 1 << 19
Positions = npt.NDArray[np.int64]


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
            rows = make_rows(column, given, kind, duplicates, self._layout, not self._on_cpu, team)
        self._take(rows if isinstance(values, pa.Array | pa.ChunkedArray) else with_own_values(rows))

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
        self._runner: LookupRunner | None = None
        self._lock = threading.Lock()
        self._counts = {"lookups": 0, "ranges": 0, "queries": 0}

    def _open(self, name: str) -> Device:
        return device_with(UNITS[self._layout], f"an index of layout {self._layout!r}", name, self._given_threads)

    def _take(self, rows: Rows) -> None:
        """Make the tree, with nodes of the other fan-out if that is needed here, and send it to the device."""
        hybrid = not self._on_cpu
        nodes = rows.nodes if rows.hybrid is hybrid else None
        self._rows = rows
        self._tree = HBTree(rows.leaves, self._layout, hybrid, self._threads, nodes)
        if not self._on_cpu:
            self._engage()

    def _engage(self) -> None:
        """Make a runner, on a device opened in this process."""
        try:
            if self._device is None or self._pid != os.getpid():
                self._device, self._pid = self._open(self._device_name), os.getpid()
            self._runner = LookupRunner(SearchEngine(self._device), self._tree)
        except (DeviceUnavailable, DeviceFault) as error:
            if self._fallback is None:
                raise
            self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        """Leave the device for good."""
        self._fell_back = f"from {self._device_name} to cpu: {error}"
        self._runner, self._device = None, None

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
        found = self._look_up(column, trace)
        self._counts["lookups"] += 1
        self._counts["queries"] += len(column)
        return found

    def _look_up(self, column: pa.Array, trace: str | os.PathLike[str] | None) -> pa.Array:
        if pa.types.is_null(column.type):
            return pa.nulls(len(column), self._rows.value_type)
        raw, flip, mask = self._words(column)
        runner = self._ready()
        if runner is not None:
            finish = partial(self._tree.leaf, last=True) if self._duplicates == "last" else self._tree.leaf
            positions = self._on_device(runner, _flipped(raw, flip), finish, trace)
            if positions is not None:
                return self._values_at(positions if mask is None else np.where(mask, positions, -1))
        if self._rows.apart is not None:
            return self._values_at(self._positions(raw, flip, mask))
        return self._values(raw, flip, mask)

    def range(self, lo: Any, hi: Any) -> pa.ListArray:
        """Per pair of bounds the values with `lo <= key <= hi`, in key order, then input order.

        Bounds are scalars or arrays of equal length. `lo > hi` gives an empty list, a null bound a null list.

        >>> import millrace as mr, numpy as np
        >>> mr.OrderedIndex(np.array([1, 3, 5, 7])).range(2, 5.5).to_pylist()
        [[1, 2]]
        """
        low, high = _bounds(lo, hi)
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
        starts = None if runner is None else self._on_device(runner, low_words, self._tree.lower)
        if starts is None:
            starts, ends = self._tree.range(low_words, high_words)
        else:
            ends = self._tree.ends(low_words, high_words, starts)
        counts = ends - starts
        if not all_true(valid):
            counts = np.where(valid, counts, 0)
        return self._lists(starts, counts, valid)

    def tune(self) -> Plan:
        """Find the depth D and the share R that make host and device finish together; `plan` keeps them.

        On the CPU there is nothing to share, so nothing is measured.
        """
        runner = self._ready()
        if runner is not None and len(self):
            rng = np.random.default_rng(0)
            words = self._rows.leaves.words
            queries = words[rng.integers(0, len(words), TUNING_QUERIES)]
            try:
                runner.tune(queries)
            except DeviceFault as error:
                self._fault(error)
        return self.plan

    @property
    def plan(self) -> Plan:
        """Who walks which levels: the host 0 to D - 1, and level D for the share R of the queries."""
        return Plan(D=self._tree.levels) if self._runner is None else self._runner.plan

    # On a device.

    def _ready(self) -> LookupRunner | None:
        """The runner of this process, or nothing where the CPU answers."""
        if self._on_cpu or self._fell_back is not None:
            return None
        with self._lock:
            if self._runner is not None and self._pid != os.getpid():
                self._engage()
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

    def _positions(self, raw: Array, flip: int, mask: Mask | None) -> Positions:
        """Positions in key order by the CPU alone, -1 where absent."""
        out = np.empty(len(raw), np.int64)
        mode = hs.LAST if self._duplicates == "last" else hs.FIRST
        self._search(raw, flip, mask, OUT=out, MODE=mode)
        return out

    def _search(self, raw: Array, flip: int, mask: Mask | None, **given: int | Array) -> int:
        share = hs.search_64 if raw.dtype.itemsize == 8 else hs.search_32
        given["MASK"] = 0 if mask is None else np.ascontiguousarray(mask).view(np.uint8)
        return self._tree.run(share, raw, flip, **given)

    # In values.

    def _values(self, raw: Array, flip: int, mask: Mask | None) -> pa.Array:
        """Values that lie beside their words, or are positions, by one kernel."""
        count, width = len(raw), self._rows.leaves.width or 8
        out = pa.allocate_buffer(count * width)
        bits = pa.allocate_buffer(-(-count // hs.BLOCK) * hs.BLOCK // 8)
        mode = hs.LAST_VALUES if self._duplicates == "last" else hs.VALUES
        hits = self._search(raw, flip, mask, OUT=_bytes(out), BITS=_bytes(bits), MODE=mode)
        validity = None if hits == count else bits
        return pa.Array.from_buffers(self._rows.value_type, count, [validity, out], count - hits)

    def _values_at(self, positions: Positions) -> pa.Array:
        """The values at positions, null at -1."""
        absent = positions < 0
        if self._rows.apart is not None:
            return self._rows.apart.take(pa.array(positions, mask=absent))
        numbers = gather(self._rows.leaves, np.where(absent, 0, positions)) if len(self) else positions
        plain = pa.array(numbers, mask=absent)
        return pa.Array.from_buffers(self._rows.value_type, len(plain), plain.buffers(), plain.null_count)

    def _lists(self, starts: Positions, counts: Positions, valid: Mask) -> pa.ListArray:
        """A list of values per range."""
        offsets = np.zeros(len(starts) + 1, np.int64)
        np.cumsum(counts, out=offsets[1:])
        total = int(offsets[-1])
        if total > MOST_VALUES:
            raise ArgumentError(
                f"these ranges hold {total:,} values; allowed are {MOST_VALUES:,} a call: ask for fewer"
            )
        places = offsets.astype(np.int32)
        if self._rows.apart is not None:
            positions = np.repeat(starts - offsets[:-1], counts) + np.arange(total)
            values = self._rows.apart.take(pa.array(positions))
        else:
            out = pa.allocate_buffer(total * (self._rows.leaves.width or 8))
            with helpers(self._threads, len(starts)) as team:
                spread(self._rows.leaves, starts, places, _bytes(out), team)
            values = pa.Array.from_buffers(self._rows.value_type, total, [None, out], 0)
        nulls = None if all_true(valid) else pa.array(~valid)
        return pa.ListArray.from_arrays(pa.array(places), values, mask=nulls)

    # Keeping, and telling.

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the index to a file, all or nothing; `open` maps it into memory."""
        index_file.save(Path(path), self._rows, self._tree, self._duplicates)

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        device: str = "auto",
        threads: int | None = None,
        fallback: str | None = None,
    ) -> OrderedIndex:
        """An index that `save` wrote; a file that is damaged, or of a newer version, is a `StateError`."""
        stored = index_file.load(Path(path))
        index = cls.__new__(cls)
        index._set_up(stored.layout, stored.duplicates, device, threads, fallback)
        index._take(stored.rows)
        return index

    def __len__(self) -> int:
        """How many keys, equal ones counted each, null ones not."""
        return self._rows.leaves.size

    @property
    def nbytes(self) -> int:
        """Bytes of keys, values and inner nodes in the host's memory."""
        return self._tree.nbytes + self._rows.nbytes

    @property
    def stats(self) -> dict[str, Any]:
        """Rows, the tree's shape, what has been asked, where it ran, and the device's counters."""
        told: dict[str, Any] = {
            "rows": len(self),
            "null_keys": self._rows.null_keys,
            "key_type": self._rows.kind.name,
            "value_type": str(self._rows.value_type),
            "layout": self._layout,
            "levels": self._tree.levels,
            "fanout": self._tree.fanout,
            "nbytes": self.nbytes,
            "inner_nbytes": int(self._tree.nodes.nbytes),
            **self._counts,
            "device": self._device_name if self._fell_back is None else "cpu",
            "fell_back": self._fell_back,
        }
        if self._runner is not None:
            told["retuned"] = self._runner.retuned
            told["last_run"] = None if self._runner.last is None else self._runner.last.stats()
        return told | ({} if self._device is None else self._device.counters())

    def __repr__(self) -> str:
        """What it holds and where it runs."""
        where = self._device_name if self._fell_back is None else "cpu (fallen back)"
        return (
            f"<OrderedIndex: {len(self):,} {self._rows.kind.name} keys to {self._rows.value_type}, "
            f"{self._layout}, {self._tree.levels} levels, on {where}>"
        )


def _flipped(raw: Array, flip: int) -> Array:
    words: Array = raw ^ raw.dtype.type(flip) if flip else raw
    return words


def _bytes(buffer: pa.Buffer) -> Array:
    """A new buffer's memory."""
    return np.frombuffer(buffer, np.uint8)


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
