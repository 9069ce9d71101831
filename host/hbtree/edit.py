"""Changes inside one big leaf of a regular HB+-Tree: a line is edited, or a few lines share their words anew.

Most changes touch one line alone: a place is free in it, and the separators above are only upper bounds. Where a line
is full, the smallest window of lines around it that has room is spread evenly, the new word among the others, and the
window's separators change with it: windows are 2, 4, 8 … lines, up to the whole big leaf, and some places stay free in
each, so that no stretch of lines is spread again and again. If even the whole leaf is full it must be split
(`hbtree_split`). Words lie in `scratch` meanwhile, their values `room` words behind them.
"""

from __future__ import annotations

from typing import Any

from millrace.host.hbtree import fragments as hf
from millrace.host.hbtree.leaves import largest
from millrace.host.runtime.intrinsics import fill_bytes, load_as, move_bytes, size_of, store_as
from millrace.host.runtime.jit import inline, kernel

FULL = -(1 << 20)
"""No free place in the line."""
ELSEWHERE = FULL - 1
"""The word may go on in another big leaf."""


@inline
def room(half: bool, like: Any) -> int:
    """Words that scratch must hold: two big leaves, and one more."""
    return 2 * hf.fan(like) * hf.per_leaf(half, like) + 8


@inline
def most_words(lines: int, half: bool, like: Any) -> int:
    """What a window may hold: a place in four lines stays free."""
    return lines * hf.per_leaf(half, like) - lines // 4


@inline
def take_out(where: int, first: int, run: int, count: int, width: int, half: bool, like: Any) -> None:
    """Remove `run` words of a line that holds `count`, from place `first` on."""
    values, item, left = where + hf.per_leaf(half, like) * size_of(like), size_of(like), count - run - first
    move_bytes(where + first * item, where + (first + run) * item, left * item)
    move_bytes(values + first * width, values + (first + run) * width, left * width)
    fill_bytes(where + (count - run) * item, run * item)


@inline
def _put_in(where: int, values: int, place: int, count: int, word: Any, given: int, number: int, width: int) -> None:
    """Insert a word, and value `number` of those given, among `count` words and their values."""
    item = size_of(word)
    move_bytes(where + (place + 1) * item, where + place * item, (count - place) * item)
    move_bytes(values + (place + 1) * width, values + place * width, (count - place) * width)
    store_as(where, place, word)
    hf.move_value(values, place, given, number, width)


@inline
def _put_in_line(where: int, place: int, word: Any, given: int, number: int, width: int, half: bool) -> None:
    """The same in a leaf line: what is behind the place, free or not, moves up by one; the last place is free."""
    lanes = hf.per_leaf(half, word)
    values = where + lanes * size_of(word)
    for i in range(lanes - 1, 0, -1):
        if i > place:
            store_as(where, i, load_as(where, i - 1, word))
            hf.move_value(values, i, values, i - 1, width)
    store_as(where, place, word)
    hf.move_value(values, place, given, number, width)


@kernel
def goes_on(tree: int, line: int, word: Any, half: bool) -> bool:
    """Whether a word that ends a line may also begin a later one; at a big leaf's end nobody has looked."""
    fan = hf.fan(word)
    for other in range(line + 1, line - line % fan + fan):
        where = hf.leaf_line(tree, other)
        if hf.held(where, half, word) > 0:
            return load_as(where, 0, word) == word  # type: ignore[no-any-return]
    return True


@inline
def edit_line(tree: int, line: int, word: Any, upsert: bool, given: int, number: int, half: bool, journal: int) -> int:
    """Apply one change to the line it belongs to: by how many its words grew, or `FULL` or `ELSEWHERE`.

    How many rows of the word were there already is `upsert` minus that.
    """
    where, width = hf.leaf_line(tree, line), load_as(tree, hf.WIDTH, 0)
    count, place = hf.held(where, half, word), hf.below(where, word, half)
    run = hf.upto(where, word, half) - place
    if run == 0:
        if not upsert:
            return 0
        if count == hf.per_leaf(half, word):
            return FULL
        hf.keep(journal, where, load_as(tree, hf.STRIDE, 0))
        _put_in_line(where, place, word, given, number, width, half)
        return 1
    if load_as(tree, hf.EQUALS, 0) != 0 and place + run == count and goes_on(tree, line, word, half):
        return ELSEWHERE
    hf.keep(journal, where, load_as(tree, hf.STRIDE, 0))
    if upsert:
        hf.move_value(where + hf.per_leaf(half, word) * size_of(word), place, given, number, width)
        place, run = place + 1, run - 1
    take_out(where, place, run, count, width, half, word)
    return -run


