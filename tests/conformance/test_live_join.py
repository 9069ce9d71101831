"""`mr.LiveJoin` equals the oracle for random streams: over indexes, threads, sources, puts, polls and restores.

The calls of a case are the same as for `mr.WindowJoin`; the output of all polls together must be the oracle's.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

import pyarrow as pa
import pytest

import millrace as mr
from millrace.host.join.registry import INDEXES
from tests.conformance.cases import Advance, Call, Case, Checkpoint, Flush, Push, PushBoth, Shape, build
from tests.conformance.check import (
    Mismatch,
    check_refusal,
    describe_difference,
    first_difference,
    output_schema,
    wanted_table,
)
from tests.conformance.expected import Expected, expect
from tests.conformance.injection import Injection, case_faults, join_points
from tests.conformance.suite import CASES, SEED, draw_cases

SHARDS = 2
QUOTA = max(CASES // 10, 1)
TOTALS = ("late", "null_times", "null_keys")


class LiveCase:
    """One case on a live join."""

    def __init__(self, case: Case, expected: Expected, rng: Random, injection: Injection) -> None:
        self.case, self.expected, self.rng, self.injection = case, expected, rng, injection
        self.index = rng.choice(list(INDEXES))
        given = dict(case.arguments)
        sides = ["r"] if given.get("self_join") else ["r", "s"]
        self.arguments = given | {
            "schemas": {side: case.feeds[side].given().schema for side in sides},
            "index": self.index,
            "threads": rng.choice((1, 1, 2, 3)),
            "capacity": rng.choice((1, 5, 1000)),
        }
        self.outputs: list[pa.Table] = []
        self.runs: dict[str, bytes] = {}

    def check(self) -> bool:
        """Run the case; return whether the index serves its condition."""
        try:
            self.live = self._retried(lambda: mr.LiveJoin(**self.arguments))
        except mr.ArgumentError as refusal:
            return check_refusal(refusal, self.index).served
        for call in self.case.calls:
            self._make(call)
            if self.rng.random() < 0.3:
                self.outputs.append(self.live.poll())
        self.outputs.append(self.live.close())
        self._compare()
        return True

    def _retried(self, make: Callable[[], mr.LiveJoin]) -> mr.LiveJoin:
        return self.injection.retried(self.injection.call(make))

    def _make(self, call: Call) -> None:
        if isinstance(call, Push):
            self._put(call.side, call.start, call.stop, call.source)
        elif isinstance(call, PushBoth):
            at = {"r": call.r[0], "s": call.s[0]}
            for number in call.arrival:
                side = "rs"[number]
                self._put(side, at[side], at[side] + 1, 0)
                at[side] += 1
        elif isinstance(call, Advance):
            kind = self.case.time_kind(call.side)
            self.live.advance(call.side, pa.scalar(call.ts, kind.type) if kind.is_temporal else call.ts, call.source)
        elif isinstance(call, Flush):
            self.outputs.append(self.live.flush())
        else:
            self._checkpoint(call)

    def _put(self, side: str, start: int, stop: int, source: int) -> None:
        """Put rows as one table, or in two; poll while the queue is full."""
        middle = self.rng.randint(start, stop)
        cuts = [(start, stop)] if self.rng.random() < 0.5 else [(start, middle), (middle, stop)]
        for first, last in cuts:
            rows = self.case.feeds[side].given().slice(first, last - first)
            while True:
                try:
                    self.live.put(side, rows, source, timeout=0.002)
                    break
                except mr.StateError as error:
                    if "capacity" not in str(error):
                        raise
                    self.outputs.append(self.live.poll())

    def _checkpoint(self, call: Checkpoint) -> None:
        delta = self.live.state()
        self.runs |= delta.added
        for name in delta.removed:
            del self.runs[name]
        if call.restore:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ResourceWarning)
                self.live.__exit__(None, None, None)
            self.live = self._retried(lambda: mr.LiveJoin.restore(delta.manifest, dict(self.runs), **self.arguments))

    def _compare(self) -> None:
        where = f"index {self.index}, on {self.case.on!r}"
        schema = output_schema(self.case, {"r", "s"})
        for table in self.outputs:
            if list(zip(table.schema.names, table.schema.types, strict=True)) != schema:
                raise Mismatch(f"{where}: schema\n{table.schema}\nbut it should be\n{schema}")
        found = pa.concat_tables(self.outputs)
        counts = self.arguments.get("output") == "count"
        rows = (self.expected.count_ends if counts else self.expected.pair_ends)[-1]
        if found.num_rows or rows:
            wanted = wanted_table(self.case, self.expected, len(self.case.calls), found.schema)
            at = first_difference(found, wanted)
            if at is not None:
                raise Mismatch(f"{where}: {describe_difference(found, wanted, at)}")
        stats: Any = self.live.stats
        last = self.expected.stats[-1]
        if [stats[name] for name in TOTALS] != [last[name] for name in TOTALS]:
            raise Mismatch(f"{where}: stats {stats}, but they should be {last}")


@pytest.mark.parametrize("seed", [SEED * 1000 + 7 + shard for shard in range(SHARDS)], ids="seed={}".format)
def test_live_join_equals_the_oracle(seed: int) -> None:
    served: Counter[bool] = Counter()

    def run(shape: Shape) -> None:
        case = build(shape)
        rng = Random(shape.seed)
        points = [*join_points(rng.choice(list(INDEXES)), "cpu"), "live.put", "live.step", "live.step"]
        with case_faults(points, shape.seed) as injection:
            served[LiveCase(case, expect(case), Random(shape.seed), injection).check()] += 1

    draw_cases(seed, QUOTA, run)
    assert served[True] > QUOTA // 3
