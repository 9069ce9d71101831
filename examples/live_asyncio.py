"""A live join in an asyncio program: two producers, one consumer, no thread of your own.

`put` and `poll` wait at most for the queue; `asyncio.to_thread` keeps such waits out of the event loop.
"""

from __future__ import annotations

import asyncio
import sys

import pyarrow as pa

import millrace as mr

ROWS = 300
SCHEMA = pa.schema([("price", pa.float64()), ("order", pa.int64())])


async def produce(live: mr.LiveJoin, side: str, offset: float) -> None:
    """Put one row after the other, as mappings."""
    for number in range(ROWS):
        row = {"price": 100.0 + (number * 7 % 50) + offset, "order": number}
        await asyncio.to_thread(live.put, side, row)
        await asyncio.sleep(0)


async def consume(live: mr.LiveJoin) -> int:
    """Count pairs until the join is closed."""
    pairs = 0
    while True:
        try:
            pairs += (await asyncio.to_thread(live.poll, 0.05)).num_rows
        except mr.StateError:  # closed
            return pairs


async def main() -> None:
    """Join asks and bids whose prices differ by at most 0.3."""
    schemas = {"r": SCHEMA, "s": SCHEMA}
    with mr.LiveJoin("abs(r.price - s.price) <= 0.3", window="1000 rows", schemas=schemas) as live:
        consumer = asyncio.create_task(consume(live))
        await asyncio.gather(produce(live, "r", 0.0), produce(live, "s", 0.25))
        last = await asyncio.to_thread(live.close)
        pairs = await consumer + last.num_rows
    sys.stdout.write(f"{2 * ROWS} rows, {pairs} pairs\n")


if __name__ == "__main__":
    asyncio.run(main())
