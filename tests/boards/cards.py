"""Helpers for board tests: images, a separate card folder per test, and joins that return their rows."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest

import millrace as mr
from millrace.host.base.errors import DeviceUnavailable
from millrace.host.join.panjoin import bisort
from millrace.hw import cards, catalog
from millrace.hw import image as images
from millrace.hw.image import Image
from tests.conformance.cases import build as build_case
from tests.conformance.cases import random_shape
from tests.conformance.check import check_case
from tests.conformance.expected import expect
from tests.packaging.project import ROOT

PYNQ_PYTHON = ROOT / ".venv-pynq" / "bin" / "python"
HEAD = b"\xff\x00Part: LFE5U-85F-6CABGA381\x00\xff\xff\xff\xbd\xb3" + b"\xff" * 4
HEAD += b"\x3b\x00\x00\x00\xe2\x00\x00\x00\x41\x11\x30\x43\x22\x00\x00\x00\x40\x00\x00\x00"
HEAD += bytes(1 << 14)
"""An ECP5 bitstream as ecppack writes it (Project Trellis, libtrellis/src/Bitstream.cpp), without frames."""


@cache
def small_image() -> Image:
    """An image for the ULX3S with the right build hash and a fake bitstream."""
    return images.make(catalog.board("ulx3s"), {"ulx3s_top.bit": HEAD}, {"test": "1"}, {"fmax_mhz": 30.0})


def own_address() -> str:
    """A loopback address that only this process uses."""
    number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    return f"127.0.{os.getpid() % 250 + 1}.{number + 2}"


def own_folder(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Use a card folder for this test only, and no key from the environment."""
    monkeypatch.setenv(cards.VARIABLE, str(folder))
    monkeypatch.delenv("MILLRACE_IMAGE_KEY", raising=False)


def joined(
    device: str, rows: int = 300, fallback: str | None = None, breaks: Callable[[], object] | None = None
) -> tuple[pa.Table, dict[str, Any]]:
    """A band join over several pushes, and its stats; `breaks` is called before the last ones.

    There is no insertion buffer, so every row is sent to the device.
    """
    with patch.object(bisort, "BUFFER", 3):
        return _joined(device, rows, fallback, breaks)


def _joined(
    device: str, rows: int, fallback: Any, breaks: Callable[[], object] | None
) -> tuple[pa.Table, dict[str, Any]]:
    join = mr.WindowJoin(
        on="abs(r.x - s.x) <= 3", window="400 rows", index="bisort", device=device, fallback=fallback, output="seqs"
    )
    parts = []
    for turn in range(4):
        if turn == 3 and breaks is not None:
            breaks()
        for side, factor in (("r", 37), ("s", 53)):
            column = pa.array([(i * factor + turn * 11) % 1009 for i in range(rows)], pa.int64())
            parts.append(join.push(side, pa.table({"x": column})))
    parts.append(join.close())
    return pa.concat_tables(parts), dict(join.stats)


def conforming(device: str, count: int) -> int:
    """Run conformance cases for `bisort`; returns how many were served.

    A window that does not fit into a scarce memory is refused, as for a user.
    """
    served = 0
    for number in range(count):
        case = build_case(random_shape(Random(number)))
        try:
            served += check_case(case, expect(case), "bisort", device, 1, split_seed=number).served
        except DeviceUnavailable as refusal:
            if "rows of both sides together" not in str(refusal):
                raise
    return served
