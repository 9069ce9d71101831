"""The kernels compile as CUDA for the cards of three generations, without spills or local memory: no card needed.

The tools are part of the locked packages: a missing tool is a failure, because no other test checks the machine code.
The table in docs/internals/gpu.md must equal the output of its command.
"""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from millrace.gpu import driver, ptxas
from tests.watchdog import WATCHDOG

# One worker runs all of these: the table reuses what the other tests have compiled.
pytestmark = pytest.mark.xdist_group("ptxas")

VARIANTS = list(ptxas.variants())
TEAMS = [unit.name for unit in driver.UNITS.values() if unit.teams]
REGISTERS = 32
"""With at most this many, an SM with 64 Ki registers runs 2048 threads."""


@pytest.mark.parametrize(("unit", "word_bits", "barrier"), VARIANTS)
def test_it_compiles_without_spills_or_local_memory(unit: str, word_bits: int, barrier: bool) -> None:
    for card in ptxas.CARDS:
        needs = ptxas.measure(unit, word_bits, barrier, card)
        assert needs.kernel == unit
        assert (needs.spills, needs.local) == (0, 0), (card, needs.said)
        assert "warning" not in needs.said
        assert needs.registers <= REGISTERS
        assert needs.shared <= 16 * 1024, "OpenCL devices have 32 KiB at least: leave space for two groups"


@pytest.mark.parametrize(("unit", "card"), list(zip(TEAMS, ptxas.CARDS, strict=True)))
def test_teams_vote_by_ballots_or_by_barriers(unit: str, card: str) -> None:
    """Read from the machine code; also checks the instruction count."""
    listings = []
    for barrier in (False, True):
        needs = ptxas.measure(unit, 64, barrier, card)
        listed = ptxas.sass(needs.code)
        assert needs.instructions == len(listed)
        listings.append(" ".join(listed))
    ballot, barrier_path = listings
    assert "VOTE" in ballot
    assert "BAR." not in ballot
    assert "STS" not in ballot, "ballots need no shared memory"
    assert "VOTE" not in barrier_path
    assert "BAR." in barrier_path


def test_the_table_in_the_documents_is_current() -> None:
    text = ptxas.DOCUMENT.read_text(encoding="utf-8")
    made = ptxas.with_table(text, ptxas.table())
    assert text == made, "python -m millrace.gpu.ptxas --write"
    assert all(f"`{unit}`" in made for unit in driver.UNITS)


def test_the_command_writes_the_table(monkeypatch: pytest.MonkeyPatch, tmp_path: Any, capsys: Any) -> None:
    monkeypatch.setattr(ptxas, "table", lambda: "| new |\n")
    monkeypatch.setattr(ptxas, "DOCUMENT", tmp_path / "gpu.md")
    assert ptxas.main([]) == 0
    assert capsys.readouterr().out == "| new |\n"
    ptxas.DOCUMENT.write_text(f"a\n{ptxas.BEGIN}| old |\n{ptxas.END}b\n")
    assert ptxas.main(["--write"]) == 0
    assert ptxas.DOCUMENT.read_text() == f"a\n{ptxas.BEGIN}| new |\n{ptxas.END}b\n"
    ptxas.DOCUMENT.write_text("no marks\n")
    with pytest.raises(ValueError, match="ptxas: begin"):
        ptxas.main(["--write"])
    assert ptxas.main(["--wrong"]) == 2
    assert "usage" in capsys.readouterr().err


def test_the_command_is_a_module() -> None:
    command = [sys.executable, "-W", "error", "-m", "millrace.gpu.ptxas", "--wrong"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WATCHDOG, check=False)
    assert done.returncode == 2
    assert "usage: python -m millrace.gpu.ptxas" in done.stderr


def test_local_memory_is_detected() -> None:
    """A kernel that needs local memory: notices a compiler that reports it in another format."""
    text = """extern "C" __global__ void f(int *x) {
        int a[64] = {};
        for (int i = 0; i < 1000; i++) a[x[i] & 63] += i;
        x[0] = a[x[1] & 63];
    }"""
    needs = ptxas.needs_of(*ptxas.compile_text(text, "f", ptxas.CARDS[0], {}))
    assert (needs.kernel, needs.spills) == ("f", 0)
    assert needs.local > 0


def test_spills_are_detected() -> None:
    """More live sums than registers."""
    sums = " ".join(f"a{i} = a{i} * a{(i * 7 + 1) % 60} + x[k * 60 + {i}];" for i in range(60))
    text = f"""extern "C" __global__ void __launch_bounds__(1024, 2) f(double *x) {{
        double {", ".join(f"a{i} = x[{i}]" for i in range(60))};
        for (int k = 0; k < 100; k++) {{ {sums} }}
        {" ".join(f"x[{i}] = a{i};" for i in range(60))}
    }}"""
    assert ptxas.needs_of(*ptxas.compile_text(text, "f", ptxas.CARDS[0], {})).spills > 0


@pytest.mark.parametrize(
    ("unit", "changed", "message"),
    [
        ("bisort_prober", {"WORD_BITS": 16}, "WORD_BITS must be 32 or 64"),
        ("hb_lookup", {"GROUP": 96}, "GROUP must be a power of two"),
        ("hb_lookup", {"GROUP": 16}, "ballots need whole warps"),
    ],
)
def test_a_wrong_define_does_not_compile(unit: str, changed: dict[str, int], message: str) -> None:
    defined = driver.defines(driver.UNITS[unit], 32) | changed
    with pytest.raises(Exception, match=message):
        ptxas.compile_text(driver.source(unit), unit, ptxas.CARDS[0], defined)
