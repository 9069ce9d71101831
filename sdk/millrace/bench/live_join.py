"""Bench `live_join`: what `mr.LiveJoin` costs through Python, beside `mr.WindowJoin` with the same index.

- `row-…`: one row, put as a mapping, until `poll` has its pairs, with payload; windows of 100,000 rows. The peers push
  the same row as a table. Percentiles are in microseconds per row.
- `sustained-…`: batches of both sides in turns, put as tables of 4,096 rows; a step ends when all pairs are polled. The
  peers push the same tables. `1 M tuples/s` is the target.
- `threads-…`: single rows, put as mappings by four threads at once, until all pairs are polled. The order in which the
  threads come differs from run to run, so results are not compared.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, cast

import pyarrow as pa

from millrace.bench.harness import Answer, Case, Contender
from millrace.bench.options import Options
from millrace.bench.ours import OurSession
from millrace.bench.stream import Session, Stream
from millrace.bench.workload import Rows, Turn, Workload, answer_columns
from millrace.ingest.choices import IndexName
from millrace.live_join import LiveJoin

ROW_WINDOW, WINDOW, BATCH, PUT_ROWS = 100_000, 1 << 20, 1 << 16, 1 << 12
THREADS, THREAD_ROWS = 4, 256
QUICK_WINDOW, QUICK_BATCH, QUICK_PUT_ROWS = 1 << 10, 1 << 10, 1 << 8
INDEXES = ("auto", "pim")
TARGET = 1e6
WARM_ROWS = 200
SCHEMA = pa.schema([("x", pa.int64()), ("v", pa.float64())])


def cases(options: Options) -> Iterator[Case]:
    """All cases."""
    quick = options.quick
    row = Workload(QUICK_WINDOW if quick else ROW_WINDOW, 1, "batches", "pairs")
    yield Case(
        f"row-{row.window}",
        "tuples/s",
        [*_contenders(RowSession, row), *_contenders(TableSession, row)],
        row.facts,
        round=2,
        warm_work=WARM_ROWS,
        step_unit="us",
    )
    window, batch, rows = (QUICK_WINDOW, QUICK_BATCH, QUICK_PUT_ROWS) if quick else (WINDOW, BATCH, PUT_ROWS)
    work = Workload(window, batch, "tuples", "pairs")
    target = Contender("1 M tuples/s", partial(FixedSpeed, batch, TARGET), answers=False)
    yield Case(
        f"sustained-{window}",
        "tuples/s",
        [
            *_contenders(partial(PutSession, rows=rows), work),
            *_contenders(partial(PushSession, rows=rows), work),
            target,
        ],
        work.facts | {"put_rows": rows},
    )
    threads = Workload(window, THREADS * THREAD_ROWS, "tuples", "pairs")
    yield Case(
        f"threads-{window}",
        "tuples/s",
        [
            Contender(_name(ThreadSession, index), partial(_start, ThreadSession, threads, index), index, "cpu", "cpu")
            for index in INDEXES
        ],
        threads.facts | {"threads": THREADS},
        check_steps=0,
    )


Make = Callable[[Workload, str], Session]


def _contenders(make: Any, workload: Workload) -> Iterator[Contender]:
    """A kind of session with every index; those of `WindowJoin` are the peers."""
    for index in INDEXES:
        start = partial(_start, make, workload, index)
        if getattr(make, "func", make).live:
            yield Contender(_name(make, index), start, index, "cpu", "cpu")
        else:
            yield Contender(_name(make, index), start)


def _name(make: Any, index: str) -> str:
    return index if getattr(make, "func", make).live else f"WindowJoin, {index}"


def _start(make: Make, workload: Workload, index: str) -> Stream:
    return Stream(make(workload, index), workload, ordered=True)


class LiveSession:
    """A `LiveJoin` with full windows."""

    live = True

    def __init__(self, workload: Workload, index: str) -> None:
        """Create the join; nothing is put yet."""
        self._output = workload.output
        self._live = LiveJoin(
            workload.on,
            window=f"{workload.window} rows",
            schemas={"r": SCHEMA, "s": SCHEMA},
            index=cast(IndexName, index),
        )

    def fill(self, r: Rows, s: Rows) -> None:
        """Put a full window of each side; the pairs are dropped."""
        self._live.put("r", _table(r))
        self._live.put("s", _table(s))
        self._live.flush()

    def answer(self, result: Any) -> Answer:
        """All result columns."""
        return {name: result.column(name).to_numpy() for name in answer_columns(self._output)}

    def close(self) -> None:
        """Close the join."""
        self._live.close()


class RowSession(LiveSession):
    """One row, as a mapping."""

    def prepare(self, turn: Turn) -> tuple[str, dict[str, Any]]:
        """The side and the row."""
        side, rows = ("r", turn.r) if len(turn.r) else ("s", turn.s)
        return side, _mapping(rows, 0)

    def push(self, prepared: tuple[str, dict[str, Any]]) -> pa.Table:
        """Put the row and poll until its pairs are there, or none can come any more."""
        self._live.put(*prepared)
        while not (pairs := self._live.poll()).num_rows:
            stats = self._live.stats
            if not stats["queued"] and not stats["unpolled"]:
                break
        return pairs


class PutSession(LiveSession):
    """Tables of some rows, of both sides in turns."""

    def __init__(self, workload: Workload, index: str, rows: int) -> None:
        """`rows`: the rows of a table."""
        super().__init__(workload, index)
        self._rows = rows

    def prepare(self, turn: Turn) -> list[tuple[str, pa.Table]]:
        """The tables."""
        return _pieces(turn, self._rows)

    def push(self, prepared: list[tuple[str, pa.Table]]) -> pa.Table:
        """Put all tables, and poll between them."""
        found = []
        for side, table in prepared:
            self._live.put(side, table)
            found.append(self._live.poll())
        found.append(self._live.flush())
        return pa.concat_tables(found)


class ThreadSession(LiveSession):
    """Single rows of several threads."""

    def prepare(self, turn: Turn) -> list[list[tuple[str, dict[str, Any]]]]:
        """The rows of each thread."""
        rows = [(side, _mapping(some, i)) for side, some in (("r", turn.r), ("s", turn.s)) for i in range(len(some))]
        return [rows[number::THREADS] for number in range(THREADS)]

    def push(self, prepared: list[list[tuple[str, dict[str, Any]]]]) -> pa.Table:
        """Put all rows, then wait for all pairs."""
        threads = [threading.Thread(target=self._put, args=(rows,)) for rows in prepared]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return self._live.flush()

    def _put(self, rows: list[tuple[str, dict[str, Any]]]) -> None:
        for side, row in rows:
            self._live.put(side, row)


class TableSession(OurSession):
    """A `WindowJoin` that gets the same rows as tables."""

    live = False

    def __init__(self, workload: Workload, index: str) -> None:
        """Create the join."""
        super().__init__(workload, index, "cpu")


class PushSession(TableSession):
    """The same with the tables of `PutSession`."""

    def __init__(self, workload: Workload, index: str, rows: int) -> None:
        """`rows`: the rows of a table."""
        super().__init__(workload, index)
        self._rows = rows

    def prepare(self, turn: Turn) -> Any:
        """The tables."""
        return _pieces(turn, self._rows)

    def push(self, prepared: Any) -> pa.Table:
        """Push all tables."""
        return pa.concat_tables([self._join.push(side, table) for side, table in prepared])


class FixedSpeed:
    """A yardstick: so many tuples per second."""

    def __init__(self, work: int, speed: float) -> None:
        """The work of a step, and the speed."""
        self._work, self._speed = work, speed

    def step(self) -> tuple[float, float]:
        """Wait as long as the work may take."""
        time.sleep(self._work / self._speed)
        return self._work, self._work / self._speed

    def answer(self) -> Answer:
        """Not compared."""
        return {}

    def pause(self) -> None:
        """Nothing to free."""

    def close(self) -> None:
        """Nothing to release."""


def _table(rows: Rows) -> pa.Table:
    return pa.table([rows.x, rows.v], schema=SCHEMA)


def _mapping(rows: Rows, i: int) -> dict[str, Any]:
    return {"x": int(rows.x[i]), "v": float(rows.v[i])}


def _pieces(turn: Turn, rows: int) -> list[tuple[str, pa.Table]]:
    """The rows of both sides as tables, in turns."""
    tables = {"r": _table(turn.r), "s": _table(turn.s)}
    longest = max(table.num_rows for table in tables.values())
    pieces = [(side, tables[side].slice(at, rows)) for at in range(0, longest, rows) for side in tables]
    return [(side, table) for side, table in pieces if table.num_rows]
