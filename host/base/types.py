"""The types that every floor shares, one definition each: arrays, masks, positions, ids, the sides of a join."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Mask = npt.NDArray[np.bool_]
Longs = npt.NDArray[np.int64]
Positions = npt.NDArray[np.int64]
"""Numbers of a side's taken tuples, from 0 in the order in which they were taken."""
Ids = npt.NDArray[np.uint32]
"""Positions relative to the first one of a subwindow or a run."""
Order = npt.NDArray[np.uint8]
"""The side of each taken tuple: 0 for r, 1 for s."""

Side = Literal["r", "s"]
SIDES: tuple[Side, Side] = ("r", "s")


def other(side: Side) -> Side:
    """The side that `side` is joined with."""
    return "s" if side == "r" else "r"
