"""Two streams of prices, joined on a band within a window of time, with a checkpoint in the middle (PanJoin).

Offers meet bids that are at most 0.05 away and at most two seconds apart. Half way the join is stored, dropped and
restored; the output is that of a join without a stop.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

import millrace as mr

ARGUMENTS = {"on": "abs(r.price - s.price) <= 0.05", "window": "2 seconds", "time": "ts"}
SECONDS, ROWS = 8, 300


def batches(seed: int = 3) -> Iterator[tuple[str, pa.Table]]:
    """A batch of each side per second; prices drift."""
    rng = np.random.default_rng(seed)
    for second in range(SECONDS):
        for side in ("r", "s"):
            times = np.sort(rng.integers(0, 1000, ROWS)) + 1000 * second
            prices = np.round(100 + second / 10 + rng.normal(0, 2, ROWS), 2)
            yield side, pa.table({"ts": pa.array(times, pa.timestamp("ms")), "price": prices})


def with_a_stop() -> int:
    """The number of pairs of a run that is stored and restored half way."""
    pushed = list(batches())
    store: dict[str, bytes] = {}
    with mr.WindowJoin(**ARGUMENTS) as first:
        found = sum(first.push(side, batch).num_rows for side, batch in pushed[:SECONDS])
        delta = first.state()
        store |= delta.added  # store the runs first, then the manifest
        waiting = first.stats.pending
    sys.stdout.write(f"stored {len(store)} runs; rows that wait are in them: {waiting > 0}\n")
    second = mr.WindowJoin.restore(delta.manifest, store, index="bisort", **ARGUMENTS)
    found += sum(second.push(side, batch).num_rows for side, batch in pushed[SECONDS:])
    return found + second.close().num_rows


def main() -> None:
    """Compare a run with and without a stop."""
    join = mr.WindowJoin(**ARGUMENTS)
    through = sum(pairs.num_rows for pairs in join.run(batches()))
    sys.stdout.write(f"{join.stats.rows['r']} offers, {join.stats.rows['s']} bids, {through} pairs\n")
    sys.stdout.write(f"with a stop in the middle: {'the same' if with_a_stop() == through else 'other'} pairs\n")


if __name__ == "__main__":
    main()
