"""Bench `spark`: lookups, joins and nearest neighbours, called from Spark on `local[2]`, compared with Spark itself.

- `lookup-2^23`: `ms.lookup` in 2^23 keys, compared with `identity`: the same rows through a `mapInArrow` that does
  nothing, which is the fastest that rows can pass through Python.
- `join-1M-band`: 1 M rows with 1 M rows of 64-bit integers, about one partner each. `auto`, `broadcast`, `range`
  (splits sampled, the default) and `range-splits` (splits given), compared with `spark-buckets`, the equi-join over
  buckets as wide as the band that a careful user writes by hand, and with `identity-shuffle`: the same rows tagged,
  united, shuffled and sent through identity.
- `join-1M-heavy`: the same, but a tenth of r has one key, and a tenth of s has another key just outside its band. All
  of these rows share a bucket, which costs a bucketed join 10^10 comparisons that find no pair.
- The cases of `operator_cases.py`: lookups on narrow cached frames, joins with 2 to 200 partners, an equality with a
  band, two inequalities.
- `knn-1Kx5K`: the 10 nearest of 5,000 points for each of 1,000, by `broadcast` and `partition`, compared with
  `nearest-by-join`: Spark's own `nearestByJoin`, which compares all pairs. Rows are those of both sides.
- `memory-512MB`: the private memory of a Python worker (`Private_Dirty`) after lookups in an index of 512 MB, minus
  that of a worker after identity with the same imports. The result is 40 MB divided by this difference, not a speed: it
  is at least 1 if the worker holds no more than 40 MB.

A step is timed from the call to the end of its action, into Spark's `noop` sink. Inputs are read from Parquet and
cached in Spark's memory before. (A frame made of a table in the driver's memory has its rows in its plan, and Spark's
analyser visits all of them in every step of a query. At this size that is half of every contender's time.)
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from functools import cache, partial
from typing import Any

import numpy as np
from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

import millrace as mr
from millrace.bench.harness import Answer, Case, Contender, PeerMissing
from millrace.bench.options import Options
from millrace.spark.api.join import join
from millrace.spark.api.knn_join import knn_join
from millrace.spark.api.lookup import lookup
from millrace.spark.cluster.files import new_path
from millrace.spark.plan.nearest import KnnStrategyName
from millrace.spark.tools import bench_parts as parts
from millrace.spark.tools import operator_cases
from millrace.spark.tools.bench_parts import TimedAction, cached, identity, ours, size, sum_of_pairs

KEYS, QUICK_KEYS = 1 << 23, 1 << 14
LOOKUPS, QUICK_LOOKUPS = 4_000_000, 20_000
ROWS, QUICK_ROWS = 1_000_000, 10_000
BAND = 5
SPREAD = 10
"""Key values per row, so that a band of 11 has about one partner."""
HEAVY_SHARE = 0.1
POINTS, QUICK_POINTS = (1_000, 5_000), (200, 1_000)
NEIGHBOURS = 10
MEMORY_KEYS, QUICK_MEMORY_KEYS = 1 << 25, 1 << 18
"""A key takes 16 bytes in the index."""
ALLOWED = 40 << 20
ON = f"abs(r.x - s.x) <= {BAND}"
SEED = 99


def cases(options: Options) -> Iterator[Case]:
    """The cases: lookups, joins, nearest neighbours, memory."""
    quick = options.quick
    yield _lookups(QUICK_KEYS if quick else KEYS, QUICK_LOOKUPS if quick else LOOKUPS)
    for heavy in (False, True):
        yield _joins(QUICK_ROWS if quick else ROWS, heavy)
    yield from operator_cases.cases(quick)
    yield _nearest(*(QUICK_POINTS if quick else POINTS))
    yield _memory(QUICK_MEMORY_KEYS if quick else MEMORY_KEYS)


# Lookups.


@cache
def _index_file(keys: int) -> str:
    """Save an index of even numbers; return its path."""
    path = new_path(".index")
    numbers = np.arange(keys, dtype=np.int64)
    mr.OrderedIndex(2 * numbers, numbers * 3, device="cpu").save(path)
    return str(path)


@cache
def _lookup_keys(keys: int, rows: int) -> DataFrame:
    """Unordered keys, one in 16 absent, with a time and a reading."""
    mixed = f"(id * 2654435761 + 12345) % {keys}"
    absent = "CAST(id % 16 = 0 AS INT)"
    frame = (
        parts.session().range(0, rows, 1, 4).selectExpr(f"2 * ({mixed}) + {absent} AS k", "id AS ts", "id / 7.0D AS x")
    )
    frame.cache().count()
    return frame


def _sum_of_values(frame: DataFrame) -> Answer:
    row = frame.agg(fn.sum("value"), fn.count("value")).collect()[0]
    return {"sum": np.array([row[0]]), "count": np.array([row[1]])}


def _lookups(keys: int, rows: int) -> Case:
    def looked_up() -> TimedAction:
        frame, path = _lookup_keys(keys, rows), _index_file(keys)
        return TimedAction(lambda: lookup(frame, path, key="k", device="cpu"), rows, _sum_of_values)

    def through_python() -> TimedAction:
        frame = _lookup_keys(keys, rows)
        return TimedAction(lambda: frame.mapInArrow(identity, frame.schema), rows, lambda _: {})

    contenders = [ours("lookup", looked_up), Contender("identity", through_python, answers=False)]
    return Case(f"lookup-{_power(keys)}", "rows/s", contenders, {"keys": keys, "rows": rows}, check_steps=2)


# Joins.


@cache
def _sides(rows: int, heavy: bool) -> tuple[DataFrame, DataFrame]:
    """Two tables with a row number and a key."""
    rng = np.random.default_rng([SEED, rows])
    span = rows * SPREAD
    r, s = rng.integers(0, span, rows), rng.integers(0, span, rows)
    if heavy:
        hitter = span // 2 // (2 * BAND + 1) * (2 * BAND + 1)  # the first key of a bucket, so that both keys are in it
        r[rng.random(rows) < HEAVY_SHARE] = hitter
        s[rng.random(rows) < HEAVY_SHARE] = hitter + BAND + 1
    return cached(id=np.arange(rows), x=r), cached(id=np.arange(rows), x=s)


def _ours_joined(rows: int, heavy: bool, **how: Any) -> TimedAction:
    r, s = _sides(rows, heavy)
    return TimedAction(lambda: join(r, s, on=ON, device="cpu", **how), 2 * rows, sum_of_pairs)


def _bucketed(rows: int, heavy: bool) -> TimedAction:
    r, s = _sides(rows, heavy)
    return TimedAction(lambda: operator_cases.bucketed(r, s), 2 * rows, sum_of_pairs)


def _shuffled(rows: int, heavy: bool) -> TimedAction:
    """The rows of both sides, tagged, united, shuffled to as many shards, and sent through Python."""
    r, s = _sides(rows, heavy)
    shards = 2 * parts.session().sparkContext.defaultParallelism

    def make() -> DataFrame:
        cell = (fn.col("x") * shards / (rows * SPREAD)).cast("int").alias("shard")
        tagged = [f.select(cell, fn.lit(of).alias("of"), "id", "x") for f, of in ((r, False), (s, True))]
        moved = tagged[0].union(tagged[1]).repartitionById(shards, fn.col("shard")).drop("shard")
        return moved.mapInArrow(identity, moved.schema)

    return TimedAction(make, 2 * rows, lambda _: {})


def _joins(rows: int, heavy: bool) -> Case:
    span = rows * SPREAD
    even = [span * i // 4 for i in range(1, 4)]
    tried = [
        ours("auto", partial(_ours_joined, rows, heavy)),
        ours("broadcast", partial(_ours_joined, rows, heavy, strategy="broadcast")),
        ours("range", partial(_ours_joined, rows, heavy, strategy="range")),
    ]
    if not heavy:
        tried.append(ours("range-splits", partial(_ours_joined, rows, heavy, splits=even)))
    theirs = [
        Contender("spark-buckets", partial(_bucketed, rows, heavy)),
        Contender("identity-shuffle", partial(_shuffled, rows, heavy), answers=False),
    ]
    facts = {"rows": rows, "band": BAND, "heavy_share": HEAVY_SHARE if heavy else 0.0}
    return Case(f"join-{size(rows)}-{'heavy' if heavy else 'band'}", "rows/s", [*tried, *theirs], facts, check_steps=2)


# Nearest neighbours.


@cache
def _points(rows: int) -> DataFrame:
    rng = np.random.default_rng([SEED, rows])
    return cached(id=np.arange(rows), x=rng.random(rows), y=rng.random(rows))


def _ours_nearest(queries: int, points: int, strategy: KnnStrategyName) -> TimedAction:
    r, s = _points(queries), _points(points)

    def make() -> DataFrame:
        return knn_join(r, s, on=("x", "y"), k=NEIGHBOURS, strategy=strategy)

    return TimedAction(make, queries + points, sum_of_pairs)


def _nearest_by_join(queries: int, points: int) -> TimedAction:
    """Spark's own join, ranked by the squared distance."""
    sides = {"r": _points(queries), "s": _points(points)}
    r, s = (frame.toDF(*(f"{side}_{name}" for name in frame.columns)) for side, frame in sides.items())
    gaps = [fn.col(f"r_{axis}") - fn.col(f"s_{axis}") for axis in ("x", "y")]
    rank = gaps[0] * gaps[0] + gaps[1] * gaps[1]
    make = partial(r.nearestByJoin, s, rank, NEIGHBOURS, "exact", "distance")
    return TimedAction(make, queries + points, sum_of_pairs)


