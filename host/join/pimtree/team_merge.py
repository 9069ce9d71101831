"""A merge of `T_S` and `T_I` by all threads of a team, between two jobs of a step by ranges (PIM-Tree, section 3.3).

Parts of the subindexes are counted, then written, each round as one job of the team (`shared_merge.py` has the parts).
The old `T_S` is the memory of the next merge.
"""

from __future__ import annotations

import numpy as np

from millrace.host.join.pimtree import shared_merge as sm
from millrace.host.join.pimtree.insert_trees import InsertTrees
from millrace.host.join.pimtree.static_tree import Static, StaticTree
from millrace.host.runtime.allocator import allocate
from millrace.host.runtime.intrinsics import address
from millrace.host.runtime.team import Team

MAX_UNUSED = 4
"""Memory is not used again if it has room for so many times the entries: a window may have been larger for a while."""


class TeamMerge:
    """Merges with the threads of a team."""

    def __init__(self, team: Team) -> None:
        """No memory for a new tree yet."""
        self._team = team
        self._state = allocate(sm.MERGE_WORDS, np.int64)

    def run(self, tree: StaticTree, trees: InsertTrees, oldest: int, spare: StaticTree | None) -> StaticTree:
        """A new T_S with the entries of both from position `oldest` on, in the spare one's memory if it suits."""
        size = len(tree) + len(trees)
        if spare is None or not size <= spare.table[Static.CAPACITY] <= MAX_UNUSED * size:
            spare = StaticTree(tree.word, size + size // 4, oldest)
        spare.table[Static.BASE] = oldest
        like, state = tree.word.type(0), self._state
        sm.cut(address(state), address(tree.table), address(trees.table), oldest, address(spare.table), like)
        wide = tree.word.itemsize == 8
        self._team.run(sm.count_64 if wide else sm.count_32, state, sm.PARTS)
        kept = sm.offset_parts(address(state))
        self._team.run(sm.write_64 if wide else sm.write_32, state, sm.PARTS)
        spare.finish(kept)
        return spare
