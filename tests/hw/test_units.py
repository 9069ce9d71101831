"""Runs each unit's cocotb bench: on Verilator for the variants that matter most, on Icarus for the other widths.

See `simulate.py` for builds and for the waveform of a failed bench. A unit without lanes, or without keys, is run in as
many variants as differ for it.
"""

from __future__ import annotations

import pytest

from tests.hw.simulate import UNITS, Build, Variant, build, run

ON_VERILATOR = tuple(Variant(key_w, lanes) for key_w in (32, 64) for lanes in (1, 4))
ON_ICARUS = (Variant(64, 2), Variant(32, 8))
FEWER = {"stream_fifo": ON_VERILATOR[:1], "bisort_boundary": ON_VERILATOR[::2]}


def _cases(variants: tuple[Variant, ...]) -> list[tuple[str, Variant]]:
    return [(unit, variant) for unit in UNITS for variant in variants if variant in FEWER.get(unit, variants)]


@pytest.fixture(scope="module")
def on_verilator(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """All units, compiled by Verilator."""
    return build("verilator", ON_VERILATOR, tmp_path_factory.mktemp("units") / "verilator")


@pytest.fixture(scope="module")
def on_icarus(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """All units, compiled by Icarus."""
    return build("icarus", ON_ICARUS, tmp_path_factory.mktemp("units") / "icarus")


@pytest.mark.xdist_group("units-verilator")
@pytest.mark.parametrize(("unit", "variant"), _cases(ON_VERILATOR), ids=str)
def test_unit_on_verilator(on_verilator: Build, unit: str, variant: Variant) -> None:
    run(on_verilator, unit, variant)


@pytest.mark.xdist_group("units-icarus")
@pytest.mark.parametrize(("unit", "variant"), _cases(ON_ICARUS), ids=str)
def test_unit_on_icarus(on_icarus: Build, unit: str, variant: Variant) -> None:
    run(on_icarus, unit, variant)
