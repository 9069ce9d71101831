"""The `bisort_indexer` unit on the CPU: samples every `step`-th word of a run (PanJoin, III-D).

Buffers: words of the run, index (out). Scalars: length of the run, `step`. `index[i] = words[i * step]`; the words
between two samples are a *partition*.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import auto
from typing import Any

import numpy as np

from millrace.host.base.types import Array
from millrace.host.runtime.intrinsics import load, load_as, store_as
from millrace.host.runtime.jit import inline, share
from millrace.host.runtime.kernel_args import KernelArgs
from millrace.host.runtime.team import Team

SLICE = 1 << 12
"""About how many samples one thread takes at a time."""


class _Args(KernelArgs):
    """The arguments of the indexer."""

    WORDS = auto()
    INDEX = auto()
    SAMPLES = auto()
    STEP = auto()


@inline
def _sample(given: int, part: int, parts: int, like: Any) -> None:
    words, index = load(given, _Args.WORDS), load(given, _Args.INDEX)
    samples, step = load(given, _Args.SAMPLES), load(given, _Args.STEP)
    for i in range(samples * part // parts, samples * (part + 1) // parts):
        store_as(index, i, load_as(words, i * step, like))


@share
def _sample_32(given: int, part: int, parts: int) -> None:
    _sample(given, part, parts, np.uint32(0))


@share
def _sample_64(given: int, part: int, parts: int) -> None:
    _sample(given, part, parts, np.uint64(0))


def bisort_indexer(arrays: Sequence[Array], scalars: Sequence[int], team: Team) -> int:
    """Write the samples. Returns their number."""
    words, index = arrays
    n, step = scalars
    samples = -(-n // step)
    sample = _sample_64 if words.dtype == np.uint64 else _sample_32
    team.run(sample, _Args.pack(WORDS=words, INDEX=index, SAMPLES=samples, STEP=step), max(-(-samples // SLICE), 1))
    return samples
