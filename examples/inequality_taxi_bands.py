"""Query Q2 of the SPO-Join paper: taxi trips that start within 0.03 degrees of each other, within five minutes.

A self-join of one stream in a time window: a band in both coordinates. It finds the busiest trip starts of the day.
`python examples/inequality_taxi_bands.py [picture.svg]`: with a file name, a map is drawn (needs matplotlib).
"""

from __future__ import annotations

import sys
from collections import Counter

import numpy as np
import pyarrow as pa

import millrace as mr

ON = "abs(r.lon - s.lon) < 0.03 AND abs(r.lat - s.lat) < 0.03"
TRIPS, BATCH, SECONDS = 20_000, 2_000, 4 * 3600
SPOTS = {"Midtown": (-73.985, 40.755, 0.5), "JFK": (-73.780, 40.645, 0.15), "LaGuardia": (-73.872, 40.775, 0.1)}
"""Where trips start, and with which share; the other trips start anywhere in the city."""


def trips(rng: np.random.Generator) -> pa.Table:
    """Trips in order of their start."""
    lon, lat = rng.uniform(-74.05, -73.75, TRIPS), rng.uniform(40.58, 40.88, TRIPS)
    spot, first = rng.random(TRIPS), 0.0
    for middle_lon, middle_lat, share in SPOTS.values():
        near = (spot >= first) & (spot < first + share)
        lon[near] = rng.normal(middle_lon, 0.012, near.sum())
        lat[near] = rng.normal(middle_lat, 0.012, near.sum())
        first += share
    ts = np.sort(rng.integers(0, SECONDS, TRIPS)) * 1_000_000
    start = np.datetime64("2013-01-07T06:00:00", "us").astype(np.int64)
    columns = {"trip": np.arange(TRIPS), "lon": lon.round(6), "lat": lat.round(6)}
    return pa.table({**columns, "ts": pa.array(start + ts, pa.timestamp("us"))})


def spot_of(lon: float, lat: float) -> str:
    """The nearest named spot, if it is near."""
    for name, (middle_lon, middle_lat, _) in SPOTS.items():
        if abs(lon - middle_lon) < 0.03 and abs(lat - middle_lat) < 0.03:
            return name
    return "elsewhere"


def main(picture: str | None) -> None:
    """Push the trips in batches; count each trip's neighbours."""
    table = trips(np.random.default_rng(2))
    batches = [("r", table.slice(first, BATCH)) for first in range(0, TRIPS, BATCH)]
    neighbours: Counter[str] = Counter()
    by_trip = np.zeros(TRIPS, np.int64)
    starts = list(zip(table["lon"].to_pylist(), table["lat"].to_pylist(), strict=True))
    with mr.WindowJoin(ON, window="5 minutes", time="ts", self_join=True, index="spo", output="count") as join:
        for counts in join.run(batches):
            for seq, count in zip(counts["seq"].to_pylist(), counts["count"].to_pylist(), strict=True):
                neighbours[spot_of(*starts[seq])] += count
                by_trip[seq] = count
        sys.stdout.write(f"{join.stats.pairs} pairs of near trips; {join.stats['plan']}\n")
    for name, count in neighbours.most_common():
        sys.stdout.write(f"  {name}: {count}\n")
    if picture:
        draw(table, by_trip, picture)


def draw(table: pa.Table, by_trip: np.ndarray, picture: str) -> None:
    """A map of all trip starts; the colour says how many earlier trips started near, within the five minutes before."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "millrace"
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 5))
    order = np.argsort(by_trip, kind="stable")
    lon, lat = table["lon"].to_numpy()[order], table["lat"].to_numpy()[order]
    dots = axes.scatter(lon, lat, 3, by_trip[order], cmap="viridis_r", rasterized=True)
    for name, (middle_lon, middle_lat, _) in SPOTS.items():
        axes.annotate(name, (middle_lon, middle_lat + 0.033), ha="center", weight="bold")
        axes.add_patch(plt.Rectangle((middle_lon - 0.03, middle_lat - 0.03), 0.06, 0.06, fill=False, color="#c03a2b"))
    axes.set(xlabel="longitude", ylabel="latitude", title="trips that started near, at most 5 minutes earlier")
    figure.colorbar(dots, label="partners of a trip")
    figure.savefig(picture, bbox_inches="tight", dpi=110, facecolor="white", metadata={"Date": None})


if __name__ == "__main__":
    main(*(sys.argv[1:2] or [None]))
