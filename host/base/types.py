"""Types that all layers share, defined once: arrays, masks, positions, ids, the sides of a join."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Mask = npt.NDArray[np.bool_]
Longs = npt.NDArray[np.int64]
Positions = npt.NDArray[np.int64]
"""Sequence numbers of the tuples of one side, from 0 in order of acceptance."""
Ids = npt.NDArray[np.uint32]
"""Positions relative to the first position of a subwindow or a sorted run."""
Order = npt.NDArray[np.uint8]
"""The side of each accepted tuple: 0 for r, 1 for s."""

Side = Literal["r", "s"]
SIDES: tuple[Side, Side] = ("r", "s")


def other(side: Side) -> Side:
    """Return the side that `side` is joined with."""
    return "s" if side == "r" else "r"
