"""Checks the values of an image's manifest: everything in it may have been written by anyone.

Numbers must be in the ranges that engine, driver and boards support, and texts must be short and printable, because
they are shown in a terminal. Every violation is a `ValueError`; `image.py` makes it a `BitstreamError`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millrace.hw.image import Manifest

ORIGINS = ("built", "given")
CLOCK_HZ = (1_000_000, 1_000_000_000)
VERSIONS = (0, (1 << 31) - 1)
PARAMETERS: Mapping[str, tuple[int, ...] | range] = {
    "KEY_W": (32, 64),
    "W": (1, 2, 4, 8),
    "CLUSTERS": range(1, 17),
    "PROBERS": range(1, 65),
    "INDEX_DEPTH": range(2, (1 << 20) + 1),
    "DATA_W": (32, 64, 128, 256, 512),
    "BURST": range(1, 257),
    "FIFO_BEATS": range(2, 4097),
    "PENDING": range(1, 257),
    "QUEUE": range(1, 65),
    "MEM_LOG2": range(10, 33),
}
"""The allowed values of each parameter; there are no others."""
REQUIRED = ("KEY_W", "W")
"""What the engine must name after loading, so an image must say it."""
MAX_ENTRIES = 32
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_ABI = re.compile(r"[0-9]{1,5}\.[0-9]{1,5}")
_TEXT = re.compile(r"[ -~]{1,64}")


def check_values(manifest: Manifest) -> None:
    """Raise a `ValueError` that names the first value that is not allowed; the types are right already."""
    for what, text, pattern in (
        ("board", manifest.board, _NAME),
        ("part", manifest.part, _NAME),
        ("design", manifest.design, _IDENTIFIER),
        ("abi", manifest.abi, _ABI),
    ):
        _require(pattern.fullmatch(text) is not None, what, text)
    _require(manifest.origin in ORIGINS, "origin", manifest.origin)
    _require(CLOCK_HZ[0] <= manifest.clock_hz <= CLOCK_HZ[1], "clock_hz", manifest.clock_hz)
    _require(VERSIONS[0] <= manifest.version <= VERSIONS[1], "version", manifest.version)
    for name in REQUIRED:
        _require(name in manifest.parameters, "a manifest without parameter", name)
    for name, value in manifest.parameters.items():
        _require(value in PARAMETERS.get(name, ()), f"parameter {name}", value)
    for entries in (manifest.tools, manifest.report):
        _require(len(entries) <= MAX_ENTRIES, "number of tools or results", len(entries))
        for key in entries:
            _require(_NAME.fullmatch(key) is not None, "name of a tool or a result", key)
    for version in manifest.tools.values():
        _require(_TEXT.fullmatch(version) is not None, "version of a tool", version)
    for figure in manifest.report.values():
        _require(math.isfinite(figure), "report", figure)


def _require(allowed: bool, what: str, value: object) -> None:
    if not allowed:
        raise ValueError(f"{what} {value!r} is not allowed")
