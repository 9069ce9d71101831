"""Bounded proofs that every stream unit is correct for all inputs; `proofs.py` lists what is proven.

The tests also show that no proof is vacuous: a cover reaches a deep state, and for every property a mutant of the RTL
makes exactly that property fail.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from millrace.hw.yosys import RTL
from tests.formal import sby
from tests.formal.proofs import PROOFS, Mutant, Proof

UNSORTED = {"stream_fifo", "axi_read_arbiter", "axi_write_arbiter", "bisort_sequencer"}
"""Units whose output has no order or shape to prove."""
MUTANTS = [(proof, mutant) for proof in PROOFS for mutant in proof.mutants]


@pytest.mark.parametrize("proof", PROOFS, ids=str)
def test_unit_is_proven(proof: Proof, tmp_path: Path) -> None:
    passed, log = sby.run(tmp_path / "bmc", sby.plan(proof, "bmc", proof.cycles, RTL))
    assert passed, log


@pytest.mark.parametrize("proof", PROOFS, ids=str)
def test_cover_is_reached(proof: Proof, tmp_path: Path) -> None:
    passed, log = sby.run(tmp_path / "cover", sby.plan(proof, "cover", proof.cover_cycles, RTL))
    assert passed, log


@pytest.mark.parametrize(("proof", "mutant"), MUTANTS, ids=lambda case: getattr(case, "prop", str(case)))
def test_mutant_breaks_its_property(proof: Proof, mutant: Mutant, tmp_path: Path) -> None:
    rtl = tmp_path / "rtl"
    shutil.copytree(RTL, rtl)
    path = rtl / mutant.file
    text = path.read_text(encoding="utf-8")
    assert text.count(mutant.before) == 1, f"{mutant.file} must hold {mutant.before!r} once"
    path.write_text(text.replace(mutant.before, mutant.after), encoding="utf-8")
    passed, _ = sby.run(tmp_path / "bmc", sby.plan(proof, "bmc", proof.cycles + 4, rtl, mutant.prop))
    assert not passed, f"{mutant.prop} still holds with {mutant.after!r}"


def test_every_unit_has_a_mutant_for_every_property() -> None:
    for unit in {proof.unit for proof in PROOFS}:
        props = {mutant.prop for proof, mutant in MUTANTS if proof.unit == unit}
        assert props == {"stable", "complete", "alive"} | (set() if unit in UNSORTED else {"sorted"})
