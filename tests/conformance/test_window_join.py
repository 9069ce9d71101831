"""Every index on every device equals the oracle for random streams, conditions and windows."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil

import pytest

from tests.conformance.check import check_case
from tests.conformance.pairs import pairs
from tests.conformance.suite import CASES, SEED, run_shard, shortfalls
from tests.conformance.summary import PROPERTY

SHARDS = 4
QUOTA = ceil(CASES / SHARDS)


@pytest.mark.parametrize("seed", [SEED * 1000 + 10 * shard for shard in range(SHARDS)], ids="seed={}".format)
def test_window_join_equals_the_oracle(seed: int, record_property: Callable[[str, object], None]) -> None:
    tally = run_shard(seed, QUOTA, pairs(), check_case)
    record_property(PROPERTY, {"operator": "WindowJoin", **tally.report()})
    assert shortfalls(tally, QUOTA, pairs()) == []
