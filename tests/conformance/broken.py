"""Indexes that are wrong on purpose, each in one way a real one might be. The suite must catch every one.

Each wraps an index that is right and spoils the question it is asked (`ask`) or the answer it gives (`answer`).
They are loaded by name, like any index: see `tests/conformance/test_broken.py`.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from millrace.host.base.types import Array, Mask, Positions, Side
from millrace.host.join.baseline.btree import BTreeIndex
from millrace.host.join.baseline.scan import ScanIndex
from millrace.host.join.contract import Matches, Setting, SideStep, Step


class Honest(BTreeIndex):
    """Wraps and spoils nothing: what the suite must not object to."""

    def step(self, step: Step, want_positions: bool) -> tuple[Matches, Matches]:
        asked = self.ask(step)
        r, s = super().step(asked, want_positions)
        return self.answer(asked.r, r), self.answer(asked.s, s)

    def ask(self, step: Step) -> Step:
        return replace(step, r=self.ask_side(step.r, step.s), s=self.ask_side(step.s, step.r))

    def ask_side(self, side: SideStep, other: SideStep) -> SideStep:
        return side

    def answer(self, side: SideStep, found: Matches) -> Matches:
        return found


class HonestScan(ScanIndex):
    """The same over the nested loop, which keeps what the tree would have deleted."""

    def step(self, step: Step, want_positions: bool) -> tuple[Matches, Matches]:
        return super().step(self.ask(step), want_positions)

    def ask(self, step: Step) -> Step:
        return replace(step, r=self.ask_side(step.r), s=self.ask_side(step.s))

    def ask_side(self, side: SideStep) -> SideStep:
        return side


def chosen(found: Matches, keep: Mask) -> Matches:
    """The matches where `keep` is true."""
    who = np.repeat(np.arange(len(found.counts)), found.counts)
    counts = np.bincount(who[keep], minlength=len(found.counts)).astype(np.int64)
    return Matches(counts, None if found.positions is None else found.positions[keep])


def places(found: Matches) -> tuple[Positions, Positions]:
    """For each match its place among its probe's matches, from the front and from the back."""
    total = int(found.counts.sum())
    front = np.arange(total) - np.repeat(np.cumsum(found.counts) - found.counts, found.counts)
    return front, np.repeat(found.counts, found.counts) - 1 - front


# --- Wrong answers -------------------------------------------------------------------------------


class DropsLastMatch(Honest):
    """Loses the last match of a probe that has several."""

    def answer(self, side: SideStep, found: Matches) -> Matches:
        front, back = places(found)
        return chosen(found, (back > 0) | (front == 0))


class RepeatsPair(Honest):
    """Gives the first match of a probe twice."""

    def answer(self, side: SideStep, found: Matches) -> Matches:
        front, _ = places(found)
        twice = np.repeat(np.arange(len(front)), np.where(front == 0, 2, 1))
        counts = found.counts + (found.counts > 0)
        return Matches(counts, None if found.positions is None else found.positions[twice])


class ReversesPartners(Honest):
    """Gives the newest partner first."""

    def answer(self, side: SideStep, found: Matches) -> Matches:
        if found.positions is None:
            return found
        front, back = places(found)
        return Matches(found.counts, found.positions[np.arange(len(front)) - front + back])


class MiscountsCounts(Honest):
    """Right pairs, but one too many where only counts are wanted."""

    def answer(self, side: SideStep, found: Matches) -> Matches:
        return Matches(found.counts + (found.counts > 2), None) if found.positions is None else found


class FailsWithThreads(DropsLastMatch):
    """Right with one thread, wrong with more."""

    def answer(self, side: SideStep, found: Matches) -> Matches:
        return found if getattr(self.setting.device, "threads", 1) == 1 else super().answer(side, found)