def _nearest(queries: int, points: int) -> Case:
    tried = [ours(name, partial(_ours_nearest, queries, points, name)) for name in ("broadcast", "partition")]
    theirs = [Contender("nearest-by-join", partial(_nearest_by_join, queries, points))]
    name = f"knn-{size(queries)}x{size(points)}"
    facts = {"queries": queries, "points": points, "k": NEIGHBOURS}
    return Case(name, "rows/s", [*tried, *theirs], facts, check_steps=2)


# Memory.


class MemoryShare:
    """A contender whose result is the allowed memory divided by the measured memory."""

    def __init__(self, keys: int, ours: bool) -> None:
        """Measure once."""
        self._share = _allowance_share(keys) if ours else 1.0

    def step(self) -> tuple[float, float]:
        """Return the result as work done in one second."""
        return self._share, 1.0

    def answer(self) -> Answer:
        """There is nothing to compare."""
        return {}

    def pause(self) -> None:
        """Nothing to release."""

    def close(self) -> None:
        """Nothing to release."""


def _allowance_share(keys: int) -> float:
    """Measure in a separate session, whose workers have done nothing else."""
    command = [sys.executable, "-m", "millrace.spark.tools.worker_memory", _index_file(keys), str(keys)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise PeerMissing(f"the workers' memory could not be measured: {done.stderr[-500:]}")
    report: dict[str, int] = json.loads(done.stdout.splitlines()[-1])
    return ALLOWED / max(report["lookup"] - report["identity"], 1)


def _memory(keys: int) -> Case:
    measured = ours("lookup", partial(MemoryShare, keys, True))  # type: ignore[arg-type]
    allowed = Contender("40 MB", partial(MemoryShare, keys, False), answers=False)
    facts = {"keys": keys, "index_bytes": 16 * keys}
    return Case(f"memory-{16 * keys >> 20}MB", "allowances per worker", [measured, allowed], facts, check_steps=1)


def _power(size: int) -> str:
    return f"2^{size.bit_length() - 1}"
