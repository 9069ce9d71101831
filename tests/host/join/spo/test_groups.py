"""Joins of tables with an equality in front equal a nested loop: small groups are compared, large ones searched."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import millrace as mr
from millrace.host.join.spo import groups
from millrace.join_parts.table_probe import TableProbe
from tests.host.join.spo.test_table import OPERATORS, holds, text

TERMS = ["<", ">=", "band"]
SITES: dict[str, Callable[[Any], Any]] = {
    "small numbers": lambda k: k,
    "numbers far apart": lambda k: k * 987_654_321_987_654_321 % (1 << 62) - (1 << 61),
    "text": lambda k: np.array([f"site {one}" for one in k]),
}
VALUES: dict[str, Callable[[Any], Any]] = {
    "int64": lambda v: v,
    "double": lambda v: v * 0.5 - 3.0,
    "int32": lambda v: v.astype(np.int32),
}
COMPARED, SEARCHED = 1 << 20, 0
"""Limits of candidates: all groups are compared, or none."""


def rows(rng: np.random.Generator, count: int, sites: int, site: str, value: str) -> dict[str, Any]:
    a, b = rng.integers(0, 60, (2, count))
    return {"site": SITES[site](rng.integers(0, sites, count)), "a": VALUES[value](a), "b": VALUES[value](b)}


@pytest.mark.parametrize("limit", [COMPARED, SEARCHED])
@pytest.mark.parametrize("site", SITES)
@pytest.mark.parametrize("value", VALUES)
def test_pairs_and_counts_equal_a_nested_loop(
    site: str, value: str, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(groups, "MAX_CANDIDATES", limit)
    rng = np.random.default_rng(9)
    r, s = rows(rng, 300, 7, site, value), rows(rng, 900, 6, site, value)
    for first, second in product(TERMS, repeat=2):
        on = f"r.site = s.site AND {text('a', first, 3)} AND {text('b', second, 4)}"
        found = (r["site"][:, None] == s["site"]) & holds(first, r["a"], s["a"], 3) & holds(second, r["b"], s["b"], 4)
        for threads in (1, 2):
            pairs = mr.join(pa.table(r), pa.table(s), on, index="spo", output="seqs", threads=threads)
            r_seq, s_seq = np.nonzero(found)
            assert np.array_equal(pairs["r_seq"].to_numpy(), r_seq), on
            assert np.array_equal(pairs["s_seq"].to_numpy(), s_seq), on
        counts = mr.join(pa.table(r), pa.table(s), on, index="spo", output="count")
        assert np.array_equal(counts["count"].to_numpy(), found.sum(axis=1)), on


def test_several_equalities_and_rows_that_cannot_match() -> None:
    rng = np.random.default_rng(2)

    def side(count: int) -> pa.Table:
        values = rng.integers(0, 40, (4, count))
        masks = rng.random((4, count)) < 0.1
        columns = [pa.array(one, mask=mask) for one, mask in zip(values, masks, strict=True)]
        columns[0] = pa.array((values[0] % 5) * 10**17, mask=masks[0])
        columns[1] = pa.array(values[1] % 3)
        return pa.table(columns, names=["k", "l", "a", "b"])

    r, s = side(200), side(500)
    on = "r.k = s.k AND r.l = s.l AND r.a <= s.a AND r.b > s.b"
    wanted = mr.join(r, s, on, index="scan", output="seqs")
    assert wanted.num_rows > 300
    assert mr.join(r, s, on, index="spo", output="seqs").equals(wanted)


def test_small_groups_are_compared_and_stats_say_so() -> None:
    rng = np.random.default_rng(4)
    r, s = (pa.table(rows(rng, 4000, 100, "small numbers", "int64")) for _ in range(2))
    on = "r.site = s.site AND r.a < s.a AND r.b > s.b"
    probe = TableProbe.of(on, s, r.schema, index="spo", device="cpu")
    found = probe.find_partners(r)
    assert probe.stats["spo_grouped"] == 4000
    assert OPERATORS["<"](r["a"].to_numpy()[found.rows], s["a"].to_numpy()[found.partners]).all()
    probe.close()
