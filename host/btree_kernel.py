"""The kernels of `index="btree"`: a B+-tree in flat arrays, and the per-tuple join over two of them.

A node has `SLOTS` slots of `(word, position)`; in an inner node slot j also has child j and holds a lower bound of
what is under it (slot 0's is never read). Leaves are doubly linked. Kernels never allocate: when an array is too
small they stop before the tuple in hand and say which one must grow, and are called again.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from millrace.host.jit import inline, kernel
from millrace.host.words import Array, Mask

SLOTS = 64
DEEPEST = 24
ROOT, HEIGHT, FREE, USED, SPLITS = range(5)
DONE, NODES_R, NODES_S, OUT_R, OUT_S = range(5)

Nodes = tuple[Array, Array, Array, Array, Array, Array, Array]
"""words, positions, children, counts, next and previous leaf, path (scratch), meta."""
Probes = tuple[int, Mask, Array, Array, Array, Array, Array, Array, Array]


def new_nodes(capacity: int) -> Nodes:
    """An empty tree: one leaf, and room for `capacity` nodes."""
    meta = np.array([0, 0, -1, 1, 0], np.int64)
    slots = capacity * SLOTS
    links = np.full(2 * capacity, -1, np.int32)
    return (
        np.empty(slots, np.uint64),
        np.empty(slots, np.int64),
        np.empty(slots, np.int32),
        np.zeros(capacity, np.int32),
        links,
        np.zeros(2 * DEEPEST, np.int32),
        meta,
    )


def grown(nodes: Nodes) -> Nodes:
    """The same tree with twice the room."""
    words, positions, children, counts, links, path, meta = nodes
    bigger = [np.concatenate([a, np.empty_like(a)]) for a in (words, positions, children)]
    counts = np.concatenate([counts, np.zeros_like(counts)])
    return (bigger[0], bigger[1], bigger[2], counts, np.concatenate([links, np.full_like(links, -1)]), path, meta)


@inline
def _before(words: Any, positions: Any, node: int, n: int, word: Any, position: int) -> int:
    """How many slots of a node are below `(word, position)`; counting all words of a node is branch-free."""
    at = node * SLOTS
    below = 0
    for j in range(at, at + n):
        below += words[j] < word
    while below < n and words[at + below] == word and positions[at + below] < position:
        below += 1
    return below


@inline
def _descend(nodes: Any, word: Any, position: int) -> int:
    """The leaf where `(word, position)` belongs; the path of nodes and slots is left in `path`."""
    words, positions, children, counts, _, path, meta = nodes
    node = meta[ROOT]
    for level in range(meta[HEIGHT]):
        slot = _before(words, positions, node, counts[node], word, position)
        at = node * SLOTS
        exact = slot < counts[node] and words[at + slot] == word and positions[at + slot] == position
        slot = slot if exact else max(slot - 1, 0)
        path[2 * level] = node
        path[2 * level + 1] = slot
        node = children[at + slot]
    return int(node)


@inline
def _take_node(nodes: Any) -> int:
    counts, links, meta = nodes[3], nodes[4], nodes[6]
    node = meta[FREE]
    if node >= 0:
        meta[FREE] = links[2 * node]
    else:
        node = meta[USED]
        meta[USED] += 1
    counts[node] = 0
    links[2 * node] = -1
    links[2 * node + 1] = -1
    return int(node)


@inline
def _give_node(nodes: Any, node: int) -> None:
    links, meta = nodes[4], nodes[6]
    links[2 * node] = meta[FREE]
    meta[FREE] = node


@inline
def _put(nodes: Any, node: int, slot: int, word: Any, position: int, child: int) -> None:
    """Open a slot and fill it."""
    words, positions, children, counts, _, _, _ = nodes
    at = node * SLOTS
    for j in range(at + counts[node], at + slot, -1):
        words[j] = words[j - 1]
        positions[j] = positions[j - 1]
    if child >= 0:
        for j in range(at + counts[node], at + slot, -1):
            children[j] = children[j - 1]
        children[at + slot] = child
    words[at + slot] = word
    positions[at + slot] = position
    counts[node] += 1


@inline
def _split(nodes: Any, node: int, leaf: bool, slot: int) -> int:
    """Move the upper half into a new node on the right; appending at the end keeps the left one full."""
    words, positions, children, counts, links, _, meta = nodes
    right = _take_node(nodes)
    n = counts[node]
    keep = n - 1 if slot == n else n // 2
    for j in range(keep, n):
        words[right * SLOTS + j - keep] = words[node * SLOTS + j]
        positions[right * SLOTS + j - keep] = positions[node * SLOTS + j]
        if not leaf:
            children[right * SLOTS + j - keep] = children[node * SLOTS + j]
    counts[right] = n - keep
    counts[node] = keep
    meta[SPLITS] += 1
    if leaf:
        after = links[2 * node]
        links[2 * right], links[2 * right + 1], links[2 * node] = after, node, right
        if after >= 0:
            links[2 * after + 1] = right
    return right


@inline
def _insert(nodes: Any, word: Any, position: int) -> None:
    """Insert one entry; the caller made sure that enough nodes are free for a split on every level."""
    words, positions, _, counts, _, path, meta = nodes
    node = _descend(nodes, word, position)
    slot = _before(words, positions, node, counts[node], word, position)
    child = -1
    level = meta[HEIGHT]
    while counts[node] == SLOTS:
        right = _split(nodes, node, child < 0, slot)
        if slot > counts[node]:
            _put(nodes, right, slot - counts[node], word, position, child)
        else:
            _put(nodes, node, slot, word, position, child)
        word, position, child = words[right * SLOTS], positions[right * SLOTS], right
        if level == 0:
            root = _take_node(nodes)
            _put(nodes, root, 0, words[node * SLOTS], positions[node * SLOTS], node)
            _put(nodes, root, 1, word, position, child)
            meta[ROOT] = root
            meta[HEIGHT] += 1
            return
        level -= 1
        node = path[2 * level]
        slot = path[2 * level + 1] + 1
    _put(nodes, node, slot, word, position, child)


@inline
def _delete(nodes: Any, word: Any, position: int) -> None:
    """Delete an entry that is there; nodes that become empty are freed up to the root."""
    words, positions, children, counts, links, path, meta = nodes
    node = _descend(nodes, word, position)
    slot = _before(words, positions, node, counts[node], word, position)
    level = meta[HEIGHT]
    while True:
        at = node * SLOTS
        counts[node] -= 1
        for j in range(at + slot, at + counts[node]):
            words[j] = words[j + 1]
            positions[j] = positions[j + 1]
        if level < meta[HEIGHT]:
            for j in range(at + slot, at + counts[node]):
                children[j] = children[j + 1]
        if counts[node] > 0 or level == 0:
            break
        if level == meta[HEIGHT]:
            after, before = links[2 * node], links[2 * node + 1]
            if after >= 0:
                links[2 * after + 1] = before
            if before >= 0:
                links[2 * before] = after
        _give_node(nodes, node)
        level -= 1
        node = path[2 * level]
        slot = path[2 * level + 1]
    while meta[HEIGHT] > 0 and counts[meta[ROOT]] == 1:
        old = meta[ROOT]
        meta[ROOT] = children[old * SLOTS]
        meta[HEIGHT] -= 1
        _give_node(nodes, old)


@inline
def _has_room(nodes: Any) -> bool:
    """Whether an insertion that splits every level finds enough nodes without reusing freed ones."""
    counts, meta = nodes[3], nodes[6]
    return bool(meta[USED] + meta[HEIGHT] + 2 <= counts.shape[0])


@inline
def _probe(nodes: Any, low: Any, high: Any, begin: int, end: int, out: Any, used: int, want: bool) -> int:
    """Partners with `low <= word <= high` and `begin <= position < end`; how many, or -1 if `out` is full."""
    words, positions, _, counts, links, _, _ = nodes
    node = _descend(nodes, low, -1)
    slot = _before(words, positions, node, counts[node], low, -1)
    found = 0
    while node >= 0:
        at = node * SLOTS
        for j in range(at + slot, at + counts[node]):
            if words[j] > high:
                return found
            position = positions[j]
            if begin <= position < end:
                if want:
                    if used + found == out.shape[0]:
                        return -1
                    out[used + found] = position
                found += 1
        node = links[2 * node]
        slot = 0
    return found


@inline
def _sort(values: Any, start: int, stop: int) -> None:
    """Ascending; few values (the usual case) by insertion."""
    if stop - start > 24:
        values[start:stop].sort()
        return
    for i in range(start + 1, stop):
        value = values[i]
        j = i
        while j > start and values[j - 1] > value:
            values[j] = values[j - 1]
            j -= 1
        values[j] = value


@inline
def _expire(tree: Any, before: int) -> None:
    """Delete everything below a position."""
    nodes, words, live, first, oldest = tree
    while oldest[0] < before:
        at = oldest[0] - first
        if live[at]:
            _delete(nodes, words[at], oldest[0])
        oldest[0] += 1


@inline
def _partners(tree: Any, probes: Any, i: int, want: bool) -> bool:
    """Search the other side's tree for tuple i; false if the output is full (nothing is kept then)."""
    _, _, begin, end, low, high, counts, out, used = probes
    total = 0
    for k in range(low.shape[1]):
        if low[i, k] <= high[i, k]:
            found = _probe(tree[0], low[i, k], high[i, k], begin[i], end[i], out, used[0] + total, want)
            if found < 0:
                return False
            total += found
    counts[i] = total
    if want:
        _sort(out, used[0], used[0] + total)
        used[0] += total
    return True


