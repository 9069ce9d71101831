"""Bench `window_join`: two streams, a band condition, count windows that are full before anything is timed.

Two kinds of arrival, random keys, about two matches a tuple, pairs emitted. `batches`: batches of 64 Ki rows of r and s
by turns, against NumPy, DuckDB and Polars, which join a batch with the other window at once, and against the machine:
`random-reads` is how many random cache lines it reads a second, so that the ratio is tuples joined per line
(`window-reads`: the same in a memory no larger than the windows). `tuples`: both sides interleaved tuple by tuple in
random order, in windows up to 2^20, against a C++ `std::multimap` that does the same, tuple by tuple. The cases of
`panjoin` follow: how speed depends on selectivity, batch and distribution.

Which of our indexes take part is said in `entrants`; to add a peer, add it to `BATCH_PEERS` or `TUPLE_PEERS`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from millrace.bench import panjoin
from millrace.bench.entrants import Entrant, entrants, ours, yardstick
from millrace.bench.harness import Case, Contender
from millrace.bench.options import Options
from millrace.bench.peers.duckdb_batches import DuckdbSession
from millrace.bench.peers.multimap import MultimapSession
from millrace.bench.peers.numpy_batches import NumpySession
from millrace.bench.peers.polars_batches import PolarsSession
from millrace.bench.peers.random_reads import BYTES_PER_TUPLE, MACHINE, QUICK_MACHINE, RandomReads
from millrace.bench.stream import Session, starter
from millrace.bench.workload import Arrival, Output, Workload

WINDOWS = (1 << 12, 1 << 16, 1 << 20, 1 << 23)
LARGEST_TUPLES_WINDOW = 1 << 20
PAYLOAD_WINDOW = 1 << 16
BASE_WINDOW = 1 << 16
"""The largest window's speed is measured beside the speed at this one."""
BATCH = 1 << 16
QUICK_WINDOWS = (1 << 12, 1 << 16)
QUICK_PAYLOAD_WINDOW = 1 << 12
QUICK_BATCH = 1 << 15

Makers = Mapping[str, Callable[[Workload], Session]]
BATCH_PEERS: Makers = {
    "numpy": partial(NumpySession, sort_batch=False),
    "numpy-sorted": partial(NumpySession, sort_batch=True),
    "duckdb": DuckdbSession,
    "duckdb-buckets": partial(DuckdbSession, buckets=True),
    "polars": PolarsSession,
    "polars-buckets": partial(PolarsSession, buckets=True),
}
TUPLE_PEERS: Makers = {"multimap": MultimapSession}


def cases(options: Options) -> Iterator[Case]:
    """Every case, small windows first."""
    everyone = entrants()
    windows = QUICK_WINDOWS if options.quick else WINDOWS
    payload = QUICK_PAYLOAD_WINDOW if options.quick else PAYLOAD_WINDOW
    batch = QUICK_BATCH if options.quick else BATCH
    machine = QUICK_MACHINE if options.quick else MACHINE
    for window in windows:
        if window <= LARGEST_TUPLES_WINDOW:
            yield _tuples(Workload(window, batch, "tuples"), everyone)
        yield _batches(Workload(window, batch, "batches"), everyone, machine)
        if window == payload:
            yield _batches(Workload(window, batch, "batches", output="pairs"), everyone, machine)
    yield from panjoin.cases(options, everyone)


def _tuples(workload: Workload, everyone: Sequence[Entrant]) -> Case:
    """A tuple-at-a-time peer, and we, keep the order of the contract, and are compared in it."""
    theirs = [Contender(name, starter(make, workload, ordered=True)) for name, make in TUPLE_PEERS.items()]
    return _case(workload, everyone, theirs)


def _batches(workload: Workload, everyone: Sequence[Entrant], machine: int) -> Case:
    """Who joins whole batches is compared after sorting."""
    theirs = [Contender(name, starter(make, workload, ordered=False)) for name, make in BATCH_PEERS.items()]
    for name, size in (("random-reads", machine), ("window-reads", 2 * workload.window * BYTES_PER_TUPLE)):
        theirs.append(Contender(name, partial(RandomReads, size), answers=False, unit="lines/s"))
    if workload.window == max(WINDOWS):
        base = Workload(BASE_WINDOW, workload.batch, "batches")
        theirs += yardstick("bisort", f"2^{BASE_WINDOW.bit_length() - 1}", base, everyone)
    return _case(workload, everyone, theirs)


def _case(workload: Workload, everyone: Sequence[Entrant], theirs: Sequence[Contender]) -> Case:
    return Case(
        case_name(workload.arrival, workload.window, workload.output),
        "tuples/s",
        [*ours(workload, everyone), *theirs],
        workload.facts,
        round=2 if workload.arrival == "batches" else 1,
        rivals=frozenset({"btree"}),
    )


def case_name(arrival: Arrival, window: int, output: Output) -> str:
    """As in `tuples-2^20-seqs`: how rows come, each side's window, what is returned."""
    return f"{arrival}-2^{window.bit_length() - 1}-{output}"
