"""The protocol of the parallel join under schedules that permute its steps; mutants show that faults are found."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.host.join.pimtree.protocol_model import Config, Mutant, check

SEEDS = 3000
"""Schedules within which every mutant must fail."""
configs = st.builds(
    Config,
    arrivals=st.lists(st.tuples(st.integers(0, 1), st.integers(0, 4)), max_size=14),
    windows=st.tuples(st.integers(1, 5), st.integers(1, 5)),
    width=st.integers(0, 2),
    task_rows=st.integers(1, 3),
    merge_limit=st.integers(1, 5),
    workers=st.integers(1, 3),
    in_room=st.sampled_from([1, 2, 5, 1000]),
    out_room=st.sampled_from([1, 2, 5, 1000]),
)


@given(config=configs, seed=st.integers(0, 2**32), leavers=st.integers(0, 2))
@settings(max_examples=1500, deadline=None)
def test_every_schedule_gives_all_pairs_in_order(config: Config, seed: int, leavers: int) -> None:
    protocol = check(config, seed, leavers)
    assert protocol.active == 0
    assert not any(protocol.locks.values())
    assert not protocol.merging


def some_config(seed: int, mutant: Mutant) -> Config:
    rng = Random(seed)
    arrivals = [(rng.randrange(2), rng.randrange(3)) for _ in range(rng.randrange(4, 14))]
    rows, limit, rooms = rng.choice((1, 2)), rng.choice((1, 2, 9)), (rng.choice((2, 1000)), rng.choice((1, 3, 1000)))
    return Config(arrivals, task_rows=rows, merge_limit=limit, in_room=rooms[0], out_room=rooms[1], mutant=mutant)


def test_without_a_fault_no_schedule_fails() -> None:
    merges = [check(some_config(seed, ""), seed).merges for seed in range(SEEDS // 10)]
    assert max(merges) > 2


@pytest.mark.parametrize(
    "mutant",
    [
        "lost wake-up",
        "edge read late",
        "edge ignored",
        "late entry",
        "drain unlocked",
        "blocked merge skipped",
        "room not seen",
        "sleep unlooked",
        "place reused early",
    ],
)
def test_a_fault_in_the_protocol_is_found(mutant: Mutant) -> None:
    """Each mutant lacks one part of the protocol; some schedule must lose, double or hold back a result."""
    for seed in range(SEEDS):
        try:
            check(some_config(seed, mutant), seed)
        except (AssertionError, KeyError):
            return
    pytest.fail(f"{mutant}: {SEEDS} schedules found nothing")
