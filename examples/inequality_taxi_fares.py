"""Query Q3 of the SPO-Join paper: pairs of taxi trips of which one goes farther and costs less.

A table joined with itself. First each trip's number of such partners, without listing them; then the trips without
one; then all pairs of a few suspicious trips.
"""

from __future__ import annotations

import sys

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import millrace as mr

ON = "r.dist > s.dist AND r.fare < s.fare"
TRIPS = 50_000


def trips(rng: np.random.Generator) -> pa.Table:
    """Distances in miles and fares in dollars: a start fee, a rate per mile, and time in traffic."""
    dist = rng.lognormal(0.8, 0.8, TRIPS).round(2)
    fare = (2.5 + 2.5 * dist + rng.gamma(1.5, 1.0, TRIPS)).round(1)
    return pa.table({"dist": dist, "fare": fare})


def main() -> None:
    """Count, then look at the extremes."""
    table = trips(np.random.default_rng(3))
    counts = mr.join(table, table, on=ON, index="spo", output="count")
    total = pc.sum(counts["count"]).as_py()
    sys.stdout.write(f"{total} pairs of {TRIPS} trips, counted without listing them\n")

    fair = mr.join(table, table, on=ON, index="spo", how="anti")
    sys.stdout.write(f"{fair.num_rows} trips cost at least as much as every shorter trip\n")

    cheapest = counts.sort_by([("count", "descending")])["r_seq"].slice(0, 3)
    few = table.take(cheapest)
    pairs = mr.join(few, table, on=ON, index="spo", output="seqs")
    for number, trip in enumerate(few.to_pylist()):
        worse = pc.sum(pc.equal(pairs["r_seq"], number)).as_py()
        sys.stdout.write(f"  {trip['dist']} miles for ${trip['fare']}: {worse} shorter trips cost more\n")


if __name__ == "__main__":
    main()
