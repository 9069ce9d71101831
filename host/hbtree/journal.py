"""The journal of an update: what a regular HB+-Tree had where it changes, so that it can be put back.

Not in the paper, which does not say what becomes of the tree if the device fails. Every change writes a line of the
journal, so that a large update in fresh memory spends much of its time on the system's pages, and how much differs from
one update to the next: the blocks it lies in are used again by the next update, of whatever tree, up to what an arena
keeps.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from millrace.host.base.types import Array
from millrace.host.hbtree import update as hu
from millrace.host.runtime.arena import Arena, Workroom
from millrace.host.runtime.intrinsics import table
from millrace.host.runtime.team import Team

if TYPE_CHECKING:
    from millrace.host.hbtree.regular import RegularTree

_BLOCK = 1 << 25
"""Bytes of a block: all of one size, so that updates of any size can use those of another."""
_HEAD = 2
"""Words before what a piece keeps: how many bytes of it are used, and how many there are."""
_ROOM = Workroom()


class Journal:
    """What was there before, in pieces; and the tree's own numbers, which are few."""

    def __init__(self, tree: RegularTree, arena: Arena | None = None) -> None:
        """Of a tree that has not begun to change."""
        self._tree, self._arena = tree, arena or Arena()
        self._blocks: list[Array] = []
        self._pieces: list[Array] = []
        self._free: Array = np.empty(0, np.int64)
        self._before = tree.numbers()

    @classmethod
    @contextmanager
    def kept(cls, tree: RegularTree) -> Iterator[Journal]:
        """One whose memory the next may use."""
        with _ROOM.use() as arena:
            journal = cls(tree, arena)
            yield journal
            journal._forget()

    def pieces(self, sizes: npt.NDArray[np.int64]) -> Array:
        """Room for so many bytes each: the addresses."""
        made = [self._piece(size) for size in sizes.tolist()]
        self._pieces += made
        return table(*made)

    def _piece(self, size: int) -> Array:
        words = _HEAD + -(-size // 8)
        if words > len(self._free):
            self._free = self._arena.take(max(words, _BLOCK // 8), np.int64)
            self._blocks.append(self._free)
        made, self._free = self._free[:words], self._free[words:]
        made[:_HEAD] = 0, size
        return made

    def undo(self, team: Team) -> None:
        """The tree is as it was."""
        for piece in reversed(self._pieces):
            team.run(hu.rewind, table(piece), 1)
        self._tree.set_numbers(self._before)
        self._pieces = []

    def _forget(self) -> None:
        """What was kept is not needed any more."""
        for block in self._blocks:
            self._arena.give(block)
        self._blocks, self._pieces, self._free = [], [], self._free[:0]
