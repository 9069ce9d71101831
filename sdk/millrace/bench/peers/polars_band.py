"""Shared by the Polars peers: a band join of lazy frames, by `join_where` or as an equality join on buckets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millrace.bench.harness import PeerMissing
from millrace.host.base.install import install_command

if TYPE_CHECKING:
    import polars as pl


def check_polars() -> None:
    """Raise `PeerMissing` with the install command if Polars is missing."""
    try:
        import polars  # noqa: F401
    except ImportError as error:
        raise PeerMissing(f"polars is not installed: {install_command('bench')}") from error


def band_join(new: pl.LazyFrame, held: pl.LazyFrame, keys: tuple[str, str], eps: int, buckets: bool) -> pl.LazyFrame:
    """Pairs of rows of `new` and `held` whose key columns (`keys`) differ by at most eps.

    Without `buckets`: `join_where` on two inequalities over one column, for which the streaming engine has a range
    join. With `buckets`: an equality join on parts of the key domain as wide as the band; a row of `new` is copied to
    the one or two parts that its band overlaps.
    """
    import polars as pl

    x, held_x = pl.col(keys[0]), pl.col(keys[1])
    probes = new.with_columns(low=x - eps, high=x + eps)
    if not buckets:
        return probes.join_where(held, pl.col("low") <= held_x, pl.col("high") >= held_x)
    width = 2 * eps + 1
    low, high = pl.col("low") // width, pl.col("high") // width
    parts = pl.concat([probes.with_columns(b=low), probes.filter(low != high).with_columns(b=high)])
    joined = parts.join(held.with_columns(b=held_x // width), on="b")
    return joined.filter((pl.col("low") <= held_x) & (pl.col("high") >= held_x))
