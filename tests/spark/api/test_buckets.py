"""`strategy="buckets"`, Spark's own equi-join, gives the pairs of `mr.join`, also for difficult values."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any, get_args

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import millrace as mr
from millrace import spark as ms
from millrace.spark.api.join import read_condition
from millrace.spark.plan.exact_sql import exact_terms
from millrace.spark.plan.hows import How, read_how
from tests.spark.cases import Drawn, draw, found, frames
from tests.spark.conftest import SetSettings
from tests.spark.sessions import GROUP

pytestmark = GROUP
HOWS: list[Any] = sorted({read_how(name) for name in get_args(How)})
ROWS = 120
LARGEST = 2**63 - 1


def drawn_of(on: str, r: dict[str, Any], s: dict[str, Any]) -> Drawn:
    """Two numbered tables, and the pairs of `mr.join`, which tests/conformance holds to the oracle."""
    left, right = (pa.table({**one, "row number": range(len(next(iter(one.values()))))}) for one in (r, s))
    inner = mr.join(left, right, on=on, output="seqs")
    partners: list[list[int]] = [[] for _ in range(left.num_rows)]
    for a, b in zip(inner["r_seq"].to_pylist(), inner["s_seq"].to_pylist(), strict=True):
        partners[a].append(b)
    assert any(partners), on
    return Drawn(on, on, left, right, partners)


def check(spark: SparkSession, drawn: Drawn, how: How) -> None:
    result = ms.join(*frames(spark, drawn), on=drawn.on, how=how, strategy="buckets")
    assert found(result) == drawn.wanted(read_how(how)), f"{how}: {drawn.name}"


def numbers(seed: int, span: int = 60) -> pa.Array:
    rng = np.random.default_rng(seed)
    return pa.array(rng.integers(-span, span, ROWS), mask=rng.random(ROWS) < 0.05)


def floats(seed: int) -> pa.Array:
    rng = np.random.default_rng(seed)
    values = np.round(rng.normal(0, 3, ROWS), 1)
    values[:12] = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1e300, -1e300, 5e-324, 0.1, 0.2, 0.3, 1e15]
    return pa.array(values, from_pandas=False)


EXTREME = pa.array([LARGEST, LARGEST - 3, -LARGEST - 1, -LARGEST + 1, 0, 1, 5, None, 2**53 + 1, 2**53])
ENDS = pa.array([*(LARGEST - i for i in range(12)), *(-LARGEST - 1 + i for i in range(12)), None, 0, 7])
TIMES = pa.array(
    [dt.datetime(2026, 3, 29, tzinfo=dt.UTC) + dt.timedelta(minutes=7 * i, microseconds=i) for i in range(60)]
)
DATES = pa.array([dt.date(2026, 1, 1) + dt.timedelta(days=3 * i) for i in range(40)])
TEXT = pa.array([None if i % 11 == 0 else f"site {i % 7}" for i in range(ROWS)])
CENTS = pa.array([Decimal(i % 9) / 4 for i in range(ROWS)], pa.decimal128(12, 2))
BAND = "abs(r.x - s.x) <= 3"


@pytest.mark.parametrize("how", HOWS)
def test_every_how(spark: SparkSession, how: How) -> None:
    check(spark, drawn_of(f"r.g = s.g AND {BAND}", {"g": TEXT, "x": numbers(1)}, {"g": TEXT, "x": numbers(2)}), how)


CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "band": (BAND, {"x": numbers(3)}, {"x": numbers(4).cast(pa.int32())}),
    "scaled": ("2 * r.x - s.x BETWEEN -4 AND 5 AND r.x <> s.x", {"x": numbers(5)}, {"x": numbers(6)}),
    "one side": ("r.x - s.x BETWEEN 0 AND 9 AND r.y > -20", {"x": numbers(7), "y": numbers(8)}, {"x": numbers(9)}),
    "the ends of 64 bits": (BAND, {"x": EXTREME}, {"x": EXTREME}),
    "a band above, at the ends": ("r.x BETWEEN s.x + 3 AND s.x + 9", {"x": ENDS}, {"x": ENDS}),
    "a band below, at the ends": ("r.x - s.x > -9 AND s.x - 2 >= r.x", {"x": ENDS}, {"x": ENDS}),
    "products": ("r.x = s.x AND r.x * s.x > 10", {"x": EXTREME}, {"x": EXTREME}),
    "columns that cancel out": (
        "abs(r.x - s.x + r.y - r.y) <= 3 AND 0 * s.y + r.x <= s.x + 1",
        {"x": numbers(1), "y": numbers(2)},
        {"x": numbers(3), "y": numbers(4)},
    ),
    "floats": ("abs(r.x - s.x) <= 0.1", {"x": floats(1)}, {"x": floats(2)}),
    "infinities": ("r.x BETWEEN s.x - 0.2 AND s.x + 0.2", {"x": floats(1)}, {"x": floats(2).cast(pa.float32())}),
    "equal floats": ("r.x = s.x AND r.x < 100.0", {"x": floats(1)}, {"x": floats(2)}),
    "times": ("abs(r.t - s.t) <= INTERVAL '14' MINUTE", {"t": TIMES}, {"t": TIMES}),
    "days": ("r.t - s.t BETWEEN INTERVAL '0' DAY AND INTERVAL '6' DAY", {"t": DATES}, {"t": DATES}),
    "decimals": (
        "r.c = s.c AND r.x < s.x",
        {"c": CENTS, "x": numbers(3)},
        {"c": CENTS.cast(pa.decimal128(20, 2)), "x": numbers(4)},
    ),
    "text": (
        "r.g = s.g AND r.h <> s.h",
        {"g": TEXT, "h": TEXT},
        {"g": TEXT, "h": TEXT.take(pa.array(range(ROWS)[::-1]))},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_difficult_values(spark: SparkSession, name: str) -> None:
    drawn = drawn_of(*CASES[name]) if name != "text" else _text()
    check(spark, drawn, HOWS[len(name) % 3])


@pytest.mark.parametrize(
    "on",
    ["abs(r.x - s.x) <= 3", "3 > abs(r.x - s.x)", "r.x BETWEEN s.x + 3 AND s.x + 9", "r.x = s.x - 1"],
)
def test_a_band_of_integers_is_two_comparisons(spark: SparkSession, on: str) -> None:
    """Neither decimals nor functions that return null on overflow: Spark compares a pair several times as fast."""
    long, short = (spark.createDataFrame(pa.table({"x": pa.array([1], of)})) for of in (pa.int64(), pa.int32()))
    for frame, limited in ((long, True), (short, False)):
        sides = {"r": frame, "s": frame}
        terms = exact_terms(read_condition(sides, on), dict.fromkeys(sides, frame.schema))
        assert terms is not None
        text = " AND ".join(terms.rest)
        assert "decimal" not in text
        assert "try_" not in text
        assert ("if(" in text) == limited, "32 bits and a small width stay within 64 bits"


def _text() -> Drawn:
    on, r, s = CASES["text"]
    s["g"] = pa.concat_arrays([TEXT[1:], TEXT[:1]])
    return drawn_of(on, r, s)


def test_drawn_conditions(spark: SparkSession) -> None:
    """Those that have exact SQL: the oracle's pairs."""
    served = 0
    for seed in range(60):
        drawn = draw(seed, most_rows=80, key_kinds=("int64", "int64"))
        sides = dict(zip(("r", "s"), frames(spark, drawn), strict=True))
        terms = exact_terms(read_condition(sides, drawn.on), {side: frame.schema for side, frame in sides.items()})
        if terms is None or not terms.equal or served == 6:
            continue
        served += 1
        check(spark, drawn, HOWS[seed % len(HOWS)])
    assert served == 6


