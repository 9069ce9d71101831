"""Changes inside one big leaf of a regular HB+-Tree: edits a line, or redistributes the words of a few lines.

Most changes touch one line only: it has a free slot, and the separators above are only upper bounds. If a line is full,
the smallest window of lines around it with enough free slots is redistributed evenly, including the new word, and the
window's separators are updated. Windows have 2, 4, 8 … lines, up to the entire big leaf. Each keeps some free slots, so
that the same lines are not redistributed for every insert. If the entire big leaf is full, it must be split
(`split.py`). During this the words are in `scratch`; their values follow `scratch_words` words later.
(Thesis, appendix A, 5.6.)
"""

from __future__ import annotations

from typing import Any

from millrace.host.hbtree import fragments as hf
from millrace.host.hbtree.leaves import largest
from millrace.host.runtime.intrinsics import fill_bytes, load, load_as, move_bytes, size_of, store_as
from millrace.host.runtime.jit import inline, kernel

FULL = -(1 << 20)
"""The line has no free slot."""
SPANS_LEAVES = FULL - 1
"""Equal words may continue in another big leaf."""


@inline
def scratch_words(half: bool, like: Any) -> int:
    """Capacity of scratch in words: two big leaves and some more."""
    return 2 * hf.fan(like) * hf.per_leaf(half, like) + 8


@inline
def max_words(lines: int, half: bool, like: Any) -> int:
    """Maximum number of words in a window: one slot per four lines stays free."""
    return lines * hf.per_leaf(half, like) - lines // 4


@inline
def remove_words(where: int, first: int, run: int, count: int, width: int, half: bool, like: Any) -> None:
    """Remove `run` words, starting at lane `first`, from a line that holds `count`."""
    values, item, left = where + hf.per_leaf(half, like) * size_of(like), size_of(like), count - run - first
    move_bytes(where + first * item, where + (first + run) * item, left * item)
    move_bytes(values + first * width, values + (first + run) * width, left * width)
    fill_bytes(where + (count - run) * item, run * item)


@inline
def _insert(
    where: int, values: int, lane: int, count: int, word: Any, new_values: int, number: int, width: int
) -> None:
    """Insert a word, and entry `number` of `new_values`, among `count` words and their values."""
    item = size_of(word)
    move_bytes(where + (lane + 1) * item, where + lane * item, (count - lane) * item)
    move_bytes(values + (lane + 1) * width, values + lane * width, (count - lane) * width)
    store_as(where, lane, word)
    hf.move_value(values, lane, new_values, number, width)


@inline
def _insert_in_line(where: int, lane: int, word: Any, new_values: int, number: int, width: int, half: bool) -> None:
    """The same in a leaf line: everything behind `lane` moves up by one; the last lane is free."""
    lanes = hf.per_leaf(half, word)
    values = where + lanes * size_of(word)
    for i in range(lanes - 1, 0, -1):
        if i > lane:
            store_as(where, i, load_as(where, i - 1, word))
            hf.move_value(values, i, values, i - 1, width)
    store_as(where, lane, word)
    hf.move_value(values, lane, new_values, number, width)


@kernel
def continues_after(tree: int, line: int, word: Any, half: bool) -> bool:
    """Whether the last word of a line may also be in a later line; true at the end of a big leaf, without a check."""
    fan = hf.fan(word)
    for other in range(line + 1, line - line % fan + fan):
        where = hf.leaf_line(tree, other)
        if hf.word_count(where, half, word) > 0:
            return load_as(where, 0, word) == word  # type: ignore[no-any-return]
    return True


@inline
def edit_line(
    tree: int, line: int, word: Any, upsert: bool, new_values: int, number: int, half: bool, journal: int
) -> int:
    """Apply one change to its line; return the change of the line's word count, or `FULL` or `SPANS_LEAVES`.

    The number of rows with this word before the change is `upsert` minus the result.
    """
    where, width = hf.leaf_line(tree, line), load(tree, hf.Pools.WIDTH)
    count, lane = hf.word_count(where, half, word), hf.below(where, word, half)
    run = hf.upto(where, word, half) - lane
    if run == 0:
        if not upsert:
            return 0
        if count == hf.per_leaf(half, word):
            return FULL
        hf.log_old(journal, where, load(tree, hf.Pools.STRIDE))
        _insert_in_line(where, lane, word, new_values, number, width, half)
        return 1
    if load(tree, hf.Pools.EQUALS) != 0 and lane + run == count and continues_after(tree, line, word, half):
        return SPANS_LEAVES
    hf.log_old(journal, where, load(tree, hf.Pools.STRIDE))
    if upsert:
        hf.move_value(where + hf.per_leaf(half, word) * size_of(word), lane, new_values, number, width)
        lane, run = lane + 1, run - 1
    remove_words(where, lane, run, count, width, half, word)
    return -run


