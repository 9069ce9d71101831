"""Searches a held table and gives the partners in blocks of bounded size; a card is locked for one block at a time.

The operators of one stage run at the same time in separate Python workers, and each feeds the next. An operator that
keeps a card while it waits for input, or for its output to be read, may wait for a worker that waits for that card: a
deadlock. So a task locks the card, opens it, searches, closes it and unlocks it; only then does it output rows. On a
card the held table is sent again for every block, so a card's block has at least as many pairs as the limit, if there
are so many. A device that needs no lock stays open, and its blocks have at most so many.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

import pyarrow as pa

from millrace.join_parts.table_probe import Partners, TableProbe
from millrace.spark.cluster.task import TaskDevice, device_lock
from millrace.spark.exec.join_rows import tally

Done = Callable[[TableProbe, "Counter[str]"], None]
"""Called after each search, while a card is still locked, with what the search has counted."""


def partner_blocks(
    keys: pa.Table,
    device: TaskDevice,
    max_pairs: int,
    open_probe: Callable[[], TableProbe],
    done: Done,
    want_pairs: bool = True,
) -> Iterator[Partners]:
    """The partners of all rows of `keys`, block by block in their order; without `want_pairs` only their numbers."""

    def search(rows: pa.Table) -> Iterator[Partners]:
        probe = open_probe()
        before = tally(probe.stats)
        try:
            yield from probe.bounded_blocks(rows, max_pairs) if want_pairs else probe.blocks(rows, want_pairs=False)
        finally:
            counted = Counter({name: value - before[name] for name, value in tally(probe.stats).items()})
            done(probe, counted)

    if not device.card:
        yield from search(keys)
        return
    start = 0
    while start < keys.num_rows:
        with device_lock(device):
            found = _at_least(search(keys.slice(start)), max_pairs)
        yield from (block.moved(start) for block in found)
        start += sum(len(block.counts) for block in found)


def _at_least(blocks: Iterator[Partners], pairs: int) -> list[Partners]:
    """The first blocks that have so many pairs together, or all of them."""
    found: list[Partners] = []
    for block in blocks:
        found.append(block)
        pairs -= len(block.rows)
        if pairs <= 0:
            break
    blocks.close()  # type: ignore[attr-defined] # a generator: its probe is closed before the card is unlocked
    return found
