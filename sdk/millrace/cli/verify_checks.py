"""The checks of `millrace verify`: results, transfers, speeds and fault recovery of any device.

Results are compared with brute force in NumPy, which shares no code with the operators. What is checked depends on the
units that a device has: joins on one key (BI-Sort), joins on two keys (SPO-Join), lookups, nearest neighbours. Faults
are injected on the host (`base/faults.py`), so they need no help of the device. Limits: `MAX_ROWS` rows per side, fewer
if a device has little memory; speeds are those of small transfers, not of a benchmark.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from millrace.errors import DeviceFault
from millrace.host.base.faults import injected, is_injected
from millrace.index import OrderedIndex
from millrace.knn_table import knn_join
from millrace.registry import device as open_device
from millrace.window_join import WindowJoin

if TYPE_CHECKING:
    from millrace.host.base.types import Array
    from millrace.host.device.contract import Buffer, Device

BATCH, WINDOW, TURNS = 1100, 1300, 3
"""More rows in a batch than BI-Sort's insertion buffer holds, so that all of them go to the device."""
SPO_ROWS, LOOKUPS, POINTS, NEAREST = 300, 2000, 600, 5
TRANSFERS = (1, 7, 1000, 4096)
STEP = 64
BAND = 3
KEYS = ("int64", "int32", "float64", "uint64")


@dataclass(frozen=True)
class Check:
    """The result of one check."""

    group: str
    name: str
    passed: bool
    detail: str
    seconds: float


@dataclass(frozen=True)
class Speed:
    """A measured speed, link and host included."""

    stage: str
    amount: int
    unit: str
    ms: float
    per_second: float


@dataclass
class Verification:
    """All results of one device."""

    name: str
    kind: str
    units: tuple[str, ...]
    checks: list[Check] = field(default_factory=list)
    speeds: list[Speed] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        """Whether all checks passed."""
        return all(check.passed for check in self.checks)


class Wrong(Exception):
    """A device gave a wrong result."""


Step = tuple[str, str, Callable[[], str]]
Report = Callable[[str, float], None]


def verify(name: str, report: Report = lambda what, share: None) -> Verification:
    """Run all checks that the device's units allow. Raises only if the device cannot be opened."""
    with open_device(name) as opened:
        found = Verification(opened.name, opened.kind, tuple(sorted(opened.units)))
        rows = _batch(opened)
    steps = [*_results(name, found.units, rows), *_transfers(name, found), *_recovery(name, found, rows)]
    for number, (group, title, work) in enumerate(steps):
        report(f"{group}: {title}", number / len(steps))
        begin = time.perf_counter()
        try:
            passed, detail = True, work()
        except Exception as error:  # of a driver, of a plugin: the owner of the device needs the report above all
            passed, detail = False, f"{type(error).__name__}: {error}"
        found.checks.append(Check(group, title, passed, detail, round(time.perf_counter() - begin, 3)))
    return found


def _batch(device: Device) -> int:
    """Rows of a batch: two windows must fit into the device's memory."""
    return BATCH if device.most_rows is None else min(BATCH, device.most_rows // 4)


# Results.


def _results(name: str, units: tuple[str, ...], rows: int) -> Iterator[Step]:
    if "bisort_merger" in units:
        yield "results", "merge, index and probe", lambda: _units(name)
        for key in KEYS:
            yield "results", f"band join of {key}", lambda key=key: _band_join(name, key, rows)  # type: ignore[misc]
        yield "results", "equality join", lambda: _equal_join(name, rows)
    if "spo_bits" in units:
        yield "results", "join on two inequalities", lambda: _inequality_join(name)
    if "hb_search_implicit" in units:
        yield "results", "lookups", lambda: _lookups(name)
    if "knn_select" in units:
        yield "results", "nearest neighbours", lambda: _neighbours(name)


def _units(name: str) -> str:
    with open_device(name) as opened:
        found = import_module("millrace.hw.exercise").verify(opened)
    wrong = [what for what, right in found.items() if not right]
    if wrong:
        raise Wrong(f"{', '.join(wrong)} differ from NumPy")
    return f"{', '.join(found)} agree with NumPy"


def _band_join(name: str, key: str, rows: int) -> str:
    sides = _sides(key, rows)
    holds: Holds = lambda r, s: _distance(r, s) <= BAND  # noqa: E731
    return _compared_join(name, f"abs(r.x - s.x) <= {BAND}", sides, holds, rows)


def _equal_join(name: str, rows: int) -> str:
    return _compared_join(name, "r.x = s.x", _sides("int64", rows), lambda r, s: r == s, rows)


def _sides(key: str, rows: int) -> list[tuple[str, Array]]:
    """Batches of both sides in turn: few partners per row, duplicates, extreme values."""
    rng, dtype = np.random.default_rng(rows), np.dtype(key)
    batches = []
    for turn in range(TURNS):
        for side in ("r", "s"):
            values = rng.integers(0, 20 * rows, rows).astype(dtype)
            if dtype.kind == "f":
                values = values + rng.choice([0.0, 0.25, 0.5], rows)
            ends = (-1e300, 1e300) if dtype.kind == "f" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
            values[:4] = [ends[0], ends[1], ends[turn % 2], 0]
            batches.append((side, values))
    return batches


Holds = Any
"""A function of r's and s's values, NumPy arrays that broadcast, to a mask."""


def _distance(r: Array, s: Array) -> Array:
    """|r - s| without overflow; beyond 64 bits it is as large as it gets."""
    if r.dtype.kind == "f":
        apart: Array = np.abs(r - s)
        return apart
    larger, smaller = np.maximum(r, s), np.minimum(r, s)
    return larger.astype(np.uint64) - smaller.astype(np.uint64)


def _compared_join(name: str, on: str, batches: list[tuple[str, Array]], holds: Holds, rows: int) -> str:
    window = min(WINDOW, rows + rows // 5)
    join = WindowJoin(on=on, window=f"{window} rows", index="bisort", device=name, output="seqs")
    parts = [join.push(side, pa.table({"x": values})) for side, values in batches]
    parts.append(join.close())
    expected = brute_force(batches, window, holds)
    _same_pairs(pa.concat_tables(parts), expected)
    return f"{len(expected):,} pairs agree with brute force"


def brute_force(batches: list[tuple[str, Array]], window: int, holds: Holds) -> Array:
    """The pairs (r_seq, s_seq) of a join over the last `window` rows of each side, sorted."""
    seen: dict[str, Array] = {}
    found = []
    for side, values in batches:
        other = seen.get("s" if side == "r" else "r", values[:0])
        first, start = max(0, len(other) - window), len(seen.get(side, values[:0]))
        near = other[first:]
        mask = holds(values[:, None], near[None, :]) if side == "r" else holds(near[None, :], values[:, None])
        new, old = np.nonzero(mask)
        pair = (new + start, old + first) if side == "r" else (old + first, new + start)
        found.append(np.stack(pair, axis=1))
        seen[side] = np.concatenate([seen[side], values]) if side in seen else values
    pairs = np.concatenate(found)
    return pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))]


