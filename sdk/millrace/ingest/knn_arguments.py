"""Reads and checks the arguments of nearest-neighbour joins; a bad one raises an `ArgumentError`."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from millrace.host.base.errors import ArgumentError, DeviceUnavailable
from millrace.host.base.types import Side
from millrace.host.device.contract import Device
from millrace.host.knn.intake import PointSpec
from millrace.host.knn.lanes import MAX_DIMENSIONS, MIN_DIMENSIONS
from millrace.host.knn.maps import MAP_KINDS
from millrace.host.knn.metric import METRICS, Metric, square_limit
from millrace.host.knn.partitioned import REPLACEMENTS, Partitioning
from millrace.host.planner.choice import GPU_KINDS
from millrace.host.planner.explanation import Explanation
from millrace.host.runtime.pool import cores
from millrace.ingest.arguments import GivenStreamArguments, StreamArguments, parse_stream_arguments
from millrace.ingest.checks import choice, integer_at_least, thread_count
from millrace.ingest.choices import FALLBACKS, KNN_HOWS, KNN_OUTPUTS
from millrace.ingest.durations import parse_window
from millrace.registry import check_name, device_info, devices
from millrace.registry import device as open_device

INDEX = "hilbert"
"""The name of the index in stats and explanations: blocks of points along a Hilbert curve."""
OPTIONS = ("partitions", "map", "replace")
MAX_PARTITIONS = 1 << 10


@dataclass(frozen=True)
class KnnEngineArguments:
    """How a nearest-neighbour join runs; nothing in it changes the output."""

    device: str
    threads: int | None
    fallback: str | None
    partitioning: Partitioning

    def open(self) -> Device:
        """Open the device; `auto` is the CPU."""
        if self.device == "auto":
            return open_device("cpu", threads=self.threads)
        opened = open_device(self.device, threads=self.threads)
        try:
            self._check(opened.kind)
        except DeviceUnavailable:
            opened.close()
            raise
        return opened

    def planned(self) -> tuple[str, str]:
        """The name of the device that `open` would open, and why."""
        if self.device == "auto":
            return "cpu", "no other device is calibrated for nearest neighbours"
        info = device_info(self.device)
        self._check(info.kind)
        return info.name, "the device was named"

    def _check(self, kind: str) -> None:
        """Raise a `DeviceUnavailable` unless devices of a kind can run this."""
        if not _searches(kind):
            able = ", ".join(info.name for info in devices() if info.available and _searches(info.kind))
            raise DeviceUnavailable(f"device {self.device!r} cannot search nearest neighbours; it runs on {able}")
        count = self.partitioning.partitions
        if kind != "cpu" and count > 1:
            raise DeviceUnavailable(
                f"device {self.device!r} searches one partition, but options has partitions={count}, which runs on "
                f"cpu: leave the option out"
            )


def _searches(kind: str) -> bool:
    """Whether devices of a kind search nearest neighbours: GPUs have the unit `knn_select`."""
    return kind == "cpu" or kind.startswith(GPU_KINDS)


@dataclass(frozen=True)
class SearchArguments:
    """What both kinds of nearest-neighbour join share."""

    spec: PointSpec
    k: int
    within: float | None
    how: str
    self_join: bool
    output: str
    engine: KnnEngineArguments

    @property
    def limit(self) -> float:
        """The largest squared distance of a neighbour."""
        return square_limit(self.spec.metric, self.within)

    @property
    def left(self) -> bool:
        """Whether r rows without a neighbour are kept."""
        return self.how == "left"

    def describe(self) -> dict[str, Any]:
        """The arguments that decide which rows are neighbours, for explanations."""
        return {
            "on": {side: list(names) for side, names in self.spec.on.items()},
            "k": self.k,
            "metric": self.spec.metric,
            "within": self.within,
            "by": {side: list(names) for side, names in self.spec.by.items()},
            "how": self.how,
            "self_join": self.self_join,
            "output": self.output,
        }


@dataclass(frozen=True, kw_only=True)
class GivenKnnArguments(GivenStreamArguments):
    """The arguments of a `KnnJoin` as the user wrote them."""

    k: Any
    metric: Any = "euclidean"
    within: Any = None
    by: Any = None
    how: Any = "inner"


@dataclass(frozen=True, kw_only=True)
class KnnArguments(StreamArguments):
    """The parsed arguments of a `KnnJoin`."""

    search: SearchArguments


def parse_knn_arguments(given: GivenKnnArguments) -> KnnArguments:
    """All arguments of `KnnJoin`. `window` is s's; r has none."""
    if isinstance(given.window, tuple | list):
        raise ArgumentError(f"window={given.window!r}: a KnnJoin has one window, s's; allowed is one value")
    shared = parse_stream_arguments(given, parse_window(given.window), KNN_OUTPUTS)
    names = ("on", "k", "metric", "within", "by", "how", "self_join", "output")
    engine = ("device", "threads", "fallback", "options")
    search = parse_search(**{name: getattr(given, name) for name in (*names, *engine)})
    return KnnArguments(search=search, **shared)


