"""The kernels compile as CUDA for the cards of three generations, without spills or local memory: no card needed.

NVRTC compiles to machine code; ptxas, inside it, tells spills, and cuobjdump what the code needs. The tools come with
the locked packages: where one is missing, that is a failure, because nothing else here looks at the CUDA side.
"""

from __future__ import annotations

import io
import re
import subprocess
from pathlib import Path

import pytest
from cuda.core import Program, ProgramOptions  # type: ignore[import-untyped]
from cuda.pathfinder import find_nvidia_binary_utility  # type: ignore[import-untyped]

from millrace.gpu import driver

CARDS = ("sm_80", "sm_90", "sm_100")
SPILLS = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
USAGE = re.compile(r"Function (\w+):\s+REG:(\d+) STACK:(\d+) SHARED:(\d+) LOCAL:(\d+)")


def compile_unit(unit: str, word_bits: int, card: str, text: str | None = None) -> tuple[bytes, str]:
    """Machine code and what the compiler said."""
    defined = [(name, str(value)) for name, value in driver.defines(driver.UNITS[unit], word_bits).items()]
    options = ProgramOptions(name=unit, arch=card, std="c++17", define_macro=defined, ptxas_options=["-v"])
    said = io.StringIO()
    made = Program(driver.source(unit) if text is None else text, "c++", options).compile("cubin", logs=said)
    return bytes(made.code), said.getvalue()


def usage(code: bytes, folder: Path) -> dict[str, dict[str, int]]:
    """What each kernel of a piece of machine code needs."""
    tool = find_nvidia_binary_utility("cuobjdump")
    assert tool, "cuobjdump is missing: make setup"
    (folder / "unit.cubin").write_bytes(code)
    done = subprocess.run([tool, "--dump-resource-usage", folder / "unit.cubin"], capture_output=True, check=True)
    names = ("registers", "stack", "shared", "local")
    rows = USAGE.findall(done.stdout.decode())
    return {name: dict(zip(names, map(int, values), strict=True)) for name, *values in rows}


@pytest.mark.parametrize("card", CARDS)
@pytest.mark.parametrize("word_bits", [32, 64])
@pytest.mark.parametrize("unit", driver.UNITS)
def test_it_compiles_without_spills_or_local_memory(unit: str, word_bits: int, card: str, tmp_path: Path) -> None:
    code, said = compile_unit(unit, word_bits, card)
    assert SPILLS.findall(said) == [("0", "0", "0")], said
    assert "warning" not in said
    needs = usage(code, tmp_path)
    assert list(needs) == [unit]
    assert (needs[unit]["stack"], needs[unit]["local"]) == (0, 0)
    assert needs[unit]["shared"] <= 16 * 1024, "OpenCL devices have 32 KiB at least: leave room for two groups"


def test_local_memory_is_seen(tmp_path: Path) -> None:
    """A kernel that must have it, so that a compiler that says it in other words is noticed."""
    text = """extern "C" __global__ void f(int *x) {
        int a[64] = {};
        for (int i = 0; i < 1000; i++) a[x[i] & 63] += i;
        x[0] = a[x[1] & 63];
    }"""
    code, said = compile_unit("bisort_indexer", 32, CARDS[0], text)
    ((stack, _, _),) = SPILLS.findall(said)
    assert int(stack) > 0
    needs = usage(code, tmp_path)["f"]
    assert needs["stack"] + needs["local"] > 0


def test_a_wrong_word_width_does_not_compile() -> None:
    with pytest.raises(Exception, match="WORD_BITS must be 32 or 64"):
        compile_unit("bisort_prober", 16, CARDS[0])
