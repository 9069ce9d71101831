"""Fault points of the public API (defined in `base/faults.py`): makes the library fail on purpose, in tests.

>>> from millrace.faults import fault_points
>>> [point.what for point in fault_points() if point.name == "bisort.step"]
['index bisort finds the partners of new tuples']
"""

from millrace.host.base.faults import (
    FaultPoint,
    InjectedFault,
    arm,
    disarm,
    fault_point,
    fault_points,
    injected,
    is_injected,
)

__all__ = [
    "FaultPoint",
    "InjectedFault",
    "arm",
    "disarm",
    "fault_point",
    "fault_points",
    "injected",
    "is_injected",
]
