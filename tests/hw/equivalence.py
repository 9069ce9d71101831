"""Runs the same seeded streams through NumPy, the HLS C++ and the RTL of the units, and finds the first difference.

A seed is one scenario: two runs are merged, the merged run is sampled, partitions of bounds are found in that index and
their positions in the run. The input of each unit is NumPy's output for the previous unit, so a difference is located
in one unit. One call runs all seeds through a unit (`equivalence.h`); the seed also determines the stalls. Libraries
are stored in the cache of `sim/tools.py`. Limits: keys of 64 bits, indexes of up to 128 samples; `bisort_boundary` is
tested with cocotb only.
"""

from __future__ import annotations

import ctypes
import hashlib
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from millrace.sim import build, hls_build, tools
from millrace.sim.hls_build import Shape
from tests.hw.reference import partitions, positions, samples

HERE = Path(__file__).resolve().parent
UNITS = ("merger", "indexer", "partitioner", "prober")
INDEX_LOG2 = 7
TOP = 2**64 - 1
PARAMETERS = {
    "merger": {"KEY_W": 64, "ID_W": 32},
    "indexer": {"KEY_W": 64, "ID_W": 32},
    "partitioner": {"KEY_W": 64, "INDEX_DEPTH": 1 << INDEX_LOG2},
    "prober": {"KEY_W": 64, "PART_W": INDEX_LOG2, "PENDING": 8},
}
"""The RTL parameters, except the lanes; a short queue of bounds, so that it is often full."""
KINDS = ("random", "duplicates", "largest", "one-sided", "apart", "alike", "empty", "skew")
EVERY = {"empty": 16, "skew": 50}
"""The last kinds occur once in so many seeds: an empty run tests little, and a skewed one takes long."""
SKEW = 1000

Array = npt.NDArray[Any]


# Scenarios.


def kind_of(seed: int) -> str:
    """The kind of a seed's runs."""
    for kind, every in EVERY.items():
        if seed % every == every - 1:
            return kind
    return KINDS[seed % (len(KINDS) - len(EVERY))]


def _lengths(rng: np.random.Generator, kind: str) -> tuple[int, int]:
    a, b = (int(n) for n in rng.integers(0, 40, 2))
    if kind == "empty":
        return 0, 0
    if kind == "skew":
        a, b = 1, SKEW
    if kind == "one-sided":
        a = 0
    return (a, b) if rng.random() < 0.5 else (b, a)


def _run(rng: np.random.Generator, size: int, kind: str) -> tuple[Array, Array]:
    """Ascending keys and ids; few different ones for kinds with duplicates."""
    keys = rng.integers(0, TOP, size, np.uint64, endpoint=True)
    ids = rng.integers(0, 2**32, size, np.uint32)
    if kind in ("duplicates", "alike"):
        keys %= np.uint64(4 if kind == "duplicates" else 1)
        ids %= np.uint32(8)
    if kind == "largest":
        keys = np.uint64(TOP) - keys % np.uint64(3)
        ids[rng.random(size) < 0.5] = 2**32 - 1
    order = np.lexsort((ids, keys))
    return keys[order], ids[order]


@dataclass(frozen=True)
class Scenario:
    """The inputs of the units for a seed, and the outputs that NumPy computes."""

    seed: int
    a: tuple[Array, Array]
    b: tuple[Array, Array]
    run: tuple[Array, Array]
    step_log2: int
    first: int
    samples: Array
    upper: bool
    index: Array
    bounds: Array
    partitions: Array
    positions: Array
    requested: Array

    @property
    def words(self) -> Array:
        """The merged run's keys."""
        return self.run[0]


def scenario(seed: int) -> Scenario:
    """A seed's scenario."""
    rng, kind = np.random.default_rng(seed), kind_of(seed)
    a_n, b_n = _lengths(rng, kind)
    a, b = _run(rng, a_n, kind), _run(rng, b_n, kind)
    if kind == "apart":  # one run entirely before the other
        low, high = sorted((a, b), key=lambda run: int(rng.integers(2**32)))
        low[0][:] >>= np.uint64(1)
        high[0][:] = high[0] >> np.uint64(1) | np.uint64(1 << 63)
    keys, ids = np.concatenate([a[0], b[0]]), np.concatenate([a[1], b[1]])
    order = np.lexsort((ids, keys))
    run = keys[order], ids[order]
    step_log2, upper = int(rng.integers(3, 6)), bool(rng.integers(2))
    first = int(rng.choice([0, 1, 7, 8, 1000, 2**32 - 2000]))
    bounds = _bounds(rng, run[0], int(rng.choice([0, 1, 5, 30])))
    index = run[0][:: 1 << step_log2]
    found = [-1 if part is None else part for part in partitions(index, bounds, upper)]
    requested = sorted(set(found) - {-1})
    return Scenario(
        seed,
        a,
        b,
        run,
        step_log2,
        first,
        np.array(samples([int(key) for key in run[0]], first, 1 << step_log2), np.uint64),
        upper,
        index,
        bounds,
        np.array(found, np.int32),
        np.array(positions(run[0], bounds, upper), np.uint32),
        np.array(requested, np.int32),
    )