@inline
def _one(own: Any, other: Any, probes: Any, i: int, want: bool) -> int:
    """One tuple: expire, search, insert. 0 if done, 1 if nodes must grow first, 2 if the output must."""
    first, live, begin = probes[0], probes[1], probes[2]
    if not _has_room(own[0]):
        return 1
    _expire(other, min(begin[i], other[3] + other[1].shape[0]))
    if live[i]:
        if not _partners(other, probes, i, want):
            return 2
        position = first + i
        _insert(own[0], own[1][position - own[3]], position)
    return 0


@kernel
def run(order: Any, r: Any, s: Any, from_r: Any, from_s: Any, progress: Any, want: bool) -> int:
    """Take the tuples in order until all are done or an array must grow; `progress` is where to go on."""
    while progress[0] < order.shape[0]:
        if order[progress[0]] == 0:
            stop = _one(r, s, from_r, progress[1], want)
            if stop:
                return NODES_R if stop == 1 else OUT_R
            progress[1] += 1
        else:
            stop = _one(s, r, from_s, progress[2], want)
            if stop:
                return NODES_S if stop == 1 else OUT_S
            progress[2] += 1
        progress[0] += 1
    return DONE


@kernel
def insert_all(nodes: Any, words: Any, live: Any, first: int, oldest: Any, start: int, stop: int) -> int:
    """Insert positions `start .. stop`; how far it came before nodes must grow."""
    for position in range(start, stop):
        if not _has_room(nodes):
            return position
        if live[position - first]:
            _insert(nodes, words[position - first], position)
    return stop


@kernel
def expire(tree: Any, before: int) -> None:
    """Delete everything below a position that no tuple will ask for again."""
    _expire(tree, before)
