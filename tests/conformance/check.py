"""Runs a case on Millrace with one index on one device, and compares everything with the oracle's result.

It uses only the public API. Pushes are split at random and passed as different Arrow objects. The parts of one call
together must give the oracle's result for the call: equal rows in equal order, all columns and their types, and equal
stats after every call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa

import millrace as mr
from millrace.host.join.panjoin import bisort
from millrace.host.join.panjoin.insertion_buffer import BUFFER
from millrace.host.join.pimtree import index as pim_index
from millrace.host.join.pimtree.index import MIN_PARALLEL_ROWS
from millrace.host.join.registry import INDEXES, load_index
from tests.conformance.cases import Advance, Call, Case, Checkpoint, Feed, Flush, Push, PushBoth
from tests.conformance.expected import Expected
from tests.conformance.injection import Injection, case_faults, join_points

SMALL_BUFFER = 3
"""Tuples of an insertion buffer that is practically disabled."""
STATS = ("rows", "late", "null_times", "null_keys", "pending", "held", "pairs")


PIMTREE = "millrace.host.join.pimtree"


def draw_options(index: str, rng: Random) -> dict[str, int | float | str]:
    """Options with which small cases merge often, or now and then the defaults."""
    drawn: dict[str, int | float | str] = {
        "subindexes": rng.choice((1, 2, 3, 7, 50)),
        "merge_ratio": rng.choice((0.01, 0.1, 0.5, 1.0)),
        "task_rows": rng.choice((1, 2, 8, 64)),
        "variant": rng.choice(("b", "ib")),
        "length": rng.choice((2, 3, 5)),
        "partitions": rng.choice((1, 2, 3)),
    }
    return {name: drawn[name] for name in load_index(index).options if rng.random() < 0.8}


@dataclass(frozen=True)
class Outcome:
    """`served` is false if the index does not support the condition and raised an error."""

    served: bool
    boundaries: int = 0


class Mismatch(AssertionError):
    """Millrace and the oracle differ."""


class Capsule:
    """An object with only the Arrow PyCapsule interface."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)


def check_case(
    case: Case, expected: Expected, index: str, device: str, threads: int = 1, split_seed: int = 0
) -> Outcome:
    """Raises `Mismatch` if the index differs from the oracle."""
    with buffered(device, split_seed), case_faults(join_points(index, device), split_seed) as injection:
        return _CaseRun(case, expected, index, device, threads, Random(split_seed), injection).check()


@contextmanager
def buffered(device: str, seed: int) -> Iterator[None]:
    """Uses BI-Sort's normal insertion buffer, or one of a few tuples: small cases would rarely overflow the real one.

    Likewise, PIM-Tree's workers process even the smallest steps, or only large ones. On devices other than the CPU the
    buffer is always small, so that every tuple becomes part of a run on the device.
    """
    few = device != "cpu" or seed % 2 == 1
    with (
        patch.object(bisort, "BUFFER", SMALL_BUFFER if few else BUFFER),
        patch.object(pim_index, "MIN_PARALLEL_ROWS", 1 if few else MIN_PARALLEL_ROWS),
    ):
        yield


def check_refusal(refusal: Exception, index: str) -> Outcome:
    """Checks the error: an index may reject a condition if it names another index for it; `scan` may not reject one."""
    if index == "scan":
        raise Mismatch(f"scan must support every condition, but raised: {refusal}") from refusal
    if not any(name != index and name in str(refusal) for name in INDEXES):
        raise Mismatch(f"the error names no index that supports the condition: {refusal}") from refusal
    return Outcome(False)


