"""`mr.join` equals the oracle for random tables and conditions, every `how` and every output."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from math import ceil
from random import Random
from typing import Any

import pyarrow as pa
import pytest

import millrace as mr
from tests import oracle
from tests.conformance.cases import Case, Shape, build
from tests.conformance.check import Mismatch, Outcome, check_refusal, describe_difference, first_difference
from tests.conformance.injection import case_faults, join_points
from tests.conformance.pairs import pairs
from tests.conformance.suite import CASES, ENFORCED_FROM, MIN_SHARES, SEED, Pair, Tally, draw_cases
from tests.conformance.summary import PROPERTY

SHARDS = 2
QUOTA = ceil(CASES / 4 / SHARDS)
HOWS = ("inner", "inner", "left", "semi", "anti")
OUTPUTS = ("pairs", "pairs", "seqs", "count")


@pytest.mark.parametrize("seed", [SEED * 1000 + 500 + shard for shard in range(SHARDS)], ids="seed={}".format)
def test_join_equals_the_oracle(seed: int, record_property: Callable[[str, object], None]) -> None:
    tally = Tally()
    draw_cases(seed, QUOTA, lambda shape: run(shape, tally))
    record_property(PROPERTY, {"operator": "join", **tally.report()})
    assert tally.served["scan", "cpu"] >= QUOTA
    if tally.cases >= ENFORCED_FROM:
        assert tally.covered["pairs"] >= MIN_SHARES["pairs"] * tally.cases
        assert all(tally.served[pair] for pair in pairs())


def run(shape: Shape, tally: Tally) -> None:
    """Runs one random case on every pair; uses only its tables and its condition."""
    case, rng = build(shape), Random(shape.seed)
    how, output = rng.choice(HOWS), rng.choice(OUTPUTS)
    r, s = (feed.known(0, len(feed)) for feed in (case.feeds["r"], case.feeds["s"]))
    partners = oracle.matches(r, s, case.on)
    wanted = wanted_table(case, partners, oracle.join(r, s, case.on, how), how, output)
    for pair in pairs():
        if check_join(case, wanted, pair, rng.choice((1, 2)), how, output).served:
            tally.served[pair] += 1
    tally.cases += 1
    tally.covered["pairs"] += any(partners)


def check_join(case: Case, wanted: pa.Table, pair: Pair, threads: int, how: str, output: str) -> Outcome:
    arguments: dict[str, Any] = {"how": how, "index": pair[0], "device": pair[1], "threads": threads, "output": output}
    points = [*join_points(*pair), "direct.build", "direct.probe"]
    try:
        with case_faults(points, f"{case.on} {arguments}") as injection, warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            arguments |= injection.fallback(pair[1])
            found = injection.call(
                lambda: mr.join(case.feeds["r"].given(), case.feeds["s"].given(), case.on, **arguments)
            )
    except mr.ArgumentError as refusal:
        return check_refusal(refusal, pair[0])
    what = f"join on {case.on!r} with {arguments}"
    if found.schema.names != wanted.schema.names or found.schema.types != wanted.schema.types:
        raise Mismatch(f"{what}: schema\n{found.schema}\nbut it should be\n{wanted.schema}")
    at = first_difference(found, wanted)
    if at is not None:
        raise Mismatch(f"{what}: {describe_difference(found, wanted, at)}")
    return Outcome(True)


def wanted_table(
    case: Case, partners: list[list[int]], rows: list[tuple[int, int | None]], how: str, output: str
) -> pa.Table:
    """Returns the oracle's result as a table. Counts cover the rows that `how` keeps, zeros included."""
    if output == "count":
        kept = {"semi": (True,), "anti": (False,)}.get(how, (True, False))
        counts = [(seq, len(found)) for seq, found in enumerate(partners) if bool(found) in kept]
        return _table([("r_seq", [seq for seq, _ in counts]), ("count", [count for _, count in counts])])
    r_rows, s_rows = [r for r, _ in rows], [s for _, s in rows]
    one_sided = how in ("semi", "anti")
    columns: list[tuple[str, Any]] = [("r_seq", r_rows)] if one_sided else [("r_seq", r_rows), ("s_seq", s_rows)]
    table = _table(columns)
    if output == "seqs":
        return table
    for side, taken in (("r", r_rows),) if one_sided else (("r", r_rows), ("s", s_rows)):
        source = case.feeds[side].table
        assert source is not None
        for name in source.schema.names:
            table = table.append_column(f"{side}_{name}", source.column(name).take(pa.array(taken, pa.int64())))
    return table


def _table(columns: list[tuple[str, Any]]) -> pa.Table:
    return pa.table([pa.array(values, pa.int64()) for _, values in columns], names=[name for name, _ in columns])
