"""Millrace: ordered indexes and stream joins on CPUs, GPUs and FPGAs, with the same output on all of them.

    >>> import millrace as mr, pyarrow as pa
    >>> r, s = pa.table({"x": [1, 20]}), pa.table({"x": [3, 18, 40]})
    >>> mr.join(r, s, on="abs(r.x - s.x) <= 5").to_pydict()
    {'r_seq': [0, 1], 's_seq': [0, 1], 'r_x': [1, 20], 's_x': [3, 18]}

Public names load on first use: `import millrace` alone loads no compiler, parser or device and starts no thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millrace._version import __version__
from millrace.errors import (
    ArgumentError,
    BitstreamError,
    DeviceFault,
    DeviceUnavailable,
    KeyTypeError,
    MillraceError,
    PredicateError,
    SchemaError,
    StateError,
)

if TYPE_CHECKING:
    from millrace.call_limits import Limits, limits
    from millrace.explainer import explain
    from millrace.host.device.contract import DeviceInfo
    from millrace.host.planner.explanation import Explanation
    from millrace.host.planner.tune import TuneResult
    from millrace.index import OrderedIndex
    from millrace.knn_stream import KnnJoin
    from millrace.knn_table import knn_join
    from millrace.live_join import LiveJoin
    from millrace.memory import trim
    from millrace.registry import device, devices
    from millrace.scalegate import ScaleGate
    from millrace.state.join_state import StateDelta
    from millrace.stats import GateStats, IndexStats, JoinStats, LiveStats
    from millrace.table_join import join
    from millrace.window_join import WindowJoin

_LAZY = {
    "DeviceInfo": "millrace.host.device.contract",
    "Explanation": "millrace.host.planner.explanation",
    "GateStats": "millrace.stats",
    "IndexStats": "millrace.stats",
    "JoinStats": "millrace.stats",
    "KnnJoin": "millrace.knn_stream",
    "Limits": "millrace.call_limits",
    "LiveJoin": "millrace.live_join",
    "LiveStats": "millrace.stats",
    "OrderedIndex": "millrace.index",
    "ScaleGate": "millrace.scalegate",
    "StateDelta": "millrace.state.join_state",
    "TuneResult": "millrace.host.planner.tune",
    "WindowJoin": "millrace.window_join",
    "device": "millrace.registry",
    "devices": "millrace.registry",
    "explain": "millrace.explainer",
    "join": "millrace.table_join",
    "knn_join": "millrace.knn_table",
    "limits": "millrace.call_limits",
    "trim": "millrace.memory",
}

__all__ = [
    "ArgumentError",
    "BitstreamError",
    "DeviceFault",
    "DeviceInfo",
    "DeviceUnavailable",
    "Explanation",
    "GateStats",
    "IndexStats",
    "JoinStats",
    "KeyTypeError",
    "KnnJoin",
    "Limits",
    "LiveJoin",
    "LiveStats",
    "MillraceError",
    "OrderedIndex",
    "PredicateError",
    "ScaleGate",
    "SchemaError",
    "StateDelta",
    "StateError",
    "TuneResult",
    "WindowJoin",
    "__version__",
    "device",
    "devices",
    "explain",
    "join",
    "knn_join",
    "limits",
    "trim",
]


def __getattr__(name: str) -> Any:
    """Load a public name on first use."""
    if name not in _LAZY:
        raise AttributeError(f"module 'millrace' has no attribute {name!r}")
    try:
        from millrace.host.runtime.critical import load_module
    except ImportError as error:
        raise StateError(f"millrace.{name} cannot be loaded any more, the interpreter has ended: {error}") from error

    value = getattr(load_module(_LAZY[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """The public names."""
    return sorted(__all__)
