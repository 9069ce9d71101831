"""cocotb bench of `bisort_indexer`: the stream passes unchanged, samples are those at multiples of the step."""

from __future__ import annotations

import random
from typing import Any

import cocotb
import numpy as np

from tests.hw.reference import ID_W, from_beats, samples, some_tuples, to_beats
from tests.hw.streams import KEY_W, MATRIX, Bench, W, lasts

BITS = KEY_W + ID_W


@cocotb.test()
@cocotb.parametrize(idle=MATRIX, pressure=MATRIX, index_pressure=MATRIX)
async def samples_while_passing(dut: Any, idle: str, pressure: str, index_pressure: str) -> None:
    """Slices at any position, with many, one and no samples, one after another."""
    rng = np.random.default_rng(random.getrandbits(32))
    bench = Bench(dut, "bisort_indexer")
    source = bench.source("s_axis", idle)
    sink = bench.sink("m_axis", pressure)
    index = bench.sink("m_index", index_pressure)
    await bench.start()
    expected, sampled = [], []
    for n in (0, 1, 8, 9, 17, random.randrange(40), random.randrange(70)):
        log2 = random.choice([3, 3, 4, 5])
        first = random.choice([0, 1, 7, 8, random.randrange(1000), (1 << 32) - 200])
        run = some_tuples(rng, n, KEY_W)
        bench.set(step_log2=log2, first=first)
        expected.append(run)
        sampled.append(samples([value >> ID_W for value in run], first, 1 << log2))
        source.send(to_beats(run, BITS, W))
        done = len(expected)
        await bench.run(lambda done=done: lasts(sink) == done and lasts(index) == done)  # type: ignore[misc]
    await bench.idle(8)
    assert from_beats(sink.beats, BITS, W) == expected
    assert from_beats(index.beats, KEY_W, 1) == sampled


@cocotb.test()
async def has_no_bubbles(dut: Any) -> None:
    """A beat in every cycle, also at the smallest step."""
    rng = np.random.default_rng(random.getrandbits(32))
    bench = Bench(dut, "bisort_indexer")
    source = bench.source("s_axis", "always")
    sink = bench.sink("m_axis", "always")
    index = bench.sink("m_index", "always")
    bench.set(step_log2=3, first=5)
    await bench.start()
    source.send(to_beats(some_tuples(rng, 200 * W, KEY_W), BITS, W))
    assert await bench.run(lambda: lasts(sink) == 1) <= 200 + 4
    await bench.run(lambda: lasts(index) == 1)