class _CaseRun:
    def __init__(
        self,
        case: Case,
        expected: Expected,
        index: str,
        device: str,
        threads: int,
        rng: Random,
        injection: Injection,
    ) -> None:
        self.case, self.expected, self.rng = case, expected, rng
        self.index, self.injection = index, injection
        self.arguments = {**case.arguments, "index": index, "device": device, "threads": threads}
        self.arguments |= injection.fallback(device)
        if index == "btree" or INDEXES[index].startswith(PIMTREE):
            self.arguments["options"] = draw_options(index, rng)
        self.outputs: list[pa.Table] = []
        self.known: set[str] = set("rs") if "schemas" in case.arguments else set()
        self.runs: dict[str, bytes] = {}

    def check(self) -> Outcome:
        try:
            self.join = self._retried(lambda: mr.WindowJoin(**self.arguments))
        except mr.ArgumentError as refusal:
            return check_refusal(refusal, self.index)
        for at, call in enumerate(self.case.calls):
            bound = self.known == {"r", "s"}
            try:
                pieces = self._make(call)
            except mr.ArgumentError as refusal:
                if bound:  # an index rejects a condition once the schemas are known, not later
                    raise
                return check_refusal(refusal, self.index)
            self._compare_call(at, pieces)
            self._compare_stats(at)
        boundaries = int(self.join.stats.get("boundaries", 0))
        self._compare_call(len(self.case.calls), [_table(self.join.close())])
        self._compare_rows()
        return Outcome(True, boundaries)

    # Making the calls

    def _make(self, call: Call) -> list[pa.Table]:
        """Returns the outputs of the parts of a call."""
        if isinstance(call, Push):
            return [_table(output) for output in self._push(call)]
        if isinstance(call, PushBoth):
            return [_table(output) for output in self._push_both(call)]
        if isinstance(call, Advance):
            ts = self._timestamp(call)
            return [_table(self.join.advance(call.side, ts, **_source(call.source)))]
        if isinstance(call, Flush):
            return [_table(self.join.flush())]
        self._checkpoint(call)
        return []

    def _retried(self, make: Callable[[], mr.WindowJoin]) -> mr.WindowJoin:
        return self.injection.retried(self.injection.call(make), STATS)

    def _push(self, call: Push) -> Iterator[Any]:
        self.known |= {"r", "s"} if self.arguments.get("self_join") else {call.side}
        for start, stop in self._cut(call.start, call.stop):
            batch = self._as_input(self.case.feeds[call.side], start, stop)
            yield self.join.push(call.side, batch, **_source(call.source))

    def _push_both(self, call: PushBoth) -> Iterator[Any]:
        self.known |= {"r", "s"}
        r, s = call.r[0], call.s[0]
        for start, stop in self._cut(0, len(call.arrival)):
            arrival = np.array(call.arrival[start:stop], np.uint8)
            r_next, s_next = r + int((arrival == 0).sum()), s + int((arrival == 1).sum())
            yield self.join.push_both(
                self._as_input(self.case.feeds["r"], r, r_next),
                self._as_input(self.case.feeds["s"], s, s_next),
                arrival,
            )
            r, s = r_next, s_next

    def _timestamp(self, call: Advance) -> Any:
        kind = self.case.time_kind(call.side)
        return pa.scalar(call.ts, kind.type) if kind.is_temporal else call.ts

    def _checkpoint(self, call: Checkpoint) -> None:
        delta = self.join.state()
        self.runs |= delta.added
        for name in delta.removed:
            del self.runs[name]
        if call.restore:
            self.join = self._retried(lambda: mr.WindowJoin.restore(delta.manifest, dict(self.runs), **self.arguments))

    def _cut(self, start: int, stop: int) -> list[tuple[int, int]]:
        """Returns the full range, or up to five parts of it; some may be empty."""
        if self.rng.random() < (0.3 if stop - start > 1 else 0.95):
            return [(start, stop)]
        cuts = sorted(self.rng.randint(start, stop) for _ in range(self.rng.randrange(1, 5)))
        return list(zip([start, *cuts], [*cuts, stop], strict=True))

    def _as_input(self, feed: Feed, start: int, stop: int) -> Any:
        """Returns rows as a table, a record batch, a chunked table, or an object with the PyCapsule interface."""
        table = feed.given().slice(start, stop - start)
        form = self.rng.randrange(4)
        if form == 0:
            return table
        if form == 1:
            return table.to_batches()[0] if len(table) else pa.RecordBatch.from_pylist([], table.schema)
        middle = self.rng.randint(0, len(table))
        chunked = pa.concat_tables([table.slice(0, middle), table.slice(middle)])
        return chunked if form == 2 else Capsule(chunked)

    # Comparing

    def _compare_call(self, at: int, pieces: list[pa.Table]) -> None:
        """Compares what is cheap: the schema and the number of rows."""
        schema = output_schema(self.case, self.known)
        for piece in pieces:
            if list(zip(piece.schema.names, piece.schema.types, strict=True)) != schema:
                raise Mismatch(f"{self._where(at)}: schema\n{piece.schema}\nbut it should be\n{schema}")
        ends = self.expected.count_ends if self._counts else self.expected.pair_ends
        before = ends[at - 1] if at else 0
        found = sum(len(piece) for piece in pieces)
        self.outputs += [piece for piece in pieces if len(piece)]
        if found != ends[at] - before:
            self._compare_rows(at)
            raise Mismatch(f"{self._where(at)}: {found} rows, but it should be {ends[at] - before}")

    @property
    def _counts(self) -> bool:
        return bool(self.arguments.get("output") == "count")

    def _compare_stats(self, at: int) -> None:
        stats, wanted = self.join.stats, self.expected.stats[at]
        found = {name: stats[name] for name in STATS}
        found["rows"] = {side: stats["rows"].get(side, 0) for side in "rs"}
        if found != wanted:
            raise Mismatch(f"{self._where(at)}: stats {found}, but they should be {wanted}")

    def _compare_rows(self, upto: int | None = None) -> None:
        """Compares all rows of all calls so far, in order, bit by bit."""
        end = len(self.case.calls) if upto is None else upto
        if not self.outputs:
            return
        found = pa.concat_tables(self.outputs)
        wanted = wanted_table(self.case, self.expected, end, found.schema)
        at = first_difference(found, wanted)
        if at is not None:
            raise Mismatch(f"{self._where(end)} or before: {describe_difference(found, wanted, at)}")

    def _where(self, at: int) -> str:
        calls = self.case.calls
        return f"call {at}, {calls[at] if at < len(calls) else 'close'}, index {self.index}, on {self.case.on!r}"


