"""Kernels that apply sorted changes to a regular HB+-Tree, in parallel and by one thread (thesis, appendix A, 5.6).

The leaf lines of a group's changes are known. The parallel kernel applies all changes that need no split. The others,
which need splits or have equal words in several big leaves, are left to one thread. It walks each from the root, and
then merges sparse big leaves. Arguments are in one table (`Args`), which `editor.py` fills. Limit: no search may run at
the same time.
"""

from __future__ import annotations

from enum import auto
from typing import Any

import numpy as np

from millrace.host.hbtree import edit as he
from millrace.host.hbtree import fragments as hf
from millrace.host.hbtree import split as hx
from millrace.host.hbtree.layout import LINE
from millrace.host.runtime.intrinsics import load, load_as, load_byte, load_id, prefetch, size_of, store_as
from millrace.host.runtime.jit import inline, kernel, share
from millrace.host.runtime.kernel_args import KernelArgs

_AHEAD = 12
"""Prefetch distance of leaf lines, in changes."""


class Args(KernelArgs):
    """The arguments of the update kernels."""

    TREE = auto()
    WORDS = auto()
    UPSERTS = auto()
    VALUES = auto()
    LINES = auto()
    BOUNDS = auto()
    LEFT = auto()
    GROWN = auto()
    SCRATCH = auto()
    SCRATCH_SIZE = auto()
    JOURNALS = auto()
    NUMBERS = auto()
    FIRST = auto()
    NUMBERED = auto()
    STATUS = auto()
    ROWS = auto()


DONE, NO_JOURNAL, NO_NODES = 0, 1, 2
"""Status of the single-threaded kernels: all done, journal full, or pools full."""


@inline
def _journal(args: int, part: int) -> int:
    """The journal of a part, or 0."""
    journals = load(args, Args.JOURNALS)
    return load_as(journals, part, 0) if journals != 0 else 0


@inline
def _prefetch_line(tree: int, line: int) -> None:
    """Prefetch a leaf line and its values."""
    where, stride = hf.leaf_line(tree, line), load(tree, hf.Pools.STRIDE)
    prefetch(where)
    if stride > LINE:
        prefetch(where + LINE)
    if stride > 2 * LINE:
        prefetch(where + 2 * LINE)


@inline
def _grow_leaf(tree: int, leaf: int, grown: int, journal: int) -> None:
    """Add `grown` to the word count of a big leaf."""
    if grown != 0:
        hf.log_old(journal, load(tree, hf.Pools.LEAF_FRAGMENTS) + leaf * hf.FRAGMENT, hf.FRAGMENT)
        count = hf.fragment(tree, hf.Pools.LEAF_FRAGMENTS, leaf, hf.COUNT)
        hf.set_fragment(tree, hf.Pools.LEAF_FRAGMENTS, leaf, hf.COUNT, count + grown)


@inline
def _apply_group(args: int, part: int, half: bool, like: Any) -> None:
    """Apply the changes of one group that need no split."""
    tree, words, upserts = load(args, Args.TREE), load(args, Args.WORDS), load(args, Args.UPSERTS)
    values, lines, left = load(args, Args.VALUES), load(args, Args.LINES), load(args, Args.LEFT)
    rows, width = load(args, Args.ROWS), load(tree, hf.Pools.WIDTH)
    first, stop = load_as(load(args, Args.BOUNDS), part, 0), load_as(load(args, Args.BOUNDS), part + 1, 0)
    journal, scratch = _journal(args, part), load(args, Args.SCRATCH) + part * load(args, Args.SCRATCH_SIZE)
    fan, needed = hf.fan(like), hx.max_journal_bytes(tree, half, like)
    leaf, moved, grown, total = -1, False, 0, 0
    for i in range(first, min(first + _AHEAD, stop)):
        _prefetch_line(tree, load_id(lines, i))
    for i in range(first, stop):
        if i + _AHEAD < stop:
            _prefetch_line(tree, load_id(lines, i + _AHEAD))
            prefetch(values + load_id(rows, i + _AHEAD) * width)
        line, word = load_id(lines, i), load_as(words, i, like)
        if line // fan != leaf:
            if leaf >= 0:
                _grow_leaf(tree, leaf, grown, journal)
            leaf, moved, grown = line // fan, False, 0
        elif moved:
            line = leaf * fan + hf.slot_in(hf.last_node(tree, leaf, like), word, like)
        change = he.FULL
        if hf.has_space(journal, needed):
            upsert, row = load_byte(upserts, i) != 0, load_id(rows, i)
            change = he.edit_line(tree, line, word, upsert, values, row, half, journal)
            if change == he.FULL and he.insert_in_window(tree, line, word, values, row, scratch, half, journal):
                change, moved = 1, True
        if change <= he.FULL:
            store_as(left, i, np.uint8(1))
        else:
            grown += change
            total += change
    if leaf >= 0:
        _grow_leaf(tree, leaf, grown, journal)
    store_as(load(args, Args.GROWN), part, total)


