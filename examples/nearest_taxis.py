"""The nearest free taxis for each request, live: `python examples/nearest_taxis.py [map.png] [minutes]`.

The city is generated: streets that follow a grid, a dense centre on an island, two airports. Taxis report their
positions every few seconds; a request looks for the five nearest reports of the last minute, at most 3 km away, of a
taxi with enough seats. With a file name, a map of the last minute is drawn (needs matplotlib).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import millrace as mr

CENTRE = (-73.97, 40.76)
AIRPORTS = ((-73.78, 40.645), (-73.875, 40.775))
DEGREES = (0.0118, 0.0090)
"""About a kilometre, in degrees of longitude and latitude."""
TAXIS, REQUESTS = 250, 40
"""Reports and requests per second."""
STREET = 0.15
"""Distance between two streets, in kilometres."""


def points_in_town(rng: np.random.Generator, count: int) -> np.ndarray:
    """Longitudes and latitudes: most near the centre, some at the airports, all on streets."""
    along, across = rng.normal(0, 5.5, count), rng.normal(0, 1.1, count)
    wide = rng.random(count) < 0.35
    along[wide], across[wide] = rng.normal(0, 9, (2, wide.sum()))
    on_street = rng.random(count) < 0.5
    across = np.where(on_street, np.round(across / STREET) * STREET, across)
    along = np.where(on_street, along, np.round(along / STREET) * STREET)
    angle = np.radians(29)  # the grid's angle to north
    east, north = across * np.cos(angle) + along * np.sin(angle), along * np.cos(angle) - across * np.sin(angle)
    found = np.array(CENTRE)[:, None] + np.stack([east * DEGREES[0], north * DEGREES[1]])
    flying = rng.random(count)
    for number, airport in enumerate(AIRPORTS):
        here = (flying > 0.04 * number) & (flying < 0.04 * (number + 1))
        found[:, here] = np.array(airport)[:, None] + rng.normal(0, 0.004, (2, here.sum()))
    return found


def seconds(count: int, seed: int = 7) -> Iterator[tuple[str, pa.Table]]:
    """Reports and requests, second by second."""
    rng = np.random.default_rng(seed)
    for now in range(count):
        for side, rows in (("s", TAXIS), ("r", REQUESTS)):
            lon, lat = points_in_town(rng, rows)
            seats = np.where(rng.random(rows) < 0.9, 4, 6)
            when = pa.array(np.full(rows, now), pa.timestamp("s"))
            yield side, pa.table({"lon": lon, "lat": lat, "seats": seats, "ts": when})


def main(picture: str | None, minutes: float) -> None:
    """Match requests with taxis, and draw the last of them."""
    join = mr.KnnJoin(
        on=("lon", "lat"), k=5, metric="haversine", within=3000, by="seats", how="left", window="1 minute", time="ts"
    )
    found = pa.concat_tables(join.run(seconds(round(60 * minutes))))
    unserved = found["rank"].null_count
    nearest = found.filter(pc.equal(found["rank"], 0))
    metres = nearest["distance"].to_numpy()
    sys.stdout.write(
        f"{join.stats.rows['r']} requests, {join.stats.rows['s']} reports, {join.stats.pairs} neighbours; {unserved} "
        f"requests without a taxi; the nearest is {np.median(metres):.0f} m away in the middle, "
        f"{np.percentile(metres, 95):.0f} m for one in twenty\n"
    )
    if picture:
        draw(found, picture)


def draw(found: pa.Table, picture: str) -> None:
    """A map: taxis that were found, requests, and a line from each request to its nearest taxi."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    last = found.filter(pc.is_valid(found["rank"])).slice(max(found.num_rows - 12_000, 0))
    first = last.filter(pc.equal(last["rank"], 0))
    figure, axes = plt.subplots(figsize=(8, 7), layout="constrained")
    axes.scatter(last["s_lon"], last["s_lat"], s=1.5, color="#b0b0b0", linewidths=0)
    ends = [first[name].to_numpy() for name in ("r_lon", "s_lon", "r_lat", "s_lat")]
    axes.plot([ends[0], ends[1]], [ends[2], ends[3]], color="#0072b2", linewidth=0.7)
    far = first["distance"].to_numpy()
    dots = axes.scatter(ends[0], ends[2], c=far, s=5, cmap="viridis", linewidths=0, vmax=np.percentile(far, 98))
    figure.colorbar(dots, label="metres to the nearest taxi", shrink=0.7)
    axes.set_aspect(DEGREES[0] / DEGREES[1])
    axes.set(xlim=np.percentile(ends[0], (0.5, 99.5)), ylim=np.percentile(ends[2], (0.5, 99.5)))
    axes.set_xlabel("longitude")
    axes.set_ylabel("latitude")
    axes.set_title("Requests, and the nearest taxis of the last minute")
    figure.savefig(picture, dpi=110, metadata={"Software": None} if picture.endswith("png") else None)
    plt.close(figure)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else None, float(sys.argv[2]) if len(sys.argv) > 2 else 1.0)
