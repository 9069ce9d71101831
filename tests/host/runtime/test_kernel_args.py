"""Kernel arguments: packed by name, read by name in a kernel, and refused if a name is missing or unknown."""

from __future__ import annotations

from enum import auto

import numpy as np
import pytest

from millrace.host.runtime.intrinsics import address, load, load_as, store
from millrace.host.runtime.jit import share
from millrace.host.runtime.kernel_args import KernelArgs
from millrace.host.runtime.team import Team


class Args(KernelArgs):
    COUNT = auto()
    FLIP = auto()
    OUT = auto()
    COLUMN = auto()


class More(KernelArgs):
    FIRST = Args.COLUMN
    SECOND = auto()


def test_fields_are_numbered_in_order() -> None:
    assert [int(field) for field in Args] == [0, 1, 2, 3]
    assert [int(field) for field in More] == [3, 4]


def test_integers_are_packed_by_value_and_arrays_by_address() -> None:
    out = np.zeros(3, np.int64)
    expected = [3, -1, address(out), 0]
    assert Args.pack(COUNT=3, FLIP=-1, OUT=out, COLUMN=0).tolist() == expected
    assert Args.pack(COLUMN=0, OUT=out, FLIP=(1 << 64) - 1, COUNT=3).tolist() == expected
    assert Args.partly(FLIP=-1, COUNT=3, OUT=out).tolist() == expected
    assert Args.pack(7, out, COUNT=3, FLIP=0, OUT=1).tolist() == [3, 0, 1, 7, address(out)]


def test_a_missing_or_unknown_name_is_refused() -> None:
    with pytest.raises(TypeError, match=r"missing: \['COLUMN', 'OUT'\], unknown: \[\]"):
        Args.pack(COUNT=3, FLIP=0)
    with pytest.raises(TypeError, match=r"missing: \[\], unknown: \['ROWS'\]"):
        Args.partly(COUNT=3, ROWS=1)


@share
def _add(given: int, part: int, parts: int) -> None:
    total = load(given, Args.COLUMN) + load(given, Args.COLUMN + 1) + part
    if load_as(given, Args.FLIP, np.uint64(0)) > np.uint64(5):
        total += load(given, Args.COUNT)
    store(load(given, Args.OUT), part, total)


def test_a_kernel_reads_arguments_by_name() -> None:
    out = np.zeros(3, np.int64)
    Team(1).run(_add, Args.pack(10, 20, COUNT=300, FLIP=1 << 63, OUT=out), 3)
    assert out.tolist() == [330, 331, 332]
