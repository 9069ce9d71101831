"""LLAT, the Linked List Adaptive Table that holds the tuples of RaP-Table and WiB+-Tree, and how both are probed.

Tuples of one partition stand together, unsorted, in an *entry* of fixed room; a partition that outgrows its entry
gets another one by the Next link (PanJoin, III-B2; room rounded up, as corrected). Words and ids are kept apart, so
that a scan reads words only, `LANES` at a time. A partition is known by its Head entry, which also knows the Tail
(an insertion never walks the chain), the partition to its right, and the floor: the least word that may be in it.
Words of partition p lie in `floor(p) .. floor(right of p) - 1`, so a range of words is the partition of its low end,
some that are taken whole, and the one of its high end (III-F2).

Limits: ids are below 2^31, entries too, and one probe finds less than 2^32 tuples whose ids are wanted (the layers
above cut their steps so that there are few). Kernels never allocate; tables of addresses are filled here. What was
found is a copy, which later insertions leave as it is.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, cast

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from millrace.host.base.types import Array, Ids
from millrace.host.join.panjoin.subwindow import PAD, Intervals, Questions, Records, Site, Structure
from millrace.host.runtime.intrinsics import address, load_as, prefetch, store_as
from millrace.host.runtime.jit import Share, inline, kernel, load, store

SIGMA = 1.25
"""How much more than its fair share an entry can hold, for small skew. The paper advises 1.10 to 1.25."""
LANES = 16
"""Words compared at once. An entry's room is a multiple of it, so that reading all lanes stays inside. At most 63."""
FILL, NEXT, TAIL, RIGHT, META = range(5)
"""An entry's record of int32: tuples in it, next entry of the chain; in a Head also the chain's last, the partition
to the right. -1 where there is none."""
WORDS, IDS, METAS, FLOORS, ROOM, BYTES, ENTRIES, POINTER, END, OWN = range(10)
"""The table of an LLAT: four addresses, tuples of an entry and the bytes of their words, entries, PtrG (the first
entry never used), one past the largest id; from OWN on what the structure needs."""
TABLE = 128
Scalars = tuple[int, int, int, int, int]
Arrays = tuple[Array, Array, Array, Array, Array, Array, Array, Array]
_LINE = 64
_ID = np.uint32(0)
_LINK = np.int32(0)
_ZERO = np.uint64(0)

JOB_TABLE, SIZE, LOW, HIGH, WHO, BEGIN, STOP, STRIDE, FIRST, STARTS, ENDS, FOUND, WANT, PARTS, STATE, PLACES, JOB = (
    range(17)
)
"""The table of a probe, at the start of its working memory: the LLAT's table, questions, reach (STRIDE is -1 without
one), the subwindow's first position, the records to make (FOUND: the ids, if WANTed), and further on in the working
memory the STATE of each part and, per question, the Head of its low end (PLACES)."""
_FROM, _UPTO, _TOTAL, _STATE = range(4)
"""A part's state: its share of the room for ids, from and to, and how many it found."""
_SPARE = 4
"""Ids per question that there is room for at first. Where that does not suffice all is scanned a second time, with
the room that it takes, and the next probe begins with more, up to _MOST_SPARE."""
_MOST_SPARE = 64
_SLACK = 64
"""Ids in the room of each part beside, so that a few questions can find more."""
_AHEAD = 8
"""Questions between asking for an entry's cache lines and scanning it."""
SHARED = 1024
"""Questions from which on a probe is shared by the team: posting a job takes as long as some hundred questions."""


