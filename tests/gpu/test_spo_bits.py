"""The unit `spo_bits` on every device equals a comparison of all ranks with all rectangles."""

from __future__ import annotations

import numpy as np
import pytest

import millrace as mr
from millrace.gpu import driver
from millrace.host.base.types import Array
from millrace.host.device.null import NullBuffer
from millrace.host.device.units import BLOCK_ROWS, TILE_ROWS
from tests.gpu.devices import KINDS, opened, run

SIZES = [(0, 3), (1, 1), (31, 5), (32, 2), (33, 1), (TILE_ROWS - 1, 3), (TILE_ROWS, 1), (TILE_ROWS + 1, 4), (3000, 200)]
U32 = np.dtype(np.uint32)


def block(n: int, dead: float, seed: int) -> Array:
    """Packed ranks of n positions, of which some have no live tuple."""
    rng = np.random.default_rng(seed)
    live = np.flatnonzero(rng.random(n) >= dead)
    packed = np.full(n, 0xFFFFFFFF, np.uint32)
    packed[live] = rng.permutation(len(live)) | rng.permutation(len(live)) << 16
    return packed


def queries(n: int, m: int, most: int, seed: int) -> Array:
    """Random rectangles and intervals; some are empty, some contain everything."""
    rng = np.random.default_rng(seed)
    boxes = np.empty((6, m), np.uint32)
    for line, end in ((0, most), (2, most), (4, n)):
        boxes[line : line + 2] = np.sort(rng.integers(0, end + 1, (2, m)), axis=0)
        everything = rng.random(m) < 0.3
        boxes[line, everything], boxes[line + 1, everything] = 0, end
    return boxes


def matches(packed: Array, boxes: Array) -> Array:
    """Whether each query (row) matches each position (column)."""
    values = (packed & np.uint32(0xFFFF), packed >> np.uint32(16), np.arange(len(packed)))
    inside = [(boxes[2 * k][:, None] <= one) & (one < boxes[2 * k + 1][:, None]) for k, one in enumerate(values)]
    return np.asarray(np.logical_and.reduce(inside))


def compare(device: mr.Device, packed: Array, boxes: Array) -> None:
    """Run the unit with and without bits, and compare both with `matches`."""
    n, m = len(packed), boxes.shape[1]
    words, tiles = -(-n // 32), -(-n // TILE_ROWS)
    wanted = matches(packed, boxes)
    for want in (0, 1):
        outputs = [(want * words * m, np.uint32), (tiles * m, np.uint32)]
        (bits, counts), rows = run(device, "spo_bits", [packed, boxes.ravel()], outputs, [n, m, want])
        assert rows == tiles * m
        starts = np.arange(0, n, TILE_ROWS)
        assert np.array_equal(
            counts.reshape(tiles, m).T,
            np.add.reduceat(wanted, starts, axis=1, dtype=np.int64)[:, :tiles] if n else np.zeros((m, 0)),
        )
        if want:
            found = np.unpackbits(
                np.ascontiguousarray(bits.reshape(words, m).T).view(np.uint8), axis=1, bitorder="little"
            )
            assert not found[:, n:].any()
            assert np.array_equal(found[:, :n].astype(bool), wanted)


@pytest.mark.parametrize("kind", KINDS)
def test_bits_and_counts_equal_a_comparison_of_all(kind: str) -> None:
    with opened(kind) as device:
        for seed, (n, m) in enumerate(SIZES):
            for dead in (0.0, 0.3, 1.0):
                packed = block(n, dead, seed)
                compare(device, packed, queries(n, m, int(np.count_nonzero(packed != 0xFFFFFFFF)), seed))


@pytest.mark.parametrize("kind", ["cpu", "opencl", "cuda-emulated, ballots"])
def test_the_largest_block_uses_all_ranks(kind: str) -> None:
    packed = block(BLOCK_ROWS, 0.0, 1)
    boxes = queries(BLOCK_ROWS, 3, BLOCK_ROWS, 1)
    boxes[:, 0] = [0, BLOCK_ROWS] * 3
    with opened(kind) as device:
        compare(device, packed, boxes)


def test_a_larger_block_is_refused() -> None:
    given = [NullBuffer(1 << 20, U32) for _ in range(4)]
    assert driver.check("toy", "spo_bits", given, (BLOCK_ROWS, 1, 1)).rows == BLOCK_ROWS // TILE_ROWS
    with pytest.raises(mr.DeviceFault, match=r"n=65537, a block has at most 65536 positions"):
        driver.check("toy", "spo_bits", given, (BLOCK_ROWS + 1, 1, 1))


def test_without_bits_their_buffer_may_be_empty() -> None:
    given = [NullBuffer(100, U32), NullBuffer(600, U32), NullBuffer(0, U32), NullBuffer(100, U32)]
    assert driver.check("toy", "spo_bits", given, (100, 100, 0)).rows == 100
    with pytest.raises(mr.DeviceFault, match="bits has 0 elements"):
        driver.check("toy", "spo_bits", given, (100, 100, 1))