@kernel
def gather(tree: int, first: int, lines: int, scratch: int, at: int, half: bool, like: Any) -> int:
    """Copy the words and values of some lines to scratch, starting at index `at`; return the index behind them."""
    width, values = load(tree, hf.Pools.WIDTH), scratch + scratch_words(half, like) * size_of(like)
    for line in range(first, first + lines):
        where = hf.leaf_line(tree, line)
        count = hf.word_count(where, half, like)
        line_values = where + hf.per_leaf(half, like) * size_of(like)
        move_bytes(scratch + at * size_of(like), where, count * size_of(like))
        move_bytes(values + at * width, line_values, count * width)
        at += count
    return at


@kernel
def insert_in_scratch(tree: int, scratch: int, total: int, word: Any, new_values: int, number: int, half: bool) -> None:
    """Insert a word and its value into scratch in key order."""
    width, values = load(tree, hf.Pools.WIDTH), scratch + scratch_words(half, word) * size_of(word)
    at = total
    while at > 0 and load_as(scratch, at - 1, word) > word:
        at -= 1
    _insert(scratch, values, at, total, word, new_values, number, width)


@kernel
def spread(tree: int, first: int, lines: int, scratch: int, at: int, total: int, half: bool, like: Any) -> None:
    """Distribute words of scratch evenly over some lines of a big leaf, and set the separators between them.

    No empty line precedes a non-empty one, so each separator is the last word of its line or of an earlier one.
    """
    width, lanes = load(tree, hf.Pools.WIDTH), hf.per_leaf(half, like)
    values = scratch + scratch_words(half, like) * size_of(like)
    leaf, slot = first // hf.fan(like), first % hf.fan(like)
    node, begin = hf.last_node(tree, leaf, like), 0
    for line in range(lines):
        stop = (total * (line + 1) + lines - 1) // lines
        where = hf.leaf_line(tree, first + line)
        count, item = stop - begin, size_of(like)
        move_bytes(where, scratch + (at + begin) * item, count * item)
        move_bytes(where + lanes * item, values + (at + begin) * width, count * width)
        fill_bytes(where + count * item, (lanes - count) * item)
        if line < lines - 1:
            hf.set_key(node, slot + line, load_as(scratch, at + stop - 1, like) if total > 0 else largest(like))
        begin = stop
    hf.set_index(node, slot, slot + lines, like)
    hf.mark(tree, hf.Pools.CHANGED_LASTS, leaf)


@kernel
def log_lines(tree: int, first: int, lines: int, journal: int, like: Any) -> None:
    """Log some lines of a big leaf, and its inner node, in the journal."""
    stride = load(tree, hf.Pools.STRIDE)
    hf.log_old(journal, hf.leaf_line(tree, first), lines * stride)
    hf.log_old(journal, hf.last_node(tree, first // hf.fan(like), like), hf.last_bytes(like))


@kernel
def insert_in_window(
    tree: int, line: int, word: Any, new_values: int, number: int, scratch: int, half: bool, journal: int
) -> bool:
    """Insert a new word into a full line by redistributing a window; false if the entire big leaf is full."""
    lines = 2
    while lines <= hf.fan(word):
        first, total = line - line % lines, 0
        for other in range(first, first + lines):
            total += hf.word_count(hf.leaf_line(tree, other), half, word)
        if total < max_words(lines, half, word):
            log_lines(tree, first, lines, journal, word)
            gather(tree, first, lines, scratch, 0, half, word)
            insert_in_scratch(tree, scratch, total, word, new_values, number, half)
            spread(tree, first, lines, scratch, 0, total + 1, half, word)
            return True
        lines *= 2
    return False
