"""`mr.KnnJoin`: for each row of one stream its nearest rows of another, within a sliding window.

Most calls are those of every join of streams (`join_parts/stream_join.py`). s's window is held and indexed; r's rows
are searched when they are taken, and forgotten. At equal times s comes before r. (Thesis, appendix C, ADS-kNN.)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from millrace.host.base.types import Side
from millrace.host.knn.intake import PointSpec, check_groups, make_point_intake
from millrace.host.knn.metric import Metric
from millrace.host.planner.explanation import Explanation
from millrace.host.stream.intake import Intake
from millrace.ingest.arguments import MAX_PENDING
from millrace.ingest.choices import Fallback, KnnHow, KnnOutput
from millrace.ingest.knn_arguments import GivenKnnArguments, KnnArguments, explain_knn, parse_knn_arguments
from millrace.join_parts.batch_reader import BatchReader
from millrace.join_parts.knn_engine import KnnEngine
from millrace.join_parts.knn_output import knn_schema
from millrace.join_parts.output import Schemas
from millrace.join_parts.reporting import explain_window
from millrace.join_parts.stream_join import StreamJoin


@dataclass(frozen=True)
class KnnReader(BatchReader[KnnArguments]):
    """Reads batches for one `mr.KnnJoin`."""

    first_side = "s"

    def make_intake(self, side: Side, schema: pa.Schema, time: str | None) -> Intake:
        """How a side's rows are read: their points and groups."""
        return make_point_intake(side, self.args.search.spec, schema, time, self.codes)

    def bind(self, schemas: Schemas) -> PointSpec:
        """The search, after a check of what depends on both sides."""
        check_groups(self.args.search.spec, schemas)
        return self.args.search.spec

    def output_schema(self, schemas: Schemas) -> pa.Schema:
        """The schema of neighbours."""
        return knn_schema(schemas, self.args.output, self.args.several)


class KnnJoin(StreamJoin):
    """For each r row its k nearest s rows among those in s's window.

    >>> import millrace as mr, pyarrow as pa
    >>> j = mr.KnnJoin(on=("x", "y"), k=1, window="1000 rows")
    >>> j.push("s", pa.table({"x": [0.0, 8.0], "y": [0.0, 6.0]})).num_rows
    0
    >>> j.push("r", pa.table({"x": [5.0], "y": [2.0]})).to_pydict()
    {'r_seq': [0], 'rank': [0], 's_seq': [1], 'distance': [5.0], 'r_x': [5.0], 'r_y': [2.0], 's_x': [8.0], 's_y': [6.0]}

    Only r rows have output, ordered by r, then `rank`. Calls from several threads are serialised.

    Args:
        on (tuple[str, ...] | tuple[tuple[str, ...], tuple[str, ...]]): 2 to 8 numeric columns that both sides have, or
            a pair of tuples (r's, s's). Values become doubles.
        k: Neighbours per r row, at least 1; fewer candidates give fewer rows.
        window (str | timedelta | int): s's window: `"N rows"`, or a length of time.
        time (str | tuple[str, str] | None): The time column, or a pair (r's, s's): a timestamp, a date or an integer.
            Needed for a window of time and for several sources.
        lateness (str | timedelta | int): How far a row may be below the largest time that its source has pushed: a
            length of time, or a number if the times are integers. Older rows are dropped and counted.
        sources: How many sources each side has, such as `{"r": 3, "s": 2}`; None is one each. At most 2^20.
        self_join: One stream, pushed as `"r"`, is searched for the earlier neighbours of its rows.
        metric: `"euclidean"`, or `"haversine"`: `on` is longitude and latitude in degrees, distances are metres.
        within: The largest distance, inclusive, in the unit of the coordinates (haversine: metres); None is no limit.
        by (str | tuple[str, str] | list | None): Only rows that are equal in these columns are neighbours.
        how: `"inner"`, or `"left"`, which keeps r rows without a neighbour, with nulls.
        device: `"cpu"`, `"opencl[:i]"`, `"cuda[:i]"`, or `"auto"`: the CPU, unless `millrace calibrate` found a GPU
            faster on this machine. Other devices do not search points.
        threads: The most threads of a call, 1 to 1,024; None is one per core.
        output: `"pairs"`, or `"seqs"` (no payload).
        max_pending: The most rows that may wait for a silent source.
        schemas (Mapping[str, pyarrow.Schema] | None): The schema of a side, or of both, known before its first batch.
            Batches are then cast where no value changes.
        fallback: `"cpu"` continues there after a `DeviceFault`, with nothing lost or repeated; None raises the fault.
        options: `partitions`, `map` and `replace`; they change speed, never the result.

    Raises:
        ArgumentError: An argument is not allowed; the message says what is.
        DeviceUnavailable: The device cannot be used, or does not search points.
    """

    _args: KnnArguments
    _engine: KnnEngine

    def __init__(
        self,
        on: Any,
        *,
        k: int,
        window: Any,
        time: str | tuple[str, str] | None = None,
        lateness: Any = 0,
        sources: Mapping[str, int] | None = None,
        self_join: bool = False,
        metric: Metric = "euclidean",
        within: float | None = None,
        by: Any = None,
        how: KnnHow = "inner",
        device: str = "auto",
        threads: int | None = None,
        output: KnnOutput = "pairs",
        max_pending: int = MAX_PENDING,
        schemas: Mapping[str, Any] | None = None,
        fallback: Fallback | None = None,
        options: Mapping[str, int | float | str] | None = None,
    ) -> None:
        """Check all arguments and open the device; no data is needed yet."""
        given = GivenKnnArguments(
            on=on,
            k=k,
            window=window,
            time=time,
            lateness=lateness,
            sources=sources,
            self_join=self_join,
            metric=metric,
            within=within,
            by=by,
            how=how,
            device=device,
            threads=threads,
            output=output,
            max_pending=max_pending,
            fallback=fallback,
            options=options,
        )
        args = parse_knn_arguments(given)
        super().__init__(args, KnnReader(args), KnnEngine(args), schemas)

    def explain(self) -> Explanation:
        """The search, the index and the device in use, and the reasons for them."""
        why = self._engine.fallback() or self._args.search.engine.planned()[1]
        return explain_stream(self._args, (self._engine.current_device.name, why))

    def _arguments(self) -> dict[str, str]:
        described = {name: repr(value) for name, value in self._args.search.describe().items()}
        return {**super()._arguments(), **described}

    def __repr__(self) -> str:
        """Search, window and row counts."""
        stats = self.stats
        return (
            f"<millrace {self._title()}, window {self._args.window.s}, device {stats.device}: "
            f"{stats.rows['r']} r rows, {stats.rows['s']} s rows, {stats.held} held, {stats.pairs} neighbours>"
        )

    def _title(self) -> str:
        return f"KnnJoin of the {self._args.search.k} {self._args.search.spec.describe()}"


def explain_stream(args: KnnArguments, used: tuple[str, str] | None = None) -> Explanation:
    """What a `mr.KnnJoin` with these arguments does, and why; its window is s's. `used`: see `explain_knn`."""
    return explain_knn(args.search, {**explain_window(args), "window": str(args.window.s)}, used)
