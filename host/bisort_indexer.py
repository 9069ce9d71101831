"""The `bisort_indexer` unit on the CPU: samples every `step`-th word of a run (PanJoin, III-D).

Buffers: words of the run, index (out). Scalars: length of the run, `step`. `index[i] = words[i * step]`; the words
between two samples are a *partition*.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from millrace.host.team import Team
from millrace.host.words import Array


def bisort_indexer(arrays: Sequence[Array], scalars: Sequence[int], team: Team) -> int:
    """One strided copy: too little work to share out."""
    words, index = arrays
    n, step = scalars
    samples = -(-n // step)
    np.copyto(index[:samples], words[:n:step])
    return samples
