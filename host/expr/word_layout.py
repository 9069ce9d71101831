"""Combines the words of several keys into one 64-bit word: equality keys in high bits, an order key in the low bits.

A `Slot` maps the words of one key to codes of a few bits, and keeps their order unless it hashes. A `Layout` has a slot
for each key. So a combination of single words of all keys but the last and a range of the last is one range of combined
words.

- `table_layout` sees all rows that are searched. Its codes are exact: a word minus the least word, or its rank among
  the words held if that does not fit.
- `stream_layout` sees the rows of a window, and leaves room for later ones. Codes are exact as long as the words fit.
  Otherwise words of equality keys are hashed, and words of the order key lose their low bits: a search may then find
  more, and the pairs are checked again. A word outside the layout raises `LayoutOutgrown`: the caller makes a new one
  and builds its index again. A layout is at least four times as wide as the words it was made for, so this is rare.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from millrace.host.base.types import Array, Mask
from millrace.host.kernels.word_packer import append_ranges, append_words, ranks_among

WORD_BITS = 64
HASH_BITS = 24
"""Bits for all equality keys together, if not all words fit."""
ROOM = 2
"""Minimum of bits beyond those of the words that a layout of a stream was made for."""
_LARGEST = (1 << WORD_BITS) - 1
_U64 = np.uint64
_MIX = _U64(0x9E3779B97F4A7C15)


class LayoutOutgrown(Exception):
    """A word is outside the layout."""


@dataclass(frozen=True)
class Slot:
    """Maps the words of one key to codes of `bits` bits: `(word - base) >> shift`, unless `held` or `hashed` is set."""

    bits: int
    base: int = 0
    shift: int = 0
    held: Array | None = None
    """Sorted distinct words of the rows searched: a code is a rank among them."""
    hashed: bool = False
    prefix: Array | None = None
    """Sorted distinct combinations of the codes of all slots before: these are replaced by their ranks."""

    @property
    def exact(self) -> bool:
        """Whether distinct words have distinct codes."""
        return self.shift == 0 and not self.hashed

    @property
    def top(self) -> int:
        """The largest word inside."""
        return min(self.base + (1 << (self.bits + self.shift)), 1 << WORD_BITS) - 1

    def append(self, packed: Array | None, words: Array) -> Array:
        """Append the codes of words that rows have to packed words, in place; None: there are none yet."""
        if self.prefix is not None and packed is not None:
            packed = ranks_among(self.prefix, packed)
        if self.hashed or self.held is not None:
            codes = self._hash(words) if self.hashed or self.held is None else ranks_among(self.held, words)
            return append_words(packed, codes, 0, _LARGEST, 0, self.bits)[0]
        packed, outside = append_words(packed, words, self.base, self.top, self.shift, self.bits)
        if outside:
            raise LayoutOutgrown
        return packed

    def _hash(self, words: Array) -> Array:
        mixed = words.astype(_U64) * _MIX
        mixed ^= mixed >> _U64(32)
        return (mixed * _MIX) >> _U64(WORD_BITS - self.bits)

    def append_ranges(self, packed: tuple[Array, Array] | None, low: Array, high: Array) -> tuple[Array, Array]:
        """Append closed ranges of words to packed ranges, in place; an empty one makes the result empty."""
        if self.prefix is not None and packed is not None:
            packed = _known(self.prefix, *packed)
        if not self.hashed and self.held is None:
            return append_ranges(packed, low, high, self.base, self.top, self.shift, self.bits)
        if self.hashed:
            empty: Mask = low > high
            low, high = self._hash(low), self._hash(high)
        else:
            assert self.held is not None
            low, high = ranks_among(self.held, low), ranks_among(self.held, high, upper=True)
            empty = low >= high
            high = high - _U64(1)
        if empty.any():
            low, high = np.where(empty, _U64(1), low), np.where(empty, _U64(0), high)
        return append_ranges(packed, low, high, 0, _LARGEST, 0, self.bits)


@dataclass(frozen=True)
class Layout:
    """The slots of the keys, the highest bits first."""

    slots: tuple[Slot, ...]

    @property
    def group_bits(self) -> int:
        """The bits of combined words above those of the last slot."""
        bits = 0
        for before, slot in zip(self.slots, self.slots[1:], strict=False):
            bits = bits + before.bits if slot.prefix is None else _bits(len(slot.prefix))
        return bits

    def words(self, keys: Sequence[Array]) -> Array:
        """Return the combined words of rows; raise `LayoutOutgrown` if a word is outside."""
        words: Array | None = None
        for slot, key in zip(self.slots, keys, strict=True):
            words = slot.append(words, key)
        assert words is not None
        return words

    def ranges(self, keys: Iterable[tuple[Array, Array]]) -> tuple[Array, Array]:
        """Return ranges of combined words. Of each key but the last, a range has one word or none."""
        ranges: tuple[Array, Array] | None = None
        for slot, pair in zip(self.slots, keys, strict=True):
            ranges = slot.append_ranges(ranges, *pair)
        assert ranges is not None
        return ranges


def _known(held: Array, low: Array, high: Array) -> tuple[Array, Array]:
    """Return ranges of one word each as ranges of ranks among the words held; empty where a word is not held."""
    first, last = ranks_among(held, low), ranks_among(held, high, upper=True)
    absent: Mask = (first >= last) | (low > high)
    return np.where(absent, _U64(1), first), np.where(absent, _U64(0), first)


def table_layout(keys: Sequence[Array], numbered: bool = True) -> Layout:
    """Return an exact layout for rows with these words of each key. Limit: 2**32 rows.

    If rows are `numbered`, words leave room for a row number if that is possible: `mr.join` keeps both in 64 bits
    (`direct/keyed_rows.py`). If not, the bits before the last key are few, so that groups can be counted
    (`spo/groups.py`).
    """
    slots: list[Slot] = []
    prefix_bits, number_bits = 0, _bits(len(keys[0]))
    limit = max(WORD_BITS - number_bits, 2 * number_bits) if numbered else WORD_BITS
    for number, words in enumerate(keys):
        slot = _offset_slot(words)
        sparse = not numbered and number == len(keys) - 1 and prefix_bits > number_bits + 2
        if prefix_bits + slot.bits > limit and not sparse and slot.bits >= prefix_bits:
            slot = _rank_slot(words)
        if prefix_bits + slot.bits > limit or sparse:
            held = np.unique(Layout(tuple(slots)).words(keys[:number]))
            slot, prefix_bits = replace(slot, prefix=held), _bits(len(held))
            if prefix_bits + slot.bits > limit:
                slot = replace(_rank_slot(words), prefix=held)
        slots.append(slot)
        prefix_bits += slot.bits
    return Layout(tuple(slots))


def _bits(number: int) -> int:
    """Return the bits of the numbers from 0 to `number`, at least one."""
    return max(number.bit_length(), 1)


def _offset_slot(words: Array) -> Slot:
    if not len(words):
        return Slot(1)
    low, high = int(words.min()), int(words.max())
    return Slot(_bits(high - low), low)


def _rank_slot(words: Array) -> Slot:
    held = np.unique(words)
    return Slot(_bits(len(held)), held=held)


def stream_layout(keys: Sequence[Array]) -> Layout:
    """Return a layout for a stream whose window has these words of each key; the last key is the order key."""
    widths = [8 * words.itemsize for words in keys]
    if sum(widths) <= WORD_BITS:
        return Layout(tuple(Slot(width) for width in widths))
    ends = [(int(words.min()), int(words.max())) if len(words) else (0, 0) for words in keys]
    needs = [_bits(high - low) for low, high in ends]
    spare = WORD_BITS - sum(min(need + ROOM, width) for need, width in zip(needs, widths, strict=True))
    if spare >= 0:
        room = ROOM + spare // len(keys)
        return Layout(tuple(_centred(*one, room) for one in zip(needs, widths, ends, strict=True)))
    share = HASH_BITS // (len(keys) - 1)
    slots = [
        _centred(need, width, end, share - need) if need + ROOM <= share else Slot(share, hashed=True)
        for need, width, end in zip(needs[:-1], widths[:-1], ends[:-1], strict=True)
    ]
    left = WORD_BITS - sum(slot.bits for slot in slots)
    last = _centred(needs[-1], widths[-1], ends[-1], ROOM)
    shift = max(last.bits - left, 0)
    return Layout((*slots, replace(last, bits=last.bits - shift, shift=shift)))


def _centred(need: int, width: int, ends: tuple[int, int], room: int) -> Slot:
    """Return a slot with `room` more bits than the words need, and the words in its middle."""
    bits = min(need + room, width)
    spare = (1 << bits) - (ends[1] - ends[0] + 1)
    return Slot(bits, min(max(ends[0] - spare // 2, 0), (1 << width) - (1 << bits)))