def _bounds(rng: np.random.Generator, keys: Array, size: int) -> Array:
    """Ascending bounds: random ones, equal to keys or next to them, the smallest and the largest."""
    bounds = rng.integers(0, TOP, size, np.uint64, endpoint=True)
    if len(keys):
        near = rng.choice(keys, size) + rng.integers(-1, 2, size).astype(np.uint64)
        bounds = np.where(rng.random(size) < 0.7, near, bounds)
    if size > 2:
        bounds[:2] = 0, TOP
    return np.sort(bounds)


# Implementations.


@dataclass(frozen=True)
class Values:
    """One kind of values of all scenarios: the count per scenario, and the values in one or more columns."""

    what: str
    counts: Array
    columns: tuple[Array, ...]

    @property
    def arrays(self) -> tuple[Array, ...]:
        """In the order of `equivalence.h`."""
        return self.counts, *self.columns

    def empty_like(self, size: int) -> Values:
        """Arrays of the same types for an implementation to write to."""
        columns = tuple(np.zeros(max(1, size), column.dtype) for column in self.columns)
        return Values(self.what, np.zeros_like(self.counts), columns)

    def difference(self, other: Values) -> tuple[int, str] | None:
        """The first scenario in which the values of `other` differ, and how."""
        wrong = np.flatnonzero(self.counts != other.counts)
        if len(wrong):
            case = int(wrong[0])
            return case, f"{other.counts[case]} {self.what}, NumPy has {self.counts[case]}"
        size, ends = int(self.counts.sum()), np.cumsum(self.counts)
        for column, given in zip(self.columns, other.columns, strict=True):
            wrong = np.flatnonzero(column != given[:size])
            if len(wrong):
                position = int(wrong[0])
                case = int(np.searchsorted(ends, position, "right"))
                number = position - int(ends[case] - self.counts[case])
                return case, f"{self.what} {number}: {given[position]}, NumPy has {column[position]}"
        return None


class Streams:
    """Many scenarios as the input arrays of an implementation."""

    def __init__(self, scenarios: Sequence[Scenario]) -> None:
        self.scenarios = scenarios
        self.seeds = self._numbers("seed", np.uint64)

    def _numbers(self, name: str, dtype: Any = np.uint32) -> Array:
        return np.array([int(getattr(one, name)) for one in self.scenarios], dtype)

    def _values(self, name: str, what: str) -> Values:
        """A field of the scenarios: an array, or several side by side."""
        each = [getattr(one, name) for one in self.scenarios]
        rows = [one if isinstance(one, tuple) else (one,) for one in each]
        counts = np.array([len(row[0]) for row in rows], np.uint32)
        return Values(what, counts, tuple(np.concatenate(column) for column in zip(*rows, strict=True)))

    def expected(self, unit: str) -> tuple[Values, ...]:
        """The output of a unit according to NumPy."""
        kinds = {
            "merger": (("run", "tuples"),),
            "indexer": (("run", "tuples"), ("samples", "samples")),
            "partitioner": (("partitions", "partitions"),),
            "prober": (("positions", "positions"), ("requested", "requests")),
        }
        return tuple(self._values(name, what) for name, what in kinds[unit])

    def given(self, unit: str) -> list[Array]:
        """A unit's inputs, in the order of `equivalence.h`."""
        fields = {
            "merger": ("a", "b"),
            "indexer": ("run", "step_log2", "first"),
            "partitioner": ("upper", "index", "bounds"),
            "prober": ("upper", "step_log2", "words", "bounds"),
        }
        arrays = [self.seeds]
        for name in fields[unit]:
            if isinstance(getattr(self.scenarios[0], name), int):
                arrays.append(self._numbers(name))
            else:
                arrays += self._values(name, name).arrays
        return arrays + list(self._values("partitions", "").columns if unit == "prober" else ())


