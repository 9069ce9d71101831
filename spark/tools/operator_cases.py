"""Cases of the bench `spark` about choices: which way `ms.join` and `ms.lookup` go by themselves, and what that gives.

- `cached-10K`, `cached-100K`: `ms.lookup` in 2^22 keys of 8 M cached rows of one `bigint`, in Arrow batches of 10,000
  and 100,000 rows, compared with identity. `cached-100K-no-byte-limit`: the same, both with Spark's setting
  `maxBytesPerBatch` switched off.
- `matches-2-1M`, `-20-1M`, `-200-1M`, `-2-10M`, `-20-10M`, `-2-30M`: so many partners for each row, so many rows a side
  (more than 1 M not with `--quick`; a step takes up to a minute); `ms.join` as it chooses, compared with
  `spark-buckets`, the bucketed equi-join that a careful user writes by hand. The frames are cached, so `auto` draws
  samples in its first call only; `auto-sampling` draws them in every step, as first calls do (up to 1 M rows).
- `strategies-2-1M`, `-20-1M`, `-200-1M`: the same rows by each strategy. `plan/costs.py` has its constants from here.
- `equal-20-1M`, `equal-200-1M`: rows that are equal in one column, so many for each, and in a band of another, compared
  with `spark-equi-join`: Spark's own equi-join with a filter. `auto` and `auto-sampling` as above.
- `inequalities-50K`: two inequalities of 50,000 rows with few pairs, compared with `spark-loop`, Spark's own plan.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache, partial
from typing import Any

import numpy as np
from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

import millrace as mr
from millrace.bench.harness import Answer, Case, Contender
from millrace.spark.api.join import join
from millrace.spark.api.lookup import lookup
from millrace.spark.cluster.files import new_path
from millrace.spark.exec.batch_bytes import RECORDS
from millrace.spark.plan.sampling import forget_samples
from millrace.spark.plan.strategy import StrategyName
from millrace.spark.tools import bench_parts as parts
from millrace.spark.tools.bench_parts import TimedAction, cached, identity, ours, size, sum_of_pairs

KEYS, QUICK_KEYS = 1 << 22, 1 << 14
LOOKUPS, QUICK_LOOKUPS = 8_000_000, 20_000
ROWS, QUICK_ROWS = 1_000_000, 5_000
LOOP_ROWS, QUICK_LOOP_ROWS = 50_000, 2_000
MATCHES, QUICK_MATCHES = (2, 20, 200), (2, 20)
LARGE = ((2, 10_000_000), (20, 10_000_000), (2, 30_000_000))
"""Partners of each row, and rows."""
GROUPS, QUICK_GROUPS = (20, 200), (20,)
BAND, SPAN = 5, 1000
SEED = 24
BYTES, NO_LIMIT = "spark.sql.execution.arrow.maxBytesPerBatch", f"{2**31 - 1}b"
"""Spark's limit of a batch to Python; with exactly this number Spark does not compare."""
RACKS = "r.power < s.power AND r.cool > s.cool"


def cases(quick: bool) -> Iterator[Case]:
    """The cases of this file."""
    for records, limited in ((10_000, True), (100_000, True), (100_000, False)):
        yield _cached_lookups(QUICK_KEYS if quick else KEYS, QUICK_LOOKUPS if quick else LOOKUPS, records, limited)
    rows = QUICK_ROWS if quick else ROWS
    matches = QUICK_MATCHES if quick else MATCHES
    for partners, side in [*((partners, rows) for partners in matches), *(() if quick else LARGE)]:
        name, checks = f"matches-{partners}-{size(side)}", 2 if side == rows else 1
        yield _case(name, side, partial(_band_sides, side, partners), _by_band, "spark-buckets", checks)
    for partners in matches:
        yield _strategies(rows, partners)
    for group in QUICK_GROUPS if quick else GROUPS:
        sides = partial(_group_sides, rows, group)
        yield _case(f"equal-{group}-{size(rows)}", rows, sides, _by_group, "spark-equi-join")
    few = QUICK_LOOP_ROWS if quick else LOOP_ROWS
    yield _case(f"inequalities-{size(few)}", few, partial(_rack_sides, few), _by_inequalities, "spark-loop")


# Lookups.


@cache
def _index_file(keys: int) -> str:
    path = new_path(".index")
    numbers = np.arange(keys, dtype=np.int64)
    mr.OrderedIndex(2 * numbers, numbers * 3, device="cpu").save(path)
    return str(path)


@cache
def _keys(keys: int, rows: int) -> DataFrame:
    frame = parts.session().range(0, rows, 1, 4).selectExpr(f"2 * ((id * 2654435761 + 12345) % {keys}) AS k").cache()
    frame.count()
    return frame


class BatchedAction(TimedAction):
    """A timed action with these settings of Spark's Arrow batches."""

    settings: Mapping[str, str] = {}

    def step(self) -> tuple[float, float]:
        """Change the settings for the time of the action."""
        conf = parts.session().conf
        before = {name: str(conf.get(name)) for name in self.settings}
        try:
            for name, value in self.settings.items():
                conf.set(name, value)
            return super().step()
        finally:
            for name, value in before.items():
                conf.set(name, value)


def _sum_of_values(frame: DataFrame) -> Answer:
    row = frame.agg(fn.sum("value"), fn.count("value")).collect()[0]
    return {"sum": np.array([row[0]]), "count": np.array([row[1]])}


