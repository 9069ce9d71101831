"""The probe batch carries several keys: an index of two keys gets both, and nothing is left to check on the pairs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import millrace as mr
from millrace.host.expr.plan import bind, search_shape
from millrace.host.join import registry
from millrace.ingest.arguments import parse_condition
from millrace.ingest.choices import HOWS
from tests.host.join.two_keys import TwoKeyIndex, serves_two_keys

CONDITIONS = {
    "r.a < s.a AND r.b > s.b": (("at most", "at least"), ("at least", "at most")),
    "r.a <= s.a AND r.b <= s.b": (("at most", "at most"), ("at least", "at least")),
    "abs(r.a - s.a) < 3 AND abs(r.b - s.b) <= 4": (("range", "range"), ("range", "range")),
    "r.b > s.b AND abs(r.a - s.a) <= 2": (("range", "at least"), ("range", "at most")),
    "r.a <> s.a AND r.b < s.b": (("at most", "ranges"), ("at least", "ranges")),
    "s.a BETWEEN r.a AND r.b": (("at most", "at least"), ("range",)),
    "abs(r.a - s.a) < 3 AND r.b > s.b AND r.c < s.c": (("range", "at least"), ("range", "at most")),
}
"""The keys probed in r and in s, most selective first."""
TWO_KEYS: Any = "two-keys"


@pytest.fixture(autouse=True)
def two_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry.INDEXES, "two-keys", "tests.host.join.two_keys:TwoKeyIndex")
    monkeypatch.setitem(registry.SERVES, "two-keys", serves_two_keys)
    monkeypatch.setattr(TwoKeyIndex, "shapes", [])


def table(rng: np.random.Generator, rows: int, dtype: str) -> pa.Table:
    columns = {name: rng.integers(-6, 7, rows).astype(dtype) for name in "abc"}
    return pa.table({name: pa.array(c, mask=rng.random(rows) < 0.1) for name, c in columns.items()})


@pytest.mark.parametrize("dtype", ["int32", "int64", "float64"])
@pytest.mark.parametrize("on", CONDITIONS)
def test_the_index_gets_both_keys_and_tables_join_the_same(on: str, dtype: str) -> None:
    rng = np.random.default_rng(len(on))
    r, s = table(rng, 60, dtype), table(rng, 50, dtype)
    for how in HOWS:
        assert mr.join(r, s, on=on, how=how, index=TWO_KEYS).equals(mr.join(r, s, on=on, how=how, index="scan"))
    assert TwoKeyIndex.shapes
    for probed, expected in zip(TwoKeyIndex.shapes[0], CONDITIONS[on], strict=True):
        assert sorted(probed) == sorted(expected)


@pytest.mark.parametrize("output", ["pairs", "count"])
@pytest.mark.parametrize("on", CONDITIONS)
def test_streams_join_the_same(on: str, output: Any) -> None:
    joins = [mr.WindowJoin(on=on, window="20 rows", index=index, output=output) for index in (TWO_KEYS, "scan")]
    rng = np.random.default_rng(len(on))
    for batch in range(8):
        rows = table(rng, int(rng.integers(0, 15)), "int64")
        first, second = (join.push("rs"[batch % 2], rows) for join in joins)
        assert first.equals(second)
    assert TwoKeyIndex.shapes[0] == CONDITIONS[on]


@pytest.mark.parametrize("on", [on for on in CONDITIONS if "r.c" not in on and "<> s.a" not in on])
def test_two_keys_leave_nothing_to_check(on: str) -> None:
    schema = pa.schema({name: pa.int64() for name in "abc"})
    plan = bind(parse_condition(on), {"r": schema, "s": schema})
    for side in ("r", "s"):
        assert plan.recheck_of(side, keys=2) == ()
        assert bool(plan.recheck_of(side, keys=1)) == (len(plan.searches[side]) > 1)


def test_an_index_says_which_shapes_it_serves() -> None:
    assert not serves_two_keys(search_shape(parse_condition("r.a < s.a")))
    assert serves_two_keys(search_shape(parse_condition("r.a < s.a AND r.b < s.b")))
    with pytest.raises(mr.ArgumentError, match=r"two-keys.*cannot serve.*bisort"):
        mr.WindowJoin(on="r.a < s.a", window="5 rows", index=TWO_KEYS)
