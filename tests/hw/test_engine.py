"""Runs the engine's cocotb bench: on Verilator in two shapes, on Icarus in the smaller one."""

from __future__ import annotations

import pytest

from tests.hw.engine import SHAPES, Engines


@pytest.mark.xdist_group("verilator-benches")
@pytest.mark.parametrize("shape", SHAPES)
def test_engine_on_verilator(engines: Engines, shape: str) -> None:
    engines.run("verilator", shape)


@pytest.mark.xdist_group("icarus-benches")
def test_engine_on_icarus(engines: Engines) -> None:
    engines.run("icarus", "key32w1")
