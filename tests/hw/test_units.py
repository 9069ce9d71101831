"""Runs each unit's cocotb bench: on Verilator for the most important variants, on Icarus for the other widths too.

See `simulate.py` for builds and for the waveform of a failed bench. A unit without lanes, or without keys, is run in as
many variants as differ for it.
"""

from __future__ import annotations

import pytest

from tests.hw.simulate import ON_ICARUS, ON_VERILATOR, Build, Variant, cases, run


@pytest.mark.xdist_group("verilator-benches")
@pytest.mark.parametrize(("unit", "variant"), cases(ON_VERILATOR), ids=str)
def test_unit_on_verilator(on_verilator: Build, unit: str, variant: Variant) -> None:
    run(on_verilator, unit, variant)


@pytest.mark.xdist_group("icarus-benches")
@pytest.mark.parametrize(("unit", "variant"), cases(ON_ICARUS), ids=str)
def test_unit_on_icarus(on_icarus: Build, unit: str, variant: Variant) -> None:
    run(on_icarus, unit, variant)