def _same_pairs(table: pa.Table, expected: Array) -> None:
    pairs = np.stack([table["r_seq"].to_numpy(), table["s_seq"].to_numpy()], axis=1)
    pairs = pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))]
    if not np.array_equal(pairs, expected):
        raise Wrong(f"{len(pairs):,} pairs, brute force has {len(expected):,}, or others")


def _inequality_join(name: str) -> str:
    rng = np.random.default_rng(5)
    r, s = (rng.integers(0, 1000, (2, SPO_ROWS)) for _ in range(2))
    on = "r.x < s.x and r.y > s.y"
    join = WindowJoin(on=on, window=f"{SPO_ROWS} rows", index="spo", device=name, output="seqs")
    parts = [join.push(side, pa.table({"x": rows[0], "y": rows[1]})) for side, rows in (("r", r), ("s", s))]
    parts.append(join.close())
    mask = (r[0][:, None] < s[0][None, :]) & (r[1][:, None] > s[1][None, :])
    expected = np.stack(np.nonzero(mask), axis=1)
    _same_pairs(pa.concat_tables(parts), expected)
    return f"{len(expected):,} pairs agree with brute force"


def _lookups(name: str) -> str:
    rng = np.random.default_rng(6)
    keys = rng.permutation(4 * LOOKUPS)[:LOOKUPS].astype(np.int64)
    asked = rng.integers(0, 4 * LOOKUPS, LOOKUPS)
    row_of = {int(key): row for row, key in enumerate(keys)}
    with OrderedIndex(keys, device=name) as index:
        found = index.lookup(asked).to_pylist()
    if found != [row_of.get(int(key)) for key in asked]:
        raise Wrong("rows of keys differ from a dictionary's")
    return f"{LOOKUPS:,} lookups agree with a dictionary"


