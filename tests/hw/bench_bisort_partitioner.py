"""cocotb bench of `bisort_partitioner`: loading an index, both directions, one bound per cycle, near and far."""

from __future__ import annotations

import random
from typing import Any

import cocotb
import numpy as np

from tests.hw.reference import Words, partitions, some_words, to_beats
from tests.hw.simulate import SMALL
from tests.hw.streams import KEY_W, MATRIX, Bench, Sink, W, lasts

DEPTH = SMALL["INDEX_DEPTH"]
PART_W = SMALL["PART_W"]


def _bounds(rng: np.random.Generator, index: Words, n: int) -> Words:
    """Ascending bounds: some anywhere, some equal to samples or next to them."""
    if not len(index):
        return some_words(rng, n, KEY_W)
    near = rng.choice(index, size=n) + rng.integers(-1, 2, size=n).astype(np.uint64)
    mask = np.uint64((1 << KEY_W) - 1)
    return np.sort(np.where(rng.random(n) < 0.6, near & mask, some_words(rng, n, KEY_W)))


def _found(sink: Sink, first: int) -> tuple[list[int], list[int | None]]:
    beats = [beat for beat in sink.beats[first:] if beat.keep]
    found = [None if beat.user >> PART_W else beat.user for beat in beats]
    return [beat.data for beat in beats], found


@cocotb.test()
@cocotb.parametrize(idle=MATRIX, pressure=MATRIX, upper=[0, 1])
async def finds_partitions(dut: Any, idle: str, pressure: str, upper: int) -> None:
    """Indexes of all sizes; bounds that arrive too early wait for the index."""
    rng = np.random.default_rng(random.getrandbits(32))
    bench = Bench(dut, "bisort_partitioner")
    load = bench.source("s_index", idle)
    source, sink = bench.source("s_axis", idle), bench.sink("m_axis", pressure)
    bench.set(upper=upper, drop=0)
    await bench.start()
    for turn, size in enumerate((DEPTH, 1, 0, 2, random.randrange(3, DEPTH), DEPTH - 1)):
        bench.set(drop=1)
        await bench.idle(1)
        bench.set(drop=0)
        index = some_words(rng, size, KEY_W)
        bounds = _bounds(rng, index, random.choice([0, 1, 40]))
        first = len(sink.beats)
        source.send(to_beats([int(bound) for bound in bounds], KEY_W, 1))
        await bench.idle(5)
        assert len(sink.beats) == first
        load.send(to_beats([int(word) for word in index], KEY_W, W))
        await bench.run(lambda turn=turn: lasts(sink) == turn + 1)  # type: ignore[misc]
        assert _found(sink, first) == ([int(bound) for bound in bounds], partitions(index, bounds, bool(upper)))


@cocotb.test()
async def takes_a_bound_per_cycle(dut: Any) -> None:
    """Also when bounds jump from one end of the index to the other, and when the index is used again."""
    bench = Bench(dut, "bisort_partitioner")
    load = bench.source("s_index", "always")
    source, sink = bench.source("s_axis", "always"), bench.sink("m_axis", "always")
    bench.set(upper=1, drop=0)
    await bench.start()
    load.send(to_beats(list(range(0, 10 * DEPTH, 10)), KEY_W, W))
    for stream in range(2):
        source.send(to_beats([(0, 10 * DEPTH)[i % 2] for i in range(300)], KEY_W, 1))
        cycles = await bench.run(lambda stream=stream: lasts(sink) == stream + 1)  # type: ignore[misc]
        loading = 0 if stream else DEPTH // W
        assert cycles <= 300 + loading + 2 * PART_W + 8
    assert _found(sink, 0)[1] == [0, DEPTH - 1] * 300
