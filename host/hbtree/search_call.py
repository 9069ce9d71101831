"""Calls the kernels of `search.py`: builds their argument tables (`search_args.py`).

Limit: the caller keeps all arrays alive during the call. (Thesis, appendix A, section 4.)
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from millrace.host.base.types import Array
from millrace.host.hbtree import search_args as ha
from millrace.host.hbtree.directory import StartDirectory
from millrace.host.hbtree.layout import LINE
from millrace.host.runtime.intrinsics import address
from millrace.host.runtime.jit import Share, compiled
from millrace.host.runtime.team import Team, run_here

SLICE = 1 << 12
"""Approximate number of queries per task of a thread."""
FEW = 64
"""So few queries are searched with `run_few`."""
_LEVELS, _HITS = int(ha.Tree.LEVELS), int(ha.Search.HITS)


def tree_table(
    nodes: Array,
    bases: Sequence[int],
    ends: Sequence[int],
    fanout: int,
    leaf_words: Array | None = None,
    size: int = 0,
    stride: int = LINE,
    width: int = 0,
    per_leaf: int | None = None,
    starts: StartDirectory | None = None,
) -> Array:
    """The table of a tree: per inner level the byte offsets in `nodes` of its node 0 and of its end; and the leaves.

    `fanout` 0 means a regular tree. `leaf_words` has a line every `stride` bytes: `per_leaf` words and then their
    values of `width` bytes. Without leaves, the tree can only be walked. With `starts`, searches skip upper levels.
    """
    levels, per_line = len(bases), LINE // nodes.itemsize
    leaves = 0 if leaf_words is None else address(leaf_words)
    lines = 0 if leaf_words is None else leaf_words.nbytes // stride
    regular = [(1 + 2 * per_line) * LINE, (1 + per_line) * LINE]
    sizes = regular if fanout == 0 else [LINE, LINE]
    near = max(sum(end <= ha.NEAR for end in ends), 1)
    words = per_leaf or per_line
    return ha.Tree.pack(
        *(address(nodes) + base for base in bases),
        leaves,
        REGULAR=int(fanout == 0),
        FANOUT=fanout,
        LEVELS=levels,
        SIZE=size,
        LINES=lines,
        LEAVES=leaves,
        STRIDE=stride,
        WIDTH=width,
        UPPER=sizes[0],
        LAST=sizes[1],
        NEAR=near,
        LEAF_BITS=words.bit_length() - 1,
        OFFSET=words * nodes.itemsize,
        **_directory(starts),
    )


def _directory(starts: StartDirectory | None) -> dict[str, int | Array]:
    """The fields of a directory."""
    if starts is None:
        names = ("STARTS", "SEPARATORS", "ORDER", "START_LEVEL", "BASE", "SHIFT", "SCALE", "MAX_OFFSET")
        return dict.fromkeys(names, 0)
    return {
        "STARTS": starts.directory,
        "SEPARATORS": starts.separators,
        "ORDER": 0 if starts.order is None else starts.order,
        "START_LEVEL": starts.level,
        "BASE": starts.base,
        "SHIFT": starts.shift,
        "SCALE": starts.scale,
        "MAX_OFFSET": starts.max_offset,
    }


def run_few(
    share: Share, tree: Array, queries: Array, flip: int, mask: Array | None, out: pa.Buffer, bits: pa.Buffer, mode: int
) -> int:
    """Do the same as `run_search` for few queries, on the caller's thread, into two buffers: with less around it."""
    where, count = compiled(address), len(queries)
    masked = 0 if mask is None else where(mask)
    if flip >> 63:
        flip -= 1 << 64
    given = np.array(
        [
            *(where(queries), flip, masked, count, where(tree), 0, tree.item(_LEVELS), 0, out.address, bits.address),
            *(0, mode, 0, 0, 0, 0, 0),
        ],
        np.int64,
    )  # as `Search` names them, and one word for the hits
    at = where(given)
    given[_HITS] = at + 8 * len(ha.Search)
    run_here(share, at, 1)
    return int(given[-1])


def run_search(share: Share, team: Team, tree: Array, queries: Array, flip: int = 0, **args: int | Array) -> int:
    """Run a kernel over queries with arguments named as in `search_args.py`; return the number of hits.

    Flipping the bits `flip` turns queries into words.
    """
    count = len(queries)
    parts = max(-(-count // SLICE), 1)
    hits = np.zeros(parts, np.int64)
    args.setdefault("DEPTH", int(tree[ha.Tree.LEVELS]))
    arguments = ha.Search.partly(QUERIES=queries, FLIP=flip, COUNT=count, TREE=tree, HITS=hits, **args)
    team.run(share, arguments, parts)
    return int(hits[0]) if parts == 1 else int(hits.sum())
