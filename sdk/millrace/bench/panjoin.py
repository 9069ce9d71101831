"""More cases of `window_join`: how the speed of our indexes depends on selectivity, batch size and distribution.

- `count-…`: counts only, batches of 64 Ki, from 1 to 16 Ki matches per tuple. `bisort at selectivity 1` is measured in
  the same case, so the ratio to it is the cost of selectivity. Peers are the two NumPy variants, which count by two
  searches; DuckDB and Polars are left out because they would build the pairs (10^9 per batch at 16 Ki).
- `small-…`: batches of 1 to 4 Ki tuples, two matches per tuple, pairs emitted.
- `grid-…`: tests the choices of `auto`: batch x selectivity x distribution, in windows of 2^14 (single tuples), 2^16
  (batches up to 256) or 2^20. `auto` has the peer `best fixed index` in each cell. Left out, to stay near ten minutes:
  selectivity 256 of drifting and increasing keys, which neighbouring cells bracket; other peers; indexes that visit
  every match, in steps with more than 2^26 matches; `scan` beyond 2^28 comparisons per step. Cells with more than one
  match per tuple count them: writing the pairs takes the same time for all indexes and would hide their differences.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from millrace.bench.entrants import Entrant, ours, yardstick
from millrace.bench.harness import Case, Contender
from millrace.bench.options import Options
from millrace.bench.peers.numpy_batches import NumpySession
from millrace.bench.stream import starter
from millrace.bench.workload import DISTRIBUTIONS, Distribution, Workload

COUNT_WINDOW, COUNT_BATCH = 1 << 20, 1 << 16
COUNT_SELECTIVITIES = (1, 16, 256, 1 << 12, 1 << 14)
QUICK_COUNT_WINDOW, QUICK_COUNT_BATCH = 1 << 14, 1 << 12
QUICK_COUNT_SELECTIVITIES = (1, 1 << 10)

SINGLE_WINDOW, SMALL_WINDOW, LARGE_WINDOW = 1 << 14, 1 << 16, 1 << 20
SMALL_BATCHES = (1, 16, 256, 4096)
QUICK_SMALL_WINDOW = 1 << 12
QUICK_SMALL_BATCHES = (1, 256)

GRID_BATCHES = (1, 16, 256, 4096, 1 << 16)
GRID_LARGEST_SMALL_BATCH = 256
GRID_SELECTIVITIES = (1, 256, 1 << 14)
GRID_ENDS_ONLY: tuple[Distribution, ...] = ("drifting", "increasing")
QUICK_GRID = ((16, 1), (1024, 256))
GRID_SLICE_SHARE, GRID_TURNS = 0.1, 4
"""Short alternating slices: the differences of interest are about 10%."""
CHECKED_TUPLES = 128


def cases(options: Options, everyone: Sequence[Entrant]) -> Iterator[Case]:
    """All cases, on the CPU only."""
    on_cpu = [entrant for entrant in everyone if entrant.device == "cpu"]
    yield from _counts(options.quick, on_cpu)
    yield from _small(options.quick, on_cpu)
    yield from _grid(options.quick, on_cpu)


def _counts(quick: bool, everyone: Sequence[Entrant]) -> Iterator[Case]:
    window, batch = (QUICK_COUNT_WINDOW, QUICK_COUNT_BATCH) if quick else (COUNT_WINDOW, COUNT_BATCH)
    base = Workload(window, batch, "batches", "count", rate=1)
    for rate in QUICK_COUNT_SELECTIVITIES if quick else COUNT_SELECTIVITIES:
        workload = Workload(window, batch, "batches", "count", rate)
        peers = [
            Contender(name, starter(partial(NumpySession, sort_batch=sort), workload, ordered=True))
            for name, sort in (("numpy", False), ("numpy-sorted", True))
        ]
        peers += yardstick("bisort", "selectivity 1", base, everyone)
        yield _case(f"count-{_shape(workload)}", workload, everyone, peers)


def _small(quick: bool, everyone: Sequence[Entrant]) -> Iterator[Case]:
    window = QUICK_SMALL_WINDOW if quick else SMALL_WINDOW
    for batch in QUICK_SMALL_BATCHES if quick else SMALL_BATCHES:
        workload = Workload(window, batch, "batches")
        yield _case(f"small-{_shape(workload)}", workload, everyone)


def _grid(quick: bool, everyone: Sequence[Entrant]) -> Iterator[Case]:
    for distribution in DISTRIBUTIONS:
        for batch, rate in QUICK_GRID if quick else _cells(distribution):
            window = _grid_window(batch)
            workload = Workload(
                QUICK_SMALL_WINDOW if quick else window,
                batch,
                "batches",
                "seqs" if rate == 1 else "count",
                rate,
                distribution=distribution,
            )
            yield replace(
                _case(f"grid-{_shape(workload)}-{distribution}", workload, everyone),
                slice_share=GRID_SLICE_SHARE,
                turns=GRID_TURNS,
            )


def _grid_window(batch: int) -> int:
    """A window size that a warm-up can replace completely in a few seconds."""
    if batch == 1:
        return SINGLE_WINDOW
    return SMALL_WINDOW if batch <= GRID_LARGEST_SMALL_BATCH else LARGE_WINDOW


def _cells(distribution: Distribution) -> list[tuple[int, int]]:
    """Batch and selectivity."""
    ends = (GRID_SELECTIVITIES[0], GRID_SELECTIVITIES[-1])
    rates = ends if distribution in GRID_ENDS_ONLY else GRID_SELECTIVITIES
    return [(batch, rate) for batch in GRID_BATCHES for rate in rates]


def _case(
    name: str,
    workload: Workload,
    everyone: Sequence[Entrant],
    peers: Sequence[Contender] = (),
) -> Case:
    return Case(
        name,
        "tuples/s",
        [*ours(workload, everyone), *peers],
        workload.facts,
        check_steps=max(2, CHECKED_TUPLES // workload.batch),
        round=2,
        # Replace both windows in batches of this size: they were filled by one large batch, for which an adaptive
        # index chose its structure.
        warm_work=2.25 * workload.window,
        rivals=frozenset({"btree"}),
    )


def _shape(workload: Workload) -> str:
    return f"2^{workload.window.bit_length() - 1}-batch{workload.batch}-sel{workload.rate:g}"
