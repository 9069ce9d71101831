"""The SPO engine on streams equals a nested loop over the words of both keys."""

from __future__ import annotations

import weakref

import numpy as np
import pytest

from tests.host.join.spo.streams import Stream

U32, U64 = "uint32", "uint64"
WORDS = [((U64, U64), (U64, U64)), ((U32, U32), (U32, U32)), ((U32, U64), (U64, U32))]


@pytest.mark.parametrize("seed", range(30))
def test_small_blocks_of_interleaved_streams(seed: int) -> None:
    rng = np.random.default_rng(seed)
    r, s = WORDS[seed % 3]
    window = {"r": int(rng.integers(1, 900)), "s": int(rng.integers(1, 900))}
    stream = Stream(seed, {"r": r, "s": s}, int(rng.choice([16, 64, 256])), window, 1 + seed % 2)  # type: ignore[arg-type]
    most = int(rng.choice([1, 5, 60, 300]))
    for _ in range(min(3000 // most, 120)):
        sides = rng.choice(["r", "s", "both"])
        n = int(rng.integers(0, most + 1))
        stream.step(
            n if sides != "s" else 0, int(rng.integers(0, most + 1)) if sides != "r" else 0, bool(rng.random() < 0.5)
        )
    stream.engine.close()


@pytest.mark.parametrize("seed", range(16))
def test_large_blocks(seed: int) -> None:
    rng = np.random.default_rng(1000 + seed)
    r, s = WORDS[seed % 3]
    window = {"r": int(rng.integers(20_000, 90_000)), "s": int(rng.integers(2_000, 200_000))}
    merge_rows = int(rng.choice([4096, 10_000, 1 << 16, 1 << 20]))
    stream = Stream(seed, {"r": r, "s": s}, merge_rows, window, 1 + seed % 2)  # type: ignore[arg-type]
    for _ in range(14):
        size = int(rng.choice([1, 700, 5_000, 35_000]))
        sides = rng.choice(["r", "s", "both"])
        want = bool(rng.random() < 0.5) and size < 1_000
        stream.step(size if sides != "s" else 0, size if sides != "r" else 0, want)
    stream.engine.close()


@pytest.mark.parametrize(("r", "s"), WORDS)
def test_wide_ranges_with_few_matches(r: tuple[str, str], s: tuple[str, str]) -> None:
    window = {"r": 60_000, "s": 50_000}
    stream = Stream(7, {"r": r, "s": s}, 1 << 16, window, 2)  # type: ignore[arg-type]
    stream.correlated, stream.dead = True, 0.0
    for size in (60_000, 200, 9_000, 200):
        stream.step(size, 0, size == 200)
        stream.step(0, size, size == 200)
    assert stream.engine.counters()["spo_chunks"] > 0
    stream.engine.close()


def test_close_frees_all_memory() -> None:
    stream = Stream(3, {"r": WORDS[0][0], "s": WORDS[0][1]}, 1 << 16, {"r": 90_000, "s": 90_000}, 1)
    for _ in range(3):
        stream.step(9_000, 9_000, want=False)
    blocks = [block for window in stream.engine._windows.values() for block in window.blocks]
    memory = [weakref.ref(block.memory) for block in blocks]
    assert memory
    assert sum(block.memory.nbytes for block in blocks) < 40 * sum(len(block) for block in blocks) + 10_000 * len(
        blocks
    )
    stream.engine.close()
    del blocks
    assert [one() for one in memory] == [None] * len(memory)
