"""Query Q1 of the SPO-Join paper: a rack of R that takes less power than one of S, but needs more cooling.

Two streams of readings in count windows. First the racks with the most such partners, by counts alone; then the pairs.
"""

from __future__ import annotations

import sys

import numpy as np
import pyarrow as pa

import millrace as mr

ON = "r.power < s.power AND r.cool > s.cool"
WINDOW, BATCH, PUSHES = 20_000, 1_000, 30


def readings(rng: np.random.Generator, rows: int, load: float) -> pa.Table:
    """Racks in watts; cooling follows power, and differs from rack to rack."""
    current, voltage = load * rng.gamma(4.0, 1.2, rows), rng.normal(230.0, 3.0, rows)
    power = current * voltage
    cool = 0.4 * power + rng.normal(0.0, 25.0, rows)
    return pa.table({"rack": rng.integers(0, 400, rows), "power": np.round(power, 1), "cool": np.round(cool, 1)})


def main() -> None:
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


if __name__ == "__main__":
    main()
