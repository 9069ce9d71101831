"""Query Q1 of the SPO-Join paper: a rack of R that takes less power than one of S, but needs more cooling.

Two streams of readings in count windows. First the racks with the most such partners, by counts alone; then the pairs.
`python examples/inequality_data_centres.py [picture.svg]`: with a file name, a rack and its partners are drawn (needs
matplotlib).
"""

from __future__ import annotations

import sys

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import millrace as mr

ON = "r.power < s.power AND r.cool > s.cool"
WINDOW, BATCH, PUSHES = 20_000, 1_000, 30


def readings(rng: np.random.Generator, rows: int, load: float) -> pa.Table:
    """Racks in watts; cooling follows power, and differs from rack to rack."""
    current, voltage = load * rng.gamma(4.0, 1.2, rows), rng.normal(230.0, 3.0, rows)
    power = current * voltage
    cool = 0.4 * power + rng.normal(0.0, 25.0, rows)
    return pa.table({"rack": rng.integers(0, 400, rows), "power": np.round(power, 1), "cool": np.round(cool, 1)})


def main(picture: str | None) -> None:
    """Push readings of both data centres in turn."""
    rng = np.random.default_rng(1)
    batches = [(side, readings(rng, BATCH, load)) for _ in range(PUSHES) for side, load in (("r", 0.8), ("s", 1.0))]

    with mr.WindowJoin(ON, window=f"{WINDOW} rows", index="spo", output="count") as counting:
        counts = pa.concat_tables(list(counting.run(batches)))
        most = counts.sort_by([("count", "descending")]).slice(0, 3).to_pylist()
        sys.stdout.write(f"{counting.stats.pairs} pairs, counted without listing them: {counting.stats['strategy']}\n")
    for one in most:
        sys.stdout.write(f"  reading {one['seq']} of {one['side']} completes {one['count']} pairs\n")

    with mr.WindowJoin(ON, window=f"{WINDOW} rows", index="spo") as pairing:
        first = next(pairs for pairs in pairing.run(batches) if pairs.num_rows)
    pair = first.slice(0, 1).to_pylist()[0]
    sys.stdout.write(
        f"first pair: rack {pair['r_rack']} of R at {pair['r_power']} W needs {pair['r_cool']} W of cooling, "
        f"rack {pair['s_rack']} of S at {pair['s_power']} W needs {pair['s_cool']} W\n"
    )
    if picture:
        draw(batches[0][1], batches[1][1], first, picture)


def draw(r: pa.Table, s: pa.Table, pairs: pa.Table, picture: str) -> None:
    """The first batches of both streams, one rack of R that has many partners, and its partners in S."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "millrace"
    import matplotlib.pyplot as plt

    partners = pairs["r_seq"].value_counts().to_pylist()
    chosen = sorted(partners, key=lambda one: one["counts"])[-20]["values"]
    found = pairs.filter(pc.equal(pairs["r_seq"], chosen))
    power, cool = found["r_power"][0].as_py(), found["r_cool"][0].as_py()
    figure, axes = plt.subplots(figsize=(7, 4.2))
    axes.scatter(s["power"], s["cool"], 9, "#9fb0c0", label="readings of S")
    axes.scatter(r["power"], r["cool"], 9, "#e0c39c", label="readings of R")
    axes.scatter(found["s_power"], found["s_cool"], 14, "#1f6fb4", label=f"its {found.num_rows} partners in S")
    axes.scatter([power], [cool], 90, "#c03a2b", marker="*", zorder=3, label="a reading of R")
    axes.add_patch(plt.Rectangle((power, 0), 4000, cool, color="#1f6fb4", alpha=0.1, zorder=0))
    axes.set(xlim=(power - 500, power + 800), ylim=(cool - 300, cool + 250))
    axes.set(xlabel="power, W", ylabel="cooling, W", title="less power, more cooling")
    axes.legend(loc="upper left", frameon=False)
    figure.savefig(picture, bbox_inches="tight", facecolor="white", metadata={"Date": None})


if __name__ == "__main__":
    main(*(sys.argv[1:2] or [None]))
