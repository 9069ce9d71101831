"""Bench `join`: `mr.join` of two tables on a band with about two matches per row; output: all pairs with payload.

Each peer uses its fastest method for a band: DuckDB and Polars their range joins and, as `-buckets`, the equality join
on buckets that an expert would write by hand; NumPy sorts both tables. A peer that takes more than `MAX_SECONDS` at the
first size is not run at the next one, where it could take ten minutes or all memory; the bench reports this. Results
are compared row by row at the first size, by a fingerprint at larger ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial

from millrace.bench.entrants import Entrant, entrants
from millrace.bench.harness import Case, Contender, PeerMissing
from millrace.bench.options import Options
from millrace.bench.peers.duckdb_tables import DuckdbTables
from millrace.bench.peers.numpy_tables import NumpyTables
from millrace.bench.peers.polars_tables import PolarsTables
from millrace.bench.tables import Joiner, OurJoin, TableRun, Tables

SIZES = {"1M": 1_000_000, "10M": 10_000_000}
QUICK_SIZES = {"64Ki": 1 << 16}
MAX_SECONDS = 20.0
LARGEST = {"bisort": 10_000_000, "auto": 10_000_000, "btree": 1_000_000}
"""The participating indexes, each with the largest table that it joins in reasonable time."""
PEERS: dict[str, Callable[[Tables], Joiner]] = {
    "duckdb": DuckdbTables,
    "duckdb-buckets": partial(DuckdbTables, buckets=True),
    "polars": PolarsTables,
    "polars-buckets": partial(PolarsTables, buckets=True),
    "numpy-sorted": NumpyTables,
}


def cases(options: Options) -> Iterator[Case]:
    """One case per size, smallest first."""
    on_cpu = [entrant for entrant in entrants() if entrant.device == "cpu"]
    first: int | None = None
    for name, rows in (QUICK_SIZES if options.quick else SIZES).items():
        yield _case(f"band-{name}-pairs", Tables(rows), on_cpu, first)
        first = first or rows


def _case(name: str, tables: Tables, everyone: list[Entrant], smaller: int | None) -> Case:
    ours = [
        entrant.contender(partial(TableRun, partial(OurJoin, index=entrant.index, device=entrant.device), tables))
        for entrant in everyone
        if tables.rows <= LARGEST.get(entrant.index, 0)
    ]
    theirs = [Contender(peer, partial(patiently, make, tables, smaller)) for peer, make in PEERS.items()]
    return Case(name, "rows/s", [*ours, *theirs], tables.facts, rivals=frozenset({"btree"}))


def patiently(make: Callable[[Tables], Joiner], tables: Tables, smaller: int | None) -> TableRun:
    """Start a peer, if it was fast enough at the smaller size (if there is one)."""
    if smaller is not None:
        with closing(TableRun(make, Tables(smaller))) as trial:
            _, seconds = trial.step()
        if seconds > MAX_SECONDS:
            raise PeerMissing(f"{smaller:,} rows took {seconds:.0f} s, more than {MAX_SECONDS:.0f} s")
    return TableRun(make, tables)