@kernel
def _remove_run(tree: int, line: int, word: Any, half: bool, journal: int, needed: int) -> int:
    """Remove a word from all its lines, the last first; return its count, or -1 if the journal is full."""
    last, fan, width = line, hf.fan(word), load(tree, hf.Pools.WIDTH)
    here = last
    while True:  # forwards, to the last line that contains it
        here += 1
        if here % fan == 0:
            after = hf.fragment(tree, hf.Pools.LEAF_FRAGMENTS, here // fan - 1, hf.NEXT)
            if after < 0:
                break
            here = after * fan
        where = hf.leaf_line(tree, here)
        if hf.word_count(where, half, word) > 0:
            if load_as(where, 0, word) != word:
                break
            last = here
    removed = 0
    while True:  # and back
        if not hf.has_space(journal, needed):
            return -1
        where = hf.leaf_line(tree, last)
        count, lane = hf.word_count(where, half, word), hf.below(where, word, half)
        run = hf.upto(where, word, half) - lane
        if run > 0:
            hf.log_old(journal, where, load(tree, hf.Pools.STRIDE))
            he.remove_words(where, lane, run, count, width, half, word)
            _grow_leaf(tree, last // fan, -run, journal)
            store_as(tree, hf.Pools.SIZE, load(tree, hf.Pools.SIZE) - run)
        removed += run
        if last == line:
            return removed
        if last % fan == 0:
            last = hf.fragment(tree, hf.Pools.LEAF_FRAGMENTS, last // fan, hf.BEFORE) * fan + fan
        last -= 1


@inline
def _apply_one(args: int, i: int, half: bool, journal: int, needed: int, like: Any) -> int:
    """Apply one change, with a split if needed; return the status."""
    tree, word = load(args, Args.TREE), load_as(load(args, Args.WORDS), i, like)
    upsert, values = load_byte(load(args, Args.UPSERTS), i) != 0, load(args, Args.VALUES)
    leaf, fan, scratch = 0, hf.fan(like), load(args, Args.SCRATCH)
    row = load_id(load(args, Args.ROWS), i)
    for _ in range(load(tree, hf.Pools.LEVELS) - 1):
        node = hf.upper_node(tree, leaf, like)
        leaf = hx.child(node, hf.slot_in(node, word, like), like)
    line = leaf * fan + hf.slot_in(hf.last_node(tree, leaf, like), word, like)
    change = he.edit_line(tree, line, word, upsert, values, row, half, journal)
    if change == he.SPANS_LEAVES:
        if _remove_run(tree, line, word, half, journal, needed) < 0:
            return NO_JOURNAL
        change = he.edit_line(tree, line, word, upsert, values, row, half, journal)
    if change == he.FULL:
        if he.insert_in_window(tree, line, word, values, row, scratch, half, journal):
            change = 1
        elif hx.can_split(tree):
            hx.split_leaf(tree, leaf, word, values, row, scratch, half, journal)
            store_as(tree, hf.Pools.SIZE, load(tree, hf.Pools.SIZE) + 1)
            change = 0
        else:
            return NO_NODES
    _grow_leaf(tree, leaf, change, journal)
    store_as(tree, hf.Pools.SIZE, load(tree, hf.Pools.SIZE) + change)
    return DONE


@inline
def _apply_leftover(args: int, half: bool, like: Any) -> None:
    """Apply the remaining changes, from the first that is not done."""
    tree, numbers, journal = load(args, Args.TREE), load(args, Args.NUMBERS), _journal(args, 0)
    i, count, done = load(args, Args.FIRST), load(args, Args.NUMBERED), DONE
    while i < count and done == DONE:
        needed = hx.max_journal_bytes(tree, half, like)
        done = NO_JOURNAL
        if hf.has_space(journal, needed):
            done = _apply_one(args, load_as(numbers, i, 0), half, journal, needed, like)
        if done == DONE:
            i += 1
    store_as(args, Args.FIRST, i)
    store_as(args, Args.STATUS, done)


@inline
def _merge_sparse(args: int, half: bool, like: Any) -> None:
    """Merge sparse big leaves, from the first that is not done."""
    tree, numbers, journal = load(args, Args.TREE), load(args, Args.NUMBERS), _journal(args, 0)
    i, count, done = load(args, Args.FIRST), load(args, Args.NUMBERED), DONE
    while i < count and done == DONE:
        leaf = load_as(numbers, i, 0)
        words = hf.fragment(tree, hf.Pools.LEAF_FRAGMENTS, leaf, hf.COUNT)
        if hf.has_space(journal, hx.max_journal_bytes(tree, half, like)):
            if (words >= 0) & (words < hx.min_words(half, like)) & (leaf < load(tree, hf.Pools.USED_LEAVES)):
                hx.merge_leaf(tree, leaf, load(args, Args.SCRATCH), half, journal, like)
            i += 1
        else:
            done = NO_JOURNAL
    store_as(args, Args.FIRST, i)
    store_as(args, Args.STATUS, done)


@inline
def _group(args: int, part: int, like: Any) -> None:
    if load_as(load(args, Args.TREE), hf.Pools.WIDTH, 0) == size_of(like):
        _apply_group(args, part, True, like)
    else:
        _apply_group(args, part, False, like)


@inline
def _leftover(args: int, like: Any) -> None:
    _apply_leftover(args, load_as(load(args, Args.TREE), hf.Pools.WIDTH, 0) == size_of(like), like)


@inline
def _merge(args: int, like: Any) -> None:
    _merge_sparse(args, load_as(load(args, Args.TREE), hf.Pools.WIDTH, 0) == size_of(like), like)


@share
def group_32(args: int, part: int, parts: int) -> None:
    """`_apply_group` of 32-bit words."""
    _group(args, part, np.uint32(0))


@share
def group_64(args: int, part: int, parts: int) -> None:
    """`_apply_group` of 64-bit words."""
    _group(args, part, np.uint64(0))


@share
def leftover_32(args: int, part: int, parts: int) -> None:
    """`_apply_leftover` of 32-bit words."""
    _leftover(args, np.uint32(0))


@share
def leftover_64(args: int, part: int, parts: int) -> None:
    """`_apply_leftover` of 64-bit words."""
    _leftover(args, np.uint64(0))


@share
def merge_32(args: int, part: int, parts: int) -> None:
    """`_merge_sparse` of 32-bit words."""
    _merge(args, np.uint32(0))


@share
def merge_64(args: int, part: int, parts: int) -> None:
    """`_merge_sparse` of 64-bit words."""
    _merge(args, np.uint64(0))


@share
def rewind(args: int, part: int, parts: int) -> None:
    """Restore what a journal piece has saved."""
    hf.rewind(load_as(args, 0, 0))
