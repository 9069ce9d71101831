"""The load balancer of ADS-kNN: when the map is replaced, and by which (thesis, appendix C 4.3).

At the end of each interval every core submits its load: how many insertions and searches it did, and a sample of the
tuples of both streams that it did them for. If the loads vary too much, a new map is built from the samples. It is
used only if it promises much more even loads: points that cannot be separated must not cause replacement after
replacement.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from millrace.host.base.types import Array
from millrace.host.knn.mapper_joiner import Load
from millrace.host.knn.maps import MapKind, PartitionMap, build_map

INTERVAL_LOAD = 4096
"""An interval ends when the cores have so much load on average."""
THRESHOLD = 0.01
"""The variance of loads, relative to the square of their mean, above which the map is replaced."""
MIN_GAIN = 2.0
"""A new map must divide the variance of the sample's loads by at least this."""
MAX_SAMPLE = 1 << 14
MIN_SAMPLE = 64


def variance(loads: Array) -> float:
    """The variance of loads, relative to the square of their mean."""
    mean = float(loads.mean())
    return float(loads.var()) / mean**2 if mean > 0 else 0.0


def thinned(columns: list[Array]) -> list[Array]:
    """At most about `MAX_SAMPLE` points of a sample, evenly spaced."""
    step = -(-len(columns[0]) // MAX_SAMPLE) or 1
    return [column[::step] for column in columns]


def interval_is_over(loads: Sequence[Load]) -> bool:
    """Whether the cores have done enough to judge the map."""
    return sum(load.total for load in loads) >= INTERVAL_LOAD * len(loads)


def better_map(kind: MapKind, current: PartitionMap, loads: Sequence[Load]) -> PartitionMap | None:
    """A map that makes the loads of this interval even; None if they are, or if no map of this kind does."""
    if kind == "roundrobin" or variance(np.array([load.total for load in loads])) <= THRESHOLD:
        return None
    parts = [part for load in loads for part in load.sample]
    if sum(len(part[0]) for part in parts) < MIN_SAMPLE:
        return None
    sample = thinned([np.concatenate(columns) for columns in zip(*parts, strict=True)])
    made = build_map(kind, sample, current.partitions)
    before, after = (variance(_loads(one, sample)) for one in (current, made))
    return made if before > THRESHOLD and after * MIN_GAIN <= before else None


def _loads(one: PartitionMap, sample: list[Array]) -> Array:
    """The load of each partition if the sample were the streams."""
    homes = one.homes(sample, np.arange(len(sample[0])))
    return np.bincount(homes[homes >= 0], minlength=one.partitions).astype(np.float64)
