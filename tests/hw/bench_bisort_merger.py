"""cocotb bench of `bisort_merger`: total order, ends of all kinds, merge after merge, no bubbles."""

from __future__ import annotations

import random
from typing import Any

import cocotb
import numpy as np

from tests.hw.reference import ID_W, from_beats, merged, some_tuples, to_beats
from tests.hw.streams import KEY_W, MATRIX, Bench, W, lasts

BITS = KEY_W + ID_W
LENGTHS = (
    [(0, 0), (0, 1), (1, 0), (1, 1), (0, 3 * W + 1), (2 * W, 0), (W, W), (W - 1, 1), (2 * W + 1, 2 * W - 1)]
    + [(0, 0), (3, 61), (61, 2), (37, 41)]
    + [(a, b) for a in range(3) for b in range(W + 2)]
)


def _expected(pairs: list[tuple[list[int], list[int]]]) -> list[list[int]]:
    return [merged(a, b) for a, b in pairs]


async def _merge(dut: Any, pairs: list[tuple[list[int], list[int]]], rhythms: tuple[str, str, str]) -> int:
    bench = Bench(dut, "bisort_merger")
    a, b = bench.source("s_axis_a", rhythms[0]), bench.source("s_axis_b", rhythms[1])
    sink = bench.sink("m_axis", rhythms[2])
    await bench.start()
    for a_run, b_run in pairs:
        a.send(to_beats(a_run, BITS, W))
        b.send(to_beats(b_run, BITS, W))
    cycles = await bench.run(lambda: lasts(sink) == len(pairs))
    await bench.idle(8)
    assert from_beats(sink.beats, BITS, W) == _expected(pairs)
    return cycles


@cocotb.test()
@cocotb.parametrize(idle=[*(f"{name}-{name}" for name in MATRIX), "always-bursts"], pressure=MATRIX)
async def merges(dut: Any, idle: str, pressure: str) -> None:
    """Runs of all lengths, one merge after another, under every rhythm; the inputs' rhythms may differ."""
    rng = np.random.default_rng(random.getrandbits(32))
    # Equal rhythms test every length, others some of them.
    a_idle, b_idle = idle.split("-")
    lengths = LENGTHS if a_idle == b_idle == pressure else random.sample(LENGTHS, 12)
    pairs = [(some_tuples(rng, n, KEY_W), some_tuples(rng, m, KEY_W)) for n, m in lengths]
    await _merge(dut, pairs, (a_idle, b_idle, pressure))


@cocotb.test()
@cocotb.parametrize(skew=[1, 100])
async def has_no_bubbles(dut: Any, skew: int) -> None:
    """W tuples in every cycle, for any ratio of the inputs' lengths, plus the latency of start and sort."""
    rng = np.random.default_rng(random.getrandbits(32))
    beats = 202
    total = beats * W
    short = total // (1 + skew)
    pairs = [(some_tuples(rng, short, KEY_W), some_tuples(rng, total - short, KEY_W))]
    assert await _merge(dut, pairs, ("always", "always", "always")) <= beats + 9


@cocotb.test()
async def takes_all_of_one_first(dut: Any) -> None:
    """One input entirely before the other, equal keys ordered by id, equal tuples on both sides."""
    top = (1 << BITS) - 1
    low, high = list(range(5 * W + 1)), list(range(top - 3 * W, top + 1))
    pairs = [(low, high), (high, low), (low, low), ([top], [top]), ([top] * 3, low)]
    await _merge(dut, pairs, ("always", "always", "always"))
