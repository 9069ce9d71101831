"""Adds a constant to a column of integers and encodes the sums as words, saturating: for a bound such as `r.x - 5`.

One pass instead of about six in NumPy. Every band join over integers needs two such columns per batch.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from millrace.host.base.types import Array
from millrace.host.runtime.jit import kernel


@kernel
def _up(raw: Any, flip: Any, largest: Any, delta: Any, out: Any) -> None:
    for i in range(raw.shape[0]):
        word = raw[i] ^ flip
        out[i] = word + min(largest - word, delta)


@kernel
def _down(raw: Any, flip: Any, delta: Any, out: Any) -> None:
    for i in range(raw.shape[0]):
        word = raw[i] ^ flip
        out[i] = word - min(word, delta)


def shifted_words(values: Array, delta: int) -> Array:
    """Return the words of `values + delta`, saturating at the ends of the type."""
    word = np.dtype(f"u{values.dtype.itemsize}")
    largest = int(np.iinfo(word).max)
    flip = word.type(largest // 2 + 1 if values.dtype.kind == "i" else 0)
    out = np.empty(len(values), word)
    raw, step = np.ascontiguousarray(values).view(word), word.type(min(abs(delta), largest))
    if delta >= 0:
        _up(raw, flip, word.type(largest), step, out)
    else:
        _down(raw, flip, step, out)
    return out
