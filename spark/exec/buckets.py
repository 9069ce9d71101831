"""A join by Spark's own equi-join, over equal columns and buckets of a band (`plan/buckets.py`): no row enters Python.

The join has one 64-bit key, a bucket number or a hash of the equal columns and the bucket: that is Spark's fastest
key. The equal columns are compared again, with all other terms, on the pairs that meet. Spark chooses how it joins.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as fn
from pyspark.sql import types as ty

from millrace.spark.plan.buckets import Buckets, group_values, guest_buckets, home_bucket
from millrace.spark.plan.columns import quoted
from millrace.spark.plan.exact_sql import named
from millrace.spark.plan.hows import other_side

_KEYS = {"r": "__millrace_r_key", "s": "__millrace_s_key"}
_BUCKET = "__millrace_bucket"
_SPARK_HOWS = {"inner": "inner", "left": "left_outer", "semi": "left_semi", "anti": "left_anti"}


def bucket_join(
    frames: dict[str, DataFrame],
    buckets: Buckets,
    how: str,
    kept: str,
    shards: int | None,
    wanted: Sequence[tuple[str, str]],
) -> DataFrame:
    """The joined frame, with a column `r_<name>` or `s_<name>` for each `wanted` side and name.

    `kept`: the side that `left`, `semi` and `anti` are about. `shards`: partitions of the shuffle; None: Spark's own.
    """
    sides = {side: _keyed(frames[side], buckets, side) for side in ("r", "s")}
    if shards is not None:
        sides = {side: frame.repartition(shards, fn.col(_KEYS[side])) for side, frame in sides.items()}
    # Spark streams its left side, and compares each of its rows with the right rows of a bucket. Of an inner join the
    # home side goes there: it has fewer rows than the copies of the other side.
    left = buckets.home if how == "inner" else kept
    both = sides[left].join(sides[other_side(left)], fn.expr(_condition(buckets, frames["r"].schema)), _SPARK_HOWS[how])
    return both.selectExpr(*(named(*one) for one in wanted))


def _keyed(frame: DataFrame, buckets: Buckets, side: str) -> DataFrame:
    """A side's columns as in the output, and the key of the join; guest rows once for each of their buckets."""
    schema = frame.schema
    own = [f"{quoted(name)} AS {named(side, name)}" for name in frame.columns]
    values = group_values(buckets.terms.terms, schema, side)
    if buckets.band is not None and side == buckets.home:
        values.append(home_bucket(buckets.band, buckets.width, schema))
    elif buckets.band is not None:
        values.append(_BUCKET)
        frame = frame.selectExpr("*", f"explode({guest_buckets(buckets.band, buckets.width, schema)}) AS {_BUCKET}")
    return frame.selectExpr(*own, f"{_key(values, schema, buckets, side)} AS {_KEYS[side]}")


def _key(values: list[str], schema: ty.StructType, buckets: Buckets, side: str) -> str:
    """SQL: one integer as it is; otherwise a hash of all values, null if one of them is null."""
    if _plain(buckets, schema, side):
        return values[0]
    known = " AND ".join(f"{value} IS NOT NULL" for value in values)
    return f"if({known}, xxhash64({', '.join(values)}), NULL)"


def _plain(buckets: Buckets, schema: ty.StructType, side: str) -> bool:
    """Whether the key is one integer, a bucket or an equal column, so that equal keys need no second look."""
    pairs = buckets.terms.terms.equal
    if len(pairs) + (buckets.band is not None) != 1:
        return False
    return not pairs or isinstance(schema[pairs[0][side == "s"]].dataType, ty.IntegralType)


def _condition(buckets: Buckets, schema: ty.StructType) -> str:
    """The condition of Spark's join: equal keys, and all terms of ours; `schema` is r's.

    Equal columns are compared by `<=` and `>=`: Spark would make keys of the join of them by `=`.
    """
    pairs = () if _plain(buckets, schema, "r") else buckets.terms.terms.equal
    names = [(named("r", r), named("s", s)) for r, s in pairs]
    equal = [f"({r} <= {s} AND {r} >= {s})" for r, s in names]
    return " AND ".join([f"{_KEYS['r']} = {_KEYS['s']}", *equal, *buckets.terms.terms.rest])
