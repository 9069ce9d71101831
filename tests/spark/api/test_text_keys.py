"""`ms.join`, `ms.window_join` and `ms.explain` with `=` and `<>` on text, binary, booleans and decimals."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any, cast

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import millrace as mr
from millrace import spark as ms
from millrace.spark.api.join import join_request
from millrace.spark.plan.routing import Cells
from millrace.spark.plan.strategy import choose
from tests.spark import stream_cases as sc
from tests.spark.cases import Drawn, frames
from tests.spark.cases import found as found_pairs
from tests.spark.sessions import GROUP

pytestmark = GROUP
HOWS = ("inner", "left", "semi", "anti")
SITES = ["A", "B", "é", "", "a", "longer than the others", None]
CONDITIONS = {
    "text": "r.site = s.site",
    "text and band": "r.site = s.site AND abs(r.x - s.x) <= 8",
    "text and order": "r.site = s.site AND r.x < s.x",
    "text and literals": "r.site = s.site AND r.x < s.x AND s.site <> 'A' AND r.flag = TRUE",
    "other text": "r.site <> s.site AND r.x = s.x",
    "binary": "r.data = s.data AND r.data <> X'00'",
    "boolean": "r.flag = s.flag AND r.x = s.x",
    "decimals of two precisions": "r.price = s.price AND s.price <> 1.5",
}


def table(seed: int, digits: int, rows: int = 150) -> pa.Table:
    """Rows with nulls in every column; a third of them are of one site."""
    rng = Random(seed)
    sites = [SITES[0] if rng.random() < 0.3 else rng.choice(SITES) for _ in range(rows)]

    def some(draw: Any) -> list[Any]:
        return [None if rng.random() < 0.05 else draw() for _ in range(rows)]

    prices = pa.array(some(lambda: Decimal(rng.randrange(-6, 7)) / 2), pa.decimal128(digits, 2))
    return pa.table(
        {
            "site": pa.array(sites, pa.string()),
            "x": pa.array(some(lambda: rng.randrange(60)), pa.int64()),
            "data": pa.array(some(lambda: bytes([rng.randrange(4)]) * rng.randrange(3)), pa.binary()),
            "flag": pa.array(some(lambda: rng.random() < 0.5), pa.bool_()),
            "price": prices,
            "row number": range(rows),
        }
    )


def drawn(on: str) -> Drawn:
    r, s = table(1, digits=9), table(2, digits=30)
    inner = mr.join(r, s, on=on, output="seqs")  # held to the oracle by tests/conformance
    partners: list[list[int]] = [[] for _ in range(r.num_rows)]
    for a, b in zip(inner["r_seq"].to_pylist(), inner["s_seq"].to_pylist(), strict=True):
        partners[a].append(b)
    assert sum(map(len, partners)) > 20
    return Drawn(on, on, r, s, partners)


@pytest.mark.parametrize("strategy", ["broadcast", "range", "grid"])
@pytest.mark.parametrize("name", CONDITIONS)
def test_every_strategy_gives_every_pair_once(spark: SparkSession, name: str, strategy: str) -> None:
    case = drawn(CONDITIONS[name])
    r, s = frames(spark, case)
    hows = HOWS if name == "text" else HOWS[len(name) % 4 :][:1]
    for how in hows:
        rows = ms.join(r, s, on=case.on, how=cast(Any, how), strategy=cast(Any, strategy), device="cpu")
        assert found_pairs(rows) == case.wanted(how), how


def test_text_is_routed_by_its_hash_unless_a_band_is_there(spark: SparkSession) -> None:
    r, s = frames(spark, drawn(CONDITIONS["text"]))
    alone = choose(join_request(r, s, CONDITIONS["text"], "left", None, "range"))
    assert alone.route is not None
    assert isinstance(alone.cells, Cells)
    assert (alone.route.column, alone.route.hashed) == ("site", True)
    assert alone.cells.shards > 1
    assert max(alone.cells.ways) > 1, "the most frequent site is a heavy hitter"
    entries = alone.describe()
    assert "compares r.site, which has no order, by =" in entries["why"]
    assert entries["cells"].endswith("by a hash of r.site")
    band = choose(join_request(r, s, CONDITIONS["text and band"], "left", None, "range"))
    assert band.route is not None
    assert (band.route.column, band.route.hashed) == ("x", False)
    assert "r.site = s.site" in str(ms.explain("join", r, s, on=CONDITIONS["text"]))


def test_splits_are_of_numbers_or_times(spark: SparkSession) -> None:
    r, s = frames(spark, drawn(CONDITIONS["text"]))
    with pytest.raises(mr.ArgumentError, match="numbers or times"):
        ms.join(r, s, on=CONDITIONS["text"], splits=["A"])
    with pytest.raises(mr.ArgumentError, match="numbers or times"):
        ms.splits(r, s, on=CONDITIONS["text"])
    assert len(ms.splits(r, s, on=CONDITIONS["text and order"], shards=3)) == 2
    case = drawn(CONDITIONS["text and order"])
    rows = ms.join(r, s, on=case.on, how="left", splits=[20, 40], device="cpu")
    assert found_pairs(rows) == case.wanted("left")


def test_null_texts_are_counted_as_null_keys(spark: SparkSession) -> None:
    case = drawn(CONDITIONS["text"])
    r, s = frames(spark, case)
    metrics = ms.Metrics()
    ms.join(r, s, on=case.on, strategy="range", device="cpu", metrics=metrics).count()
    counts = metrics.get
    assert counts["r_null_keys"] == case.r["site"].null_count
    assert counts["s_null_keys"] == case.s["site"].null_count


@pytest.mark.parametrize(
    ("on", "more"),
    [
        ("r.site = s.site AND abs(r.x - s.x) <= 30", {}),
        ("r.site = s.site AND abs(r.x - s.x) <= 30", {"splits": [60, 120]}),
        ("r.site = s.site AND r.y <> s.y AND r.site <> 'site 1'", {"shards": 2}),
    ],
)
def test_a_window_join_by_text(spark: SparkSession, on: str, more: dict[str, Any], tmp_path: Path) -> None:
    streams = sc.draw(8, on=on, rows=80)
    for side in (streams.r, streams.s):
        for i, batch in enumerate(side):
            sites = [f"site {n % 5}" if n % 7 else None for n in batch["id"].to_pylist()]
            side[i] = batch.append_column("site", pa.array(sites, pa.string()))
    sc.write(streams, tmp_path)
    r, s = (sc.read(spark, tmp_path, side) for side in "rs")
    query = sc.run(ms.window_join(r, s, **{**streams.arguments(), "device": "cpu", **more}), tmp_path)
    wanted = streams.wanted()
    assert len(wanted) > 50
    sc.same(sc.found(tmp_path), wanted)
    every = pa.concat_tables(streams.r)
    empty = {row["id"] for row in every.to_pylist() if row["site"] is None or (row["x"] is None and "r.x" in on)}
    counted = sum(one["r_null_keys"] for one in sc.counts(query))
    if "r.y" not in on:
        assert counted == len(empty)
    assert counted >= len(empty)
