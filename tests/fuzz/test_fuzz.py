"""Fuzz tests: whatever bytes or text come from outside, the result is accepted or a typed error.

Hypothesis draws seeds, and a seed makes `TRIES` mutated inputs of `targets.py`: 100,000 in all in `make test`, shared
by cost. `MILLRACE_FUZZ=n` multiplies them. A failure names its input; `Target.check(input)` replays it.
"""

from __future__ import annotations

import hashlib
import os
from random import Random

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import millrace as mr
from millrace.state.join_state import read_state
from tests.fuzz import targets
from tests.fuzz.targets import TARGETS

SEEDS = {
    "condition": 150,
    "image": 100,
    "index file": 20,
    "manifest": 30,
    "run": 30,
    "serial link": 290,
    "pynq link": 60,
    "pynq child": 320,
}
"""Seeds per target, cheap targets more; `TRIES` inputs of each."""
TRIES = 100


def test_all_targets_share_100_000_tries() -> None:
    assert SEEDS.keys() == TARGETS.keys()
    assert sum(SEEDS.values()) * TRIES == 100_000


@pytest.mark.parametrize("name", TARGETS)
def test_only_typed_errors(name: str) -> None:
    target = TARGETS[name]
    accepted: set[bytes] = set()
    refused: set[bytes] = set()

    @settings(
        max_examples=SEEDS[name] * int(os.environ.get("MILLRACE_FUZZ", "1")),
        deadline=None,
        database=None,
        derandomize="MILLRACE_FUZZ" not in os.environ,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(seed=st.integers(0, 2**64 - 1))
    def fuzz(seed: int) -> None:
        rng = Random(seed)
        for _ in range(TRIES):
            data = target.make(rng)
            try:
                (accepted if target.check(data) else refused).add(hashlib.sha256(data).digest()[:8])
            except Exception as error:
                error.add_note(f"{name}: {data!r}")
                raise

    fuzz()
    assert accepted
    assert refused or not target.errors


def test_every_byte_of_a_manifest_counts() -> None:
    """Every bit of every byte, and all values in the header: three of its spaces were not checked once."""
    manifest, runs, arguments = targets.state().manifest, targets.state().added, targets.arguments()
    read_state(manifest, runs, arguments)
    header = manifest.index(b"\n") + 1
    accepted = []
    for offset, byte in enumerate(manifest):
        others = range(256) if offset < header else [*(byte ^ 1 << bit for bit in range(8)), *b" \t\r\n"]
        altered = bytearray(manifest)
        for value in others:
            altered[offset] = value
            try:
                read_state(bytes(altered), runs, arguments)
            except mr.StateError:
                continue
            accepted += [(offset, value)] if value != byte else []
    assert not accepted
