"""`alm_load` changes no behaviour: Yosys proves that registers are equivalent before and after; some stay unchanged."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from millrace.host.base.errors import DeviceUnavailable
from millrace.hw import synth, yosys

LIBRARY = "-map +/intel_alm/common/alm_sim.v -map +/intel_alm/common/dff_sim.v"
TO_REGISTERS = synth.TARGETS["intel"].commands[:2]
PROVE = f"equiv_opt -async2sync -assert {LIBRARY}"
COUNTER = """
module counter(
    input clk, load, enable, clear, input [{top}:0] value, output reg [{top}:0] count, output [{top}:0] seen
);
    wire [{top}:0] chosen = {chosen};
    assign seen = {seen};
    always @(posedge clk) if (enable) count <= clear ? 0 : chosen;
endmodule
"""
LOAD, STEP = "load ? value : count + 1", "load ? count + 1 : value"


def loads(script: list[str]) -> int:
    """How many multiplexers the pass changed to loads, after a proof of equivalence."""
    said = yosys.run([*script, *TO_REGISTERS, f"{PROVE} alm_load"])
    return int(re.findall(r"(\d+) multiplexers are loads now", said)[0])


def counter(folder: Path, chosen: str, bits: int = 12, seen: str = "0") -> list[str]:
    """A register that counts or loads; `seen`: a second output."""
    source = folder / "counter.v"
    source.write_text(COUNTER.format(top=bits - 1, chosen=chosen, seen=seen), encoding="utf-8")
    return [f"read_verilog {source}", "hierarchy -top counter"]


@pytest.mark.parametrize("chosen", [LOAD, STEP])
def test_a_counter_loads(tmp_path: Path, chosen: str) -> None:
    assert loads(counter(tmp_path, chosen)) == 12


def test_a_few_bits_are_not_worth_a_load(tmp_path: Path) -> None:
    assert loads(counter(tmp_path, LOAD, bits=7)) == 0


def test_a_choice_that_is_seen_elsewhere_stays(tmp_path: Path) -> None:
    assert loads(counter(tmp_path, LOAD, seen="chosen")) == 0


def test_a_choice_of_two_wires_stays(tmp_path: Path) -> None:
    assert loads(counter(tmp_path, "load ? value : {count[0], count[11:1]}")) == 0


def test_a_unit_does_the_same() -> None:
    boundary = next(design for design in synth.units() if design.top == "bisort_boundary")
    assert loads(synth.read(boundary)) >= 32


def test_a_mistake_would_be_found(tmp_path: Path) -> None:
    mapped = [*counter(tmp_path, LOAD), *TO_REGISTERS, "alm_load"]
    with pytest.raises(DeviceUnavailable, match=r"Found [1-9]\d* unproven"):
        yosys.run([*mapped, f"{PROVE} connect -set count[3] 1'b0"])
