"""An ordered index of prices: lookups, ranges, neighbours, updates in batches, and a file (HB+-Tree)."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa

import millrace as mr

KEYS = 20_000


def main() -> None:
    """Build, search, change, store and open an index."""
    rng = np.random.default_rng(5)
    prices = rng.choice(10 * KEYS, KEYS, replace=False)
    index = mr.OrderedIndex(prices, pa.array([f"item {number}" for number in range(KEYS)]), layout="regular")
    say = sys.stdout.write
    say(f"{len(index)} keys in {index.stats.levels} inner levels\n")

    asked = prices[:1000]
    found = index.lookup(asked)
    say(f"found {len(found) - found.null_count} of {len(asked)}; absent keys are null: {index.lookup([-1])[0]}\n")

    lists = index.range([0, 5 * KEYS], [999, 5 * KEYS + 999])
    counts = [len(values) for values in lists.to_pylist()]
    say(f"two ranges are right: {counts == [in_range(prices, first) for first in (0, 5 * KEYS)]}\n")

    index.update(upsert=([-5, int(prices[0])], ["new", "changed"]), delete=prices[1:100])
    say(f"after an update: {len(index)} keys, {index[-5]}, {index[int(prices[0])]}\n")

    path = Path(tempfile.mkdtemp()) / "prices.index"
    index.save(path)
    with mr.OrderedIndex.open(path) as again:
        say(f"from its file: {again.floor([-1]).to_pylist()}\n")


def in_range(prices: np.ndarray, first: int) -> int:
    """How many prices are in a range of a thousand, by brute force."""
    return int(((prices >= first) & (prices < first + 1000)).sum())


if __name__ == "__main__":
    main()
