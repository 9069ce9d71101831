"""The list of benches by name. A bench's module is imported only when the bench runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module

from millrace.bench.harness import Case, Progress, Result, measure
from millrace.bench.options import Options
from millrace.errors import ArgumentError


@dataclass(frozen=True)
class Bench:
    """A module with `cases(options)`, what it measures in one line, whether it can write a trace, further modules."""

    module: str
    title: str
    traced: bool = False
    more: tuple[str, ...] = ()


BENCHES: dict[str, Bench] = {
    "window_join": Bench(
        "millrace.bench.window_join",
        "band join of two streams in count windows, against NumPy, DuckDB, Polars and a C++ std::multimap",
    ),
    "join": Bench("millrace.bench.join", "band join of two tables, against DuckDB, Polars and sorted NumPy"),
    "inequality_join": Bench(
        "millrace.bench.inequality_join",
        "joins on two inequalities: tables against DuckDB and Polars, streams against the nested loop and btree",
    ),
    "small": Bench(
        "millrace.bench.small",
        "latency of small calls: pushes of 1, 16 and 256 rows, joins of 3 rows, lookups of 2 keys; how auto starts",
    ),
    "cold": Bench(
        "millrace.bench.cold",
        "the first call in a fresh process, with an empty and a warm kernel cache, against the imports alone",
    ),
    "knn": Bench(
        "millrace.bench.knn",
        "nearest neighbours in tables and streams, against SciPy's cKDTree, pykdtree and scikit-learn",
    ),
    "scalegate": Bench(
        "millrace.bench.scalegate",
        "merging 4 sources for 2 readers: compiled threads in batches and one by one, Arrow batches; against NumPy",
    ),
    "live": Bench(
        "millrace.bench.live",
        "window joins tuple by tuple: PIM-Tree, IM-Tree, chained index against a B+-tree; the nested loop (ScaleJoin)",
        more=("millrace.bench.scalejoin",),
    ),
    "live_join": Bench(
        "millrace.bench.live_join",
        "LiveJoin through Python: one row until its pairs are polled, sustained batches, rows of several threads",
    ),
    "structures": Bench(
        "millrace.bench.structures",
        "one subwindow of BI-Sort, RaP-Table and WiB+-Tree: inserting, probing, counting, balance; against NumPy",
    ),
    "lookup": Bench(
        "millrace.bench.lookup",
        "an ordered index: lookups, ranges, building and memory, against NumPy and the machine's random reads",
    ),
    "update": Bench(
        "millrace.bench.update",
        "updates of an ordered index, alone and mixed with lookups, against rebuilding it and a C++ std::multimap",
    ),
    "pipeline": Bench(
        "millrace.bench.pipeline",
        "lookup buckets on host and device: sequential, pipelined, double-buffered, balanced; at simulated speeds",
        traced=True,
    ),
    "hardware": Bench(
        "millrace.bench.hardware",
        "the simulated FPGA engine: tuples merged and probed per cycle, against lanes, bandwidth and a model",
    ),
    "spark": Bench(
        "millrace.spark.tools.bench",
        "lookups and band joins called from Spark, against identity, a shuffle and the bucketed equi-join",
    ),
    "spark_stream": Bench(
        "millrace.spark.tools.stream_bench",
        "band joins of two streams in Spark, against the same query without a join and Spark's own stream-stream join",
    ),
}


def check_names(names: Sequence[str]) -> list[str]:
    """The benches to run: the named ones without duplicates, or all."""
    for name in names:
        if name not in BENCHES:
            raise ArgumentError(f"there is no bench {name!r}; there are: {', '.join(BENCHES)}")
    return list(dict.fromkeys(names)) or list(BENCHES)


def check_traced(names: Sequence[str]) -> None:
    """Reject `--trace` for benches that cannot write one."""
    traceable = [name for name, bench in BENCHES.items() if bench.traced]
    if any(name not in traceable for name in names):
        raise ArgumentError(f"--trace is for {', '.join(traceable)} alone; given {', '.join(names)}")


def cases(name: str, options: Options) -> list[Case]:
    """The cases of a bench that match `options.only`."""
    bench = BENCHES[name]
    every: list[Case] = [one for m in (bench.module, *bench.more) for one in import_module(m).cases(options)]
    kept = [case for case in every if options.only in case.name]
    if not kept:
        raise ArgumentError(
            f"no case of {name} contains {options.only!r}; there are: {', '.join(c.name for c in every)}"
        )
    return kept


def run(name: str, options: Options, progress: Progress) -> Iterator[Result]:
    """Measure a bench case by case; progress runs from 0 to 1 over all cases."""
    chosen = cases(name, options)
    for number, case in enumerate(chosen):

        def within(what: str, share: float, number: int = number) -> None:
            progress(what, (number + share) / len(chosen))

        yield measure(case, options.effort, within)
    progress(f"{name}: done", 1.0)