def parse_search(
    *,
    on: Any,
    k: Any,
    metric: Any,
    within: Any,
    by: Any,
    how: Any,
    self_join: Any,
    output: Any,
    device: Any,
    threads: Any,
    fallback: Any,
    options: Any,
) -> SearchArguments:
    """Check the arguments that tables and streams share."""
    known: Metric = choice("metric", metric, METRICS)
    columns = _coordinates(on, known)
    choice("self_join", self_join, (False, True))
    choice("how", how, KNN_HOWS)
    choice("output", output, KNN_OUTPUTS)
    if not (isinstance(device, str) and device == "auto"):
        check_name(device)
    threads = thread_count(threads)
    choice("fallback", fallback, FALLBACKS)
    engine = KnnEngineArguments(device, threads, fallback, _partitioning(options, threads))
    spec = PointSpec(columns, _groups(by), known)
    return SearchArguments(spec, integer_at_least("k", k, 1), _radius(within), how, self_join, output, engine)


def _coordinates(on: Any, metric: Metric) -> dict[Side, tuple[str, ...]]:
    """The `on` argument: names for both sides, or a pair of them."""
    parts = [on, on] if _are_names(on) else on
    if not isinstance(parts, tuple | list) or len(parts) != 2 or not all(map(_are_names, parts)):
        raise ArgumentError(
            f"on={on!r}: allowed are the names of 2 to 8 columns such as ('lon', 'lat'), or a pair of such tuples (r's "
            f"columns, s's columns)"
        )
    r, s = (tuple(names) for names in parts)
    if len(r) != len(s):
        raise ArgumentError(f"on={on!r}: r has {len(r)} dimensions and s has {len(s)}; both must have as many")
    if not MIN_DIMENSIONS <= len(r) <= MAX_DIMENSIONS:
        raise ArgumentError(f"on={on!r} has {len(r)} dimensions; allowed are {MIN_DIMENSIONS} to {MAX_DIMENSIONS}")
    if metric == "haversine" and len(r) != 2:
        raise ArgumentError(f"on={on!r}: metric='haversine' takes two columns, longitude and latitude in degrees")
    return {"r": r, "s": s}


def _are_names(given: Any) -> bool:
    return isinstance(given, tuple | list) and len(given) > 0 and all(isinstance(name, str) for name in given)


def _groups(by: Any) -> dict[Side, tuple[str, ...]]:
    """The `by` argument: a name, a pair (r's, s's), or a list of them."""
    entries = [] if by is None else by if isinstance(by, list) else [by]
    pairs = [(one, one) if isinstance(one, str) else one for one in entries]
    if not all(isinstance(p, tuple) and len(p) == 2 and all(isinstance(n, str) for n in p) for p in pairs):
        raise ArgumentError(
            f"by={by!r}: allowed are a column name, a pair (r's column, s's column), or a list of names and pairs"
        )
    return {"r": tuple(r for r, _ in pairs), "s": tuple(s for _, s in pairs)}


def _radius(within: Any) -> float | None:
    if within is None:
        return None
    number = isinstance(within, int | float | np.integer | np.floating) and not isinstance(within, bool)
    if not number or not within >= 0:  # NaN is not at least 0
        raise ArgumentError(f"within={within!r}: must be a number of at least 0, the largest distance of a neighbour")
    return float(within) if within <= sys.float_info.max else math.inf


def _partitioning(options: Any, threads: int | None) -> Partitioning:
    """The `options` argument: how s is partitioned."""
    given = {} if options is None else options
    if not isinstance(given, Mapping):
        raise ArgumentError(f"options={given!r}: must be a mapping from names of options to values")
    for name in given:
        if name not in OPTIONS:
            raise ArgumentError(
                f"options={given!r}: nearest-neighbour joins do not have the option {name!r}; their options are "
                f"{', '.join(OPTIONS)}"
            )
    return Partitioning(
        integer_at_least("partitions", given.get("partitions", 1), 1, MAX_PARTITIONS),
        choice("map", given.get("map", "kdtree"), MAP_KINDS),
        choice("replace", given.get("replace", "instant"), REPLACEMENTS),
        threads or cores(),
    )


def explain_knn(search: SearchArguments, more: dict[str, Any], used: tuple[str, str] | None = None) -> Explanation:
    """What a nearest-neighbour join does, and why; `used`: the device of an open join, and why."""
    device, why = used or search.engine.planned()
    plan = {name: value for name, value in search.describe().items() if name not in more}
    how = search.engine.partitioning
    if how.partitions > 1:
        plan |= {"partitions": how.partitions, "map": how.map, "replace": how.replace}
    index_why = "points in blocks along a Hilbert curve, with boxes: it serves every metric"
    if device != "cpu":
        index_why += f"; {device} selects candidates, the host computes exact distances"
    return Explanation(
        "knn_join",
        {"kind": "nearest neighbours", "dimensions": search.spec.dimensions, **plan, **more},
        {"name": INDEX, "why": index_why},
        {"name": device, "why": why, "threads": search.engine.threads, "fallback": search.engine.fallback},
    )