@pytest.mark.parametrize(
    ("on", "r", "s"),
    [
        ("abs(r.x - s.x) <= 2.5", numbers(1), numbers(2)),
        ("abs(r.x - s.x) <= 1", numbers(1), floats(1)),
        ("r.x < s.x", numbers(1), numbers(2)),
        ("abs(r.x - s.x) <= 1 OR r.x - s.x BETWEEN 20 AND 22", numbers(1), numbers(2)),
    ],
)
def test_what_buckets_cannot_serve_is_refused(spark: SparkSession, on: str, r: pa.Array, s: pa.Array) -> None:
    left, right = (spark.createDataFrame(pa.table({"x": side})) for side in (r, s))
    with pytest.raises(mr.ArgumentError, match="strategy='buckets' needs"):
        ms.join(left, right, on=on, strategy="buckets")


def test_it_is_chosen_where_it_seems_faster(spark: SparkSession, settings: SetSettings) -> None:
    """Many rows without a heavy hitter; not with one, not for another device, and not with counts of tasks."""
    settings(broadcastLimit="0")
    even = spark.range(100_000).selectExpr("id", "id * 5 AS x")
    heavy = spark.range(100_000).selectExpr("id", "IF(id % 2 = 0, 7, id * 5) AS x", "IF(id % 2 = 0, 11, id * 5) AS y")
    fewer = spark.range(50_000).selectExpr("id", "id * 10 AS x")
    for home, sides in (("r", (even, fewer)), ("s", (fewer, even))):
        plan = ms.explain("join", *sides, on=BAND).plan
        assert (plan["strategy"], plan["home"]) == ("buckets", home), "rows of the other side are copied"
        assert plan["buckets"].startswith(f"{home}.x in steps of ")
    assert ms.explain("join", heavy, heavy, on="abs(r.x - s.y) <= 3").plan["strategy"] == "range"
    assert ms.explain("join", even, even, on=BAND, metrics=ms.Metrics()).plan["strategy"] == "range"
    assert ms.explain("join", even, even, on=BAND, output="count").plan["strategy"] == "range"
    assert ms.explain("join", even, even, on=BAND, device="rtl").plan["strategy"] == "range"
    with pytest.raises(mr.DeviceUnavailable, match="Spark's own join"):
        ms.join(even, even, on=BAND, device="rtl", strategy="buckets")
    assert ms.join(even, even, on=BAND, shards=3).count() == 100_000
