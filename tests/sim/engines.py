"""Helpers for tests of the simulated engine: runs in its memory, and checks against NumPy.

The tests build at most four configurations of the RTL, KEY_W 32 and 64 with W 1 and 4, and store them in the cache. The
C simulation is built for W 8 too.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from millrace.host.base.types import Array
from millrace.hw.driver import BoundsBatch, Engine
from millrace.hw.transfers import IndexAt, RunAt
from millrace.sim import build, hls_build
from millrace.sim.build import Config
from millrace.sim.hls_build import Shape
from millrace.sim.memory import Memory
from millrace.sim.model import IDLE_CYCLES, Model, timing

U32 = np.dtype(np.uint32)
SHAPES = [(key_bits, lanes) for key_bits in (32, 64) for lanes in (1, 4)]
ENGINES = [("rtl", *shape) for shape in SHAPES] + [("hls", bits, lanes) for bits in (32, 64) for lanes in (1, 4, 8)]


class Board:
    """A simulated engine with its memory: the RTL, or with `kind="hls"` the HLS C++."""

    def __init__(
        self, key_bits: int = 64, lanes: int = 4, memory: str = "ideal", idle: int = IDLE_CYCLES, kind: str = "rtl"
    ) -> None:
        self.memory = Memory()
        is_hls = kind == "hls"
        library = hls_build.library(Shape(key_bits, lanes)) if is_hls else build.library(Config(key_bits, lanes))
        self.model = Model(library, self.memory, timing(memory), idle)
        self.engine = Engine(self.model, self.memory.alloc(1 << 20), 1 << 16)
        self.word: np.dtype[Any] = self.engine.word

    def put(self, data: Array, offset: int = 0) -> int:
        """Copy an array to memory, `offset` elements after the start of a buffer; returns its address."""
        at = self.memory.alloc(max(1, data.nbytes) + offset * data.itemsize) + offset * data.itemsize
        self.model.write_mem(at, data)
        return at

    def marked_array(self, count: int, dtype: np.dtype[Any], offset: int = 0) -> int:
        """Allocate an array filled with a mark, including two elements before and after it; returns its address."""
        return self.put(np.full(count + 4, 0xA5A5A5A5, dtype), offset) + 2 * dtype.itemsize

    def written(self, at: int, count: int, dtype: np.dtype[Any]) -> Array:
        """Read such an array; the elements before and after it must still be marked."""
        around = self.model.read_mem(at - 2 * dtype.itemsize, count + 4, dtype)
        assert (around[[0, 1, -2, -1]] == 0xA5A5A5A5).all(), "written outside the array"
        return around[2:-2]

    def run(self, rng: np.random.Generator, size: int, keys: int, first_id: int = 0) -> tuple[Array, Array]:
        """Sorted words, with many duplicates if `keys` is small, and ids."""
        words = rng.integers(0, keys, size, dtype=np.uint64).astype(self.word)
        ids = (first_id + rng.permutation(size)).astype(np.uint32)
        order = np.lexsort((ids, words))
        return words[order], ids[order]

    def close(self) -> None:
        self.model.close()


def check_merge(board: Board, a: tuple[Array, Array], b: tuple[Array, Array], step: int = 8, offset: int = 0) -> None:
    """A merge with index equals NumPy's sort, and writes nothing else."""
    sizes = len(a[0]), len(b[0])
    runs = [RunAt(board.put(words, offset), board.put(ids, offset), len(words)) for words, ids in (a, b)]
    size, samples = sum(sizes), -(-sum(sizes) // step)
    out = RunAt(board.marked_array(size, board.word, offset), board.marked_array(size, U32, offset), size)
    index = IndexAt(board.marked_array(samples, board.word, offset), step)
    board.engine.merge(runs[0], runs[1], out, index)
    words, ids = np.concatenate([a[0], b[0]]), np.concatenate([a[1], b[1]])
    order = np.lexsort((ids, words))
    np.testing.assert_array_equal(board.written(out.words, size, board.word), words[order])
    np.testing.assert_array_equal(board.written(out.ids, size, U32), ids[order])
    np.testing.assert_array_equal(board.written(index.address, samples, board.word), words[order][::step])


def check_probe(board: Board, words: Array, low: Array, high: Array, step: int = 8, offset: int = 0) -> None:
    """Positions are those of NumPy's binary search."""
    at, index = board.put(words, offset), IndexAt(board.put(words[::step].copy(), offset), step)
    starts, ends = board.marked_array(len(low), U32, offset), board.marked_array(len(low), U32, offset)
    batch = BoundsBatch(len(low), board.put(low, offset), board.put(high, offset), starts, ends)
    board.engine.probe(at, len(words), index, batch)
    np.testing.assert_array_equal(board.written(starts, len(low), U32), np.searchsorted(words, low, "left"))
    np.testing.assert_array_equal(board.written(ends, len(low), U32), np.searchsorted(words, high, "right"))
