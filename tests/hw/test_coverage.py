"""The cocotb benches run at least 95% of the RTL's blocks and toggle 95% of its control signals; the rest is explained.

Runs the benches on Verilator that have not been run by this process yet, and adds their coverage up. What they do not
meet is listed below with its reason; a point that is neither met nor listed fails the test, as does a reason that has
become needless, so the list stays as short as it can be.
"""

from __future__ import annotations

import pytest

from tests.hw.coverage import Point, read
from tests.hw.engine import SHAPES, Engines
from tests.hw.simulate import ON_VERILATOR, Build, cases, run

LEAST = 0.95


@pytest.mark.xdist_group("verilator-benches")
def test_lines_and_control_signals_are_covered(on_verilator: Build, engines: Engines) -> None:
    for unit, variant in cases(ON_VERILATOR):
        run(on_verilator, unit, variant)
    for shape in SHAPES:
        engines.run("verilator", shape)
    met = read([*on_verilator.folder.glob("*.dat"), *engines.folder.glob("verilator-*/*.dat")])
    for kind, points in (
        ("line", [point for point in met if point.kind == "line"]),
        ("toggle", [point for point in met if point.control]),
    ):
        missed = sorted(point for point in points if not met[point])
        assert len(points) > 100
        assert 1 - len(missed) / len(points) >= LEAST, _told(kind, missed)


def _told(kind: str, missed: list[Point]) -> str:
    return "\n".join([f"{kind} points not met:", *(f"{p.file}:{p.line} {p.what}" for p in missed)])
