"""Kernels that apply sorted changes to a regular HB+-Tree: groups by many, the rest by one (thesis, appendix A, 5.6).

A group's changes have walked to their leaf lines. Whatever needs no split is applied; what is left over, splits and
words that lie in several big leaves, is for one thread, which walks each from the root, and then merges what has become
too empty. Arguments are in one table (`TREE` … `DONE_AS`); `editor.py` fills it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from millrace.host.hbtree import edit as he
from millrace.host.hbtree import fragments as hf
from millrace.host.hbtree import split as hx
from millrace.host.hbtree.layout import LINE
from millrace.host.runtime.intrinsics import load_as, load_id, prefetch, size_of, store_as
from millrace.host.runtime.jit import inline, kernel, load_byte, share

_AHEAD = 12
"""How many changes before its own a leaf line is asked for."""
TREE, WORDS, UPSERTS, VALUES, LINES, BOUNDS, LEFT, GROWN, SCRATCH, SCRATCH_SIZE, JOURNALS = range(11)
NUMBERS, FIRST, NUMBERED, DONE_AS, ROWS = 11, 12, 13, 14, 15
ARGUMENTS = 16
DONE, NO_JOURNAL, NO_NODES = 0, 1, 2
"""How one thread's work ended: all done, or it needs more journal, or there is no room for nodes."""


@inline
def _journal(given: int, part: int) -> int:
    """A part's journal, or 0."""
    journals = load_as(given, JOURNALS, 0)
    return load_as(journals, part, 0) if journals != 0 else 0


@inline
def _ask(tree: int, line: int) -> None:
    """Ask for a leaf line, with the values behind it."""
    where, stride = hf.leaf_line(tree, line), load_as(tree, hf.STRIDE, 0)
    prefetch(where)
    if stride > LINE:
        prefetch(where + LINE)
    if stride > 2 * LINE:
        prefetch(where + 2 * LINE)


@inline
def _grow_leaf(tree: int, leaf: int, grown: int, journal: int) -> None:
    """A big leaf has more or fewer words now."""
    if grown != 0:
        hf.keep(journal, load_as(tree, hf.LEAF_FRAGMENTS, 0) + leaf * hf.FRAGMENT, hf.FRAGMENT)
        count = hf.fragment(tree, hf.LEAF_FRAGMENTS, leaf, hf.COUNT)
        hf.set_fragment(tree, hf.LEAF_FRAGMENTS, leaf, hf.COUNT, count + grown)


@inline
def _apply_group(given: int, part: int, half: bool, like: Any) -> None:
    """The changes of one group that need no split."""
    tree, words, upserts = load_as(given, TREE, 0), load_as(given, WORDS, 0), load_as(given, UPSERTS, 0)
    values, lines, left = load_as(given, VALUES, 0), load_as(given, LINES, 0), load_as(given, LEFT, 0)
    rows, width = load_as(given, ROWS, 0), load_as(tree, hf.WIDTH, 0)
    first, stop = load_as(load_as(given, BOUNDS, 0), part, 0), load_as(load_as(given, BOUNDS, 0), part + 1, 0)
    journal, scratch = _journal(given, part), load_as(given, SCRATCH, 0) + part * load_as(given, SCRATCH_SIZE, 0)
    fan, room = hf.fan(like), hx.worst(tree, half, like)
    leaf, moved, grown, total = -1, False, 0, 0
    for i in range(first, min(first + _AHEAD, stop)):
        _ask(tree, load_id(lines, i))
    for i in range(first, stop):
        if i + _AHEAD < stop:
            _ask(tree, load_id(lines, i + _AHEAD))
            prefetch(values + load_id(rows, i + _AHEAD) * width)
        line, word = load_id(lines, i), load_as(words, i, like)
        if line // fan != leaf:
            if leaf >= 0:
                _grow_leaf(tree, leaf, grown, journal)
            leaf, moved, grown = line // fan, False, 0
        elif moved:
            line = leaf * fan + hf.slot_in(hf.last_node(tree, leaf, like), word, like)
        change = he.FULL
        if hf.has_room(journal, room):
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
    store_as(load_as(given, GROWN, 0), part, total)


