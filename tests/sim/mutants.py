"""Mutants of the RTL, each with one typical design error: the conformance suite must detect them.

A mutant is a text that occurs once in a file of `hw/rtl`, and its replacement in a scratch copy. The suite runs in a
separate process, so that no engine of a mutant stays in this one.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from random import Random

from millrace.host.base.errors import DeviceFault
from millrace.sim import build
from tests.conformance.cases import build as build_case
from tests.conformance.cases import random_shape
from tests.conformance.check import Mismatch, check_case
from tests.conformance.conditions import WEIGHTED_FAMILIES
from tests.conformance.expected import expect

SMALL = "rtl:w1,n1,m2"
"""The configuration of the mutants: fast to build."""
PASSED, CAUGHT = 0, 3


@dataclass(frozen=True)
class Mutant:
    """One error in the RTL."""

    name: str
    file: str
    before: str
    after: str

    def plant(self, folder: Path) -> Path:
        """Write a copy of the RTL with the error."""
        rtl = folder / "rtl"
        shutil.copytree(build.RTL, rtl)
        path = rtl / self.file
        text = path.read_text(encoding="utf-8")
        assert text.count(self.before) == 1, f"{self.file} must hold {self.before!r} once"
        path.write_text(text.replace(self.before, self.after), encoding="utf-8")
        return rtl


MUTANTS = (
    # The merger takes the larger tuple.
    Mutant("comparator", "bisort_merger.sv", "(!a_none[i] && a_first);", "(!a_none[i] && !a_first);"),
    # The last element of a transfer is not written.
    Mutant(
        "last_beat", "axi_writer.sv", "chunk_keep = s_axis_tkeep;", "chunk_keep = s_axis_tkeep & {W{!s_axis_tlast}};"
    ),
    # A sample is taken from the wrong bits of the tuple.
    Mutant(
        "index_sample",
        "bisort_indexer.sv",
        "always @* sample = s_axis_tdata[ID_W +: KEY_W];",
        "always @* sample = s_axis_tdata[0 +: KEY_W];",
    ),
)


def run_cases(device: str, count: int) -> int:
    """Run conformance cases for `bisort`; returns how many were served.

    Every fourth case is a band: the engine itself makes its bounds.
    """
    served = 0
    for number in range(count):
        families = ["band"] if number % 4 == 3 else WEIGHTED_FAMILIES
        case = build_case(random_shape(Random(number), families))
        served += check_case(case, expect(case), "bisort", device, 1, split_seed=number).served
    return served


def exit_code(rtl: Path, count: int) -> int:
    """Run cases on such RTL in a process; returns its exit code, `PASSED` or `CAUGHT`."""
    process = get_context("spawn").Process(target=_judge, args=(rtl, count))
    process.start()
    process.join()
    assert process.exitcode is not None
    return process.exitcode


def _judge(rtl: Path, count: int) -> None:
    build.RTL = rtl
    try:
        run_cases(SMALL, count)
    except (Mismatch, DeviceFault):
        raise SystemExit(CAUGHT) from None