class Implementation:
    """A library that implements `equivalence.h`."""

    def __init__(self, name: str, library: Path) -> None:
        self.name = name
        self._call = ctypes.CDLL(str(library))
        self._call.eq_error.restype = ctypes.c_char_p

    def run(self, unit: str, streams: Streams) -> str | None:
        """A unit's first difference from NumPy, or the first rule that it breaks, if any."""
        given, expected = streams.given(unit), streams.expected(unit)
        # The harness limits a unit's outputs to the number of its inputs.
        found = [one.empty_like(max(array.size for array in given) * 2) for one in expected]
        arrays = [*given, *(array for one in found for array in one.arrays)]
        pointers = [array.ctypes.data_as(ctypes.c_void_p) for array in arrays]
        if getattr(self._call, f"eq_{unit}")(ctypes.c_uint32(len(streams.seeds)), *pointers):
            number, _, reason = self._call.eq_error().decode().partition(": ")
            return self._describe(unit, streams, int(number), reason)
        found_difference = [one.difference(other) for one, other in zip(expected, found, strict=True)]
        first = min((one for one in found_difference if one), default=None)
        return self._describe(unit, streams, *first) if first else None

    def _describe(self, unit: str, streams: Streams, number: int, reason: str) -> str:
        seed = streams.scenarios[number].seed
        return f"seed {seed} ({kind_of(seed)}): {unit} of {self.name}: {reason}"


def hls(lanes: int, sources: Path | None = None) -> Implementation:
    """The C++ of `hls/`, or of a copy of it."""
    folder = sources or hls_build.HLS
    units = [*(folder / f"bisort_{unit}.cpp" for unit in UNITS), HERE / "equivalence_hls.cpp"]
    shape = Shape(64, lanes, INDEX_LOG2)
    return Implementation(f"hls w{lanes}", hls_build.built("equivalence", shape, folder, units))


def rtl(lanes: int, sources: Path | None = None) -> Implementation:
    """The modules of `hw/rtl`, or of a copy of it, verilated."""
    return Implementation(f"rtl w{lanes}", _verilated(lanes, sources or build.RTL))


@cache
def _verilated(lanes: int, folder: Path) -> Path:
    harness = [HERE / "equivalence_rtl.cpp", HERE / "equivalence.h"]
    made = hashlib.sha256(repr((lanes, PARAMETERS, build.VERILATE, build.COMPILE, build.OPTIMISE)).encode())
    for path in [*build.sources(folder), *harness]:
        made.update(path.read_bytes())
    home = tools.cache_dir() / "rtl" / f"equivalence-{made.hexdigest()[:24]}"

    def make(work: Path, into: Path) -> None:
        parts = []
        for unit in UNITS:
            values = {**PARAMETERS[unit], "W": lanes}
            options = [f"-G{name}={value}" for name, value in values.items()]
            top = f"bisort_{unit}"
            (work / top).mkdir()
            build.verilate(top, [*options, f"-I{folder}", str(folder / f"{top}.sv")], work / top)
            parts += build.combined_sources(work / top, top)
        defines = [f"-DW={lanes}u", f"-DPART_W={INDEX_LOG2}", *(f"-I{work / f'bisort_{unit}'}" for unit in UNITS)]
        # All units in one file, despite Verilator's guard: headers are read once.
        combined = work / "units.cpp"
        combined.write_text("".join(f'#undef VL_PCH_INCLUDED\n#include "{part}"\n' for part in parts), encoding="utf-8")
        build.link([combined, harness[0]], build.runtime(lambda text: None), work, into / "model.so", defines)

    tools.build_once(home, make)
    return home / "model.so"


# Differences and mutants.


def differences(implementations: Sequence[Implementation], seeds: Iterable[int]) -> Iterator[str]:
    """For each unit and implementation, the first seed for which it differs from NumPy, if any."""
    streams = Streams([scenario(seed) for seed in seeds])
    for unit in UNITS:
        for one in implementations:
            found_difference = one.run(unit, streams)
            if found_difference is not None:
                yield found_difference


def planted(sources: Path, folder: Path, mutant: tuple[str, str, str]) -> Path:
    """Write a copy of the sources with one mutation."""
    copy = folder / sources.name
    shutil.copytree(sources, copy)
    file, before, after = mutant
    text = (copy / file).read_text(encoding="utf-8")
    assert text.count(before) == 1, f"{file} must hold {before!r} once"
    (copy / file).write_text(text.replace(before, after), encoding="utf-8")
    return copy