def _within(typing_context: Any, where: Any, index: Any, low: Any, span: Any, like: Any) -> Any:
    """Which of `LANES` words at `where[index]` on lie in `low .. low + span`, as bits."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        word = context.get_value_type(like)
        many = ir.VectorType(word, LANES)
        start = builder.gep(builder.inttoptr(arguments[0], word.as_pointer()), [arguments[1]])
        words = builder.load(builder.bitcast(start, many.as_pointer()), align=word.width // 8)
        low, span = (_spread(builder, argument, word) for argument in arguments[2:4])
        inside = builder.icmp_unsigned("<=", builder.sub(words, low), span)
        return builder.zext(builder.bitcast(inside, ir.IntType(LANES)), ir.IntType(64))

    return types.int64(types.int64, types.int64, types.uint64, types.uint64, like), generate


def _spread(builder: Any, value: Any, word: Any) -> Any:
    """A 64-bit value, cut to the width of a word, in all lanes."""
    value = builder.trunc(value, word) if word.width < 64 else value
    one = builder.insert_element(ir.Constant(ir.VectorType(word, LANES), ir.Undefined), value, ir.IntType(32)(0))
    lanes = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
    return builder.shuffle_vector(one, one, lanes)


def _lowest(typing_context: Any, bits: Any) -> Any:
    """The place of the lowest bit that is set; there is one."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.IntType(1)(1))

    return types.int64(types.int64), generate


def _ones(typing_context: Any, bits: Any) -> Any:
    """How many bits are set."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.int64(types.int64), generate


within: Callable[[int, int, Any, Any, Any], int] = cast(Any, intrinsic(_within))
lowest: Callable[[int], int] = cast(Any, intrinsic(_lowest))
ones: Callable[[int], int] = cast(Any, intrinsic(_ones))


# Entries. `t` is the address of an LLAT's table; a word in hand is always a uint64, `like` says how it is stored.


@inline
def number_at(where: int, index: int, like: Any) -> Any:
    """An id or a link of an array, as an int64."""
    return np.int64(load_as(where, index, like))


@inline
def meta(t: int, entry: int, field: int) -> Any:
    """A field of an entry's record."""
    return number_at(load(t, METAS), META * entry + field, _LINK)


@inline
def set_meta(t: int, entry: int, field: int, value: int) -> None:
    """Change a field of an entry's record."""
    store_as(load(t, METAS), META * entry + field, np.int32(value))


@inline
def word_at(where: int, index: int, like: Any) -> Any:
    """A word of an array, as a uint64."""
    return np.uint64(load_as(where, index, like))


@inline
def floor_of(t: int, entry: int, like: Any) -> Any:
    """The least word that may be in a partition."""
    return word_at(load(t, FLOORS), entry, like)


@inline
def first_lanes(count: int) -> int:
    """The bits of the first `count` lanes, or of all if there are no more."""
    return (1 << min(count, LANES)) - 1


@inline
def take_entry(t: int) -> int:
    """The entry that PtrG refers to, empty and alone; the caller made sure that there is one."""
    entry = load(t, POINTER)
    store(t, POINTER, entry + 1)
    set_meta(t, entry, FILL, 0)
    set_meta(t, entry, NEXT, -1)
    set_meta(t, entry, TAIL, entry)
    set_meta(t, entry, RIGHT, -1)
    return entry


@inline
def fill_entry(t: int, entry: int, words: int, ids: int, start: int, stop: int, like: Any) -> int:
    """Copy of the tuples `start .. stop` as many as the entry has room for; the first one left over."""
    fill, room = meta(t, entry, FILL), load(t, ROOM)
    at = entry * room + fill
    stop = min(stop, start + room - fill)
    own_words, own_ids = load(t, WORDS), load(t, IDS)
    end = load(t, END)
    for i in range(start, stop):
        store_as(own_words, at + i - start, load_as(words, i, like))
        store_as(own_ids, at + i - start, load_as(ids, i, _ID))
        end = max(end, number_at(ids, i, _ID) + 1)
    store(t, END, end)
    set_meta(t, entry, FILL, fill + stop - start)
    return stop


@inline
def append(t: int, head: int, words: int, ids: int, start: int, stop: int, like: Any) -> int:
    """Put tuples into a partition's chain while there are unused entries; the first one left over."""
    while True:
        start = fill_entry(t, meta(t, head, TAIL), words, ids, start, stop, like)
        if start == stop or load(t, POINTER) == load(t, ENTRIES):
            return start
        entry = take_entry(t)
        set_meta(t, meta(t, head, TAIL), NEXT, entry)
        set_meta(t, head, TAIL, entry)


