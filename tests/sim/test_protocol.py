"""The memory model checks the rules of AXI4: it stops an engine that breaks one and reports the rule."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from millrace.host.base.errors import DeviceFault
from millrace.sim import build, rtl
from tests.sim.mutants import SMALL, Mutant

LONG_BURST = Mutant(
    "long_burst",
    "axi_reader.sv",
    "ar_addr_reg <= {req_high_reg, req_low_reg};",
    "ar_addr_reg <= {req_high_reg, req_low_reg} + 1'b1;",
)


def test_a_burst_across_4_kib_is_a_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "RTL", LONG_BURST.plant(tmp_path))
    device = rtl.open_device(SMALL, None)
    a, ai, b, bi, out, outi, index = (device.alloc(2000, np.dtype(np.uint32)) for _ in range(7))
    # Each burst begins one beat late, so a burst that should end with its page ends in the next page.
    launch = device.launch("bisort_merger", [a, ai, b, bi, out, outi, index], (16, 1040, 8))
    with pytest.raises(DeviceFault, match=r"AXI4 rule broken on memory port 0 in cycle \d+: a burst crosses 4 KiB"):
        device.wait(launch)
