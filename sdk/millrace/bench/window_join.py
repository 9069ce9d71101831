"""Bench `window_join`: two streams, a band condition, count windows that are full before timing starts.

Random keys, about two matches per tuple, pairs emitted, two kinds of arrival. `batches`: alternating batches of 64 Ki
rows of r and s, against NumPy, DuckDB and Polars, which join a batch with the other window at once, and against the
machine's `random-reads`: random cache lines read per second, so that the ratio is tuples joined per line
(`window-reads`: the same in as much memory as the windows take). `tuples`: both sides interleaved tuple by tuple in
random order, in windows up to 2^20, against a C++ `std::multimap` that also works tuple by tuple. `panjoin.py` adds the
cases that vary selectivity, batch and distribution.

`entrants.py` says which of our indexes take part; to add a peer, add it to `BATCH_PEERS` or `TUPLE_PEERS`.
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
"""The speed at the largest window is compared with the speed at this one."""
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
    """All cases, small windows first."""
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
    """Tuple-at-a-time peers keep the order of the contract, as we do, and are compared in it."""
    theirs = [Contender(name, starter(make, workload, ordered=True)) for name, make in TUPLE_PEERS.items()]
    return _case(workload, everyone, theirs)


def _batches(workload: Workload, everyone: Sequence[Entrant], machine: int) -> Case:
    """Peers that join batches are compared after sorting."""
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
    """For example `tuples-2^20-seqs`: arrival, window of each side, output."""
    return f"{arrival}-2^{window.bit_length() - 1}-{output}"