@inline
def run_end(t: int, head: int, words: int, start: int, stop: int, like: Any) -> int:
    """Where the sorted words from `start` on, the first of which belongs into this partition, leave it."""
    right = meta(t, head, RIGHT)
    if right < 0:
        return stop
    limit = floor_of(t, right, like)
    start += 1
    while start < stop and word_at(words, start, like) < limit:
        start += 1
    return start


# Probing. `job` is the address of a probe's table.


@inline
def pose(job: Array, scalars: Scalars, arrays: Arrays) -> int:
    """Fill a probe's table: `(table, first, stride, want, parts)` and the arrays; gives its address.

    Here and not in Python, where taking one array's address is slower than all of this.
    """
    where: int = job.ctypes.data
    job[JOB_TABLE], job[FIRST], job[STRIDE], job[WANT], job[PARTS] = scalars
    low, high, who, begin, end, starts, ends, found = arrays
    job[SIZE], job[LOW], job[HIGH], job[WHO] = len(low), low.ctypes.data, high.ctypes.data, who.ctypes.data
    job[BEGIN], job[STOP] = begin.ctypes.data, end.ctypes.data
    job[STARTS], job[ENDS], job[FOUND] = starts.ctypes.data, ends.ctypes.data, found.ctypes.data
    job[STATE] = where + 8 * JOB
    job[PLACES] = job[STATE] + 8 * _STATE * job[PARTS]
    room = len(found) - PAD if job[WANT] != 0 else 0
    for part in range(job[PARTS]):
        state = JOB + _STATE * part
        job[state + _FROM], job[state + _UPTO] = room * part // job[PARTS], room * (part + 1) // job[PARTS]
    return where


@inline
def lacking(job: Array) -> int:
    """How many ids there must be room for, if it did not suffice, else -1. Gives each part its share of that room."""
    total, fits = 0, True
    for part in range(job[PARTS]):
        state = JOB + _STATE * part
        fits = fits and job[state + _TOTAL] <= job[state + _UPTO] - job[state + _FROM]
        job[state + _FROM], job[state + _UPTO] = total, total + job[state + _TOTAL]
        total += job[state + _TOTAL]
    return -1 if fits or job[WANT] == 0 else total


@kernel
def _pose_shared(job: Array, scalars: Scalars, arrays: Arrays) -> None:
    """Fill the table of a probe that the team shares."""
    pose(job, scalars, arrays)


@kernel
def _lacking_shared(job: Array) -> int:
    """`lacking` of a probe that the team shared."""
    return lacking(job)


@kernel
def _replace(job: Array, found: Array) -> None:
    """Room for as many ids as were lacking."""
    job[FOUND] = found.ctypes.data


@inline
def cut(job: int, part: int, parts: int) -> tuple[int, int]:
    """The questions of a part."""
    n = load(job, SIZE)
    return n * part // parts, n * (part + 1) // parts


@inline
def _ask_for(t: int, head: int, want: bool) -> None:
    """Prefetch what a scan reads, the ids too if they are wanted."""
    prefetch(load(t, METAS) + 4 * META * head)
    start = load(t, WORDS) + head * load(t, BYTES)
    for line in range(start, start + load(t, BYTES), _LINE):
        prefetch(line)
    if want:
        start = load(t, IDS) + 4 * head * load(t, ROOM)
        for line in range(start, start + 4 * load(t, ROOM), _LINE):
            prefetch(line)


@inline
def _reach(t: int, job: int, question: int) -> tuple[int, int]:
    """The ids that a question may meet, from and to."""
    stride, known = load(job, STRIDE), load(t, END)
    if stride < 0:
        return 0, known
    who = stride * number_at(load(job, WHO), question, _ID)
    first = load(job, FIRST)
    begin, end = load(load(job, BEGIN), who) - first, load(load(job, STOP), who) - first
    return min(max(begin, 0), known), min(max(end, 0), known)


