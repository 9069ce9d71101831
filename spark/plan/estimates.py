"""What `ms.explain` expects of a batch join: rows, pairs and bytes, from the samples that the strategy needs anyway.

The pairs are those of the two samples, counted exactly and scaled up. With few pairs in the samples that is a rough
number, and with none an upper bound.
"""

from __future__ import annotations

from typing import Any

from millrace.spark.plan.strategy import JoinRequest, Strategy, estimated_pairs

MANY = 10**9
"""Comparisons or pairs from which a plan that grows with the product of both sides is worth a warning."""


def estimates(request: JoinRequest, chosen: Strategy) -> dict[str, Any]:
    """Entries for `ms.explain`: numbers, and a warning if the work grows with the product of the sides."""
    samples = request.samples()
    rows = {side: one.rows for side, one in samples.items()}
    width = {side: one.width(request.frames[side].schema) for side, one in samples.items()}
    found = round(estimated_pairs(samples, request.condition))
    product = rows["r"] * rows["s"]
    drawn = max(1, samples["r"].drawn * samples["s"].drawn)
    pairs = found or round(product / drawn)
    entries: dict[str, Any] = {
        "r_rows": rows["r"],
        "s_rows": rows["s"],
        "r_bytes": round(rows["r"] * width["r"]),
        "s_bytes": round(rows["s"] * width["s"]),
        "pairs" if found else "pairs, at most about": pairs,
    }
    if request.pairs:
        entries["pair_bytes"] = round(pairs * sum(width.values()))
    warning = _warning(chosen, product, found)
    return {"estimates": entries, **({} if warning is None else {"warning": warning})}


def _warning(chosen: Strategy, product: int, pairs: int) -> str | None:
    """Why a plan is quadratic, if it is one."""
    if chosen.name == "grid" and chosen.route is None and product > MANY:
        return (
            f"quadratic: no comparison bounds a plain column, so tasks compare about {product:,} pairs; write the "
            f"condition so that a column stands alone on one side of a comparison"
        )
    if chosen.buckets is not None and chosen.buckets.compared > MANY:
        return f"quadratic: Spark compares about {chosen.buckets.compared:,.0f} pairs that share a bucket"
    if pairs > MANY and pairs > product / 1000:
        return f"quadratic: the result itself has about {pairs:,} pairs; if they are not wanted, use output='count'"
    return None
