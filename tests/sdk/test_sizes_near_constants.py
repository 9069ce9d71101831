"""Pushes and windows whose sizes are next to the constants of the code, in a drawn order, equal a brute force.

Drawn cases of other suites are small or round: rows were lost, or read from memory that was never written, only after
pushes of certain sizes one after the other.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import millrace as mr
from millrace.host.base.types import Array
from millrace.host.data import rowstore, sliding
from millrace.host.join import matcher
from millrace.host.join.panjoin import insertion_buffer, short_matches, small_step, small_step_kernel, subwindow

CONSTANTS = (
    *(rowstore.FEW_ROWS, sliding.FEW, sliding._SMALL, sliding._TAIL, subwindow.SMALL_BATCH),
    *(short_matches.MAX_HELD, small_step_kernel.MAX_SORTED, small_step.MIN_ROOM, small_step.MAX_TUPLES),
    *(insertion_buffer.BUFFER, 8, 64, 128),
)
SIZES = sorted({constant + d for constant in CONSTANTS for d in (-1, 0, 1)})
LARGE = (513, 600, 1500, 2500)
"""More than a small push, and no more than what is merged with one."""
PARTNERS = (1, 4, 8, 9, 10, 11, 12, 13, 32, 33)
"""The most rows of a key."""
CASES = 20
CONDITIONS = {
    "r.x = s.x": ("auto", "bisort", "rap", "wib", "btree", "pim"),
    "abs(r.x - s.x) <= 3": ("auto", "bisort", "rap", "wib", "btree", "pim", "im", "chain"),
    "abs(r.x - s.x) <= 3 AND r.y <> s.y": ("auto", "bisort", "wib", "pim"),
}


def rows(rng: np.random.Generator, count: int, most: int) -> Array:
    """Two columns: keys ten apart, each up to so many times, or all keys in turn; and others."""
    groups = np.repeat(np.arange(400) * 10, rng.integers(0, most + 1, 400))
    keys = rng.permutation(np.resize(groups if len(groups) else np.arange(400), count))
    return np.stack([keys if rng.random() < 0.7 else np.arange(count) % 400 * 10, rng.integers(0, 5, count)])


def partners(on: str, new: Array, held: Array) -> Array:
    """Which held rows match which new ones."""
    near: Array = np.abs(new[0][:, None] - held[0]) <= (0 if on == "r.x = s.x" else 3)
    return np.asarray(near & (new[1][:, None] != held[1])) if "<>" in on else near


@pytest.mark.parametrize("on", CONDITIONS)
def test_two_streams(on: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(len(on))
    for case in range(CASES):
        monkeypatch.setattr(matcher, "STEP_CANDIDATES", int(rng.choice([1, 900, 1 << 22])))
        lengths = {side: int(rng.choice(SIZES if rng.random() < 0.4 else [6000])) for side in "rs"}
        index: Any = rng.choice(CONDITIONS[on])
        join = mr.WindowJoin(on, window=(f"{lengths['r']} rows", f"{lengths['s']} rows"), index=index, output="seqs")
        held = {side: np.zeros((2, 0), np.int64) for side in "rs"}
        most, alone = int(rng.choice(PARTNERS)), int(rng.integers(1, 6))
        for number in range(alone + 3):
            side, other = ("s", "r") if number < alone or rng.random() < 0.3 else ("r", "s")
            new = rows(rng, int(rng.choice((SIZES, SIZES[:12], LARGE)[int(rng.integers(3))])), most)
            first = max(held[other].shape[1] - lengths[other], 0)
            own, found = np.nonzero(partners(on, new, held[other][:, first:]))
            pairs = join.push(side, pa.table({"x": new[0], "y": new[1]}))
            what = (case, index, lengths, side, new.shape[1])
            assert np.array_equal(pairs[f"{side}_seq"].to_numpy(), own + held[side].shape[1]), what
            assert np.array_equal(pairs[f"{other}_seq"].to_numpy(), found + first), what
            held[side] = np.concatenate([held[side], new], axis=1)
        join.close()
