"""Verilator reads the RTL around the engine without a warning, and bad parameters are refused."""

from __future__ import annotations

import os
import subprocess

import pytest

from millrace.hw.catalog import HW, board
from tests.hw.simulate import verilator_folder

SOURCES = [str(path) for path in board("ulx3s").sources if path.suffix == ".sv"]


def lint(top: str, *options: str) -> subprocess.CompletedProcess[str]:
    folder = verilator_folder()
    env = {name: value for name, value in os.environ.items() if name != "VERILATOR_ROOT"}
    env["PATH"] = f"{folder}{os.pathsep}{env['PATH']}"
    command = [str(folder / "verilator"), "--lint-only", "-Wall", "--quiet", f"-I{HW / 'rtl'}", "--top-module", top]
    return subprocess.run([*command, *options, *SOURCES], capture_output=True, text=True, env=env, check=False)


@pytest.mark.parametrize("top", ["uart_rx", "uart_tx", "uart_bridge", "onchip_memory", "ulx3s_top"])
def test_verilator_has_no_warning(top: str) -> None:
    done = lint(top)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("top", "option", "message"),
    [
        ("uart_rx", "-GDIVISOR=3", "DIVISOR must be 4 to 65535"),
        ("uart_bridge", "-GWORDS_LOG2=11", "WORDS_LOG2 must be 4 to 10"),
        ("onchip_memory", "-GSIZE_LOG2=8", "SIZE_LOG2 must be 12 to 20"),
    ],
)
def test_bad_parameters_are_refused(top: str, option: str, message: str) -> None:
    done = lint(top, option)
    assert done.returncode != 0
    assert message in done.stderr
