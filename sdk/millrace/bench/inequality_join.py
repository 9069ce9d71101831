"""Bench `inequality_join`: joins on two inequalities (SPO-Join) of tables, against DuckDB and Polars, and of streams.

- `count-…`, `seqs-…`: tables by rows and matches; the number of matches, or all pairs as an Arrow table of row numbers.
  `-groups1000`: an equality of 1,000 groups stands in front. Our counts are per row of r, as the API gives them; the
  peers count all pairs together (`SELECT count(*)`), which is less work. Their plans are in the rows (`duckdb_plan`,
  `polars_plan`), so that readers see which join they used. `spo at 1M matches` shows how time depends on matches.
- `crossover-…-band…`: a band with so many partners per row and an inequality that keeps half of them. `spo` searches
  both, `bisort` searches the band and checks the rest. `auto` should take the faster one.
- `stream-…`, `slowest-…`, `memory-…`: see `inequality_stream.py`.

A peer that would need more than `MAX_SECONDS` for a step, judged by the case with fewer matches, is left out, and the
bench reports this. Results are compared: totals of counts, fingerprints of pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Any, cast

import numpy as np
import pyarrow as pa

from millrace.bench import inequality_stream
from millrace.bench.entrants import Entrant
from millrace.bench.harness import Answer, Case, Contender, PeerMissing
from millrace.bench.inequality_workload import OUTPUTS, Readings
from millrace.bench.options import Options
from millrace.bench.peers.duckdb_inequality import DuckdbInequality
from millrace.bench.peers.polars_inequality import PolarsInequality
from millrace.bench.tables import TableRun, fingerprint
from millrace.ingest.choices import IndexName
from millrace.table_join import join

SMALL, LARGE = ("100K", 100_000), ("1M", 1_000_000)
MATCHES = {"1M": 1_000_000, "100M": 100_000_000, "2.5G": 2_500_000_000}
LARGE_MATCHES = ("10M", 10_000_000)
GROUPS = 1000
BANDS = (1, 10, 100, 1000)
QUICK_SMALL, QUICK_LARGE = ("4K", 4000), ("20K", 20_000)
QUICK_MATCHES = {"2K": 2000, "160K": 160_000, "4M": 4_000_000}
QUICK_LARGE_MATCHES = ("10K", 10_000)
QUICK_GROUPS = 10
QUICK_BANDS = (1, 100)
MAX_SECONDS = 20.0
CROSSOVER_SLICE = 0.5
PEERS: dict[str, Callable[[Readings], DuckdbInequality | PolarsInequality]] = {
    "duckdb": DuckdbInequality,
    "polars": PolarsInequality,
}


def cases(options: Options) -> Iterator[Case]:
    """Tables, the crossover, streams."""
    quick = options.quick
    yield from _tables(
        *((QUICK_SMALL, QUICK_MATCHES, QUICK_GROUPS) if quick else (SMALL, MATCHES, GROUPS)),
        *((QUICK_LARGE, QUICK_LARGE_MATCHES) if quick else (LARGE, LARGE_MATCHES)),
    )
    size, rows = QUICK_SMALL if quick else SMALL
    for band in QUICK_BANDS if quick else BANDS:
        for output in OUTPUTS:
            yield _crossover(f"crossover-{size}-band{band}-{output}", Readings(rows, rows * band // 2, output, 1, band))
    yield from inequality_stream.cases(quick)


def _tables(
    small: tuple[str, int], matches: Mapping[str, int], groups: int, large: tuple[str, int], most: tuple[str, int]
) -> Iterator[Case]:
    """Counts and pairs of small tables by matches, with groups, and of large tables."""
    (size, rows), first = small, next(iter(matches))
    base = Readings(rows, matches[first], "count")
    fewer: Readings | None = None
    for name, amount in matches.items():
        given = replace(base, matches=amount)
        yardstick = [_yardstick(f"spo at {first} matches", base)] if fewer else []
        yield _case(f"count-{size}-{name}", given, fewer, yardstick)
        fewer = given
    for name, amount in list(matches.items())[:-1]:
        yield _case(f"seqs-{size}-{name}", replace(base, matches=amount, output="seqs"))
    for output in OUTPUTS:
        yield _case(f"{output}-{size}-{first}-groups{groups}", replace(base, output=output, groups=groups))
    for output in OUTPUTS:
        yield _case(f"{output}-{large[0]}-{most[0]}", Readings(large[1], most[1], output))


def _case(name: str, given: Readings, fewer: Readings | None = None, yardsticks: Sequence[Contender] = ()) -> Case:
    facts = given.facts
    theirs = [Contender(peer, partial(_start_peer, peer, given, fewer, facts)) for peer in PEERS]
    return Case(name, "rows/s", [_ours("spo", given), *theirs, *yardsticks], facts, check_steps=1)


def _crossover(name: str, given: Readings) -> Case:
    ours = [_ours(index, given) for index in ("spo", "bisort", "auto")]
    rivals = frozenset({"bisort"})
    return Case(name, "rows/s", ours, given.facts, check_steps=1, slice_share=CROSSOVER_SLICE, rivals=rivals)


def _ours(index: str, given: Readings) -> Contender:
    return Entrant(index, "cpu", "cpu").contender(lambda: InequalityRun(OurInequality(given, index), given))


def _yardstick(name: str, given: Readings) -> Contender:
    return Contender(name, lambda: InequalityRun(OurInequality(given, "spo"), given), answers=False)


def _start_peer(name: str, given: Readings, fewer: Readings | None, facts: dict[str, Any]) -> InequalityRun:
    """Start a peer, if it would be fast enough, and add its plan to the facts."""
    make = PEERS[name]
    if fewer is not None:
        with closing(InequalityRun(make(fewer), fewer)) as trial:
            _, seconds = trial.step()
        expected = seconds * given.matches / fewer.matches
        if expected > MAX_SECONDS:
            raise PeerMissing(
                f"{fewer.matches:,} matches took {seconds:.1f} s: {given.matches:,} would take about {expected:.0f} s, "
                f"more than {MAX_SECONDS:.0f} s"
            )
    joiner = make(given)
    facts[f"{name}_plan"] = joiner.plan()
    return InequalityRun(joiner, given)


class OurInequality:
    """`mr.join`, called through the public API."""

    def __init__(self, given: Readings, index: str) -> None:
        """Arrow tables that share the arrays' memory."""
        self._sides = tuple(pa.table(columns) for columns in given.sides)
        self._given, self._index = given, cast(IndexName, index)

    def run(self) -> pa.Table:
        """One call."""
        r, s = self._sides
        return join(r, s, on=self._given.on, index=self._index, device="cpu", output=self._given.output)

    def answer(self, result: pa.Table) -> Answer:
        """The pairs, or their number."""
        if self._given.output == "count":
            return {"total": np.array([result.column("count").to_numpy().sum()])}
        return {name: result.column(name).to_numpy() for name in ("r_seq", "s_seq")}

    def close(self) -> None:
        """Nothing to release."""


class InequalityRun(TableRun):
    """Runs a joiner; the unit of work is the row, of both tables together."""

    def __init__(self, joiner: OurInequality | DuckdbInequality | PolarsInequality, given: Readings) -> None:
        """The joiner has its tables already."""
        self._joiner, self._rows, self._output = joiner, given.rows, given.output
        self._last = None

    def answer(self) -> Answer:
        """The number of all matches, or the fingerprint of the pairs."""
        columns = self._joiner.answer(self._last)
        return columns if self._output == "count" else fingerprint(columns)
