"""The options of a bench run."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from millrace.bench.harness import Effort

_FULL = Effort()
_QUICK = Effort(repeats=3, slice_seconds=0.05, max_seconds=2.0)


@dataclass(frozen=True)
class Options:
    """`quick`: small sizes and short slices; `repeats`: number of repeats; `only`: keep cases whose name contains it.

    `trace`: file for a trace of the last selected case, for benches that can write one.
    """

    quick: bool = False
    repeats: int | None = None
    only: str = ""
    trace: Path | None = None

    @property
    def effort(self) -> Effort:
        """How long to measure."""
        chosen = _QUICK if self.quick else _FULL
        if self.repeats is None:
            return chosen
        return replace(chosen, repeats=self.repeats)
