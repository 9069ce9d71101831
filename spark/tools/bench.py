"""Bench `spark`: lookups and band joins called from Spark on `local[2]`, beside Spark itself.

- `lookup-2^23`: `ms.lookup` in 2^23 keys, beside `identity`: the same rows through a `mapInArrow` that does nothing,
  which is as fast as rows get through Python at all.
- `join-1M-band`: 1 M rows against 1 M rows of 64-bit integers, about one partner each; `broadcast`, `range` (splits
  sampled, as by default) and `range-splits` (given), beside `spark-buckets`, the equi-join over buckets as wide as
  the band that a careful user writes by hand, and beside `identity-shuffle`: the same rows tagged, united, shuffled
  and sent through identity.
- `join-1M-heavy`: the same, but a tenth of r has one key, and a tenth of s another that lies just outside its band: all
  of them share a bucket, which costs a rewrite with buckets 10^10 comparisons, and no pair comes of them.
- `memory-512MB`: what a Python worker holds privately (`Private_Dirty`) after lookups in an index of 512 MB, above
  what one holds after identity with the same imports, as a share of 40 MB: no speed, and at least 1 where it holds no
  more.

What is timed is a whole call with its action, into Spark's `noop` sink. Inputs are read from Parquet and cached in
Spark's memory before. (A frame made of a table in the driver's memory has its rows in its plan, and Spark's analyser
goes over all of them with every step of a query: half of everybody's time, at this size.)
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

import millrace as mr
from millrace.bench.harness import Answer, Case, Contender, PeerMissing
from millrace.bench.options import Options
from millrace.spark.api.join import join
from millrace.spark.api.lookup import lookup
from millrace.spark.cluster.files import new_path
from millrace.spark.cluster.session import local_session

KEYS, QUICK_KEYS = 1 << 23, 1 << 14
LOOKUPS, QUICK_LOOKUPS = 4_000_000, 20_000
ROWS, QUICK_ROWS = 1_000_000, 10_000
BAND = 5
SPREAD = 10
"""Values of a key for each row, so that a band of 11 has about one partner."""
HEAVY_SHARE = 0.1
MEMORY_KEYS, QUICK_MEMORY_KEYS = 1 << 25, 1 << 18
"""16 bytes each."""
ALLOWED = 40 << 20
ON = f"abs(r.x - s.x) <= {BAND}"
SEED = 99
Frame = Callable[[], DataFrame]


def cases(options: Options) -> Iterator[Case]:
    """Lookups, joins, memory."""
    quick = options.quick
    yield _lookups(QUICK_KEYS if quick else KEYS, QUICK_LOOKUPS if quick else LOOKUPS)
    for heavy in (False, True):
        yield _joins(QUICK_ROWS if quick else ROWS, heavy)
    yield _memory(QUICK_MEMORY_KEYS if quick else MEMORY_KEYS)


@cache
def session() -> SparkSession:
    """One for all cases."""
    return local_session()


def identity(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """What costs nothing but the way."""
    yield from batches


class Acting:
    """A frame, made anew and sent into the sink in each step."""

    def __init__(self, make: Frame, rows: int, answer: Callable[[DataFrame], Answer]) -> None:
        """`rows` are what a step is counted by."""
        self._make, self._rows, self._answer = make, rows, answer

    def step(self) -> tuple[float, float]:
        """The call and its action."""
        start = time.perf_counter()
        self._make().write.format("noop").mode("overwrite").save()
        return self._rows, time.perf_counter() - start

    def answer(self) -> Answer:
        """A sum over the rows, from a call of its own."""
        return self._answer(self._make())

    def pause(self) -> None:
        """Nothing is held."""

    def close(self) -> None:
        """The session stays for the next case."""


def _ours(name: str, start: Callable[[], Acting]) -> Contender:
    return Contender(f"{name} on cpu", start, name, "cpu", "cpu")


# Lookups.


@cache
def _index_file(keys: int) -> str:
    """An index of even numbers, saved."""
    path = new_path(".index")
    numbers = np.arange(keys, dtype=np.int64)
    mr.OrderedIndex(2 * numbers, numbers * 3, device="cpu").save(path)
    return str(path)


@cache
def _asked(keys: int, rows: int) -> DataFrame:
    """Keys in no order, one in 16 absent, beside a time and a reading."""
    mixed = f"(id * 2654435761 + 12345) % {keys}"
    absent = "CAST(id % 16 = 0 AS INT)"
    frame = session().range(0, rows, 1, 4).selectExpr(f"2 * ({mixed}) + {absent} AS k", "id AS ts", "id / 7.0D AS x")
    frame.cache().count()
    return frame


def _sum_of_values(frame: DataFrame) -> Answer:
    row = frame.agg(fn.sum("value"), fn.count("value")).collect()[0]
    return {"sum": np.array([row[0]]), "count": np.array([row[1]])}


def _lookups(keys: int, rows: int) -> Case:
    def ours() -> Acting:
        frame, path = _asked(keys, rows), _index_file(keys)
        return Acting(lambda: lookup(frame, path, key="k", device="cpu"), rows, _sum_of_values)

    def through_python() -> Acting:
        frame = _asked(keys, rows)
        return Acting(lambda: frame.mapInArrow(identity, frame.schema), rows, lambda _: {})

    contenders = [_ours("lookup", ours), Contender("identity", through_python, answers=False)]
    return Case(f"lookup-{_power(keys)}", "rows/s", contenders, {"keys": keys, "rows": rows}, check_steps=2)


# Joins.


@cache
def _sides(rows: int, heavy: bool) -> tuple[DataFrame, DataFrame]:
    """Two tables of a number and a key."""
    rng = np.random.default_rng([SEED, rows])
    span = rows * SPREAD
    r, s = rng.integers(0, span, rows), rng.integers(0, span, rows)
    if heavy:
        hitter = span // 2 // (2 * BAND + 1) * (2 * BAND + 1)  # the first key of a bucket, so that all below fit in it
        r[rng.random(rows) < HEAVY_SHARE] = hitter
        s[rng.random(rows) < HEAVY_SHARE] = hitter + BAND + 1
    frames = []
    for x in (r, s):
        path = new_path(".parquet")
        pq.write_table(pa.table({"id": np.arange(rows), "x": x}), path)
        frame = session().read.parquet(str(path)).repartition(4).cache()
        frame.count()
        frames.append(frame)
    return frames[0], frames[1]


def _ours_joined(rows: int, heavy: bool, **how: Any) -> Acting:
    r, s = _sides(rows, heavy)
    return Acting(lambda: join(r, s, on=ON, device="cpu", **how), 2 * rows, _sum_of_pairs)


def _sum_of_pairs(frame: DataFrame) -> Answer:
    row = frame.agg(fn.count("*"), fn.sum(fn.xxhash64("r_id", "s_id") % 1_000_003)).collect()[0]
    return {"pairs": np.array([row[0]]), "sum": np.array([row[1]])}


def _bucketed(rows: int, heavy: bool) -> Acting:
    """Buckets as wide as the band: each r row is in one, each s row in the one or two that its band touches."""
    r, s = _sides(rows, heavy)
    width = 2 * BAND + 1

    def bucket(of: Any) -> Any:
        return fn.floor(of / width)

    def make() -> DataFrame:
        left = r.select(fn.col("id").alias("r_id"), fn.col("x").alias("r_x"), bucket(fn.col("x")).alias("bucket"))
        reach = fn.sequence(bucket(fn.col("x") - BAND), bucket(fn.col("x") + BAND))
        right = s.select(fn.col("id").alias("s_id"), fn.col("x").alias("s_x"), fn.explode(reach).alias("bucket"))
        both = left.join(right, "bucket").where(fn.abs(fn.col("r_x") - fn.col("s_x")) <= BAND)
        return both.select("r_id", "r_x", "s_id", "s_x")

    return Acting(make, 2 * rows, _sum_of_pairs)


def _shuffled(rows: int, heavy: bool) -> Acting:
    """The rows of both sides, tagged, united, shuffled to as many places, and through Python."""
    r, s = _sides(rows, heavy)
    places = 2 * session().sparkContext.defaultParallelism

    def make() -> DataFrame:
        cell = (fn.col("x") * places / (rows * SPREAD)).cast("int").alias("place")
        tagged = [f.select(cell, fn.lit(of).alias("of"), "id", "x") for f, of in ((r, False), (s, True))]
        moved = tagged[0].union(tagged[1]).repartitionById(places, fn.col("place")).drop("place")
        return moved.mapInArrow(identity, moved.schema)

    return Acting(make, 2 * rows, lambda _: {})


def _joins(rows: int, heavy: bool) -> Case:
    span = rows * SPREAD
    even = [span * i // 4 for i in range(1, 4)]
    ours = [
        _ours("broadcast", partial(_ours_joined, rows, heavy, strategy="broadcast")),
        _ours("range", partial(_ours_joined, rows, heavy, strategy="range")),
    ]
    if not heavy:
        ours.append(_ours("range-splits", partial(_ours_joined, rows, heavy, splits=even)))
    theirs = [
        Contender("spark-buckets", partial(_bucketed, rows, heavy)),
        Contender("identity-shuffle", partial(_shuffled, rows, heavy), answers=False),
    ]
    name = f"join-{rows // 1000}K-" if rows < 1_000_000 else f"join-{rows // 1_000_000}M-"
    facts = {"rows": rows, "band": BAND, "heavy_share": HEAVY_SHARE if heavy else 0.0}
    return Case(name + ("heavy" if heavy else "band"), "rows/s", [*ours, *theirs], facts, check_steps=2)


# Memory.


class Holding:
    """The allowance divided by what was held."""

    def __init__(self, keys: int, ours: bool) -> None:
        """Measured once."""
        self._share = _allowance_share(keys) if ours else 1.0

    def step(self) -> tuple[float, float]:
        """As work done in a second."""
        return self._share, 1.0

    def answer(self) -> Answer:
        """Nobody to agree with."""
        return {}

    def pause(self) -> None:
        """Nothing is held."""

    def close(self) -> None:
        """Nothing is held."""


def _allowance_share(keys: int) -> float:
    """By a session of its own, whose workers have done nothing else."""
    command = [sys.executable, "-m", "millrace.spark.tools.worker_memory", _index_file(keys), str(keys)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise PeerMissing(f"the workers' memory could not be measured: {done.stderr[-500:]}")
    told: dict[str, int] = json.loads(done.stdout.splitlines()[-1])
    return ALLOWED / max(told["lookup"] - told["identity"], 1)


def _memory(keys: int) -> Case:
    ours = _ours("lookup", partial(Holding, keys, True))  # type: ignore[arg-type]
    allowed = Contender("40 MB", partial(Holding, keys, False), answers=False)
    facts = {"keys": keys, "index_bytes": 16 * keys}
    return Case(f"memory-{16 * keys >> 20}MB", "allowances per worker", [ours, allowed], facts, check_steps=1)


def _power(size: int) -> str:
    return f"2^{size.bit_length() - 1}"
