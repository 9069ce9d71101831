"""The conformance suite on the HLS engine: every row goes through it, and a mistake in its sources is caught.

All of the suite's cases run on `hls` in `tests/conformance`; this file checks a few of them in more detail.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from millrace.host.base.errors import DeviceFault
from millrace.sim import hls, hls_build
from tests.conformance.check import Mismatch
from tests.hw.equivalence import planted
from tests.sim.mutants import run_cases

CASES = 40
MUTANTS = {
    "the larger tuple goes first": ("bisort_merger.cpp", "a.key < b.key ||", "a.key > b.key ||"),
    "a sample too late": ("bisort_indexer.cpp", "(0 - first)", "(1 - first)"),
    "the last beat is not written": (
        "bisort_memory.h",
        "if (tail) store_part<T>(",
        "if (tail && full > length) store_part<T>(",
    ),
}


@pytest.mark.parametrize("name", ["hls", "hls:w1", "hls:w8"])
def test_every_row_goes_through_the_engine(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    launched: Counter[str] = Counter()
    counted: Counter[str] = Counter()
    close = hls.HlsDevice.close

    def count(device: hls.HlsDevice) -> None:
        if device._memory is not None:
            for counter, value in device.counters().items():
                (counted if counter.startswith("hls_") else launched)[counter] += value
        close(device)

    monkeypatch.setattr(hls.HlsDevice, "close", count)
    assert run_cases(name, CASES) > CASES // 2
    assert counted["hls_merger_rows"] == launched["bisort_merger_rows"] > 1000
    probed, banded = launched["bisort_prober_rows"], launched["bisort_band_prober_rows"]
    assert counted["hls_low_rows"] == counted["hls_high_rows"] == probed + banded
    assert min(probed, banded) > 100
    assert counted["hls_samples"] > launched["bisort_indexer_rows"] > 100


@pytest.mark.parametrize("mistake", MUTANTS)
def test_a_mutant_is_caught(mistake: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hls_build, "HLS", planted(hls_build.HLS, tmp_path, MUTANTS[mistake]))
    with pytest.raises((Mismatch, DeviceFault)):
        run_cases("hls", CASES)
