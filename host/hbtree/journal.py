"""The undo journal of an update: old contents of a regular HB+-Tree, to restore it if the device fails.

Not in the paper, which does not say what happens to the tree if the device fails. Each change writes a line of the
journal. In fresh memory, a large update therefore spends much of its time on page faults, and that time varies from
update to update. So later updates, of any tree, reuse the memory blocks that the allocator keeps.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from millrace.host.base.faults import fault_point
from millrace.host.base.types import Array
from millrace.host.hbtree import update as hu
from millrace.host.runtime.allocator import allocate, free
from millrace.host.runtime.kernel_args import pack_words
from millrace.host.runtime.team import Team

if TYPE_CHECKING:
    from millrace.host.hbtree.regular import RegularTree

_BLOCK = 1 << 25
"""Bytes of a block: all have one size, so that updates of any size can reuse them."""
_HEAD = 2
"""Words of a piece's header: bytes used and capacity."""


class Journal:
    """Old contents in pieces, and a copy of the tree's scalar state."""

    def __init__(self, tree: RegularTree) -> None:
        """Start a journal before the tree changes."""
        self._tree = tree
        self._blocks: list[Array] = []
        self._pieces: list[Array] = []
        self._free: Array = np.empty(0, np.int64)
        self._before = tree.numbers()

    @classmethod
    @contextmanager
    def pooled(cls, tree: RegularTree) -> Iterator[Journal]:
        """A journal whose memory is reused by the next one."""
        journal = cls(tree)
        yield journal
        journal._forget()

    def pieces(self, sizes: npt.NDArray[np.int64]) -> Array:
        """Allocate a piece of each size in bytes; return the addresses."""
        made = [self._piece(size) for size in sizes.tolist()]
        self._pieces += made
        return pack_words(*made)

    def _piece(self, size: int) -> Array:
        words = _HEAD + -(-size // 8)
        if words > len(self._free):
            fault_point("index.journal")
            self._free = allocate(max(words, _BLOCK // 8), np.int64)
            self._blocks.append(self._free)
        made, self._free = self._free[:words], self._free[words:]
        made[:_HEAD] = 0, size
        return made

    def undo(self, team: Team) -> None:
        """Restore the tree."""
        for piece in reversed(self._pieces):
            team.run(hu.rewind, pack_words(piece), 1)
        self._tree.set_numbers(self._before)
        self._pieces = []

    def _forget(self) -> None:
        """Return the memory to the allocator."""
        for block in self._blocks:
            free(block)
        self._blocks, self._pieces, self._free = [], [], self._free[:0]
