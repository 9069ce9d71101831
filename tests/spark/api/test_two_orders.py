"""`ms.join` on two order terms: the oracle's pairs by every `how`; `ms.explain` says which way and why.

`ms.window_join` on such a condition is a case of `test_window_join.py`.
"""

from __future__ import annotations

from typing import Any, get_args

import pytest
from pyspark.sql import SparkSession

import millrace as mr
from millrace import spark as ms
from millrace.spark.api.join import join_request
from millrace.spark.exec import shuffle
from millrace.spark.plan.hows import How, read_how
from millrace.spark.plan.routing import Blocks
from millrace.spark.plan.strategy import StrategyName, choose
from tests.spark.cases import draw, found, frames
from tests.spark.conftest import SetSettings
from tests.spark.sessions import GROUP

pytestmark = GROUP
HOWS: list[Any] = sorted({read_how(name) for name in get_args(How)})
POWER = "r.power < s.power AND r.cool > s.cool"
NEAR = "abs(r.lon - s.lon) < 0.03 AND abs(r.lat - s.lat) < 0.03"


@pytest.mark.parametrize("strategy", ["broadcast", "grid"])
def test_every_how_equals_the_oracle(spark: SparkSession, strategy: StrategyName) -> None:
    """Numbers of any type, and enough rows for tasks to use the index rather than to compare all pairs."""
    for seed, how in enumerate(HOWS, len(strategy)):
        family = ("two orders", "two inequalities")[seed % 2]
        drawn = draw(seed, family=family, key_kinds=("int64", "int64"), rows=(250, 230), nulls=0.05, filters=0)
        result = ms.join(*frames(spark, drawn), on=drawn.on, how=how, strategy=strategy, device="cpu")
        assert found(result) == drawn.wanted(how), f"{how}: {drawn.name}"


def test_explain_names_the_strategy_and_the_index(spark: SparkSession, settings: SetSettings) -> None:
    racks = spark.range(5000).selectExpr("id AS power", "id % 97 AS cool")
    trips = spark.range(5000).selectExpr("id / 100 AS lon", "(id % 97) / 100 AS lat")
    wanted = {
        POWER: ("grid", "the condition bounds r.power and r.cool on one end each", "two keys of the kind 'at least'"),
        NEAR: ("range", "the condition bounds r.lon on both ends", "two keys of the kind 'range'"),
    }
    small = ms.explain("join", racks, racks, on=POWER, device="cpu")
    assert (small.plan["strategy"], small.index["name"]) == ("broadcast", "spo")
    settings(broadcastLimit="1000")
    for frame, on in ((racks, POWER), (trips, NEAR)):
        strategy, why, keys = wanted[on]
        plan = ms.explain("join", frame, frame, on=on, strategy=strategy, device="cpu")
        assert (plan.plan["strategy"], plan.plan["why"]) == (strategy, why)
        assert plan.index["name"] == "spo"
        assert keys in plan.index["why"]


def test_blocks_that_cannot_match_get_no_rows(spark: SparkSession) -> None:
    """Along a diagonal each row of s has partners in few blocks; the pairs are those of one task."""
    frame = spark.range(3000).selectExpr("id", "id AS power", "id + id * 7 % 40 AS cool")
    request = join_request(frame, frame, POWER, "inner", None, "grid", shards=16)
    chosen = choose(request)
    assert isinstance(chosen.cells, Blocks)
    assert chosen.cells.shards >= 12
    rows, _ = shuffle.shuffle_sides(request.frames, request.condition, chosen.route, chosen.cells, chosen.home, False)
    copies = rows.where(shuffle.SIDE).count() / 3000
    assert 1 <= copies < 5, "one inequality alone would send half of the blocks"
    for how in ("inner", "anti"):
        found_rows = ms.join(frame, frame, on=POWER, how=how, strategy="grid", shards=16, device="cpu")
        table = frame.toArrow()
        assert found_rows.count() == mr.join(table, table, on=POWER, how=how, output="seqs").num_rows > 0


def test_text_in_front_of_two_orders(spark: SparkSession) -> None:
    """Tables and streams search both order terms with the equality; rows are those of the nested loop."""
    frame = spark.range(900).selectExpr(
        "id",
        "id * 37 % 900 AS power",
        "id * 91 % 613 AS cool",
        "IF(id % 11 = 0, NULL, concat('site ', id % 4)) AS site",
    )
    on, table = f"r.site = s.site AND {POWER}", frame.toArrow()
    for how in ("inner", "anti"):
        rows = ms.join(frame, frame, on=on, how=how, strategy="broadcast", device="cpu")
        seqs = mr.join(table, table, on=on, how=how, index="scan", output="seqs")
        assert rows.count() == seqs.num_rows > 0
    plan = ms.explain("join", frame, frame, on=on, strategy="broadcast", device="cpu")
    assert plan.index["name"] == "spo"
    assert "behind an equality" in plan.index["why"]


def test_bands_go_by_range(spark: SparkSession) -> None:
    frame = spark.range(1200).selectExpr("id", "(id * 37 % 1200) / 500D AS lon", "(id * 91 % 1200) / 500D AS lat")
    table = frame.toArrow()
    for how in ("left", "anti"):
        rows = ms.join(frame, frame, on=f"{NEAR} AND r.id <> s.id", how=how, strategy="range", device="cpu")
        seqs = mr.join(table, table, on=f"{NEAR} AND r.id <> s.id", how=how, index="scan", output="seqs")
        assert rows.count() == seqs.num_rows
