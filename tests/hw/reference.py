"""NumPy reference of the BI-Sort hardware units, and the packing of values into the beats of a stream.

A stream is a sequence of beats of W lanes, lane 0 in the lowest bits. All beats but the last are full; an empty stream
is one empty beat. A tuple in a lane is {key, id}. (PanJoin, III-D to IV.)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

ID_W = 32
Words = npt.NDArray[np.uint64]


class Beat(NamedTuple):
    """One transfer: packed lanes, the valid lanes, whether the stream ends, and user data."""

    data: int
    keep: int = 1
    last: bool = False
    user: int = 0


def to_beats(values: Sequence[int], bits: int, lanes: int) -> list[Beat]:
    """Packs values of so many bits into the beats of one stream."""
    beats = []
    for first in range(0, max(1, len(values)), lanes):
        part = values[first : first + lanes]
        data = sum(value << (bits * lane) for lane, value in enumerate(part))
        beats.append(Beat(data, (1 << len(part)) - 1, first + lanes >= len(values)))
    return beats


def from_beats(beats: Iterable[Beat], bits: int, lanes: int) -> list[list[int]]:
    """Unpacks beats into the values of each stream, and checks that only last beats are not full."""
    streams: list[list[int]] = []
    values: list[int] = []
    for beat in beats:
        count = beat.keep.bit_length()
        assert beat.keep == (1 << count) - 1, "lanes are kept from 0 on, without gaps"
        assert beat.last or count == lanes, "only a last beat may have free lanes"
        assert count or not values, "an empty beat is a stream of its own"
        values += [(beat.data >> (bits * lane)) & ((1 << bits) - 1) for lane in range(count)]
        if beat.last:
            streams.append(values)
            values = []
    assert not values, "a stream without its last beat"
    return streams


def some_words(rng: np.random.Generator, n: int, key_w: int) -> Words:
    """Ascending words with many duplicates, among them the smallest and the largest, and distant values."""
    top = (1 << key_w) - 1
    pool = rng.integers(0, top, size=max(2, n // 3), dtype=np.uint64, endpoint=True)
    pool[:2] = 0, top
    near = rng.integers(0, 8, size=n, dtype=np.uint64)
    return np.sort(np.where(rng.random(n) < 0.3, near, rng.choice(pool, size=n)))


def some_tuples(rng: np.random.Generator, n: int, key_w: int) -> list[int]:
    """Sorted tuples {key, id}; ids are random and often the largest one."""
    ids = rng.integers(0, 1 << ID_W, size=n, dtype=np.uint64)
    ids[rng.random(n) < 0.1] = (1 << ID_W) - 1
    keys = some_words(rng, n, key_w)
    order = np.lexsort((ids, keys))
    return [(int(key) << ID_W) | int(row) for key, row in zip(keys[order], ids[order], strict=True)]


def merged(a: Sequence[int], b: Sequence[int]) -> list[int]:
    """Merge two sorted runs."""
    return sorted([*a, *b])


def samples(words: Sequence[int], first: int, step: int) -> list[int]:
    """The words at global positions that are multiples of the step, where the slice begins at position `first`."""
    return [word for position, word in enumerate(words, first) if position % step == 0]


def band(key: int, below: int, above: int, least: int, most: int) -> tuple[int, int]:
    """A key's bounds, saturating."""
    return max(key - below, least), min(key + above, most)


def partitions(index: Words, bounds: Words, upper: bool) -> list[int | None]:
    """Each bound's partition: the last one whose sample is before the bound, if any."""
    counts = np.searchsorted(index, bounds, side="right" if upper else "left")
    return [int(count) - 1 if count else None for count in counts]


def positions(words: Words, bounds: Words, upper: bool) -> list[int]:
    """Each bound's position in the run."""
    return [int(position) for position in np.searchsorted(words, bounds, side="right" if upper else "left")]
