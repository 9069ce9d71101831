"""Shared by the DuckDB peers: the SQL of a band join, as a range predicate or as an equality join on buckets."""

from __future__ import annotations

from types import ModuleType

from millrace.bench.harness import PeerMissing
from millrace.host.base.install import install_command


def import_duckdb() -> ModuleType:
    """The module; `PeerMissing` with the install command if it is missing."""
    try:
        import duckdb
    except ImportError as error:
        raise PeerMissing(f"duckdb is not installed: {install_command('bench')}") from error
    return duckdb


def band_query(tables: tuple[str, str], columns: list[str], eps: int, buckets: bool) -> str:
    """Pairs of two tables with `seq`, `x` and `v`, the first r and the second s, whose x differ by at most eps.

    Without `buckets`: a range predicate, for which DuckDB uses its IEJoin. With `buckets`: a hash join on parts of the
    key domain as wide as the band; a row of r is copied to the one or two parts that its band overlaps.
    """
    wanted = ", ".join(f"{name[0]}.{name[2:]} AS {name}" for name in columns)
    band = f"s.x BETWEEN r.x - {eps} AND r.x + {eps}"
    if not buckets:
        return f"SELECT {wanted} FROM {tables[0]} r JOIN {tables[1]} s ON {band}"
    width = 2 * eps + 1
    low, high = f"(x - {eps}) // {width}", f"(x + {eps}) // {width}"
    return (
        f"WITH r AS (SELECT *, {low} AS b FROM {tables[0]}"
        f" UNION ALL SELECT *, {high} AS b FROM {tables[0]} WHERE {low} <> {high}),"
        f" s AS (SELECT *, x // {width} AS b FROM {tables[1]})"
        f" SELECT {wanted} FROM r JOIN s ON r.b = s.b AND {band}"
    )
