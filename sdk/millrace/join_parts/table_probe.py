"""Holds one table, ordered once, and probes it with batches of the other: the engine of `mr.join`.

`mr.join` probes once, with the entire other table. A caller with one table and a stream of batches of the other (such
as a Spark task) keeps a `TableProbe` and probes it with every batch. The first batch sorts the held side and sends it
to the device. Results are row numbers: the caller gathers the payload. A `TableProbe` belongs to the process that
created it and serves one thread at a time. `bounded_blocks` finds the pairs in parts of bounded size. Limit: the held
table has fewer than 2**31 rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from millrace.host.base.types import SIDES, Positions, Side, other
from millrace.host.base.words import count_true
from millrace.host.data.tuples import Tuples
from millrace.host.data.window import Window
from millrace.host.join.matcher import Matcher, PairBlock
from millrace.host.join.pair_memory import TooManyPairs, at_most
from millrace.host.join.registry import load_index
from millrace.host.planner.selectivity import table_index, table_plan
from millrace.host.stream.intake import Reading
from millrace.host.stream.window_bounds import TakenTuples, WindowBounds, arrival_order
from millrace.ingest.arguments import Engine, OpenedEngine, parse_condition, parse_engine
from millrace.ingest.checks import choice
from millrace.ingest.tables import as_schema, as_table
from millrace.join_parts.bound_tables import BoundTables


@dataclass(frozen=True)
class Partners:
    """The partners of a batch: the number per row and, if requested, all pairs in the order of the rows.

    `rows` are row numbers of the batch, `partners` row numbers of the held table. `counts` begins at row `first`.
    """

    counts: Positions
    rows: Positions
    partners: Positions
    first: int = 0

    def moved(self, rows: int) -> Partners:
        """The same, for a batch that has `rows` more rows in front."""
        return replace(self, rows=self.rows + rows, first=self.first + rows) if rows else self


MIN_TRIED_ROWS = 1 << 10
"""With fewer rows, pairs are always counted before they are made: an index does not check a step of few rows."""


class TableProbe:
    """A held table against which batches of the other side are matched.

    >>> import pyarrow as pa
    >>> held, batch = pa.table({"x": [10, 20, 30]}), pa.table({"x": [21, 28]})
    >>> probe = TableProbe.of("abs(r.x - s.x) <= 5", held, batch.schema)
    >>> found = probe.find_partners(batch)
    >>> found.counts.tolist(), found.rows.tolist(), found.partners.tolist()
    ([1, 1], [0, 1], [1, 2])
    """

    def __init__(
        self, bound: BoundTables, engine: Engine, held: Reading, side: Side = "s", opened: OpenedEngine | None = None
    ) -> None:
        """Hold the rows of a table, which is `side`, and open the device unless `opened` is given."""
        self._bound, self._side = bound, side
        self._null_keys = {"r": 0, "s": 0}
        self._count_null_keys(side, held)
        self._held = held.tuples
        self._window = _window(self._held)
        self._probing_rows, self._asked, self._pairs = 0, 0, 0
        self._crowded = False
        self._opened = opened or engine.open()
        self._matcher: Matcher | None = None

    @classmethod
    def of(
        cls,
        on: str,
        held: Any,
        probing_schema: Any,
        side: str = "s",
        index: str = "auto",
        device: str = "auto",
        threads: int | None = None,
        fallback: str | None = None,
        counting: bool = False,
        options: Mapping[str, Any] | None = None,
    ) -> TableProbe:
        """From a condition's text, the held table and the schema of the probing side."""
        condition = parse_condition(on)
        known: Side = choice("side", side, SIDES)
        engine = parse_engine(condition, index, device, threads, fallback, counting, options)
        table = as_table(held, known)
        schemas = {known: table.schema, other(known): as_schema(probing_schema, other(known))}
        bound = BoundTables.of(condition, schemas)
        return cls(bound, engine, bound.read(known, table), known)

    def _count_null_keys(self, side: Side, reading: Reading) -> None:
        self._null_keys[side] += len(reading.known_keys) - count_true(reading.known_keys)

    def find_partners(self, batch: Any, want_pairs: bool = True) -> Partners:
        """The partners of a batch's rows in the held table; without `want_pairs` only their number per row."""
        return _combined(list(self.blocks(batch, want_pairs)))

    def bounded_blocks(self, batch: Any, max_pairs: int) -> Iterator[Partners]:
        """The same in parts of at most `max_pairs` pairs, or of one row.

        Pairs are made at once as long as no batch has more; later they are counted first. Where candidates are
        rechecked, the matcher's own limit (`STEP_CANDIDATES`) holds instead.
        """
        probing = other(self._side)
        self._bound.sweep(self._side, self._held)
        reading = self._bound.read(probing, as_table(batch, probing))
        rows = len(reading.tuples)
        if self._matcher_for(reading.tuples).checks_pairs or rows * len(self._held) <= max_pairs:
            yield from self.blocks_of(reading)
            return
        found = None if self._crowded or rows < MIN_TRIED_ROWS else self._try(reading, max_pairs)
        if found is not None:
            yield found
            return
        for start, stop in pairwise(self._piece_ends(reading, max_pairs)):
            yield _combined(list(self.blocks_of(_part(reading, start, stop)))).moved(start)

    def _try(self, reading: Reading, max_pairs: int) -> Partners | None:
        """All pairs, or None if there are more: then nothing was counted."""
        before = self._asked, self._pairs, dict(self._null_keys)
        try:
            with at_most(max_pairs):
                return _combined(list(self.blocks_of(reading)))
        except TooManyPairs:
            self._crowded = True
            self._asked, self._pairs, self._null_keys = before
            return None

    def _piece_ends(self, reading: Reading, max_pairs: int) -> list[int]:
        """Where to cut rows so that each piece has at most `max_pairs` pairs, or one row; counts all pairs first."""
        before = self._asked, self._pairs, dict(self._null_keys)
        counts = _joined([block.counts for block in self.blocks_of(reading, want_pairs=False)])
        self._asked, self._pairs, self._null_keys = before  # only the search that makes the pairs is in `stats`
        total, ends = np.cumsum(counts), [0]
        while ends[-1] < len(counts):
            done = int(total[ends[-1] - 1]) if ends[-1] else 0
            ends.append(max(ends[-1] + 1, int(np.searchsorted(total, done + max_pairs, "right"))))
        return ends

    def blocks(self, batch: Any, want_pairs: bool = True) -> Iterator[Partners]:
        """The same, one block of rows at a time, so that the caller processes it while it is in the cache."""
        probing = other(self._side)
        self._bound.sweep(self._side, self._held)
        return self.blocks_of(self._bound.read(probing, as_table(batch, probing)), want_pairs)

    def blocks_of(self, reading: Reading, want_pairs: bool = True) -> Iterator[Partners]:
        """The same for rows that are read already."""
        probing, tuples = other(self._side), reading.tuples
        self._count_null_keys(probing, reading)
        windows = {self._side: self._window, probing: _window(tuples, self._probing_rows)}
        matcher = self._matcher_for(tuples)
        taken = TakenTuples({probing: tuples, self._side: self._held.slice(0, 0)}, _order(probing, len(tuples)))
        new = WindowBounds(True, {probing: 1, self._side: max(len(self._held), 1)}).new_tuples(windows, taken)
        base, complete = self._probing_rows, False

        def keep(n: int) -> tuple[int, int]:
            return (base + n, 0) if probing == "r" else (0, base + n)

        team = self._opened.team
        team.acquire(max(len(tuples), len(self._held)))
        try:
            for found in matcher.match(windows, new, taken.order, keep, want_pairs=want_pairs):
                counts, partners = found.counts[probing], found.partner[probing]
                rows = _rows(found, probing, base) if want_pairs else counts[:0]
                self._asked += len(counts)
                self._pairs += len(partners) if want_pairs else int(counts.sum())
                yield Partners(counts, rows, partners if want_pairs else counts[:0], found.first[probing])
            complete = True
        finally:
            team.depth -= 1
            if not complete:  # the index may hold some of these rows already
                matcher.discard_index()
        self._probing_rows += len(tuples)

    def _matcher_for(self, tuples: Tuples) -> Matcher:
        """The matcher; created with the first probing rows, from which it estimates which comparison is selective."""
        if self._matcher is None:
            sides = {self._side: self._held, other(self._side): tuples}
            rows = {one: len(sides[one]) for one in SIDES}
            opened, index = self._opened, self._opened.index
            if opened.device.shares_host_memory:
                index = table_index(opened.candidates, self._bound.plan, sides, self._side)
            plan = table_plan(self._bound.plan, sides, self._side, load_index(index).keys_on(opened.device))
            self._matcher = Matcher(
                plan,
                index,
                opened.device,
                opened.spare,
                opened.team,
                rows,
                static=True,
                options=opened.options,
                searched=(self._side,),
            )
        return self._matcher

    @property
    def fallback(self) -> str | None:
        """From which device the probe fell back to which, and why; None if it did not."""
        return None if self._matcher is None else self._matcher.fallback

    @property
    def stats(self) -> dict[str, Any]:
        """Rows held, probing rows (`asked`), pairs, device, index, and the device's counters."""
        device = self._opened.device if self._matcher is None else self._matcher.device
        return {
            "held": len(self._held),
            "asked": self._asked,
            "pairs": self._pairs,
            "null_keys": dict(self._null_keys),
            "device": device.name,
            "index": self._opened.index if self._matcher is None else self._matcher.index_name,
            "fallback": self.fallback,
            **({} if self._matcher is None else self._matcher.counters()),
        }

    def free(self) -> None:
        """Free the index; the devices stay open."""
        if self._matcher is not None:
            self._matcher.discard_index()

    def close(self) -> None:
        """Free the index and close the devices."""
        self.free()
        self._opened.close()


