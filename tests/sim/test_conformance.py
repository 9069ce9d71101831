"""The conformance suite on the simulated engine: every row goes through the hardware, and mutants fail.

All of the suite's cases run on `rtl` in `tests/conformance`; this file checks a few of them in more detail.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from millrace.sim import build, rtl
from tests.sim.mutants import CAUGHT, MUTANTS, PASSED, SMALL, Mutant, exit_code, run_cases

CASES = 40


def test_every_row_goes_through_the_hardware(monkeypatch: pytest.MonkeyPatch) -> None:
    launched: Counter[str] = Counter()
    counted: Counter[str] = Counter()
    close = rtl.RtlDevice.close

    def count(device: rtl.RtlDevice) -> None:
        if device._memory is not None:
            for name, value in device.counters().items():
                (counted if name.startswith("rtl_") else launched)[name] += value
        close(device)

    monkeypatch.setattr(rtl.RtlDevice, "close", count)
    assert run_cases("rtl", CASES) > CASES // 2
    assert counted["rtl_merger_rows"] == launched["bisort_merger_rows"] > 1000
    probed, banded = launched["bisort_prober_rows"], launched["bisort_band_prober_rows"]
    assert counted["rtl_low_rows"] == counted["rtl_high_rows"] == probed + banded
    assert min(probed, banded) > 50  # bounds made by the host, and bands made by the hardware
    assert counted["rtl_samples"] > launched["bisort_indexer_rows"] > 100  # merges are sampled on their way
    assert counted["rtl_cycles"] > 0


def test_what_mutants_are_planted_in_passes() -> None:
    assert exit_code(build.RTL, CASES) == PASSED, SMALL


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_is_caught(mutant: Mutant, tmp_path: Path) -> None:
    assert exit_code(mutant.plant(tmp_path), CASES) == CAUGHT