def _cached_lookups(keys: int, rows: int, records: int, limited: bool) -> Case:
    settings = {RECORDS: str(records)} | ({} if limited else {BYTES: NO_LIMIT})

    def batched(action: BatchedAction) -> TimedAction:
        action.settings = settings
        return action

    def looked_up() -> TimedAction:
        frame, path = _keys(keys, rows), _index_file(keys)
        return batched(BatchedAction(lambda: lookup(frame, path, key="k", device="cpu"), rows, _sum_of_values))

    def through_python() -> TimedAction:
        frame = _keys(keys, rows)
        return batched(BatchedAction(lambda: frame.mapInArrow(identity, frame.schema), rows, lambda _: {}))

    contenders = [ours("lookup", looked_up), Contender("identity", through_python, answers=False)]
    facts = {"keys": keys, "rows": rows, **settings}
    name = f"cached-{records // 1000}K{'' if limited else '-no-byte-limit'}"
    return Case(name, "rows/s", contenders, facts, check_steps=2)


# Joins.


def _case(name: str, rows: int, sides: Any, plans: Any, peer: str, checks: int = 2) -> Case:
    """`ms.join` as it chooses, and Spark's own plan; `plans` gives our condition and Spark's frame."""

    def chosen(sampling: bool) -> TimedAction:
        r, s = sides()

        def make() -> DataFrame:
            if sampling:
                forget_samples()
            return join(r, s, on=plans(r, s)[0], device="cpu")

        return TimedAction(make, 2 * rows, sum_of_pairs)

    def by_spark() -> TimedAction:
        r, s = sides()
        return TimedAction(lambda: plans(r, s)[1], 2 * rows, sum_of_pairs)

    tried = [ours("auto", partial(chosen, False))]
    if rows <= ROWS:
        tried.append(ours("auto-sampling", partial(chosen, True)))
    return Case(name, "rows/s", [*tried, Contender(peer, by_spark)], {"rows": rows}, check_steps=checks)


def _strategies(rows: int, partners: int) -> Case:
    """A band join by each strategy."""

    def by(strategy: StrategyName) -> TimedAction:
        r, s = _band_sides(rows, partners)
        condition = _by_band(r, s)[0]
        return TimedAction(lambda: join(r, s, on=condition, strategy=strategy), 2 * rows, sum_of_pairs)

    names: tuple[StrategyName, ...] = ("buckets", "broadcast", "range")
    contenders = [ours(name, partial(by, name)) for name in names]
    return Case(f"strategies-{partners}-{size(rows)}", "rows/s", contenders, {"rows": rows}, check_steps=1)


@cache
def _band_sides(rows: int, matches: int) -> tuple[DataFrame, DataFrame]:
    rng = np.random.default_rng([SEED, rows, matches])
    span = rows * (2 * BAND + 1) // matches
    r, s = (cached(id=np.arange(rows), x=rng.integers(0, span, rows)) for _ in "rs")
    return r, s


def bucketed(r: DataFrame, s: DataFrame) -> DataFrame:
    """Spark's join over buckets as wide as the band: an r row is in one, an s row in those that its band touches."""
    width = 2 * BAND + 1

    def bucket(of: Any) -> Any:
        return fn.floor(of / width)

    left = r.select(fn.col("id").alias("r_id"), fn.col("x").alias("r_x"), bucket(fn.col("x")).alias("bucket"))
    buckets = fn.sequence(bucket(fn.col("x") - BAND), bucket(fn.col("x") + BAND))
    right = s.select(fn.col("id").alias("s_id"), fn.col("x").alias("s_x"), fn.explode(buckets).alias("bucket"))
    both = left.join(right, "bucket").where(fn.abs(fn.col("r_x") - fn.col("s_x")) <= BAND)
    return both.select("r_id", "r_x", "s_id", "s_x")


def _by_band(r: DataFrame, s: DataFrame) -> tuple[str, DataFrame]:
    return f"abs(r.x - s.x) <= {BAND}", bucketed(r, s)


@cache
def _group_sides(rows: int, group: int) -> tuple[DataFrame, DataFrame]:
    rng = np.random.default_rng([SEED, rows, group, 1])

    def side() -> DataFrame:
        return cached(id=np.arange(rows), k=rng.integers(0, rows // group, rows), x=rng.integers(0, SPAN, rows))

    return side(), side()


def _by_group(r: DataFrame, s: DataFrame) -> tuple[str, DataFrame]:
    left, right = (side.toDF(*(f"{name}_{column}" for column in side.columns)) for name, side in (("r", r), ("s", s)))
    both = left.join(right, fn.expr(f"r_k = s_k AND abs(r_x - s_x) <= {BAND}"))
    return f"r.k = s.k AND abs(r.x - s.x) <= {BAND}", both


@cache
def _rack_sides(rows: int) -> tuple[DataFrame, DataFrame]:
    """Along a diagonal, so that few rows are better in one and worse in the other."""
    rng = np.random.default_rng([SEED, rows, 2])

    def side() -> DataFrame:
        power = rng.permutation(rows) * 10
        return cached(id=np.arange(rows), power=power, cool=power + rng.integers(0, 40, rows))

    return side(), side()


def _by_inequalities(r: DataFrame, s: DataFrame) -> tuple[str, DataFrame]:
    left, right = (side.toDF(*(f"{name}_{column}" for column in side.columns)) for name, side in (("r", r), ("s", s)))
    return RACKS, left.join(right, fn.expr("r_power < s_power AND r_cool > s_cool"))
