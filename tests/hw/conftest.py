"""Simulated designs that several test files share, compiled once per process; their tests are in one xdist group."""

from __future__ import annotations

import pytest

from tests.hw.engine import Engines
from tests.hw.simulate import ON_ICARUS, ON_VERILATOR, Build, build


@pytest.fixture(scope="session")
def on_verilator(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """All units, compiled by Verilator."""
    return build("verilator", ON_VERILATOR, tmp_path_factory.mktemp("units") / "verilator")


@pytest.fixture(scope="session")
def on_icarus(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """All units, compiled by Icarus."""
    return build("icarus", ON_ICARUS, tmp_path_factory.mktemp("units") / "icarus")


@pytest.fixture(scope="session")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Engines:
    """The engine, compiled on first use."""
    return Engines(tmp_path_factory.mktemp("engines"))