@kernel
def gather(tree: int, first: int, lines: int, scratch: int, at: int, half: bool, like: Any) -> int:
    """Copy the words and values of some lines to scratch, from place `at` on; the place behind them."""
    width, values = load_as(tree, hf.WIDTH, 0), scratch + room(half, like) * size_of(like)
    for line in range(first, first + lines):
        where = hf.leaf_line(tree, line)
        count = hf.held(where, half, like)
        beside = where + hf.per_leaf(half, like) * size_of(like)
        move_bytes(scratch + at * size_of(like), where, count * size_of(like))
        move_bytes(values + at * width, beside, count * width)
        at += count
    return at


@kernel
def add(tree: int, scratch: int, total: int, word: Any, given: int, number: int, half: bool) -> None:
    """Insert a word and its value among those in scratch."""
    width, values = load_as(tree, hf.WIDTH, 0), scratch + room(half, word) * size_of(word)
    at = total
    while at > 0 and load_as(scratch, at - 1, word) > word:
        at -= 1
    _put_in(scratch, values, at, total, word, given, number, width)


@kernel
def spread(tree: int, first: int, lines: int, scratch: int, at: int, total: int, half: bool, like: Any) -> None:
    """Fill some lines of a big leaf evenly with words of scratch, and set the separators between them.

    No line is empty before one that is not: so each separator is the last word of its line, or of one before it.
    """
    width, places = load_as(tree, hf.WIDTH, 0), hf.per_leaf(half, like)
    values, leaf, slot = scratch + room(half, like) * size_of(like), first // hf.fan(like), first % hf.fan(like)
    node, begin = hf.last_node(tree, leaf, like), 0
    for line in range(lines):
        stop = (total * (line + 1) + lines - 1) // lines
        where = hf.leaf_line(tree, first + line)
        count, item = stop - begin, size_of(like)
        move_bytes(where, scratch + (at + begin) * item, count * item)
        move_bytes(where + places * item, values + (at + begin) * width, count * width)
        fill_bytes(where + count * item, (places - count) * item)
        if line < lines - 1:
            hf.set_key(node, slot + line, load_as(scratch, at + stop - 1, like) if total > 0 else largest(like))
        begin = stop
    hf.set_index(node, slot, slot + lines, like)
    hf.mark(tree, hf.CHANGED_LASTS, leaf)


@kernel
def keep_lines(tree: int, first: int, lines: int, journal: int, like: Any) -> None:
    """Keep some lines of a big leaf, and its inner node."""
    stride = load_as(tree, hf.STRIDE, 0)
    hf.keep(journal, hf.leaf_line(tree, first), lines * stride)
    hf.keep(journal, hf.last_node(tree, first // hf.fan(like), like), hf.last_bytes(like))


@kernel
def insert_in_window(
    tree: int, line: int, word: Any, given: int, number: int, scratch: int, half: bool, journal: int
) -> bool:
    """Insert a new word into a full line by spreading a window; false where the whole big leaf is full."""
    lines = 2
    while lines <= hf.fan(word):
        first, total = line - line % lines, 0
        for other in range(first, first + lines):
            total += hf.held(hf.leaf_line(tree, other), half, word)
        if total < most_words(lines, half, word):
            keep_lines(tree, first, lines, journal, word)
            gather(tree, first, lines, scratch, 0, half, word)
            add(tree, scratch, total, word, given, number, half)
            spread(tree, first, lines, scratch, 0, total + 1, half, word)
            return True
        lines *= 2
    return False
