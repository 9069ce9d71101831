"""cocotb bench of `stream_fifo`: order, fall-through, count, full throughput."""

from __future__ import annotations

import random
from typing import Any

import cocotb

from tests.hw.reference import Beat
from tests.hw.simulate import SMALL
from tests.hw.streams import MATRIX, Bench


@cocotb.test()
@cocotb.parametrize(idle=MATRIX, pressure=MATRIX)
async def keeps_order(dut: Any, idle: str, pressure: str) -> None:
    """Every word is output once and in order, and `count` is the number of words inside."""
    bench = Bench(dut, "stream_fifo")
    source, sink = bench.source("s_axis", idle), bench.sink("m_axis", pressure)
    await bench.start()
    sent = [Beat(random.randrange(1 << SMALL["WIDTH"])) for _ in range(300)]
    source.send(sent)
    inside = [0]

    def count() -> None:
        # The signal is read before the edge at which the streams were clocked last.
        assert int(bench.signal("count").value) == inside[0]
        assert inside[0] <= SMALL["DEPTH"] + 1
        inside[0] = source.moved - sink.moved

    cycles = await bench.run(lambda: sink.moved == len(sent), count)
    assert sink.beats == sent
    if idle == pressure == "always":
        assert cycles <= len(sent) + 5
