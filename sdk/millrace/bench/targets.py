"""Speed targets of the project, checked against the rows of a full run: each target is a minimum ratio in some rows.

A target is met if its worst row has at least that ratio. A target without rows (another bench, an index that this
version lacks) is not reported. No test asserts targets: a busy machine misses them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from millrace.bench.rows import BEST_FIXED, Row


@dataclass(frozen=True)
class Target:
    """At least `ratio` in every row of a bench whose case, index, peer and device fully match the patterns."""

    text: str
    ratio: float
    bench: str
    case: str
    index: str
    peer: str
    device: str = "cpu"

    def rows(self, rows: Iterable[Row]) -> list[Row]:
        """The rows that this target applies to."""
        return [row for row in rows if self._covers(row)]

    def _covers(self, row: Row) -> bool:
        if row["bench"] != self.bench or row["peer"] is None:
            return False
        return all(re.fullmatch(getattr(self, name), row[name]) for name in ("case", "index", "peer", "device"))


def _hardware(text: str, ratio: float, case: str) -> Target:
    """A target relative to the theoretical bound, on the simulated engine."""
    return Target(text, ratio, "hardware", case, "bisort", "bound", "rtl:.*")


@dataclass(frozen=True)
class Verdict:
    """A target and its worst row."""

    target: Target
    worst: Row

    @property
    def met(self) -> bool:
        """Whether the worst row meets the target."""
        return bool(self.worst["ratio"] >= self.target.ratio)


_W, _SMALL, _BTREE = "window_join", r"small-2\^16-batch", "btree on cpu"
_BUCKETS, _STREAM = "spark-buckets", "spark_stream"
_I, _PEERS = "inequality_join", "duckdb|polars"
_L, _UNIFORM = "lookup", r"lookup-2\^(23|26)-uniform"
TARGETS = (
    Target("bisort 20x NumPy at 2^20", 20, _W, r"batches-2\^20-seqs", "bisort", "numpy"),
    Target("bisort 80x NumPy at 2^23", 80, _W, r"batches-2\^23-seqs", "bisort", "numpy"),
    Target("bisort 40x btree", 40, _W, r"batches-2\^20-seqs", "bisort", _BTREE),
    Target("bisort 0.15 tuples a line at 2^20", 0.15, _W, r"batches-2\^20-seqs", "bisort", "random-reads"),
    Target("bisort 0.10 tuples a line at 2^23", 0.10, _W, r"batches-2\^23-seqs", "bisort", "random-reads"),
    Target("bisort at 2^23 a third of 2^16", 1 / 3, _W, r"batches-2\^23-seqs", "bisort", r"bisort at 2\^16"),
    Target(
        "counting 16 Ki matches 1.2x the cost of 1",
        1 / 1.2,
        _W,
        r"count-2\^20-batch65536-sel16384",
        "bisort",
        "bisort at selectivity 1",
    ),
    Target("auto 0.85 of the best choice", 0.85, _W, "grid-.*", "auto", BEST_FIXED),
    Target("slowest push of auto at most 3x bisort's", 1 / 3, "small", "slowest-.*", "auto", BEST_FIXED),
    Target("at most 500 Python calls for one row", 1, "small", "calls-.*", "auto|bisort|rap|wib", "500 calls"),
    Target("rap beats btree, batches >= 256", 1, _W, rf"{_SMALL}(256|4096)-.*|batches-2\^(16|20)-seqs", "rap", _BTREE),
    Target("wib beats btree, batches >= 256", 1, _W, rf"{_SMALL}(256|4096)-.*|batches-2\^(16|20)-seqs", "wib", _BTREE),
    Target("rap within 2x of btree, batch 1", 0.5, _W, rf"{_SMALL}1-.*", "rap", _BTREE),
    Target("wib within 2x of btree, batch 1", 0.5, _W, rf"{_SMALL}1-.*", "wib", _BTREE),
    Target("mr.join 5x the best peer, 1M", 5, "join", "band-1M-pairs", "bisort|auto", "duckdb.*|polars.*|numpy.*"),
    Target("mr.join 5x the best peer, 10M", 5, "join", "band-10M-pairs", "bisort|auto", "duckdb.*|polars.*|numpy.*"),
    Target("pim 2x btree", 2, "live", "tuples-.*", "pim", _BTREE),
    Target("pim 2.5x btree at 2^23", 2.5, "live", r"tuples-2\^23", "pim", _BTREE),
    Target("im 1.5x btree", 1.5, "live", "tuples-.*", "im", _BTREE),
    Target("pim 1.6x on two threads", 1.6, "live", "threads-.*", "pim", "one thread"),
    Target("concurrency control costs 20%", 0.8, "live", "control-.*", "pim", "one thread"),
    Target("pim at the fastest drift 0.5 of steady", 0.5, "live", "drift-.*-1", "pim", "pim .*, steady"),
    Target("spo count 4x at 1M matches", 4, _I, "count-100K-1M", "spo", _PEERS),
    Target("spo count 50x at 100M matches", 50, _I, "count-100K-100M", "spo", _PEERS),
    Target("spo count within 1.5x up to 2.5G matches", 1 / 1.5, _I, "count-100K-.*", "spo", "spo at 1M matches"),
    Target("spo pairs 3x at 1M matches", 3, _I, "seqs-100K-1M", "spo", _PEERS),
    Target("spo pairs 5x at 100M matches", 5, _I, "seqs-100K-100M", "spo", _PEERS),
    Target("spo 5x with 1,000 groups in front", 5, _I, ".*-groups1000", "spo", _PEERS),
    Target("spo 3x at 1M rows, 10M matches", 3, _I, ".*-1M-10M", "spo", _PEERS),
    Target("spo stream 200 K tuples/s", 1, _I, "stream-1M-.*", "spo", "200,000 tuples/s"),
    Target("spo stream 50x the nested loop", 50, _I, "stream-1M-.*", "spo", "scan on cpu"),
    Target("spo slowest push 3 medians", 1, _I, "slowest-1M-.*", "spo", "3 medians"),
    Target("spo 40 bytes per tuple and predicate", 1, _I, "memory-1M", "spo", "80 bytes"),
    Target("lookup 30x NumPy", 30, _L, _UNIFORM, "implicit", "numpy"),
    Target("lookup 5x sorted NumPy", 5, _L, _UNIFORM, "implicit", "numpy-sorted"),
    Target("0.45 lookups a line at 2^26", 0.45, _L, r"lookup-2\^26-uniform", "implicit", "random-reads"),
    Target("ranges of 8 10x NumPy", 10, _L, "range-.*-match8", "implicit", "numpy"),
    Target("building 0.5 of copying", 0.5, _L, "build-.*-sorted", "implicit", "copy"),
    Target("memory 1.2x keys and values", 1 / 1.2, _L, "memory-.*", "implicit", "keys and values"),
    Target("regular within 1.5x of implicit", 1 / 1.5, _L, _UNIFORM, "regular", "implicit on cpu"),
    Target("Zipf faster than uniform", 1, _L, "lookup-.*-zipf", "implicit", "implicit at uniform"),
    Target("upserts 20x a rebuild", 20, "update", "upsert-.*", "regular", "rebuild|implicit on cpu"),
    Target("upserts 10x std::multimap", 10, "update", "upsert-.*", "regular", "multimap"),
    Target("groups 2x one thread", 2, "update", "groups-.*", "regular", "one thread"),
    Target("auto 0.9 of the better update mode", 0.9, "update", "auto-.*", "auto", BEST_FIXED, "paced"),
    Target("lookups after updates 0.8 of fresh", 0.8, "update", "lookup-.*-updated", "regular", "fresh build"),
    Target(
        "double buffering 0.95 of max(T2, T4)", 0.95, "pipeline", ".*", "double-buffered", r"max\(T2, T4\)", "paced"
    ),
    _hardware("merger 0.99 of W a cycle", 0.99, "merger-.*"),
    _hardware("mergers 0.90 of W N a cycle", 0.90, "merge-.*-ideal-.*"),
    _hardware("mergers 0.90 of DDR3's bandwidth", 0.90, "merge-.*-ddr3-.*"),
    _hardware("probers 0.8 of the bandwidth at 2^20", 0.8, r"probe-.*-2\^20-.*"),
    _hardware("probers 0.8 of the bandwidth at 2^23", 0.8, r"probe-.*-2\^23-.*"),
    Target("C simulation merges 8 M tuples a second", 1, "hardware", "csim-merge-.*", "bisort", "bar", "hls:.*"),
    Target("C simulation probes 8 M tuples a second", 1, "hardware", "csim-probe-.*", "bisort", "bar", "hls:.*"),
    Target("kNN k=10 2x the best peer on sorted queries", 2, "knn", "query-.*-k10", "hilbert", ".*-sorted"),
    Target("kNN k=25 1.6x the best peer on sorted queries", 1.6, "knn", "query-.*-k25", "hilbert", ".*-sorted"),
    Target("kNN 5x the best peer on its own order", 5, "knn", "query-.*-k(10|25)", "hilbert", "scipy|pykdtree|sklearn"),
    Target("kNN builds as fast as pykdtree", 1, "knn", "build-.*", "hilbert", "pykdtree"),
    Target("kNN 300 K tuples/s in a stream", 1, "knn", "stream-.*", "hilbert", "bar"),
    Target("kNN 20x rebuilding a cKDTree", 20, "knn", "stream-.*", "hilbert", "scipy-rebuild"),
    Target("kNN upkeep half of the search", 2, "knn", "upkeep-.*", "hilbert", "search"),
    Target("haversine within 2x of Euclidean", 0.5, "knn", "shape-haversine", "hilbert", "uniform"),
    Target("kNN of bad shapes 0.3 of uniform", 0.3, "knn", "shape-(c|d).*", "hilbert", "uniform"),
    Target("kNN 0.3 neighbour queries a tuple", 1, "knn", "neighbours-8", "kdtree|quadtree|grid", "bar"),
    Target("kNN busiest partition 1.2x the mean", 1, "knn", "balance-8", "kdtree|quadtree|grid", "bar"),
    Target("kNN 0.9 of its speed after a shift", 0.9, "knn", "shift-.*", "instant|lazy", "before"),
    Target("ScaleGate 20 M tuples/s in batches", 1, "scalegate", "batches-.*|.*-batch65536", "gate", "bar"),
    Target("ScaleGate 3 M tuples/s one by one", 1, "scalegate", "single-.*", "gate", "bar"),
    Target("ms.lookup 0.9 of identity", 0.9, "spark", r"lookup-2\^23", "lookup", "identity"),
    Target("ms.lookup of cached keys 0.9 of identity", 0.9, "spark", r"cached-\d+K", "lookup", "identity"),
    Target("ms.join as fast as the bucketed join", 1, "spark", "matches-.*", "auto", _BUCKETS),
    Target("equality and band 1.5x Spark's equi-join", 1.5, "spark", "equal-.*", "auto", "spark-equi-join"),
    Target("two inequalities faster than Spark's loop", 1, "spark", "inequalities-50K", "auto", "spark-loop"),
    Target("range 0.6 of a shuffle", 0.6, "spark", "join-1M-band", "range", "identity-shuffle"),
    Target("heavy hitter 5x the bucketed join", 5, "spark", "join-1M-heavy", "auto|broadcast|range", _BUCKETS),
    Target("40 MB a worker for 512 MB of index", 1, "spark", "memory-512MB", "lookup", "40 MB"),
    Target("stream 0.8 of an empty join", 0.8, _STREAM, "window-1M", "range", "empty range"),
    Target("stream, all shards, 0.8 of an empty join", 0.8, _STREAM, "window-1M", "store-one", "empty store-one"),
    Target("nested loop 3 G comparisons/s and thread", 1, "live", r"nested-keys-.*", "scan", "bar"),
    Target("stream 3x Spark's own", 3, _STREAM, "window-1M", "range|store-one", _BUCKETS),
    Target("window 4 M half of 256 K", 0.5, _STREAM, "window-4M", "range", "range at 256K"),
    Target("window 4 M, all shards, half of 256 K", 0.5, _STREAM, "window-4M", "store-one", "store-one at 256K"),
    Target("6x the batch's bytes written", 1, _STREAM, "written-.*", "range|store-one", "6x the batch"),
)


def judged(rows: Iterable[Row]) -> Iterator[Verdict]:
    """A verdict for every target that has rows."""
    given = list(rows)
    for target in TARGETS:
        found = target.rows(given)
        if found:
            yield Verdict(target, min(found, key=lambda row: float(row["ratio"])))
