"""Five sensors with different rates, merged into one order for two readers, then joined (ScaleGate, ScaleJoin).

The order is the same however the threads run: by time, then by sensor, then by the sensor's own count. A sensor that
has nothing to say advances its clock, so that the others do not wait for it.
"""

from __future__ import annotations

import sys
import threading

import numpy as np
import pyarrow as pa

import millrace as mr

SENSORS, LAST = 5, 10_000


def deliver(gate: mr.ScaleGate, sensor: int) -> None:
    """Add a sensor's readings in batches, then close it; sensor 4 is silent at first."""
    rng = np.random.default_rng(sensor)
    times = np.sort(rng.integers(LAST // 2 if sensor == 4 else 0, LAST, 400 * (sensor + 1)))
    if sensor == 4:
        gate.advance(sensor, LAST // 2)
    for part in np.array_split(times, 7):
        gate.add(sensor, pa.table({"ts": part, "value": (part * 7 + sensor) % 100}))
    gate.close(sensor)


def merged() -> list[pa.Table]:
    """What each reader gets, with a thread per sensor."""
    gate = mr.ScaleGate(sources=SENSORS, readers=2, time="ts")
    threads = [threading.Thread(target=deliver, args=(gate, sensor)) for sensor in range(SENSORS)]
    for thread in threads:
        thread.start()
    early = gate.ready(0)  # what is ready by now: it depends on the threads
    for thread in threads:
        thread.join()
    parts = [part for part in (early, gate.ready(0)) if part.num_rows]
    return [pa.concat_tables(parts), gate.ready(1)]


def main() -> None:
    """Merge twice, compare, and join the readings with themselves."""
    first, second = merged()
    say = sys.stdout.write
    say(f"{first.num_rows} readings, in the same order for both readers: {first.equals(second)}\n")
    say(f"and in another run: {merged()[0].equals(first)}\n")
    readings = first.select(["ts", "value"])
    with mr.WindowJoin(
        "r.value = s.value AND r.ts <> s.ts", window="20", time="ts", self_join=True, index="scan"
    ) as join:
        pairs = join.push("r", readings).num_rows + join.flush().num_rows
    say(f"{pairs} pairs of equal values within 20 ticks\n")


if __name__ == "__main__":
    main()
