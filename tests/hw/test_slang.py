"""slang reads all RTL without an error or a warning: a strict second reader of SystemVerilog (IEEE 1800).

The simulators accept what the standard forbids, such as a name that is used before its declaration. Modules that no
other one uses are elaborated as top modules: the engine on its own, and the ULX3S's top with all it contains.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from pyslang.driver import Driver

from tests.hw.simulate import ROOT, RTL

SOURCES = [*RTL.glob("*.sv"), *(ROOT / "hw" / "serial").glob("*.sv"), ROOT / "hw" / "boards" / "ulx3s" / "ulx3s_top.sv"]
WAIVED = {
    "shift-count-overflow": "masks of one element are shifted out on purpose",
    "incomplete-return": "functions that set their result bit by bit",
}
EARLY = "module early (output wire a);\n    assign a = late_reg;\n    reg late_reg;\nendmodule\n"


def _accepts(paths: list[Path], *options: str) -> bool:
    """Whether slang has nothing to say; its messages go to the error output."""
    driver = Driver()
    driver.addStandardArgs()
    waived = [f"-Wno-{name}" for name in WAIVED]
    words = ["slang", "-Wextra", "-Wpedantic", *waived, *options, "-I", str(RTL), *map(str, sorted(paths))]
    assert driver.parseCommandLine(" ".join(words))
    assert driver.processOptions()
    assert driver.parseAllSources()
    compilation = driver.createCompilation()
    driver.reportCompilation(compilation, True)
    driver.runAnalysis(compilation)
    said = driver.diagEngine
    return driver.reportDiagnostics(True) and said.numErrors == said.numWarnings == 0


@pytest.mark.parametrize("top", ["bisort_engine", "ulx3s_top"])
def test_slang_reads_without_a_warning(top: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert _accepts(SOURCES, "--top", top), capfd.readouterr().err


@pytest.mark.parametrize(
    "change",
    [{"W": 1, "KEY_W": 32, "DATA_W": 64}, {"W": 8, "CLUSTERS": 3, "PROBERS": 2}, {"QUEUE": 1, "AXI_ID_W": 4}],
    ids=str,
)
def test_slang_reads_other_shapes(change: dict[str, int], capfd: pytest.CaptureFixture[str]) -> None:
    values = [f"-G{name}={value}" for name, value in change.items()]
    assert _accepts(SOURCES, "--top", "bisort_engine", *values), capfd.readouterr().err


def test_slang_refuses_a_name_before_its_declaration(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    early = tmp_path / "early.sv"
    early.write_text(EARLY, encoding="utf-8")
    assert not _accepts([early])
    assert "'late_reg' used before its declaration" in capfd.readouterr().err
