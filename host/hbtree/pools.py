"""The node pools of a regular HB+-Tree as arrays: their memory, and the fragments of a fresh tree.

The layout of a node and of its fragment is in `fragments.py` (thesis, appendix A, 4.1). Limit: pools do not grow; a
tree that fills them is built again with larger ones.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from millrace.host.base.types import Array
from millrace.host.hbtree import fragments as hf
from millrace.host.hbtree.layout import Shape
from millrace.host.runtime.allocator import huge_array
from millrace.host.runtime.intrinsics import address


@dataclass
class Pools:
    """The memory of a tree: fragments have four numbers per node, `changed_…` one byte."""

    leaves: Array
    lasts: Array
    uppers: Array
    leaf_fragments: npt.NDArray[np.int32]
    upper_fragments: npt.NDArray[np.int32]
    free_leaves: npt.NDArray[np.int32]
    free_uppers: npt.NDArray[np.int32]
    changed_lasts: npt.NDArray[np.uint8]
    changed_uppers: npt.NDArray[np.uint8]

    def addresses(self) -> list[int]:
        """The addresses in the order of the kernels' table."""
        return [address(array) for array in vars(self).values()]


def copy_resized(array: Array, size: int) -> Array:
    """Copy the beginning of an array into a new one of another size."""
    made = huge_array(size, array.dtype)
    held = min(size, len(array))
    made[:held] = array[:held]
    return made


def fresh_fragments(shape: Shape, used: int, max_leaves: int, max_uppers: int) -> tuple[Array, Array]:
    """The fragments of a fresh tree: sizes, parents and siblings, level by level."""
    fanout, counts, levels = shape.fanout, shape.counts, shape.levels
    leaves, uppers = huge_array(4 * max_leaves, np.int32), huge_array(4 * max_uppers, np.int32)
    starts = [int(first) for first in np.cumsum([0, *counts[:-2]])]
    for level in range(levels):
        number = np.arange(counts[level], dtype=np.int32)
        last = level == levels - 1
        rows = leaves if last else uppers[4 * starts[level] :]
        view = rows[: 4 * counts[level]].reshape(-1, 4)
        each = fanout * used if last else fanout
        total = shape.size if last else counts[level + 1]
        first = 0 if last else starts[level]
        view[:, hf.COUNT] = np.minimum(total - number.astype(np.int64) * each, each)
        view[:, hf.PARENT] = -1 if level == 0 else starts[level - 1] + number // fanout
        view[:, hf.BEFORE] = np.where(number > 0, first + number - 1, -1)
        view[:, hf.NEXT] = np.where(number < counts[level] - 1, first + number + 1, -1)
    return leaves, uppers
