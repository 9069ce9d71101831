"""Checks a regular HB+-Tree against the description of its layout, with plain loops: all that a search relies on."""

from __future__ import annotations

import numpy as np

from millrace.host.hbtree import fragments as hf
from millrace.host.hbtree.regular import RegularTree


class TreeChecker:
    """Walks a tree from its root, with plain Python."""

    def __init__(self, tree: RegularTree) -> None:
        self.tree = tree
        self.most = tree.largest
        item = tree.word.itemsize
        self.uppers = tree.pools.uppers.reshape(-1, tree.upper_bytes // item)
        self.lasts = tree.pools.lasts[: tree.used_leaves * tree.last_bytes // item].reshape(-1, tree.last_bytes // item)
        self.leaf_fragments = tree.pools.leaf_fragments.reshape(-1, 4)
        self.upper_fragments = tree.pools.upper_fragments.reshape(-1, 4)
        self.leaves: list[int] = []
        self.seen_uppers: list[int] = []
        self.words: list[int] = []

    def check(self) -> None:
        """All of it."""
        tree = self.tree
        if tree.levels == 1:
            self._leaf(0, 0, self.most)
        else:
            self._upper(0, 0, -1, 0, self.most)
        numbers = [int(self.leaf_fragments[leaf, hf.NEXT]) for leaf in self.leaves]
        assert numbers == [*self.leaves[1:], -1]
        assert [int(self.leaf_fragments[leaf, hf.BEFORE]) for leaf in self.leaves] == [-1, *self.leaves[:-1]]
        assert len(self.words) == int(tree.table[hf.Pools.SIZE])
        assert self.words == sorted(self.words)
        spare = tree.pools.free_leaves[: int(tree.table[hf.Pools.SPARE_LEAVES])].tolist()
        assert sorted([*spare, *self.leaves]) == list(range(tree.used_leaves))
        spare = tree.pools.free_uppers[: int(tree.table[hf.Pools.SPARE_UPPERS])].tolist()
        assert sorted([*spare, *self.seen_uppers]) == list(range(tree.used_uppers))
        assert all(self.leaf_fragments[leaf, hf.COUNT] == -1 for leaf in set(range(tree.used_leaves)) - {*self.leaves})

    def _keys(self, node: np.ndarray) -> list[int]:
        """Separators, after the index line was compared with them."""
        per_line, fan = self.tree.per_line, self.tree.fanout
        keys = node[per_line : per_line + fan].tolist()
        assert node[:per_line].tolist() == keys[per_line - 1 :: per_line]
        assert keys == sorted(keys)
        return list(keys)

    def _upper(self, number: int, level: int, parent: int, low: int, high: int) -> None:
        """An upper node whose words are from `low` to `high`."""
        self.seen_uppers.append(number)
        count, above = (int(self.upper_fragments[number, field]) for field in (hf.COUNT, hf.PARENT))
        assert above == parent or level == 0
        assert 1 <= count <= self.tree.fanout
        keys = self._keys(self.uppers[number])
        assert set(keys[count - 1 :]) == {self.most}
        children = self.uppers[number][self.tree.per_line + self.tree.fanout :][:count].tolist()
        for slot, child in enumerate(children):
            bounds = (low if slot == 0 else keys[slot - 1], min(keys[slot], high))
            if level == self.tree.levels - 2:
                assert int(self.leaf_fragments[child, hf.PARENT]) == number
                self._leaf(child, *bounds)
            else:
                self._upper(child, level + 1, number, *bounds)

    def _leaf(self, number: int, low: int, high: int) -> None:
        tree = self.tree
        self.leaves.append(number)
        keys, total = self._keys(self.lasts[number]), 0
        assert keys[-1] == self.most
        size = tree.fanout * tree.stride
        lines = tree.pools.leaves[number * size : (number + 1) * size].reshape(tree.fanout, tree.stride)
        for slot in range(tree.fanout):
            words = lines[slot, : tree.per_leaf * tree.word.itemsize].copy().view(tree.word).tolist()
            held = [word for word in words if word != self.most]
            assert words == [*held, *[self.most] * (tree.per_leaf - len(held))]
            least = low if slot == 0 else max(keys[slot - 1], low)
            assert all(least <= word <= min(keys[slot], high) for word in held)
            for word in held:  # equal words may go on in the next line, but a search finds their first
                if word == least and slot > 0:
                    assert self.words[-1:] == [word] or word > keys[slot - 1]
                self.words.append(word)
            total += len(held)
        assert total == int(self.leaf_fragments[number, hf.COUNT])
