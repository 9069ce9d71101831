"""What the Polars peers share: a band join of lazy frames, in Polars' own way or as a careful user rewrites it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millrace.bench.harness import PeerMissing

if TYPE_CHECKING:
    import polars as pl


def check_polars() -> None:
    """Says what is to be done where Polars is not installed."""
    try:
        import polars  # noqa: F401
    except ImportError as error:
        raise PeerMissing("polars is not installed: pip install 'millrace[bench]'") from error


def band_join(new: pl.LazyFrame, held: pl.LazyFrame, keys: tuple[str, str], eps: int, buckets: bool) -> pl.LazyFrame:
    """Pairs of rows of `new` and `held` whose keys, so named, differ by at most eps.

    Without `buckets` by `join_where` on two inequalities over one column, for which the streaming engine has a range
    join. With them an equality join on parts of the key's domain as wide as the band: the rows of `new` go into the one
    or two parts that their bands touch.
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
