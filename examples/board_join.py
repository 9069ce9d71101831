"""A window join on a board, then on the CPU: `python examples/board_join.py fpga:lab`, or any other device."""

from __future__ import annotations

import sys

import pyarrow as pa

import millrace as mr


def main(device: str) -> None:
    """Join two streams of 3,000 rows each in windows of 1,500 rows, on the device and on the CPU."""
    found = {}
    for name in (device, "cpu"):
        join = mr.WindowJoin(on="abs(r.x - s.x) <= 2", window="1500 rows", index="bisort", device=name, fallback="cpu")
        pairs = 0
        for turn in range(2):
            for side, factor in (("r", 7919), ("s", 6101)):
                column = pa.array([(i * factor + turn) % 50_021 for i in range(1500)], pa.int64())
                pairs += join.push(side, pa.table({"x": column})).num_rows
        pairs += join.close().num_rows
        found[name] = pairs
        through = join.stats.get("fpga_merger_rows", 0)
        sys.stdout.write(
            f"{name}: {pairs} pairs, {through} rows merged on the board, {join.stats['fallback'] or 'no fault'}\n"
        )
    sys.stdout.write("the same\n" if len(set(found.values())) == 1 else "different\n")


if __name__ == "__main__":
    main(sys.argv[1])
