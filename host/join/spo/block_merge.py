"""Makes blocks: from new tuples by sorting, from smaller blocks by merging, a few tasks at a time.

A merge is a sequence of phases; the tasks of a phase are independent. The blocks that are merged stay in use until the
merge is done, so a merge can take many pushes. The paper merges a full mutable window at once, and queues the tuples
that arrive meanwhile (section 3.4).
"""

from __future__ import annotations

from collections.abc import Generator, Sequence

import numpy as np

from millrace.host.base.types import Array, Positions
from millrace.host.join.spo.block import Block
from millrace.host.join.spo.block_build import (
    Task,
    gather_tasks,
    merge_tasks,
    rank_tasks,
    run_tasks,
    table_tasks,
    task_table,
)
from millrace.host.join.spo.block_search import BlockArgs
from millrace.host.kernels.word_sorter import sort_words
from millrace.host.runtime.allocator import allocate, free
from millrace.host.runtime.intrinsics import address
from millrace.host.runtime.team import Team

_Sorted = tuple[int, int, int]
"""A sorted run of one key: the addresses of its words and ids, and its size."""


def sorted_block(cell: int, words: Sequence[Array], positions: Positions, team: Team) -> Block:
    """The block of new tuples at ascending positions of one cell; there is at least one."""
    first, end = int(positions[0]), int(positions[-1]) + 1
    block = Block(len(positions), cell, first, end, [one.dtype for one in words])
    ids = (positions - cell).astype(np.uint16)
    for key in range(2):
        in_order, order = sort_words(words[key], team)
        block.array(BlockArgs(BlockArgs.WORDS_A + key), block.size, words[key].dtype)[:] = in_order
        np.take(ids, order, out=block.array(BlockArgs(BlockArgs.IDS_A + key), block.size, np.uint16))
        free(in_order)
        free(order)
    for tasks in (rank_tasks(block), gather_tasks(block), table_tasks(block)):
        team.run(run_tasks, task_table(tasks), len(tasks))
    return block


class BlockMerge:
    """The merge of neighbouring blocks of one cell into `result`."""

    def __init__(self, blocks: Sequence[Block]) -> None:
        """Nothing is done yet."""
        self.blocks = blocks
        size, words = sum(block.size for block in blocks), blocks[0].words
        self.result = Block(size, blocks[0].cell, blocks[0].first, blocks[-1].end, words)
        self._scratch: list[Array] = []
        self._phases = self._make_phases()
        self._tasks: list[Array] = []
        self.done = False

    def take(self, rows: int) -> list[Array]:
        """The next tasks, for about `rows` tuples; none if the merge is done. All tasks taken before have been run."""
        if not self._tasks and not self.done:
            self._tasks = next(self._phases, [])
            self.done = not self._tasks
        taken: list[Array] = []
        while self._tasks and rows > 0:
            taken.append(self._tasks.pop())
            rows -= int(taken[-1][Task.STOP] - taken[-1][Task.START])
        return taken

    @property
    def used(self) -> list[Array]:
        """All arrays that tasks read or write."""
        return [*(block.memory for block in self.blocks), self.result.memory, *self._scratch]

    def stop(self) -> None:
        """Drop what only the merge needs."""
        self._phases.close()
        self._tasks, self._scratch = [], []

    def _make_phases(self) -> Generator[list[Array], None, None]:
        runs = [[self._run(block, key) for block in self.blocks] for key in range(2)]
        while len(runs[0]) > 1:
            tasks: list[Array] = []
            for key in range(2):
                merged, more = self._merge_pairs(runs[key], key)
                runs[key] = merged
                tasks += more
            yield tasks
        yield rank_tasks(self.result)
        yield gather_tasks(self.result)
        yield table_tasks(self.result)

    @staticmethod
    def _run(block: Block, key: int) -> _Sorted:
        given = block.given
        return int(given[BlockArgs.WORDS_A + key]), int(given[BlockArgs.IDS_A + key]), block.size

    def _merge_pairs(self, runs: list[_Sorted], key: int) -> tuple[list[_Sorted], list[Array]]:
        """The tasks that merge each run with the next one, and the resulting runs."""
        merged, tasks, word = [], [], self.result.words[key]
        for older, newer in zip(runs[::2], runs[1::2], strict=False):
            size = older[2] + newer[2]
            if len(runs) == 2:
                out: _Sorted = self._run(self.result, key)
            else:
                arrays = allocate(size, word), allocate(size, np.uint16)
                self._scratch += arrays
                out = address(arrays[0]), address(arrays[1]), size
            tasks += merge_tasks(older, newer, out[0], out[1], word.itemsize == 8)
            merged.append(out)
        return merged + runs[len(runs) // 2 * 2 :], tasks
