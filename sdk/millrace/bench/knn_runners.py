"""What the runners of bench `knn` share, and a fixed speed to compare with."""

from __future__ import annotations

from typing import Any

import numpy as np

from millrace.bench.harness import Answer


class KnnRunner:
    """A contender: an answer, and nothing to release."""

    _found: Any = None

    def answer(self) -> Answer:
        """The row numbers of the neighbours, in query order."""
        return {"neighbours": np.asarray(self._found).reshape(-1)}

    def pause(self) -> None:
        """Free the last result."""
        self._found = None

    def close(self) -> None:
        """Nothing to release."""


class FixedSpeed(KnnRunner):
    """A speed to compare with."""

    def __init__(self, speed: float) -> None:
        """The work per second."""
        self._speed = speed

    def step(self) -> tuple[float, float]:
        """A second's work."""
        return self._speed, 1.0