@inline
def _keep(ids: int, bits: int, out: int, found: int) -> None:
    """Store the ids whose bits are set."""
    while bits != 0:
        store_as(out, found, load_as(ids, lowest(bits), _ID))
        found += 1
        bits &= bits - 1


@inline
def _scan_chain(
    t: int, entry: int, low: Any, span: Any, whole: bool, begin: int, end: int, out: int, room: int, like: Any
) -> int:
    """Find a partition's tuples with words in `low .. low + span`, or all; ids are stored if they fit in `room`."""
    words, ids = load(t, WORDS), load(t, IDS)
    all_ids = begin == 0 and end == load(t, END)
    least, reach = np.uint64(begin), np.uint64(end - begin - 1)
    found = 0
    while entry >= 0:
        at, fill = entry * load(t, ROOM), meta(t, entry, FILL)
        if whole and all_ids and room <= 0:
            found += fill
            fill = 0
        for j in range(at, at + fill, LANES):
            bits = first_lanes(at + fill - j)
            if not whole:
                bits &= within(words, j, low, span, like)
            if bits != 0 and not all_ids:
                bits &= within(ids, j, least, reach, _ID)
            before = found
            found += ones(bits)
            if found <= room:
                _keep(ids + 4 * j, bits, out, before)
        entry = meta(t, entry, NEXT)
    return found


@inline
def _scan(t: int, head: int, low: Any, high: Any, begin: int, end: int, out: int, room: int, like: Any) -> int:
    """Find the tuples with words in `low .. high` and ids in `begin .. end - 1`, from the partition of `low` on."""
    found = 0
    if begin >= end:
        return found
    while True:
        right = meta(t, head, RIGHT)
        last = right < 0 or high < floor_of(t, right, like)
        whole = not last and low <= floor_of(t, head, like)
        more = room - found
        found += _scan_chain(t, head, low, high - low, whole, begin, end, out + 4 * found, more, like)
        if last:
            return found
        head = right


@inline
def scan_part(job: int, part: int, parts: int, like: Any) -> None:
    """Make the records of a part's questions, whose places are known; those with ids while there is room for them.

    Equal questions stand side by side. Where only their count is needed it is taken over from the one before, lest
    a heavy hitter that asks for its like have all of them counted for every tuple.
    """
    t, places, state = load(job, JOB_TABLE), load(job, PLACES), load(job, STATE) + 8 * _STATE * part
    want = load(job, WANT) != 0
    used, upto = load(state, _FROM), load(state, _UPTO)
    found = total = 0
    asked = _ZERO, _ZERO, -1, -1
    start, stop = cut(job, part, parts)
    for q in range(start, stop):
        if q + _AHEAD < stop:
            _ask_for(t, load(places, q + _AHEAD), want)
        low, high = word_at(load(job, LOW), q, like), word_at(load(job, HIGH), q, like)
        begin, end = _reach(t, job, q)
        if used < upto or asked != (low, high, begin, end):
            out = load(job, FOUND) + 4 * used
            found = _scan(t, load(places, q), low, high, begin, end, out, upto - used, like)
            asked = low, high, begin, end
        at = used if want else 0
        store_as(load(job, STARTS), q, np.uint32(at))
        store_as(load(job, ENDS), q, np.uint32(at + found))
        total += found
        # Once something did not fit the rest is only counted: there will be a second time.
        used = used + found if used + found <= upto else upto
    store(state, _TOTAL, total)


