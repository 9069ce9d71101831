"""Pairs of few and of many partners in one push, which the collector stores in different ways, equal NumPy's."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

import millrace as mr

Longs = npt.NDArray[np.int64]
ROWS = 20_000


def expected(new: Longs, held: Longs, first: int, width: int) -> tuple[Longs, Longs]:
    """The numbers of new and of held rows of all pairs, in the order of the contract."""
    order = np.argsort(held, kind="stable")
    begin = np.searchsorted(held[order], new - width, "left")
    counts = np.searchsorted(held[order], new + width, "right") - begin
    rows = np.repeat(np.arange(len(new)), counts)
    partners = order[np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts) + np.repeat(begin, counts)]
    in_order = np.lexsort((partners, rows))
    return rows[in_order], first + partners[in_order]


@pytest.mark.parametrize("many", [0, 1, 7, 9, 13, 300])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_few_and_many_partners_side_by_side(many: int, dtype: type) -> None:
    """A tenth of the keys has so many partners, all in one part of the sorted probes; windows have expired rows."""
    rng = np.random.default_rng(many)
    heavy = rng.integers(1 << 25, (1 << 25) + (1 << 20), 2000 // max(many, 1) + 1) * 16

    def keys(share: float) -> Longs:
        light = rng.integers(0, 1 << 29, ROWS)
        chosen = rng.random(ROWS) < share if many else np.zeros(ROWS, np.bool_)
        return np.where(chosen, rng.choice(heavy, ROWS), light).astype(np.int64)

    with mr.WindowJoin(on="abs(r.x - s.x) <= 8", window=f"{ROWS} rows", index="bisort", output="seqs") as join:
        for turn in range(4):
            held, new = keys(0.1), keys(0.1)
            join.push("s", pa.table({"x": held.astype(dtype)}))
            pairs = join.push("r", pa.table({"x": new.astype(dtype)}))
            rows, partners = expected(new, held, turn * ROWS, 8)
            assert pairs.column("r_seq").to_numpy().tolist() == (rows + turn * ROWS).tolist()
            assert pairs.column("s_seq").to_numpy().tolist() == partners.tolist()


@pytest.mark.parametrize("many", range(6, 15))
def test_all_candidates_of_one_run_are_found(many: int) -> None:
    """Some probes have so many partners in one run: those that fit in a cell, in a slot, and in neither.

    They begin behind the first word of a line, so that both lines that a probe reads hold all of them. In lines that
    are cut elsewhere one probe of a block is too long, and the general code searches for the whole block.
    """
    sizes = np.concatenate([[1], np.tile([many, *[1] * (64 - many)], 200)])
    groups: Longs = np.arange(len(sizes), dtype=np.int64)
    new = groups[(groups - 1) % (65 - many) < 6] * 100  # fewer than a fourth of the run, which is searched by its index
    held: Longs = np.random.default_rng(many).permutation(np.repeat(groups * 100, sizes))
    with mr.WindowJoin(on="abs(r.x - s.x) <= 8", window=f"{ROWS} rows", index="bisort", output="seqs") as join:
        join.push("s", pa.table({"x": held}))
        pairs = join.push("r", pa.table({"x": new}))
    rows, partners = expected(new, held, 0, 8)
    assert pairs.column("r_seq").to_numpy().tolist() == rows.tolist()
    assert pairs.column("s_seq").to_numpy().tolist() == partners.tolist()
