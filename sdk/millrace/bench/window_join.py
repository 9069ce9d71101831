"""Bench `window_join`: two streams of random keys, a band condition with about two matches a tuple, pairs emitted.

Two kinds of arrival. `batches`: batches of 64 Ki rows of r and s by turns, against NumPy, DuckDB and Polars, which join
a batch with the other window at once. `tuples`: both sides interleaved tuple by tuple in random order, against a C++
`std::multimap` that does the same, tuple by tuple. To add an index, add its largest window to `LARGEST_WINDOW`; to add
a peer, add it to `BATCH_PEERS` or `TUPLE_PEERS`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from millrace.bench.harness import Case, Contender
from millrace.bench.options import Options
from millrace.bench.ours import OurSession
from millrace.bench.peers.duckdb_batches import DuckdbSession
from millrace.bench.peers.multimap import MultimapSession
from millrace.bench.peers.numpy_batches import NumpySession
from millrace.bench.peers.polars_batches import PolarsSession
from millrace.bench.stream import Session, Stream, starter
from millrace.bench.workload import Arrival, Output, Workload
from millrace.registry import join_pairs

LARGEST_WINDOW = {"scan": 1 << 12, "btree": 1 << 20}
"""The indexes that take part, each up to the window where it still makes sense."""
WINDOWS = (1 << 12, 1 << 16, 1 << 20)
PAYLOAD_WINDOW = 1 << 16
BATCH = 1 << 16
QUICK_WINDOWS = (1 << 12, 1 << 16)
QUICK_PAYLOAD_WINDOW = 1 << 12
QUICK_BATCH = 1 << 15

BATCH_PEERS: dict[str, Callable[[Workload], Session]] = {
    "numpy": partial(NumpySession, sort_batch=False),
    "numpy-sorted": partial(NumpySession, sort_batch=True),
    "duckdb": DuckdbSession,
    "polars": PolarsSession,
}
TUPLE_PEERS: dict[str, Callable[[Workload], Session]] = {"multimap": MultimapSession}


def cases(options: Options) -> Iterator[Case]:
    """Every case, small windows first."""
    windows = QUICK_WINDOWS if options.quick else WINDOWS
    payload = QUICK_PAYLOAD_WINDOW if options.quick else PAYLOAD_WINDOW
    batch = QUICK_BATCH if options.quick else BATCH
    for window in windows:
        yield _case(Workload(window, batch, "tuples"), TUPLE_PEERS)
        yield _case(Workload(window, batch, "batches"), BATCH_PEERS)
        if window == payload:
            yield _case(Workload(window, batch, "batches", output="pairs"), BATCH_PEERS)


def _case(workload: Workload, peers: dict[str, Callable[[Workload], Session]]) -> Case:
    # A tuple-at-a-time peer, and we, keep the order of the contract; who joins whole batches is compared after sorting.
    ordered = workload.arrival == "tuples"
    ours = [
        Contender(f"{index} on {device}", _ours(workload, index, device), index, device)
        for index, device in join_pairs()
        if workload.window <= LARGEST_WINDOW.get(index, 0)
    ]
    theirs = [Contender(name, starter(make, workload, ordered)) for name, make in peers.items()]
    facts = {
        "arrival": workload.arrival,
        "window": workload.window,
        "batch": workload.batch,
        "output": workload.output,
        "matches_per_tuple": workload.rate,
    }
    return Case(case_name(workload.arrival, workload.window, workload.output), "tuples/s", [*ours, *theirs], facts)


def case_name(arrival: Arrival, window: int, output: Output) -> str:
    """As in `tuples-2^20-seqs`: how rows come, each side's window, what is returned."""
    return f"{arrival}-2^{window.bit_length() - 1}-{output}"


def _ours(workload: Workload, index: str, device: str) -> Callable[[], Stream]:
    return starter(partial(OurSession, index=index, device=device), workload, ordered=True)