@kernel
def _remove_run(tree: int, line: int, word: Any, half: bool, journal: int, room: int) -> int:
    """Remove a word from all lines it is in, the last first; how often it was there, or -1 if the journal is full."""
    last, fan, width = line, hf.fan(word), load_as(tree, hf.WIDTH, 0)
    here = last
    while True:  # forwards, to the last line that has it
        here += 1
        if here % fan == 0:
            after = hf.fragment(tree, hf.LEAF_FRAGMENTS, here // fan - 1, hf.NEXT)
            if after < 0:
                break
            here = after * fan
        where = hf.leaf_line(tree, here)
        if hf.held(where, half, word) > 0:
            if load_as(where, 0, word) != word:
                break
            last = here
    removed = 0
    while True:  # and back
        if not hf.has_room(journal, room):
            return -1
        where = hf.leaf_line(tree, last)
        count, place = hf.held(where, half, word), hf.below(where, word, half)
        run = hf.upto(where, word, half) - place
        if run > 0:
            hf.keep(journal, where, load_as(tree, hf.STRIDE, 0))
            he.take_out(where, place, run, count, width, half, word)
            _grow_leaf(tree, last // fan, -run, journal)
            store_as(tree, hf.SIZE, load_as(tree, hf.SIZE, 0) - run)
        removed += run
        if last == line:
            return removed
        if last % fan == 0:
            last = hf.fragment(tree, hf.LEAF_FRAGMENTS, last // fan, hf.BEFORE) * fan + fan
        last -= 1


@inline
def _apply_one(given: int, i: int, half: bool, journal: int, room: int, like: Any) -> int:
    """A change that may need anything: how it ended."""
    tree, word = load_as(given, TREE, 0), load_as(load_as(given, WORDS, 0), i, like)
    upsert, values = load_byte(load_as(given, UPSERTS, 0), i) != 0, load_as(given, VALUES, 0)
    leaf, fan, scratch = 0, hf.fan(like), load_as(given, SCRATCH, 0)
    row = load_id(load_as(given, ROWS, 0), i)
    for _ in range(load_as(tree, hf.LEVELS, 0) - 1):
        node = hf.upper_node(tree, leaf, like)
        leaf = hx.child(node, hf.slot_in(node, word, like), like)
    line = leaf * fan + hf.slot_in(hf.last_node(tree, leaf, like), word, like)
    change = he.edit_line(tree, line, word, upsert, values, row, half, journal)
    if change == he.ELSEWHERE:
        if _remove_run(tree, line, word, half, journal, room) < 0:
            return NO_JOURNAL
        change = he.edit_line(tree, line, word, upsert, values, row, half, journal)
    if change == he.FULL:
        if he.insert_in_window(tree, line, word, values, row, scratch, half, journal):
            change = 1
        elif hx.can_split(tree):
            hx.split_leaf(tree, leaf, word, values, row, scratch, half, journal)
            store_as(tree, hf.SIZE, load_as(tree, hf.SIZE, 0) + 1)
            change = 0
        else:
            return NO_NODES
    _grow_leaf(tree, leaf, change, journal)
    store_as(tree, hf.SIZE, load_as(tree, hf.SIZE, 0) + change)
    return DONE


@inline
def _apply_rest(given: int, half: bool, like: Any) -> None:
    """Changes that were left over, from the first that is not done."""
    tree, numbers, journal = load_as(given, TREE, 0), load_as(given, NUMBERS, 0), _journal(given, 0)
    i, count, done = load_as(given, FIRST, 0), load_as(given, NUMBERED, 0), DONE
    while i < count and done == DONE:
        room = hx.worst(tree, half, like)
        done = NO_JOURNAL
        if hf.has_room(journal, room):
            done = _apply_one(given, load_as(numbers, i, 0), half, journal, room, like)
        if done == DONE:
            i += 1
    store_as(given, FIRST, i)
    store_as(given, DONE_AS, done)


@inline
def _merge_rest(given: int, half: bool, like: Any) -> None:
    """Merge some big leaves with few words, from the first that is not done."""
    tree, numbers, journal = load_as(given, TREE, 0), load_as(given, NUMBERS, 0), _journal(given, 0)
    i, count, done = load_as(given, FIRST, 0), load_as(given, NUMBERED, 0), DONE
    while i < count and done == DONE:
        leaf = load_as(numbers, i, 0)
        words = hf.fragment(tree, hf.LEAF_FRAGMENTS, leaf, hf.COUNT)
        if hf.has_room(journal, hx.worst(tree, half, like)):
            if (words >= 0) & (words < hx.few_words(half, like)) & (leaf < load_as(tree, hf.USED_LEAVES, 0)):
                hx.merge_leaf(tree, leaf, load_as(given, SCRATCH, 0), half, journal, like)
            i += 1
        else:
            done = NO_JOURNAL
    store_as(given, FIRST, i)
    store_as(given, DONE_AS, done)


@inline
def _group(given: int, part: int, like: Any) -> None:
    if load_as(load_as(given, TREE, 0), hf.WIDTH, 0) == size_of(like):
        _apply_group(given, part, True, like)
    else:
        _apply_group(given, part, False, like)


@inline
def _rest(given: int, like: Any) -> None:
    _apply_rest(given, load_as(load_as(given, TREE, 0), hf.WIDTH, 0) == size_of(like), like)


@inline
def _merge(given: int, like: Any) -> None:
    _merge_rest(given, load_as(load_as(given, TREE, 0), hf.WIDTH, 0) == size_of(like), like)


@share
def group_32(given: int, part: int, parts: int) -> None:
    """`_apply_group` of 32-bit words."""
    _group(given, part, np.uint32(0))


@share
def group_64(given: int, part: int, parts: int) -> None:
    """`_apply_group` of 64-bit words."""
    _group(given, part, np.uint64(0))


@share
def rest_32(given: int, part: int, parts: int) -> None:
    """`_apply_rest` of 32-bit words."""
    _rest(given, np.uint32(0))


@share
def rest_64(given: int, part: int, parts: int) -> None:
    """`_apply_rest` of 64-bit words."""
    _rest(given, np.uint64(0))


@share
def merge_32(given: int, part: int, parts: int) -> None:
    """`_merge_rest` of 32-bit words."""
    _merge(given, np.uint32(0))


@share
def merge_64(given: int, part: int, parts: int) -> None:
    """`_merge_rest` of 64-bit words."""
    _merge(given, np.uint64(0))


@share
def rewind(given: int, part: int, parts: int) -> None:
    """Put back what a piece of journal has kept."""
    hf.rewind(load_as(given, 0, 0))
