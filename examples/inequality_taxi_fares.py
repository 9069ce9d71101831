"""Query Q3 of the SPO-Join paper: pairs of taxi trips of which one goes farther and costs less.

A table joined with itself. First each trip's number of such partners, without listing them; then the trips without
one; then all pairs of a few suspicious trips.
`python examples/inequality_taxi_fares.py [picture.svg]`: with a file name, the trips are drawn (needs matplotlib).
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


def main(picture: str | None) -> None:
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
    if picture:
        draw(table, counts["count"].to_numpy(), table.take(fair["r_seq"]), picture)


def draw(table: pa.Table, counts: np.ndarray, fair: pa.Table, picture: str) -> None:
    """All trips; the colour says how many shorter trips cost more. A line joins those without one."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "millrace"
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4.2))
    dist, fare = table["dist"].to_numpy(), table["fare"].to_numpy()
    dots = axes.scatter(dist, fare, 3, counts, cmap="viridis_r", rasterized=True)
    line = fair.sort_by("dist")
    axes.plot(line["dist"], line["fare"], "#c03a2b", label=f"the {fair.num_rows} trips without a partner")
    axes.set(xlim=(0, 12), ylim=(0, 45), xlabel="distance, miles", ylabel="fare, dollars", title="farther, but cheaper")
    axes.legend(loc="upper left", frameon=False)
    figure.colorbar(dots, label="shorter trips that cost more")
    figure.savefig(picture, bbox_inches="tight", dpi=110, facecolor="white", metadata={"Date": None})


if __name__ == "__main__":
    main(*(sys.argv[1:2] or [None]))