class KeepsOneOfEqualKeys(Honest):
    """A tree without duplicates: of equal keys only the newest is found."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        self._seen: dict[str, dict[int, int]] = {"r": {}, "s": {}}

    def load(self, side: Side, first: int, words: Array, live: Mask) -> None:
        self._seen[side].update(enumerate(words.tolist(), first))
        super().load(side, first, words, live)

    def step(self, step: Step, want_positions: bool) -> tuple[Matches, Matches]:
        self._seen["r"].update(enumerate(step.r.words.tolist(), step.r.first))
        self._seen["s"].update(enumerate(step.s.words.tolist(), step.s.first))
        r, s = super().step(step, True)
        return self._newest(r, "s"), self._newest(s, "r")

    def _newest(self, found: Matches, partners: str) -> Matches:
        assert found.positions is not None
        who = np.repeat(np.arange(len(found.counts)), found.counts).tolist()
        at = found.positions.tolist()
        newest = {(probe, self._seen[partners][position]): position for probe, position in zip(who, at, strict=True)}
        words = [self._seen[partners][position] for position in at]
        keep = [newest[probe, word] == place for probe, word, place in zip(who, words, at, strict=True)]
        return chosen(found, np.array(keep, np.bool_))


# --- Wrong questions -----------------------------------------------------------------------------


class WindowTooShort(Honest):
    """Off by one at the old end of the window: the oldest partner is not met."""

    def ask_side(self, side: SideStep, other: SideStep) -> SideStep:
        return replace(side, begin=np.minimum(side.begin + 1, side.end))


class WindowTooLong(HonestScan):
    """Off by one the other way: the partner that has just left is still met."""

    def ask_side(self, side: SideStep) -> SideStep:
        return replace(side, begin=np.maximum(side.begin - 1, 0))

    def ask(self, step: Step) -> Step:
        return replace(super().ask(step), keep=(max(step.keep[0] - 1, 0), max(step.keep[1] - 1, 0)))


class ForgetsToExpire(HonestScan):
    """Nothing ever leaves the window."""

    def ask_side(self, side: SideStep) -> SideStep:
        return replace(side, begin=np.zeros_like(side.begin))

    def ask(self, step: Step) -> Step:
        return replace(super().ask(step), keep=(0, 0))


class ExpiresTooEarly(HonestScan):
    """Forgets one tuple that a later step can still meet."""

    def ask(self, step: Step) -> Step:
        return replace(step, keep=(step.keep[0] + 1, step.keep[1] + 1))


class BlindToTheBatch(Honest):
    """Finds no partner among the tuples of the same step."""

    def ask_side(self, side: SideStep, other: SideStep) -> SideStep:
        return replace(side, end=np.maximum(np.minimum(side.end, other.first), side.begin))


class SeesTheFuture(HonestScan):
    """A tuple meets partners of its step that were taken after it."""

    def ask(self, step: Step) -> Step:
        r_end, s_end = (side.first + len(side.words) for side in (step.r, step.s))
        r, s = (
            replace(step.r, end=np.full_like(step.r.end, s_end)),
            replace(step.s, end=np.full_like(step.s.end, r_end)),
        )
        return replace(step, r=r, s=s)


class UpperBoundExclusive(Honest):
    """`<` where `<=` was asked."""

    def ask_side(self, side: SideStep, other: SideStep) -> SideStep:
        return side.asking(side.low, np.where(side.high > side.low, side.high - side.high.dtype.type(1), side.high))


class LowerBoundExclusive(Honest):
    """`>` where `>=` was asked."""

    def ask_side(self, side: SideStep, other: SideStep) -> SideStep:
        return side.asking(np.where(side.low < side.high, side.low + side.low.dtype.type(1), side.low), side.high)


class FirstBandOnly(Honest):
    """Of several ranges only the first is searched."""

    def ask_side(self, side: SideStep, other: SideStep) -> SideStep:
        low, high = side.low.copy(), side.high.copy()
        low[1:], high[1:] = 1, 0
        return side.asking(low, high)


class DropsTheLowestBit(Honest):
    """Words compared without their last bit: neighbours look equal."""

    def ask_side(self, side: SideStep, other: SideStep) -> SideStep:
        one = side.low.dtype.type(1)
        some = side.low <= side.high
        return side.asking(np.where(some, side.low & ~one, side.low), np.where(some, side.high | one, side.high))


class MatchesNulls(Honest):
    """Takes the word of a row without a key at its face value."""

    def ask_side(self, side: SideStep, other: SideStep) -> SideStep:
        return replace(side, live=np.ones_like(side.live))


class MisfilesAfterASplit(Honest):
    """Once a node has split, the first tuple of each step is stored under a wrong word."""

    def ask_side(self, side: SideStep, other: SideStep) -> SideStep:
        if not self.counters()["boundaries"] or not len(side.words):
            return side
        words = side.words.copy()
        words[0] = ~words[0]
        return replace(side, words=words)


class ForgetsWhatWasRestored(Honest):
    """Starts empty after a restore."""

    def load(self, side: Side, first: int, words: Array, live: Mask) -> None:
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