class Llat:
    """The storage: words, ids, records and floors of entries, and the table that kernels find them by."""

    def __init__(self, word: np.dtype[Any], room: int, entries: int) -> None:
        """Room for `room` tuples, rounded up to whole lanes, in each of `entries` entries, none of them used."""
        self.word = word
        self.room = -(-room // LANES) * LANES
        self.table = np.zeros(TABLE, np.int64)
        self.table[ROOM], self.table[BYTES] = self.room, self.room * word.itemsize
        self._make(entries)

    def _make(self, entries: int) -> None:
        self.entries = entries
        self.words = _aligned(entries * self.room, self.word)
        self.ids = _aligned(entries * self.room, np.dtype(np.uint32))
        self.metas = np.zeros((entries, META), np.int32)
        self.floors = np.zeros(entries, self.word)
        for column, array in ((WORDS, self.words), (IDS, self.ids), (METAS, self.metas), (FLOORS, self.floors)):
            self.table[column] = address(array)
        self.table[ENTRIES] = entries

    def grow(self, entries: int) -> None:
        """More entries; those in use stay what they are."""
        used = int(self.table[POINTER])
        words, ids, metas, floors = self.words, self.ids, self.metas, self.floors
        self._make(entries)
        self.words[: used * self.room] = words[: used * self.room]
        self.ids[: used * self.room] = ids[: used * self.room]
        self.metas[:used], self.floors[:used] = metas[:used], floors[:used]


def _aligned(size: int, dtype: np.dtype[Any]) -> Array:
    """Memory that begins with a cache line, not initialised."""
    raw = np.empty(size * dtype.itemsize + _LINE, np.uint8)
    skip = -address(raw) % _LINE
    memory: Array = raw[skip : skip + size * dtype.itemsize].view(dtype)
    return memory


def entry_room(capacity: int, partitions: int) -> int:
    """Tuples that an entry must hold so that 2 P entries are enough for any skew."""
    return int(np.ceil(capacity / partitions * SIGMA))


_NOBODY = np.zeros(1, np.int64)
_NO_IDS = np.zeros(PAD, np.uint32)


class LlatStructure(Structure):
    """A structure whose tuples are in an LLAT: what RaP-Table and WiB+-Tree have in common."""

    llat: Llat
    table: int
    """The address of the LLAT's table."""

    def __init__(self, site: Site, first: int) -> None:
        """No LLAT yet: each structure makes its own."""
        super().__init__(site, first)
        self.like: Any = site.word.type(0)
        self._size = 0
        self._spare = _SPARE

    def __len__(self) -> int:
        """How many tuples are in."""
        return self._size

    @abstractmethod
    def _probe_alone(self, job: Array, scalars: Scalars, arrays: Arrays) -> int:
        """Put questions with one thread, by one kernel call; what is `lacking`."""

    @abstractmethod
    def _prober(self) -> Share:
        """The share that puts a part of the questions."""

    def probe(self, questions: Questions, reach: Intervals | None, want: bool) -> list[Records]:
        """Find the partition of each question's low end, then scan, and keep the ids that are in reach."""
        n = len(questions.low)
        parts = 4 * self.site.team.threads if n >= SHARED and self.site.team.threads > 1 else 1
        stride, begin, end = -1, _NOBODY, _NOBODY
        if reach is not None:
            begin, end = reach.begin, reach.end
            stride = int(len(begin) > 1)
        starts, ends = np.empty(n, np.uint32), np.empty(n, np.uint32)
        found = np.empty(self._spare * n + _SLACK * parts + PAD, np.uint32) if want else _NO_IDS
        job = np.empty(JOB + _STATE * parts + n, np.int64)
        scalars = (self.table, self.first, stride, int(want), parts)
        arrays = (questions.low, questions.high, questions.who, begin, end, starts, ends, found)
        if parts == 1:
            lack = self._probe_alone(job, scalars, arrays)
        else:
            _pose_shared(job, scalars, arrays)
            self.site.team.run(self._prober(), job, parts)
            lack = _lacking_shared(job)
        if lack >= 0:
            found = self._again(job, lack, n)
        return [Records(starts, ends, lambda: found, self.first, check=False)]

    def _again(self, job: Array, lack: int, n: int) -> Ids:
        """Scan a second time, now that it is known how many ids there are."""
        self._spare = min(max(self._spare, 2 * lack // n), _MOST_SPARE)
        found: Ids = np.empty(lack + PAD, np.uint32)
        _replace(job, found)
        self.site.team.run(self._prober(), job, int(job[PARTS]))
        return found
