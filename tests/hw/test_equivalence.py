"""NumPy, the HLS C++ and the RTL agree, unit by unit, for thousands of seeds with random stalls; and mutants are found.

`MILLRACE_EQUIVALENCE_SEEDS` is the number of seeds (3,200 unless set), `MILLRACE_EQUIVALENCE_FIRST` the first of them:
`MILLRACE_EQUIVALENCE_SEEDS=1 MILLRACE_EQUIVALENCE_FIRST=17 pytest tests/hw/test_equivalence.py` runs seed 17 alone.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

from millrace.sim import build, hls_build
from tests.hw.equivalence import EVERY, KINDS, SKEW, TOP, UNITS, differences, hls, kind_of, planted, rtl, scenario

SEEDS = int(os.environ.get("MILLRACE_EQUIVALENCE_SEEDS", "3200"))
FIRST = int(os.environ.get("MILLRACE_EQUIVALENCE_FIRST", "0"))
LANES = (1, 4, 8)
MUTANT_SEEDS = range(200)
"""Enough seeds to find a mutant."""


@pytest.mark.parametrize("lanes", LANES, ids="w{}".format)
def test_numpy_hls_and_rtl_agree(lanes: int) -> None:
    found = list(differences([hls(lanes), rtl(lanes)], range(FIRST, FIRST + SEEDS)))
    assert found == [], "\n".join(found)


def test_seeds_cover_what_they_must() -> None:
    kinds = Counter(kind_of(seed) for seed in range(3000))
    assert set(kinds) == set(KINDS)
    assert min(kinds.values()) >= 3000 // max(EVERY.values()) // 2
    made = [scenario(seed) for seed in MUTANT_SEEDS]
    sizes = {(len(one.a[0]), len(one.b[0])) for one in made}
    assert {(0, 0), (1, SKEW), (SKEW, 1)} <= sizes
    assert any(a == 0 and b for a, b in sizes)
    assert any(b == 0 and a for a, b in sizes)
    assert any(TOP in one.a[0] and TOP in one.b[0] for one in made)
    assert any(len(set(one.run[0].tolist())) < len(one.run[0]) // 3 for one in made)
    assert {one.upper for one in made} == {False, True}
    assert any(-1 in one.partitions for one in made)


HLS_MUTANTS = {
    # The merger takes ids in the wrong order.
    "merger": ("bisort_merger.cpp", "a.id <= b.id", "a.id >= b.id"),
    # Positions are counted from one.
    "indexer": ("bisort_indexer.cpp", "(0 - first)", "(1 - first)"),
    # A sample equal to a lower bound precedes it.
    "partitioner": ("bisort_partitioner.cpp", "word_t(bound.lane[0] - 1)", "bound.lane[0]"),
    # The remaining words of a partition are used for the next one.
    "prober": ("bisort_prober.cpp", "wants = wants && !beat.last;", "wants = false;"),
}
RTL_MUTANT = ("bisort_merger.sv", "(!a_none[i] && a_first);", "(!a_none[i] && !a_first);")


@pytest.mark.parametrize("unit", UNITS)
def test_a_mutant_of_the_hls_is_caught(unit: str, tmp_path: Path) -> None:
    found = list(differences([hls(4, planted(hls_build.HLS, tmp_path, HLS_MUTANTS[unit]))], MUTANT_SEEDS))
    assert [line for line in found if line.startswith("seed ") and f": {unit} of hls w4: " in line], found


def test_a_mutant_of_the_rtl_is_caught(tmp_path: Path) -> None:
    found = list(differences([rtl(4, planted(build.RTL, tmp_path, RTL_MUTANT))], MUTANT_SEEDS))
    assert [line for line in found if line.startswith("seed ") and ": merger of rtl w4: " in line], found
