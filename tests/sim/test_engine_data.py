"""The simulated engines, RTL and HLS, against NumPy: commands of all lengths, unaligned slices, both memories."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

import numpy as np
import pytest

from millrace.hw.driver import BoundsBatch
from millrace.hw.transfers import IndexAt, RunAt
from tests.sim.engines import ENGINES, SHAPES, U32, Board, check_merge, check_probe

SIZES = [(1, 0), (0, 1), (1, 1), (3, 2), (7, 9), (64, 64), (100, 1), (1, 300), (129, 517), (1000, 900), (20, 3000)]


@pytest.fixture(params=ENGINES, ids="{0[0]}-key{0[1]}-w{0[2]}".format, scope="module")
def board(request: pytest.FixtureRequest) -> Iterator[Board]:
    """An engine of each configuration, of the RTL and of the HLS C++."""
    kind, key_bits, lanes = request.param
    made = Board(key_bits, lanes, kind=kind)
    yield made
    made.close()


@pytest.fixture(params=SHAPES, ids="key{0[0]}-w{0[1]}".format)
def rtl_board(request: pytest.FixtureRequest) -> Iterator[Board]:
    """An engine of each configuration, of the RTL alone."""
    made = Board(*request.param)
    yield made
    made.close()


@pytest.mark.parametrize("keys", [1, 5, 1 << 31])
@pytest.mark.parametrize("offset", [0, 1, 2, 3, 7])
def test_merge(board: Board, keys: int, offset: int) -> None:
    rng = np.random.default_rng([keys, offset])
    for a_n, b_n in SIZES:
        runs = board.run(rng, a_n, keys), board.run(rng, b_n, keys, a_n)
        check_merge(board, *runs, step=int(rng.choice([8, 16, 64])), offset=offset)


def test_the_largest_words_and_ids_are_ordinary(board: Board) -> None:
    top = np.full(40, np.iinfo(board.word).max, board.word)
    ids = np.arange(2**32 - 80, 2**32, dtype=np.uint64).astype(np.uint32)
    check_merge(board, (top, ids[::2].copy()), (top, ids[1::2].copy()))
    check_probe(board, top, top[:3].copy(), top[:3].copy())


def test_slices_of_clusters_meet(board: Board) -> None:
    rng = np.random.default_rng(3)
    for size in (64, 65, 127, 128, 129, 255, 1023):
        # One run entirely before the other: slices are cut at the ends of the runs.
        low, high = board.run(rng, size, 100), board.run(rng, size, 100, size)
        high = high[0] + board.word.type(200), high[1]
        check_merge(board, low, high)
        check_merge(board, high, low)


@pytest.mark.parametrize("keys", [2, 300, 1 << 31])
@pytest.mark.parametrize("offset", [0, 1, 3])
def test_probe(board: Board, keys: int, offset: int) -> None:
    rng = np.random.default_rng([keys, offset])
    for size in (1, 7, 8, 9, 63, 500, 3000):
        words, _ = board.run(rng, size, keys)
        for bounds in (1, 2, 17, 128, 400):
            low, high = (board.run(rng, bounds, keys + 3)[0] for _ in range(2))
            check_probe(board, words, low, high, int(rng.choice([8, 16, 128])), offset)


def test_a_band_saturates(board: Board) -> None:
    rng = np.random.default_rng(1)
    words, _ = board.run(rng, 777, 1000)
    keys = np.sort(rng.integers(0, 1000, 90).astype(board.word))
    below, above, least, most = 40, 70, 10, 950
    starts, ends = board.marked_array(90, U32), board.marked_array(90, U32)
    at = board.put(keys)
    batch = BoundsBatch(90, at, at, starts, ends, (below, above, least, most))
    board.engine.probe(board.put(words), 777, IndexAt(board.put(words[::16].copy()), 16), batch)
    signed = keys.astype(np.int64)
    low, high = np.maximum(signed - below, least), np.minimum(signed + above, most)
    np.testing.assert_array_equal(
        board.written(starts, 90, U32), np.searchsorted(words, low.astype(board.word), "left")
    )
    np.testing.assert_array_equal(
        board.written(ends, 90, U32), np.searchsorted(words, high.astype(board.word), "right")
    )


def test_index(board: Board) -> None:
    rng = np.random.default_rng(2)
    for size in (1, 8, 9, 300, 5000):
        words, _ = board.run(rng, size, 1 << 20)
        for step in (8, 32, 4096):
            samples = -(-size // step)
            index = IndexAt(board.marked_array(samples, board.word, 1), step)
            board.engine.index(board.put(words, 3), size, index)
            np.testing.assert_array_equal(board.written(index.address, samples, board.word), words[::step])


def test_an_index_is_loaded_again_only_when_it_may_have_changed(board: Board) -> None:
    words = np.arange(0, 2000, 2).astype(board.word)
    at, index = board.put(words), IndexAt(board.put(words[::8].copy()), 8)
    bounds = board.put(np.array([5, 900], board.word))
    batch = BoundsBatch(2, bounds, bounds, board.marked_array(2, U32), board.marked_array(2, U32))

    def loaded() -> int:
        before = board.engine.counters()["index_rows"]
        board.engine.probe(at, len(words), index, batch)
        np.testing.assert_array_equal(board.written(batch.starts, 2, U32), [3, 450])
        return board.engine.counters()["index_rows"] - before

    assert [loaded(), loaded()] == [125, 0]
    board.engine.forget(index.address)
    assert loaded() == 125


def test_an_index_too_large_for_the_chip_is_thinned_out(board: Board) -> None:
    size = 8 * board.engine.shape.index_depth + 800
    words = np.arange(size).astype(board.word)
    check_probe(board, words, words[5:400:7].copy(), words[9:404:7].copy())


def test_crcs_are_those_of_the_bytes(rtl_board: Board) -> None:
    board, rng = rtl_board, np.random.default_rng(4)
    a, b = board.run(rng, 18, 1000), board.run(rng, 11, 1000, 18)  # too few for a second cluster
    check_merge(board, a, b, offset=1)
    found = board.engine.sums()
    names = ("A_WORDS", "A_IDS", "B_WORDS", "B_IDS", "OUT_WORDS", "OUT_IDS", "OUT_INDEX")
    words, ids = np.concatenate([a[0], b[0]]), np.concatenate([a[1], b[1]])
    order = np.lexsort((ids, words))
    arrays = (*a, *b, words[order], ids[order], words[order][::8])
    assert found == {name: zlib.crc32(array.tobytes()) for name, array in zip(names, arrays, strict=True)}
    check_probe(board, words[order], a[0], a[0])
    found = board.engine.sums()
    assert found["LOW"] == zlib.crc32(a[0].tobytes())
    assert found["STARTS"] == zlib.crc32(np.searchsorted(words[order], a[0], "left").astype(np.uint32).tobytes())


def test_counters_count_every_row(board: Board) -> None:
    rng = np.random.default_rng(5)
    before = board.engine.counters()
    check_merge(board, board.run(rng, 300, 99), board.run(rng, 200, 99, 300))
    words, _ = board.run(rng, 640, 99)
    check_probe(board, words, words[::2].copy(), words[::2].copy())
    after = board.engine.counters()
    more = {name: after[name] - before[name] for name in after}
    wanted = {"merger_rows": 500, "indexer_rows": 500, "samples": 63, "low_rows": 320, "high_rows": 320, "commands": 2}
    assert {name: more[name] for name in wanted} == wanted


@pytest.mark.parametrize("memory", ["ideal", "ddr3"])
def test_the_memory_limits_as_it_says(memory: str) -> None:
    board = Board(32, 4, memory)
    rng = np.random.default_rng(6)
    size = 40_000
    a, b = board.run(rng, size, 1 << 31), board.run(rng, size, 1 << 31, size)
    runs = [RunAt(board.put(words), board.put(ids), size) for words, ids in (a, b)]
    out = RunAt(board.marked_array(2 * size, board.word), board.marked_array(2 * size, U32), 2 * size)
    cycles = board.engine.merge(runs[0], runs[1], out)
    shape = board.engine.shape
    ideal = 2 * size / (shape.lanes * shape.clusters)
    busy = [board.model.busy(channel) for channel in range(2)]
    if memory == "ideal":
        assert ideal < cycles < 1.03 * ideal
        assert busy == [0, 0]
    else:
        # 16 bytes per tuple over two channels of 33.77 bytes a cycle: more mergers would not help.
        bound = 2 * size * 16 / (2 * 33.77)
        assert bound < cycles < 1.05 * bound
        assert all(0.9 * cycles < channel <= cycles for channel in busy)
    board.close()


@pytest.mark.parametrize(("key_bits", "lanes"), [(32, 1), (64, 4)])
def test_ids_may_be_answered_in_any_order(key_bits: int, lanes: int) -> None:
    board = Board(key_bits, lanes, "shuffled")
    rng = np.random.default_rng(8)
    for sizes, offset in (((3000, 1), 0), ((700, 900), 3), ((1, 5), 1)):
        check_merge(board, board.run(rng, sizes[0], 500), board.run(rng, sizes[1], 500, sizes[0]), offset=offset)
    words, _ = board.run(rng, 5000, 900)
    bounds = np.sort(rng.integers(0, 910, 700).astype(board.word))
    check_probe(board, words, bounds, bounds)
    board.close()
