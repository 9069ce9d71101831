"""What the operators of a soak have in common: calls that are made again after injected faults, and comparisons.

A call that fails by an injected fault must have changed nothing. `turnovers` counts how often the window (the rows of
an index) was replaced; `state_bytes` is what a checkpoint of it takes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from random import Random
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from millrace.faults import is_injected
from millrace.soak.reference import Longs

T = TypeVar("T")
MOST_ATTEMPTS = 100
SCHEMA = pa.schema([("ts", pa.int64()), ("x", pa.int64()), ("y", pa.int64())])
CPU_INDEXES = {
    "band": ("auto", "bisort", "rap", "wib", "pim", "im", "chain", "btree", "scan"),
    "equal": ("auto", "bisort", "rap", "wib", "pim", "btree", "scan"),
    "inequality": ("auto", "spo", "scan"),
}
DEVICE_INDEXES = {"band": "bisort", "equal": "bisort", "inequality": "spo"}
SIMULATED = ("rtl", "hls")
"""Devices that are slow, and run BI-Sort alone."""


class SoakFailure(AssertionError):
    """The output, or what is left behind, is wrong."""


class Operator(ABC):
    """One operator under test."""

    name = ""

    def __init__(self, rng: Random, device: str, window: int) -> None:
        """`window`: about how many rows are held."""
        self.rng, self.device, self.window = rng, device, window
        self.turnovers, self.state_bytes, self.raised = 0.0, 0, 0

    @property
    def fell_back(self) -> bool:
        """Whether it left its device."""
        return False

    @abstractmethod
    def step(self) -> None:
        """One random call, compared with the brute force."""

    def finish(self) -> None:  # noqa: B027 - some compare every call
        """The last comparison of an episode."""

    def close(self) -> None:  # noqa: B027 - some have nothing to free
        """Free what is held."""

    def describe(self) -> str:
        """What runs, for a report."""
        return f"{self.name} on {self.device}"

    def call(self, work: Callable[[], T]) -> T:
        """The result of a call, made again after injected faults."""
        for _ in range(MOST_ATTEMPTS):
            try:
                return work()
            except Exception as error:
                if not is_injected(error):
                    raise
                self.raised += 1
        raise SoakFailure(f"{self.describe()}: a call still fails after {MOST_ATTEMPTS} attempts")

    def expect(self, found: Any, wanted: Any, what: str) -> None:
        """Raise a `SoakFailure` if two results differ."""
        if isinstance(wanted, np.ndarray):
            same = found.shape == wanted.shape and bool((found == wanted).all())
        else:
            same = found == wanted
        if not same:
            raise SoakFailure(f"{self.describe()}: {what} differs: {_shown(found)} instead of {_shown(wanted)}")

    def rows(self, count: int, first: int = 0) -> Longs:
        """Random rows (time, x, y), some of them late."""
        rng = np.random.default_rng(self.rng.randrange(1 << 62))
        times = first + np.arange(count) + rng.integers(-4, 5, count)
        return np.stack([times, rng.integers(0, 500, count), rng.integers(0, 500, count)])

    def batch_size(self) -> int:
        """One row, a few, or a good part of the window."""
        return self.rng.choice((1, 1, 3, self.rng.randrange(1, 40), self.rng.randrange(1, self.window + 1)))


def table_of(rows: Longs) -> pa.Table:
    """Rows (time, x, y) as a table."""
    return pa.Table.from_arrays([pa.array(column) for column in rows], schema=SCHEMA)


def _shown(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.shape[1]} rows {value[:, :3].T.tolist()}…"
    return f"{value!r:.120}"