def _source(source: int) -> dict[str, int]:
    return {"source": source} if source else {}


def _table(output: Any) -> pa.Table:
    return pa.Table.from_batches([output]) if isinstance(output, pa.RecordBatch) else output


# --- What the output must look like --------------------------------------------------------------


def output_schema(case: Case, known: set[str]) -> list[tuple[str, pa.DataType]]:
    """Returns names and types of the output; only the columns of sides whose schema is known."""
    output = case.arguments.get("output", "pairs")
    if output == "count":
        return [("side", pa.string()), ("source", pa.int32()), ("seq", pa.int64()), ("count", pa.int64())]
    names = [("r_seq", pa.int64()), ("s_seq", pa.int64())]
    if "sources" in case.arguments:
        names += [("r_source", pa.int32()), ("s_source", pa.int32())]
    if output == "seqs":
        return names
    for side in "rs":
        table = case.feeds[side].table
        if side in known and table is not None:
            names += [(f"{side}_{field.name}", field.type) for field in table.schema]
    return names


def wanted_table(case: Case, expected: Expected, end: int, schema: pa.Schema) -> pa.Table:
    """Returns the oracle's result up to a call as a table with these columns."""
    if case.arguments.get("output") == "count":
        rows = expected.counts[: expected.count_ends[end]]
        columns: list[Any] = list(zip(*rows, strict=True)) or [()] * 4
        return pa.table([pa.array(c, t) for c, t in zip(columns, schema.types, strict=True)], schema=schema)
    pairs = expected.pairs[: expected.pair_ends[end]]
    columns = [_column(case, name, pairs, schema.field(i).type) for i, name in enumerate(schema.names)]
    return pa.table(columns, schema=schema)


def _column(case: Case, name: str, pairs: list[tuple[int, int, int, int]], type_: pa.DataType) -> Any:
    pair_field = {"r_source": 0, "r_seq": 1, "s_source": 2, "s_seq": 3}.get(name)
    if pair_field is not None:
        return pa.array([pair[pair_field] for pair in pairs], type_)
    side = name[0]
    table = case.feeds[side].table
    assert table is not None
    feed_rows, at = case.feed_rows, 0 if side == "r" else 2
    home = "r" if case.arguments.get("self_join") else side
    return table.column(name[2:]).take([feed_rows[home, pair[at]][pair[at + 1]] for pair in pairs])


def first_difference(found: pa.Table, wanted: pa.Table) -> int | None:
    """Returns the first row in which two tables of one schema differ, bit by bit; None if they are equal."""
    firsts = [_first(found.column(i), wanted.column(i)) for i in range(found.num_columns)]
    if len(found) != len(wanted):
        firsts.append(min(len(found), len(wanted)))
    return min((at for at in firsts if at is not None), default=None)


def describe_difference(found: pa.Table, wanted: pa.Table, at: int) -> str:
    """Returns the rows from the first difference on; times as integers, since not all fit Python's types."""
    return f"rows from {at} on are\n{_rows(found, at)}\nbut they should be\n{_rows(wanted, at)}"


def _rows(table: pa.Table, at: int) -> list[dict[str, Any]]:
    part = table.slice(at, 3)
    for i, field in enumerate(part.schema):
        if pa.types.is_temporal(field.type):
            numbers = part.column(i).cast(pa.int32() if pa.types.is_date32(field.type) else pa.int64())
            part = part.set_column(i, field.name, numbers)
    rows: list[dict[str, Any]] = part.to_pylist()
    return rows


def _first(found: pa.ChunkedArray, wanted: pa.ChunkedArray) -> int | None:
    rows = min(len(found), len(wanted))
    a, b = (_bits(column.slice(0, rows)) for column in (found, wanted))
    if a.equals(b):
        return None
    return next((i for i in range(rows) if not a[i].equals(b[i])), None)


def _bits(column: pa.ChunkedArray) -> pa.Array:
    """Returns one array, floats as the integers of their bits, so that NaN equals itself and -0.0 is not 0.0."""
    array = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if pa.types.is_floating(array.type):
        array = array.view(pa.int32() if array.type.bit_width == 32 else pa.int64())
    return array
