"""Indexes that are wrong on purpose, each in one way that a real index might be. The suite must detect every one.

Each wraps a correct index and changes its input (`change_step`) or its output (`change_matches`). They are loaded by
name, like any index: see `tests/conformance/test_broken.py`.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from millrace.host.base.types import Array, Mask, Positions, Side
from millrace.host.join.baseline.btree import BTreeIndex
from millrace.host.join.baseline.scan import ScanIndex
from millrace.host.join.contract import IndexContext, KeyProbe, Matches, ProbeBatch, SideProbes


class CorrectIndex(BTreeIndex):
    """Wraps an index without any change: the suite must accept it."""

    def step(self, batch: ProbeBatch, want_positions: bool) -> tuple[Matches, Matches]:
        changed = self.change_step(batch)
        r, s = super().step(changed, want_positions)
        return self.change_matches(changed.r, r), self.change_matches(changed.s, s)

    def change_step(self, step: ProbeBatch) -> ProbeBatch:
        return replace(step, r=self.change_side(step.r, step.s), s=self.change_side(step.s, step.r))

    def change_side(self, side: SideProbes, other: SideProbes) -> SideProbes:
        return side

    def change_matches(self, side: SideProbes, found: Matches) -> Matches:
        return found


class CorrectScan(ScanIndex):
    """The same over the nested loop, which keeps tuples that the tree would have deleted."""

    def step(self, batch: ProbeBatch, want_positions: bool) -> tuple[Matches, Matches]:
        return super().step(self.change_step(batch), want_positions)

    def change_step(self, step: ProbeBatch) -> ProbeBatch:
        return replace(step, r=self.change_side(step.r), s=self.change_side(step.s))

    def change_side(self, side: SideProbes) -> SideProbes:
        return side


def with_ranges(side: SideProbes, low: Array, high: Array) -> SideProbes:
    """Returns the same tuples with other ranges of the first key."""
    return replace(side, probes=(KeyProbe.of(low, high), *side.probes[1:]))


def chosen(found: Matches, keep: Mask) -> Matches:
    """Returns the matches where `keep` is true."""
    probes = np.repeat(np.arange(len(found.counts)), found.counts)
    counts = np.bincount(probes[keep], minlength=len(found.counts)).astype(np.int64)
    return Matches(counts, None if found.positions is None else found.positions[keep])


def match_ranks(found: Matches) -> tuple[Positions, Positions]:
    """Returns each match's rank among its probe's matches, from the front and from the back."""
    total = int(found.counts.sum())
    front = np.arange(total) - np.repeat(np.cumsum(found.counts) - found.counts, found.counts)
    return front, np.repeat(found.counts, found.counts) - 1 - front


# --- Wrong matches -------------------------------------------------------------------------------


class DropsLastMatch(CorrectIndex):
    """Loses the last match of a probe that has several."""

    def change_matches(self, side: SideProbes, found: Matches) -> Matches:
        front, back = match_ranks(found)
        return chosen(found, (back > 0) | (front == 0))


class RepeatsPair(CorrectIndex):
    """Returns the first match of a probe twice."""

    def change_matches(self, side: SideProbes, found: Matches) -> Matches:
        front, _ = match_ranks(found)
        twice = np.repeat(np.arange(len(front)), np.where(front == 0, 2, 1))
        counts = found.counts + (found.counts > 0)
        return Matches(counts, None if found.positions is None else found.positions[twice])


class ReversesPartners(CorrectIndex):
    """Returns the newest partner first."""

    def change_matches(self, side: SideProbes, found: Matches) -> Matches:
        if found.positions is None:
            return found
        front, back = match_ranks(found)
        return Matches(found.counts, found.positions[np.arange(len(front)) - front + back])


class MiscountsCounts(CorrectIndex):
    """Right pairs, but one too many where only counts are wanted."""

    def change_matches(self, side: SideProbes, found: Matches) -> Matches:
        return Matches(found.counts + (found.counts > 2), None) if found.positions is None else found


class FailsWithThreads(DropsLastMatch):
    """Right with one thread, wrong with more."""

    def change_matches(self, side: SideProbes, found: Matches) -> Matches:
        return found if getattr(self.context.device, "threads", 1) == 1 else super().change_matches(side, found)


class KeepsOneOfEqualKeys(CorrectIndex):
    """A tree without duplicates: of equal keys only the newest is found."""

    def __init__(self, context: IndexContext) -> None:
        super().__init__(context)
        self._seen: dict[str, dict[int, int]] = {"r": {}, "s": {}}

    def load(self, side: Side, first: int, words: tuple[Array, ...], live: Mask) -> None:
        self._seen[side].update(enumerate(words[0].tolist(), first))
        super().load(side, first, words, live)

    def step(self, batch: ProbeBatch, want_positions: bool) -> tuple[Matches, Matches]:
        for side, part in (("r", batch.r), ("s", batch.s)):
            self._seen[side].update(enumerate(part.words[0].tolist(), part.first))
        r, s = super().step(batch, True)
        return self._newest(r, "s"), self._newest(s, "r")

    def _newest(self, found: Matches, partners: str) -> Matches:
        assert found.positions is not None
        probes = np.repeat(np.arange(len(found.counts)), found.counts).tolist()
        at = found.positions.tolist()
        newest = {(probe, self._seen[partners][position]): position for probe, position in zip(probes, at, strict=True)}
        words = [self._seen[partners][position] for position in at]
        keep = [newest[probe, word] == position for probe, word, position in zip(probes, words, at, strict=True)]
        return chosen(found, np.array(keep, np.bool_))


# --- Wrong steps -------------------------------------------------------------------------------


class WindowTooShort(CorrectIndex):
    """Off by one at the old end of the window: the oldest partner is not found."""

    def change_side(self, side: SideProbes, other: SideProbes) -> SideProbes:
        return replace(side, begin=np.minimum(side.begin + 1, side.end))


class WindowTooLong(CorrectScan):
    """Off by one the other way: a partner that has just expired is still found."""

    def change_side(self, side: SideProbes) -> SideProbes:
        return replace(side, begin=np.maximum(side.begin - 1, 0))

    def change_step(self, step: ProbeBatch) -> ProbeBatch:
        return replace(super().change_step(step), keep=(max(step.keep[0] - 1, 0), max(step.keep[1] - 1, 0)))


class ForgetsToExpire(CorrectScan):
    """Nothing ever leaves the window."""

    def change_side(self, side: SideProbes) -> SideProbes:
        return replace(side, begin=np.zeros_like(side.begin))

    def change_step(self, step: ProbeBatch) -> ProbeBatch:
        return replace(super().change_step(step), keep=(0, 0))


class ExpiresTooEarly(CorrectScan):
    """Drops one tuple that is still visible to a later step."""

    def change_step(self, step: ProbeBatch) -> ProbeBatch:
        return replace(step, keep=(step.keep[0] + 1, step.keep[1] + 1))


class BlindToTheBatch(CorrectIndex):
    """Finds no partner among the tuples of the same step."""

    def change_side(self, side: SideProbes, other: SideProbes) -> SideProbes:
        return replace(side, end=np.maximum(np.minimum(side.end, other.first), side.begin))


class SeesTheFuture(CorrectScan):
    """A tuple matches partners of its step that were taken after it."""

    def change_step(self, step: ProbeBatch) -> ProbeBatch:
        r_end, s_end = (side.first + len(side) for side in (step.r, step.s))
        r, s = (
            replace(step.r, end=np.full_like(step.r.end, s_end)),
            replace(step.s, end=np.full_like(step.s.end, r_end)),
        )
        return replace(step, r=r, s=s)


class UpperBoundExclusive(CorrectIndex):
    """Searches `<` instead of `<=`."""

    def change_side(self, side: SideProbes, other: SideProbes) -> SideProbes:
        low, high = side.probes[0].low, side.probes[0].high
        return with_ranges(side, low, np.where(high > low, high - high.dtype.type(1), high))


class LowerBoundExclusive(CorrectIndex):
    """Searches `>` instead of `>=`."""

    def change_side(self, side: SideProbes, other: SideProbes) -> SideProbes:
        low, high = side.probes[0].low, side.probes[0].high
        return with_ranges(side, np.where(low < high, low + low.dtype.type(1), low), high)


class FirstBandOnly(CorrectIndex):
    """Of several ranges only the first is searched."""

    def change_side(self, side: SideProbes, other: SideProbes) -> SideProbes:
        low, high = side.probes[0].low.copy(), side.probes[0].high.copy()
        low[1:], high[1:] = 1, 0
        return with_ranges(side, low, high)


class DropsTheLowestBit(CorrectIndex):
    """Words compared without their last bit: neighbours look equal."""

    def change_side(self, side: SideProbes, other: SideProbes) -> SideProbes:
        low, high = side.probes[0].low, side.probes[0].high
        one, some = low.dtype.type(1), low <= high
        return with_ranges(side, np.where(some, low & ~one, low), np.where(some, high | one, high))


class MatchesNulls(CorrectIndex):
    """Uses the word of a row without a key as if it were a key."""

    def change_side(self, side: SideProbes, other: SideProbes) -> SideProbes:
        return replace(side, live=np.ones_like(side.live))


class MisfilesAfterASplit(CorrectIndex):
    """Once a node has split, the first tuple of each step is stored under a wrong word."""

    def change_side(self, side: SideProbes, other: SideProbes) -> SideProbes:
        if not self.counters()["boundaries"] or not len(side):
            return side
        words = side.words[0].copy()
        words[0] = ~words[0]
        return replace(side, words=(words, *side.words[1:]))


class ForgetsWhatWasRestored(CorrectIndex):
    """Starts empty after a restore."""

    def load(self, side: Side, first: int, words: tuple[Array, ...], live: Mask) -> None:
        super().load(side, first, words, np.zeros_like(live))


BROKEN = [
    DropsLastMatch,
    RepeatsPair,
    ReversesPartners,
    MiscountsCounts,
    FailsWithThreads,
    KeepsOneOfEqualKeys,
    WindowTooShort,
    WindowTooLong,
    ForgetsToExpire,
    ExpiresTooEarly,
    BlindToTheBatch,
    SeesTheFuture,
    UpperBoundExclusive,
    LowerBoundExclusive,
    FirstBandOnly,
    DropsTheLowestBit,
    MatchesNulls,
    MisfilesAfterASplit,
    ForgetsWhatWasRestored,
]
