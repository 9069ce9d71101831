"""Shifts a column of integers by a constant, straight to words, held at the ends of the type: `r.x - 5` as a bound.

One pass where NumPy would take half a dozen; every band over integers begins with two of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from millrace.host.base.types import Array
from millrace.host.runtime.jit import kernel


@kernel
def _up(raw: Any, flip: Any, most: Any, delta: Any, out: Any) -> None:
    for i in range(raw.shape[0]):
        word = raw[i] ^ flip
        out[i] = word + min(most - word, delta)


@kernel
def _down(raw: Any, flip: Any, delta: Any, out: Any) -> None:
    for i in range(raw.shape[0]):
        word = raw[i] ^ flip
        out[i] = word - min(word, delta)


def shifted_words(values: Array, delta: int) -> Array:
    """The words of integers moved by `delta`, saturating."""
    word = np.dtype(f"u{values.dtype.itemsize}")
    most = int(np.iinfo(word).max)
    flip = word.type(most // 2 + 1 if values.dtype.kind == "i" else 0)
    out = np.empty(len(values), word)
    raw, step = np.ascontiguousarray(values).view(word), word.type(min(abs(delta), most))
    if delta >= 0:
        _up(raw, flip, word.type(most), step, out)
    else:
        _down(raw, flip, step, out)
    return out
