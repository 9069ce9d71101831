"""Millrace in Spark: partitions call the runtime, on the device of their executor.

    from millrace import spark as ms
    ms.lookup(df, index, key="k", into="value")           # batch or streaming
    ms.join(r, s, on="abs(r.x - s.x) <= 5", how="inner")  # batch
    ms.window_join(r, s, on="abs(r.x - s.x) <= 5", window="10 minutes", time="ts")  # streaming
    ms.knn_join(r, s, on=("lon", "lat"), k=10)            # batch, or a stream r against a table s
    ms.explain("join", r, s, on="abs(r.x - s.x) <= 5")    # what the call would do, and why

Works with Spark Classic and Spark Connect; see docs/reference/spark-batch.md and spark-streams.md. Importing this
package lets Spark's workers run the interpreter of this process, unless you set `PYSPARK_PYTHON`
(`cluster/worker_python.py`). Names are loaded on first use, so that it does not import pyspark.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from millrace.spark.cluster.worker_python import use_this_python

if TYPE_CHECKING:
    from millrace.spark.api.explain import explain
    from millrace.spark.api.join import join
    from millrace.spark.api.knn_join import knn_join
    from millrace.spark.api.lookup import lookup
    from millrace.spark.api.splits import splits
    from millrace.spark.api.window_join import window_join
    from millrace.spark.cluster.listener import listener
    from millrace.spark.cluster.metrics import Metrics
    from millrace.spark.cluster.resources import discovery_script

_LAZY = {
    "Metrics": "cluster.metrics",
    "discovery_script": "cluster.resources",
    "explain": "api.explain",
    "join": "api.join",
    "knn_join": "api.knn_join",
    "listener": "cluster.listener",
    "lookup": "api.lookup",
    "splits": "api.splits",
    "window_join": "api.window_join",
}
__all__ = [
    "Metrics",
    "discovery_script",
    "explain",
    "join",
    "knn_join",
    "listener",
    "lookup",
    "splits",
    "window_join",
]

use_this_python()


def __getattr__(name: str) -> Any:
    """Load a public name on first use."""
    if name not in _LAZY:
        raise AttributeError(f"module 'millrace.spark' has no attribute {name!r}")
    value = getattr(import_module(f"millrace.spark.{_LAZY[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """The public names."""
    return sorted(__all__)
