"""`TableProbe.bounded_blocks`: the same pairs in parts of bounded size, and the same counts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from millrace.join_parts.table_probe import MIN_TRIED_ROWS, TableProbe

BAND = "abs(r.x - s.x) <= 3"
TWO = "r.x < s.x AND r.y > s.y"
RECHECKED = "r.x + s.x <> 50 AND abs(r.x - s.x) <= 3"


def tables(rows: int, seed: int = 1) -> tuple[pa.Table, pa.Table]:
    rng = np.random.default_rng(seed)

    def one(n: int) -> pa.Table:
        keys = pa.array(rng.integers(0, 100, n), mask=rng.random(n) < 0.05)
        return pa.table({"x": keys, "y": rng.integers(0, 100, n)})

    return one(rows), one(1500)


def pairs(blocks: list[Any]) -> set[tuple[int, int]]:
    return {pair for b in blocks for pair in zip(b.rows.tolist(), b.partners.tolist(), strict=True)}


@pytest.mark.parametrize("on", [BAND, TWO])
@pytest.mark.parametrize("rows", [40, 2 * MIN_TRIED_ROWS])
def test_no_block_has_more_pairs_than_allowed(on: str, rows: int) -> None:
    batch, held = tables(rows)
    unbounded = TableProbe.of(on, held, batch.schema, device="cpu", threads=1)
    wanted = unbounded.find_partners(batch)
    probe = TableProbe.of(on, held, batch.schema, device="cpu", threads=1)
    limit = 1_000
    for _ in range(2):  # the first batch finds out that pairs are many, the second one knows
        blocks = list(probe.bounded_blocks(batch, limit))
        assert all(len(b.rows) <= limit or len(b.counts) == 1 for b in blocks)
        assert len(blocks) > 1
        assert [b.first for b in blocks] == np.cumsum([0, *(len(b.counts) for b in blocks)])[:-1].tolist()
        assert np.concatenate([b.counts for b in blocks]).tolist() == wanted.counts.tolist()
        assert pairs(blocks) == pairs([wanted])
    assert probe.stats["asked"] == 2 * unbounded.stats["asked"]
    assert probe.stats["pairs"] == 2 * unbounded.stats["pairs"]
    assert probe.stats["null_keys"]["r"] == 2 * unbounded.stats["null_keys"]["r"]


def test_one_row_may_have_more_pairs() -> None:
    batch, held = pa.table({"x": [1] * 3}), pa.table({"x": [1] * 100})
    probe = TableProbe.of(BAND, held, batch.schema, device="cpu", threads=1)
    assert [len(b.rows) for b in probe.bounded_blocks(batch, 10)] == [100] * 3


def test_few_pairs_are_one_block() -> None:
    batch, held = tables(2 * MIN_TRIED_ROWS)
    probe = TableProbe.of("r.x = s.x AND r.y = s.y", held, batch.schema, device="cpu", threads=1)
    blocks = list(probe.bounded_blocks(batch, 1 << 20))
    assert len(blocks) == 1
    assert pairs(blocks) == pairs([probe.find_partners(batch)])


def test_rechecked_candidates_are_bounded_by_the_matcher() -> None:
    batch, held = tables(2 * MIN_TRIED_ROWS)
    probe = TableProbe.of(RECHECKED, held, batch.schema, device="cpu", threads=1)
    assert pairs(list(probe.bounded_blocks(batch, 100))) == pairs([probe.find_partners(batch)])
