"""The (index, device) pairs that the suite must cover, as a list: a tool that is missing fails the suite.

The registry reports only what can be opened. Without this list, a device that does not open would drop out unnoticed.
"""

from __future__ import annotations

from millrace.registry import devices, join_pairs
from tests.conformance.suite import Pair

EXPECTED: frozenset[Pair] = frozenset(
    {
        *((index, "cpu") for index in ("auto", "bisort", "rap", "wib", "spo", "pim", "im", "chain", "btree", "scan")),
        *(("bisort", device) for device in ("opencl:0", "hls", "rtl", "cuda-emulated:0")),
        *(("spo", device) for device in ("opencl:0", "cuda-emulated:0")),
    }
)
"""Every machine that runs the suite has these; further devices, such as cards, take part as well."""


def pairs() -> list[Pair]:
    """All pairs of this machine; raises an error that names the expected ones that are missing, and why."""
    found: list[Pair] = [(index, device) for index, device in join_pairs()]
    missing = sorted(EXPECTED - set(found))
    if missing:
        reasons = [f"{info.name}: {info.detail}" for info in devices() if not info.available]
        raise AssertionError(f"these pairs cannot run: {missing}; not available are {'; '.join(reasons)}")
    return found
