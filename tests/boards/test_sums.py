"""Sums over transfers: parts add up, the engine's are zlib's, over several clusters and pairs too; and small memory."""

from __future__ import annotations

import zlib
from random import Random

import numpy as np
import pytest

from millrace.host.base.errors import DeviceFault
from millrace.hw.crc import combined, of_beats, sum_of
from millrace.hw.driver import Batch, IndexAt, RunAt
from millrace.hw.link import Shelf
from tests.sim.engines import Board

ROWS, STEP, BOUNDS = 1000, 8, 300


@pytest.mark.parametrize("seed", range(20))
def test_parts_add_up_to_the_whole(seed: int) -> None:
    rng = Random(seed)
    parts = [rng.randbytes(rng.choice((0, 1, 4, 63, 1000))) for _ in range(rng.randrange(1, 6))]
    assert combined((zlib.crc32(part), len(part)) for part in parts) == zlib.crc32(b"".join(parts))


@pytest.mark.parametrize("seed", range(20))
def test_whole_beats_tell_the_sum_of_what_is_in_them(seed: int) -> None:
    rng = Random(seed)
    before, after = rng.randrange(64), rng.randrange(64)
    message = rng.randbytes(rng.choice((1, 4, 63, 1000)))
    beats = bytes(before) + message + bytes(after)
    # zlib's sum of zeros alone is what its inversions make of them.
    remainder = zlib.crc32(beats) ^ zlib.crc32(bytes(len(beats)))
    assert of_beats(remainder, len(message), after) == zlib.crc32(message)


def test_the_engine_sums_as_zlib_does() -> None:
    rng, board = np.random.default_rng(3), Board()
    engine, word = board.engine, board.word
    assert engine.shape.clusters > 1
    assert engine.shape.pairs > 1
    words = [np.sort(rng.integers(0, 1 << 60, ROWS, word)) for _ in range(2)]
    ids = [np.arange(k * ROWS, (k + 1) * ROWS, dtype=np.uint32) for k in range(2)]
    runs = [RunAt(board.put(words[k]), board.put(ids[k]), ROWS) for k in range(2)]
    merged = np.sort(np.concatenate(words))
    out = RunAt(board.memory.take(2 * ROWS * 8), board.memory.take(2 * ROWS * 4), 2 * ROWS)
    index = IndexAt(board.memory.take(ROWS * 8), STEP)
    engine.merge(runs[0], runs[1], out, index)
    sums = engine.sums()
    for name, array in (("A_WORDS", words[0]), ("B_WORDS", words[1]), ("A_IDS", ids[0]), ("B_IDS", ids[1])):
        assert sums[name] == sum_of(array), name
    assert (sums["OUT_WORDS"], sums["OUT_INDEX"]) == (sum_of(merged), sum_of(merged[::STEP].copy()))

    low = np.sort(rng.integers(0, 1 << 60, BOUNDS, word))
    found = [board.memory.take(BOUNDS * 4) for _ in range(2)]
    engine.probe(out.words, out.size, index, Batch(BOUNDS, board.put(low), board.put(low), found[0], found[1]))
    sums = engine.sums()
    assert sums["LOW"] == sums["HIGH"] == sum_of(low)
    assert sums["STARTS"] == sum_of(np.searchsorted(merged, low, "left").astype(np.uint32))
    assert sums["ENDS"] == sum_of(np.searchsorted(merged, low, "right").astype(np.uint32))
    assert sums["INDEX"] == sum_of(merged[::STEP].copy())


def test_a_shelf_gives_no_place_twice() -> None:
    rng, shelf = Random(5), Shelf(1, 1 << 14)
    whole, taken = shelf.room, dict[int, int]()
    for _ in range(2000):
        if taken and rng.random() < 0.5:
            address = rng.choice(sorted(taken))
            shelf.give(address)
            del taken[address]
            continue
        size = rng.choice((1, 128, 129, 1000, 5000))
        try:
            address = shelf.take(size)
        except DeviceFault:
            assert shelf.room < whole
            continue
        assert address % Shelf.ALIGN == 0
        assert all(address + size <= other or other + taken[other] <= address for other in taken)
        taken[address] = size
    for address in taken:
        shelf.give(address)
    assert shelf.room == whole
    assert shelf.take(whole) == Shelf.ALIGN
