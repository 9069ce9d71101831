"""Checksums of transfers: parts combine, the engine's equal zlib's, also over clusters and pairs; and the free list."""

from __future__ import annotations

import zlib
from random import Random

import numpy as np
import pytest

from millrace.host.base.errors import DeviceFault
from millrace.hw.crc import combined, of_beats, sum_of
from millrace.hw.driver import BoundsBatch
from millrace.hw.link import FreeList
from millrace.hw.transfers import IndexAt, RunAt
from tests.sim.engines import Board

ROWS, STEP, BOUNDS = 1000, 8, 300


@pytest.mark.parametrize("seed", range(20))
def test_sums_of_parts_combine_to_the_sum_of_all(seed: int) -> None:
    rng = Random(seed)
    parts = [rng.randbytes(rng.choice((0, 1, 4, 63, 1000))) for _ in range(rng.randrange(1, 6))]
    assert combined((zlib.crc32(part), len(part)) for part in parts) == zlib.crc32(b"".join(parts))


@pytest.mark.parametrize("seed", range(20))
def test_the_sum_of_full_beats_gives_the_sum_of_the_message(seed: int) -> None:
    rng = Random(seed)
    before, after = rng.randrange(64), rng.randrange(64)
    message = rng.randbytes(rng.choice((1, 4, 63, 1000)))
    beats = bytes(before) + message + bytes(after)
    # The checksum of zeros contains only zlib's inversions.
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
    out = RunAt(board.memory.alloc(2 * ROWS * 8), board.memory.alloc(2 * ROWS * 4), 2 * ROWS)
    index = IndexAt(board.memory.alloc(ROWS * 8), STEP)
    engine.merge(runs[0], runs[1], out, index)
    sums = engine.sums()
    for name, array in (("A_WORDS", words[0]), ("B_WORDS", words[1]), ("A_IDS", ids[0]), ("B_IDS", ids[1])):
        assert sums[name] == sum_of(array), name
    assert (sums["OUT_WORDS"], sums["OUT_INDEX"]) == (sum_of(merged), sum_of(merged[::STEP].copy()))

    low = np.sort(rng.integers(0, 1 << 60, BOUNDS, word))
    found = [board.memory.alloc(BOUNDS * 4) for _ in range(2)]
    engine.probe(out.words, out.size, index, BoundsBatch(BOUNDS, board.put(low), board.put(low), found[0], found[1]))
    sums = engine.sums()
    assert sums["LOW"] == sums["HIGH"] == sum_of(low)
    assert sums["STARTS"] == sum_of(np.searchsorted(merged, low, "left").astype(np.uint32))
    assert sums["ENDS"] == sum_of(np.searchsorted(merged, low, "right").astype(np.uint32))
    assert sums["INDEX"] == sum_of(merged[::STEP].copy())


def test_a_free_list_allocates_no_byte_twice() -> None:
    rng, free_list = Random(5), FreeList(1, 1 << 14)
    all_free, taken = free_list.free_bytes, dict[int, int]()
    for _ in range(2000):
        if taken and rng.random() < 0.5:
            address = rng.choice(sorted(taken))
            free_list.free(address)
            del taken[address]
            continue
        size = rng.choice((1, 128, 129, 1000, 5000))
        try:
            address = free_list.alloc(size)
        except DeviceFault:
            assert free_list.free_bytes < all_free
            continue
        assert address % FreeList.ALIGN == 0
        assert all(address + size <= other or other + taken[other] <= address for other in taken)
        taken[address] = size
    for address in taken:
        free_list.free(address)
    assert free_list.free_bytes == all_free
    assert free_list.alloc(all_free) == FreeList.ALIGN
