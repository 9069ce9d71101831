"""Memory of the indexes of bench `live`, in cases `memory-…` (PIM-Tree, Figure 11a): tuples per byte, not a speed.

One side's structures hold a full window of 64-bit keys. `T_I` is as large as it becomes (`merge_ratio` of the window),
and `merging` also counts the new `T_S` that a merge writes while the old one is in use. A B+-tree has the fill that
random insertions give. `entries` is a key and a 32-bit id per tuple, the least that any index needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np

from millrace.bench.harness import Case, Contender
from millrace.bench.inequality_stream import Bar
from millrace.bench.workload import DOMAIN
from millrace.host.base.types import Array
from millrace.host.join.baseline import btree_kernel as bk
from millrace.host.join.contract import KeyProbe, SideProbes
from millrace.host.join.pimtree import join_kernel as jk
from millrace.host.join.pimtree.index import MERGE_RATIO, TASK_ROWS
from millrace.host.join.pimtree.sides import MergeSide
from millrace.host.join.pimtree.static_tree import StaticTree
from millrace.host.runtime.intrinsics import address

WORD = np.dtype(np.uint64)
ENTRY = WORD.itemsize + 4


def cases(windows: Sequence[int]) -> Iterator[Case]:
    """One case per window."""
    for window in windows:
        found = {
            "btree": ("btree on cpu", partial(btree_bytes, window)),
            "im": ("im on cpu, merging", partial(merge_side_bytes, window, MERGE_RATIO, 1)),
            "pim": ("pim on cpu, merging", partial(merge_side_bytes, window, MERGE_RATIO, None)),
        }
        ours = [
            Contender(name, partial(_bar, size, window), index, "cpu", "cpu") for index, (name, size) in found.items()
        ]
        full = partial(_bar, partial(merge_side_bytes, window, 1.0, None), window)
        ours.append(Contender("pim on cpu, ratio 1, merging", full, "pim", "cpu", "cpu"))
        least = Contender("entries", partial(Bar, lambda: float(ENTRY)), answers=False)
        facts = {"window": window, "key_bytes": WORD.itemsize}
        name = f"memory-2^{window.bit_length() - 1}"
        yield Case(name, "tuples/byte", [*ours, least], facts, check_steps=1, slice_share=0.001)


def _bar(size: Callable[[], int], window: int) -> Bar:
    """Bytes per tuple, reported as seconds."""
    each = size() / window
    return Bar(lambda: each)


def _words(count: int) -> Array:
    words: Array = np.random.default_rng(count).integers(0, DOMAIN, count).astype(WORD)
    return words


def btree_bytes(window: int) -> int:
    """The bytes of the nodes of a B+-tree in use."""
    words, held = _words(window).view(np.int64), np.ones(window, np.bool_)
    tree = bk.new_tree(2 * window // bk.LEAF + 64)
    table = bk.Side.partly(TREE=tree, WORDS=words, HELD=held, END=window)
    bk.insert_all(address(table), 0, window)
    return int(tree[bk.USED]) * bk.STRIDE * 8


def merge_side_bytes(window: int, ratio: float, subindexes: int | None) -> int:
    """The bytes of T_S, of a T_I just before a merge, and of the T_S that the merge writes."""
    side, other = (MergeSide(WORD, window, TASK_ROWS, ratio, subindexes) for _ in range(2))
    side.load_live(0, _words(window), np.ones(window, np.bool_))
    count = side.limit() // TASK_ROWS * TASK_ROWS
    for one, first, size in ((side, window, count), (other, 0, 0)):
        one.set_probes(_insertions(first, _words(size)), want_positions=False)
        one.store_trees()
    order = np.zeros(count, np.uint8)
    jk.run(address(order), count, TASK_ROWS, address(side.table), address(other.table), WORD.type(0))
    return side.nbytes + StaticTree(WORD, window + count).nbytes


def _insertions(first: int, words: Array) -> SideProbes:
    """New tuples that search for nothing."""
    none, count = np.zeros(len(words), np.int64), len(words)
    empty = KeyProbe.of(np.ones((1, count), WORD), np.zeros((1, count), WORD))
    return SideProbes(first, np.ones(count, np.bool_), none, none, (words,), (empty,))
