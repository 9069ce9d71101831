"""Tables and conditions drawn as the conformance suite draws them, held to the types that Spark has."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from tests import oracle
from tests.conformance.cases import Shape, build, random_shape

KINDS = [
    ("int32", "int32"),
    ("int64", "int64"),
    ("int64", "int32"),
    ("int8", "int16"),
    ("float32", "float64"),
    ("float64", "float64"),
    ("int64", "float64"),
    ("float32", "int64"),
    ("timestamp_us", "timestamp_us"),
    ("timestamp_us_utc", "timestamp_us_utc"),
    ("date32", "date32"),
    ("date32", "timestamp_us"),
]
CODES = [("string", "string"), ("binary", "binary"), ("bool", "bool"), ("decimal128", "decimal128_wide")]
NUMBERS = [pair for pair in KINDS if "a" not in pair[0].replace("float", "")]
Pairs = Counter[tuple[int | None, int | None]]


@dataclass(frozen=True)
class Drawn:
    """Two tables with a row number each, a condition, and what the oracle finds."""

    name: str
    on: str
    r: pa.Table
    s: pa.Table
    partners: list[list[int]]

    def wanted(self, how: str) -> Pairs:
        """Pairs of row numbers; None stands where there is no row of a side."""
        found: Pairs = Counter()
        for r, partners in enumerate(self.partners):
            if how in ("inner", "left", "right", "full"):
                found.update((r, s) for s in partners)
            if (how == "semi" and partners) or (how in ("left", "full", "anti") and not partners):
                found[r, None] += 1
        if how in ("right", "full"):
            matched = {s for partners in self.partners for s in partners}
            found.update((None, s) for s in range(self.s.num_rows) if s not in matched)
        return found


def draw(seed: int, most_rows: int = 250, **chosen: Any) -> Drawn:
    """A case of a seed; `chosen` are fields of its shape, such as `family`."""
    rng = Random(seed)
    shape: Shape = replace(random_shape(rng), **chosen)
    numbers_only = not any(letter in "".join(shape.key_kinds) for letter in ("timestamp", "date"))
    kinds = rng.choice(NUMBERS if numbers_only else KINDS)
    shape = replace(
        shape,
        key_kinds=kinds,
        other_kinds=rng.choice(NUMBERS if numbers_only else KINDS),
        code_kinds=rng.choice(CODES),
        rows=(min(shape.rows[0], most_rows), min(shape.rows[1], most_rows)),
        window="rows",
        time_kinds=None,
        time_term=False,
        self_join=False,
        sources=(1, 1),
        payload=0,
    )
    case = build(shape)
    tables = {side: case.feeds[side].table for side in ("r", "s")}
    known = {side: case.feeds[side].known(0, len(case.feeds[side])) for side in ("r", "s")}
    numbered = {side: _numbered(table) for side, table in tables.items()}
    partners = oracle.matches(known["r"], known["s"], case.on)
    return Drawn(f"seed {seed}, {shape.family}: {case.on}", case.on, numbered["r"], numbered["s"], partners)


def _numbered(table: pa.Table | None) -> pa.Table:
    assert table is not None
    return table.append_column("row number", pa.array(range(table.num_rows), pa.int64()))


def frames(spark: SparkSession, drawn: Drawn) -> tuple[DataFrame, DataFrame]:
    """The tables in Spark, in two partitions each."""
    r, s = (spark.createDataFrame(table) for table in (drawn.r, drawn.s))
    return r, s


def found(rows: DataFrame) -> Pairs:
    """Pairs of row numbers of a join's result."""
    names = ["r_row number"] + (["s_row number"] if "s_row number" in rows.columns else [])
    table = rows.select(*(f"`{name}`" for name in names)).toArrow()
    columns: list[list[Any]] = [column.to_pylist() for column in table.columns]
    return Counter((row[0], row[1] if len(row) > 1 else None) for row in zip(*columns, strict=True))