def _window(tuples: Tuples, start: int = 0) -> Window:
    """A window of these tuples, at positions from `start`."""
    window = Window({name: column.dtype for name, column in tuples.columns.items()}, start)
    window.append(tuples)
    return window


def _order(probing: Side, rows: int) -> Any:
    return arrival_order(rows, 0) if probing == "r" else arrival_order(0, rows)


def _rows(found: PairBlock, probing: Side, base: int) -> Positions:
    """For each pair of a block, its row in the batch."""
    own_positions = found.own_positions[probing]
    if own_positions is None:
        return found.tuple_numbers(probing)
    return own_positions - base if base else own_positions


def _part(reading: Reading, start: int, stop: int) -> Reading:
    """Some of the rows that were read."""
    return Reading(reading.tuples.slice(start, stop), reading.known_keys[start:stop], reading.known_time[start:stop])


def _combined(blocks: list[Partners]) -> Partners:
    """Consecutive blocks, from the first row on, as one."""
    counts, rows, partners = (_joined([getattr(f, name) for f in blocks]) for name in ("counts", "rows", "partners"))
    return Partners(counts, rows, partners)


def _joined(parts: list[Positions]) -> Positions:
    return parts[0] if len(parts) == 1 else np.concatenate([np.zeros(0, np.int64), *parts])
