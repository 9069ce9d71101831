"""The SPO engine on streams equals a nested loop over the words of both keys."""

from __future__ import annotations

import weakref

import numpy as np
import pytest

from millrace.host.base.types import Array
from millrace.host.join.spo import stream as spo_stream
from millrace.host.join.spo.block_build import Task, task_table
from tests.host.join.spo import streams
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


@pytest.mark.parametrize("size", [300, 4096])
def test_a_step_merges_a_bounded_number_of_rows(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """No step pays for a large merge, and yet merging keeps up, so that blocks stay few."""
    merged: list[int] = []

    def recorded(tasks: list[Array]) -> Array:
        merged.append(sum(int(task[Task.STOP] - task[Task.START]) for task in tasks))
        return task_table(tasks)

    monkeypatch.setattr(spo_stream, "task_table", recorded)
    monkeypatch.setattr(streams, "SAMPLE", 3)
    window, cell = 60_000, 1 << 14
    stream = Stream(11, {"r": WORDS[0][0], "s": WORDS[0][1]}, cell, {"r": window, "s": window}, 2)
    stream.step(window, 0, want=False)
    stream.step(0, window, want=False)
    most, blocks = [0], [0]
    for step in range(200):
        merged.clear()
        stream.step(size * (step % 2), size * (1 - step % 2), want=False)
        most.append(sum(merged))
        blocks.append(max(len(held.blocks) for held in stream.engine._windows.values()))
    # A task is never cut: the table of a block is one, and each side may have one of these.
    assert max(most) <= spo_stream.MERGE_ROWS + spo_stream.MERGE_RATE * size + 2 * cell
    assert sum(most) > 5 * 200 * size
    cells = -(-window // stream.engine._windows["r"].cell_rows)
    assert max(blocks) <= cells + 1 + 12
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