def _neighbours(name: str) -> str:
    rng = np.random.default_rng(7)
    r, s = rng.random((POINTS // 4, 2)), rng.random((POINTS, 2))
    left, right = (pa.table({"x": points[:, 0], "y": points[:, 1]}) for points in (r, s))
    found = knn_join(left, right, on=("x", "y"), k=NEAREST, device=name)
    distances = np.sqrt(((r[:, None, :] - s[None, :, :]) ** 2).sum(axis=2))
    expected = np.argsort(distances, axis=1, kind="stable")[:, :NEAREST]
    order = np.lexsort((found["rank"].to_numpy(), found["r_seq"].to_numpy()))
    if not np.array_equal(found["s_seq"].to_numpy()[order], expected.ravel()):
        raise Wrong("neighbours differ from brute force")
    return f"{NEAREST} neighbours of {len(r):,} points agree with brute force"


# Transfers and speeds.


def _transfers(name: str, found: Verification) -> Iterator[Step]:
    yield "transfers", "arrays sent and read back", lambda: _round_trips(name, found)
    if "bisort_merger" in found.units:
        yield "speeds", "send, merge, probe, fetch", lambda: _unit_speeds(name, found)


def _round_trips(name: str, found: Verification) -> str:
    rng = np.random.default_rng(8)
    with open_device(name) as opened:
        for dtype in (np.dtype(np.uint32), np.dtype(np.uint64)):
            for size in TRANSFERS:
                data = np.sort(rng.integers(0, np.iinfo(dtype).max, size, dtype, endpoint=True))
                _round_trip(opened, data, found if size == TRANSFERS[-1] else None)
    return f"{2 * len(TRANSFERS)} arrays of up to {TRANSFERS[-1]:,} elements come back unchanged"


def _round_trip(opened: Device, data: Array, found: Verification | None) -> None:
    buffer = opened.alloc(len(data), data.dtype)
    opened.write(buffer, 0, data)
    _use(opened, buffer, data)
    begin = time.perf_counter()
    opened.write(buffer, 0, data)  # may return before the data have arrived: only both together can be timed
    back = opened.read(buffer, 0, len(data))
    end = time.perf_counter()
    middle = opened.read(buffer, len(data) // 2, len(data) - len(data) // 2)
    opened.free(buffer)
    if not np.array_equal(back, data) or not np.array_equal(middle, data[len(data) // 2 :]):
        raise Wrong(f"{len(data)} elements of {data.dtype} came back changed")
    if found is not None:
        found.speeds.append(_speed(f"write and read {data.dtype}", 2 * data.nbytes, "bytes", end - begin))


def _use(opened: Device, buffer: Buffer, data: Array) -> None:
    """Let a unit read the buffer: until then, some devices keep its data on the host, and nothing is transferred."""
    if "bisort_indexer" not in opened.units:
        return
    sampled = opened.alloc(-(-len(data) // STEP), data.dtype)
    opened.wait(opened.launch("bisort_indexer", [buffer, sampled], [len(data), STEP]))
    if not np.array_equal(opened.read(sampled, 0, sampled.size), data[::STEP]):
        raise Wrong(f"{len(data)} elements of {data.dtype} arrived changed")
    opened.free(sampled)


def _unit_speeds(name: str, found: Verification) -> str:
    with open_device(name) as opened:
        measured = import_module("millrace.hw.exercise").measure(opened)
    found.speeds += [_speed(row.stage, row.rows, "rows", row.ms / 1e3) for row in measured]
    return ", ".join(f"{row.stage} {row.rows_per_second:,.0f} rows/s" for row in measured)


def _speed(stage: str, amount: int, unit: str, seconds: float) -> Speed:
    return Speed(stage, amount, unit, round(1e3 * seconds, 3), round(amount / max(seconds, 1e-9), 1))


# Recovery from faults.


def _recovery(name: str, found: Verification, rows: int) -> Iterator[Step]:
    if "bisort_merger" not in found.units:
        return
    if found.kind == "cpu":
        yield "recovery", "a call that failed is made again", lambda: _repeated(name, rows)
    else:
        yield "recovery", "a fault is reported, and the device works again", lambda: _reported(name, rows)
        yield "recovery", "a join goes on on the CPU", lambda: _fallen_back(name, rows)


def _faulty_join(name: str, rows: int, **options: Any) -> tuple[WindowJoin, list[tuple[str, Array]]]:
    window = min(WINDOW, rows + rows // 5)
    on = f"abs(r.x - s.x) <= {BAND}"
    join = WindowJoin(on=on, window=f"{window} rows", index="bisort", device=name, output="seqs", **options)
    return join, _sides("int64", rows)


def _reported(name: str, rows: int) -> str:
    join, batches = _faulty_join(name, rows)
    with injected("bisort.launch=1*raise") as rules:
        try:
            for side, values in batches:
                join.push(side, pa.table({"x": values}))
        except DeviceFault as fault:
            if not is_injected(fault):
                raise
        else:
            raise Wrong(f"an injected fault was not reported ({rules['bisort.launch'].hits} launches)")
    join.close()
    return f"a DeviceFault was raised; after it, a join on the device: {_band_join(name, 'int64', rows)}"


def _fallen_back(name: str, rows: int) -> str:
    join, batches = _faulty_join(name, rows, fallback="cpu")
    with injected("bisort.launch=3+1*raise"):
        parts = [join.push(side, pa.table({"x": values})) for side, values in batches]
    parts.append(join.close())
    window = min(WINDOW, rows + rows // 5)
    _same_pairs(pa.concat_tables(parts), brute_force(batches, window, lambda r, s: _distance(r, s) <= BAND))
    if not join.stats["fallback"]:
        raise Wrong("the fault did not move the join to the CPU")
    return "no row was lost or repeated"


def _repeated(name: str, rows: int) -> str:
    join, batches = _faulty_join(name, rows)
    parts = []
    for turn, (side, values) in enumerate(batches):
        table = pa.table({"x": values})
        if turn == TURNS:
            with injected("bisort.step=1*raise"):
                try:
                    parts.append(join.push(side, table))
                except Exception as error:
                    if not is_injected(error):
                        raise
        parts.append(join.push(side, table))
    parts.append(join.close())
    window = min(WINDOW, rows + rows // 5)
    _same_pairs(pa.concat_tables(parts), brute_force(batches, window, lambda r, s: _distance(r, s) <= BAND))
    return "no row was lost or repeated"
