"""One table held and ordered once, and asked by batch after batch of the other: the engine under `mr.join`.

`mr.join` asks once, with the whole other table. Whoever has one table and a stream of batches of the other (a Spark
task, say) keeps a `TableProbe` and asks it for every batch; the held side is sorted, and sent to the device, by the
first question. Answers are row numbers: payload is gathered by whoever has it. A probe belongs to the process that made
it and serves one thread at a time. Limit: the held table has fewer than 2**31 rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from millrace.host.base.types import SIDES, Positions, Side, other
from millrace.host.base.words import count_true
from millrace.host.data.timescale import TimeScale
from millrace.host.data.tuples import Tuples
from millrace.host.data.window import Window
from millrace.host.expr.condition import Condition
from millrace.host.expr.plan import bind
from millrace.host.join.matcher import Found, Matcher
from millrace.host.planner.selectivity import most_selective
from millrace.host.stream.intake import Intake, make_intake
from millrace.host.stream.visible import Reach, Taken, arrival_order
from millrace.ingest.arguments import Engine, Opened, parse_condition, parse_engine
from millrace.ingest.checks import choice
from millrace.ingest.tables import as_schema, as_table


@dataclass(frozen=True)
class Partners:
    """What a batch found: how many partners each row has and, where pairs were wanted, all pairs in the rows' order.

    `rows` are numbers of the batch's rows, `partners` numbers of held rows. The counts are of the rows from `first` on.
    """

    counts: Positions
    rows: Positions
    partners: Positions
    first: int = 0


class TableProbe:
    """A held table that batches of the other side are matched with.

    >>> import pyarrow as pa
    >>> held, batch = pa.table({"x": [10, 20, 30]}), pa.table({"x": [21, 28]})
    >>> probe = TableProbe.of("abs(r.x - s.x) <= 5", held, batch.schema)
    >>> found = probe.ask(batch)
    >>> found.counts.tolist(), found.rows.tolist(), found.partners.tolist()
    ([1, 1], [0, 1], [1, 2])
    """

    def __init__(
        self,
        condition: Condition,
        engine: Engine,
        held: pa.Table,
        schemas: Mapping[Side, pa.Schema],
        side: Side = "s",
        opened: Opened | None = None,
    ) -> None:
        """Read the held table and open the device, unless it is `opened`; `side` is which of the two it is."""
        self._condition, self._schemas, self._side = condition, dict(schemas), side
        bind(condition, self._schemas)  # a bad column or type is told before any row is read
        self._intakes = {one: make_intake(one, condition, schemas[one], None) for one in SIDES}
        self._null_keys = dict.fromkeys(SIDES, 0)
        self._held = self._read(self._intakes[side], held)
        self._window = _window(self._held)
        self._asked, self._pairs = 0, 0
        self._opened = opened or engine.open()
        self._matcher: Matcher | None = None

    @classmethod
    def of(
        cls,
        on: str,
        held: Any,
        asking: Any,
        side: str = "s",
        index: str = "auto",
        device: str = "auto",
        threads: int | None = None,
        fallback: str | None = None,
        counting: bool = False,
    ) -> TableProbe:
        """From a condition's text, the held table and the schema of the side that will ask."""
        condition = parse_condition(on)
        known: Side = choice("side", side, SIDES)
        engine = parse_engine(condition, index, device, threads, fallback, counting)
        table = as_table(held, known)
        schemas = {known: table.schema, other(known): as_schema(asking, other(known))}
        return cls(condition, engine, table, schemas, known)

    def _read(self, intake: Intake, table: pa.Table) -> Tuples:
        numbers = np.arange(table.num_rows, dtype=np.int64)
        reading = intake.read(table, numbers, 0, TimeScale(unit=1))
        self._null_keys[intake.side] += table.num_rows - count_true(reading.known_keys)
        return reading.tuples

    def ask(self, batch: Any, want_pairs: bool = True) -> Partners:
        """The partners of a batch's rows among the held ones; without `want_pairs` only how many each has."""
        found = list(self.blocks(batch, want_pairs))
        counts, rows, partners = (_joined([getattr(f, name) for f in found]) for name in ("counts", "rows", "partners"))
        return Partners(counts, rows, partners)

    def blocks(self, batch: Any, want_pairs: bool = True) -> Iterator[Partners]:
        """The same a block of rows at a time: what is done with a block then finds it still in the cache."""
        asking = other(self._side)
        tuples = self._read(self._intakes[asking], as_table(batch, asking))
        windows = {self._side: self._window, asking: _window(tuples, self._asked)}
        matcher = self._matched(tuples)
        taken = Taken({asking: tuples, self._side: self._held.slice(0, 0)}, _order(asking, len(tuples)))
        new = Reach(True, {asking: 1, self._side: max(len(self._held), 1)}).newcomers(windows, taken)
        base = self._asked

        def keep(n: int) -> tuple[int, int]:
            return (base + n, 0) if asking == "r" else (0, base + n)

        pairs = 0
        for found in matcher.match(windows, new, taken.order, keep, want_pairs=want_pairs):
            counts, partners = found.counts[asking], found.partner[asking]
            rows = _rows(found, asking, base) if want_pairs else counts[:0]
            pairs += len(partners) if want_pairs else int(counts.sum())
            yield Partners(counts, rows, partners if want_pairs else counts[:0], found.first[asking])
        self._asked += len(tuples)
        self._pairs += pairs

    def _matched(self, tuples: Tuples) -> Matcher:
        """The matcher; made for the first rows that ask, which show what is selective."""
        if self._matcher is None:
            sides = {self._side: self._held, other(self._side): tuples}
            plan = most_selective(self._condition, self._schemas, sides)
            rows = {one: len(sides[one]) for one in SIDES}
            opened = self._opened
            self._matcher = Matcher(plan, opened.index, opened.device, opened.spare, rows, whole=True)
        return self._matcher

    @property
    def fell_back(self) -> str | None:
        """From which device to which, and why; nothing if it did not."""
        return None if self._matcher is None else self._matcher.fell_back

    @property
    def stats(self) -> dict[str, Any]:
        """Rows held and asked, pairs found, where it ran, and the device's counters."""
        device = self._opened.device if self._matcher is None else self._matcher.device
        return {
            "held": len(self._held),
            "asked": self._asked,
            "pairs": self._pairs,
            "null_keys": dict(self._null_keys),
            "device": device.name,
            "index": self._opened.index,
            "fallback": self.fell_back,
            **({} if self._matcher is None else self._matcher.counters()),
        }

    def close(self) -> None:
        """Give memory and devices back."""
        if self._matcher is not None:
            self._matcher.close()
        self._opened.close()


def _window(tuples: Tuples, start: int = 0) -> Window:
    """A window that holds these tuples, at positions from `start` on."""
    window = Window({name: column.dtype for name, column in tuples.columns.items()}, start)
    window.append(tuples)
    return window


def _order(asking: Side, rows: int) -> Any:
    return arrival_order(rows, 0) if asking == "r" else arrival_order(0, rows)


def _rows(found: Found, asking: Side, base: int) -> Positions:
    """The batch's rows of a block's pairs."""
    own = found.own[asking]
    if own is None:
        return found.newcomer(asking)
    return own - base if base else own


def _joined(parts: list[Positions]) -> Positions:
    return parts[0] if len(parts) == 1 else np.concatenate([np.zeros(0, np.int64), *parts])
