"""cocotb bench of `bisort_boundary`: host bounds pass through, a band saturates, one bound per cycle and stream."""

from __future__ import annotations

import random
from typing import Any

import cocotb
import numpy as np

from tests.hw.reference import band, from_beats, some_words, to_beats
from tests.hw.streams import KEY_W, MATRIX, Bench, lasts

TOP = (1 << KEY_W) - 1


def _limits() -> dict[str, int]:
    least, most = sorted(random.choice([(0, TOP), (5, TOP - 5), (random.randrange(TOP), random.randrange(TOP))]))
    width = random.choice([0, 1, 3, random.randrange(TOP), TOP])
    return {"below": width, "above": random.choice([width, 2, TOP]), "least": least, "most": most}


def _words(rng: np.random.Generator, n: int) -> list[int]:
    return [int(word) for word in some_words(rng, n, KEY_W)]


@cocotb.test()
@cocotb.parametrize(idle=MATRIX, low_pressure=MATRIX, high_pressure=MATRIX)
async def outputs_bounds(dut: Any, idle: str, low_pressure: str, high_pressure: str) -> None:
    """Both modes in turn, empty streams among them."""
    rng = np.random.default_rng(random.getrandbits(32))
    bench = Bench(dut, "bisort_boundary")
    low_in, high_in = bench.source("s_axis_low", idle), bench.source("s_axis_high", idle)
    low, high = bench.sink("m_axis_low", low_pressure), bench.sink("m_axis_high", high_pressure)
    await bench.start()
    lows: list[list[int]] = []
    highs: list[list[int]] = []
    for turn, n in enumerate((0, 1, 0, 20, 30, 25)):
        limits = _limits()
        bench.set(**limits, band=turn % 2)
        keys = _words(rng, n)
        low_in.send(to_beats(keys, KEY_W, 1))
        if turn % 2:
            bounds = [band(key, **limits) for key in keys]
            lows.append([bound[0] for bound in bounds])
            highs.append([bound[1] for bound in bounds])
        else:
            lows.append(keys)
            highs.append(_words(rng, random.randrange(30)))
            high_in.send(to_beats(highs[-1], KEY_W, 1))
        await bench.run(lambda: lasts(low) == len(lows) and lasts(high) == len(lows))
    await bench.idle(4)
    assert from_beats(low.beats, KEY_W, 1) == lows
    assert from_beats(high.beats, KEY_W, 1) == highs


@cocotb.test()
@cocotb.parametrize(mode=[0, 1])
async def has_no_bubbles(dut: Any, mode: int) -> None:
    """One bound per cycle on each output."""
    bench = Bench(dut, "bisort_boundary")
    low_in, high_in = bench.source("s_axis_low", "always"), bench.source("s_axis_high", "always")
    low, high = bench.sink("m_axis_low", "always"), bench.sink("m_axis_high", "always")
    bench.set(band=mode, below=1, above=1, least=0, most=TOP)
    await bench.start()
    low_in.send(to_beats(list(range(100)), KEY_W, 1))
    if not mode:
        high_in.send(to_beats(list(range(100)), KEY_W, 1))
    assert await bench.run(lambda: lasts(low) == 1 and lasts(high) == 1) <= 100 + 5
