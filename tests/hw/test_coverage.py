"""The cocotb benches cover at least 95% of the RTL's blocks and control signal toggles; exceptions have a reason.

Runs the Verilator benches that this process has not run yet, and adds up their coverage. `REASONS` lists the uncovered
points, as patterns over `file what | the source's line`; a point that is neither covered nor listed fails the test.
"""

from __future__ import annotations

import re

import pytest

from tests.hw.coverage import Point, read
from tests.hw.engine import SHAPES, Engines
from tests.hw.simulate import ON_VERILATOR, RTL, Build, cases, run

MIN_COVERAGE = 0.95
REASONS = {
    r"axi_sum.sv .*(all_rows|column|for \(|integer i, k|begin)": "a constant function: Verilator evaluates it",
    r" (\w*error|error_reg|fault)(\[\d+\])?:|error_reg <= 1'b1|if \(fault\)|&& fault\)": (
        "cocotbext-axi's memory never responds with an error; tests/sim/test_commands.py covers these with the model's"
    ),
    r"m_axi_(r|b)ready(\[0\])?:1->0": "always high: readers and writers request only what they can store",
    r"tkeep(\[\d\])?:1->0|(words_keep_reg|end_keep|to_last)\[0\]:1->0": (
        "the engine starts no empty stream: lane 0 is always kept"
    ),
    r"bisort_cluster.sv read_keep\[\d+\]:1->0": "where transfers begin and end in a beat: data, covered by checksums",
    r"bisort_probe_stream.sv upper:1->0": "a constant of the instance; it rises once, when the simulation begins",
    r"axi_writer.sv cond_then \d+ \| sel_reg <= CHUNKS == 1": "no writer of these shapes fills a port beat at once",
    r"axi_writer.sv (shift\.)?over\[0\]": "a constant: lane 0 never goes to the next chunk",
    r"bisort_sequencer.sv else \| default: if \(m_result_tready\)": "results fit; the sequencer's proof stalls them",
    r"axi_reader.sv mark_ready|axi_write_arbiter.sv order_ready": "the queue is longer than its users can fill it",
    r"round_robin.sv after\[0\]": "a constant: request 0 comes after no other",
}


def _described(point: Point) -> str:
    line = (RTL / point.file).read_text(encoding="utf-8").splitlines()[point.line - 1]
    return f"{point.file} {point.what} | {line.strip()}"


@pytest.mark.xdist_group("verilator-benches")
def test_lines_and_control_signals_are_covered(on_verilator: Build, engines: Engines) -> None:
    for unit, variant in cases(ON_VERILATOR):
        run(on_verilator, unit, variant)
    for shape in SHAPES:
        engines.run("verilator", shape)
    met = read([*on_verilator.folder.glob("*.dat"), *engines.folder.glob("verilator-*/*.dat")])
    lines, toggles = [p for p in met if p.kind == "line"], [p for p in met if p.control]
    for kind, points in (("line", lines), ("toggle", toggles)):
        missed = sorted(_described(point) for point in points if not met[point])
        assert len(points) > 400
        assert 1 - len(missed) / len(points) >= MIN_COVERAGE, "\n".join([f"{kind} points not met:", *missed])
        assert [what for what in missed if not any(re.search(reason, what) for reason in REASONS)] == []
