"""What a command moves between memory and engine: runs, indexes, and the registers with their slices' checksums."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from millrace.hw import registers as reg

IDS = np.dtype(np.uint32)


@dataclass(frozen=True)
class RunAt:
    """A run in the engine's memory: addresses of its words and ids, and its length."""

    words: int
    ids: int
    size: int


@dataclass(frozen=True)
class IndexAt:
    """An index in the engine's memory: one sample per `step` words."""

    address: int
    step: int

    def samples(self, size: int) -> int:
        """The number of samples for a run of `size` words."""
        return -(-size // self.step)


@dataclass(frozen=True)
class Transfer:
    """An array that a command moves; for each non-empty slice the register of its checksum, its bytes and its end."""

    name: str
    slices: tuple[tuple[int, int, int], ...]


def merge_transfers(
    runs: tuple[RunAt, RunAt, RunAt], cuts: Sequence[tuple[int, int]], word: int, index: IndexAt | None
) -> list[Transfer]:
    """The transfers of a merge of two runs into a third, cut into slices."""
    both = [sum(cut) for cut in cuts]
    moved = []
    for name, run, ends in zip(["A", "B", "OUT"], runs, (*zip(*cuts, strict=True), both), strict=True):
        moved.append(transfer(f"{name}_WORDS", run.words, ends, word))
        moved.append(transfer(f"{name}_IDS", run.ids, ends, IDS.itemsize))
    if index is not None:
        moved.append(transfer("OUT_INDEX", index.address, samples(both, index.step), word))
    return moved


def transfer(name: str, address: int, ends: Sequence[int], element: int) -> Transfer:
    """The transfer of an array whose slices, one per cluster or pair, end at `ends`."""
    first: int = getattr(reg, f"REG_{name}_CRC")
    stride = reg.STRIDES[f"{name}_CRC"]
    slices = enumerate(zip([0, *ends], ends, strict=False))
    return Transfer(
        name,
        tuple(
            (first + k * stride, (end - begin) * element, address + end * element)
            for k, (begin, end) in slices
            if end > begin
        ),
    )


def samples(ends: Sequence[int], step: int) -> list[int]:
    """The ends of an index's slices, from the ends of the run's slices."""
    return [-(-end // step) for end in ends]
