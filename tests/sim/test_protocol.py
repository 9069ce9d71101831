"""The memory model checks the rules of AXI4: an engine that breaks one is stopped and told which."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from millrace.host.errors import DeviceFault
from millrace.sim import build, rtl
from tests.sim.mutants import SMALL, Mutant

LONG_BURST = Mutant(
    "long_burst",
    "axi_reader.sv",
    "to_edge = FULL_BURST - {1'b0, req_beat_reg[BURST_LOG2-1:0]};",
    "to_edge = FULL_BURST;",
)


def test_a_burst_across_4_kib_is_a_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "RTL", LONG_BURST.plant(tmp_path))
    device = rtl.open_device(SMALL, None)
    a, ai, b, bi, out, outi, index = (device.alloc(2000, np.dtype(np.uint32)) for _ in range(7))
    # Buffers begin 128 bytes behind a page, so bursts of 256 bytes from there on end in the next one.
    launch = device.launch("bisort_merger", [a, ai, b, bi, out, outi, index], (16, 1040, 8))
    with pytest.raises(DeviceFault, match=r"AXI4 rule broken on memory port 0 in cycle \d+: a burst crosses 4 KiB"):
        device.wait(launch)
