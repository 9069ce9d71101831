"""Every join index by name, and which conditions it can search. Modules are imported when an index is first used."""

from __future__ import annotations

from collections.abc import Callable

from millrace.host.base.types import SIDES
from millrace.host.device.contract import Device
from millrace.host.expr.plan import SearchShape
from millrace.host.join.contract import JoinIndex
from millrace.host.runtime.critical import load_module

INDEXES: dict[str, str] = {
    "auto": "millrace.host.planner.auto:AutoIndex",
    "bisort": "millrace.host.join.panjoin.index:BisortIndex",
    "rap": "millrace.host.join.panjoin.index:RapIndex",
    "wib": "millrace.host.join.panjoin.index:WibIndex",
    "spo": "millrace.host.join.spo.index:SpoIndex",
    "pim": "millrace.host.join.pimtree.index:PimIndex",
    "im": "millrace.host.join.pimtree.index:ImIndex",
    "chain": "millrace.host.join.pimtree.index:ChainIndex",
    "btree": "millrace.host.join.baseline.btree:BTreeIndex",
    "scan": "millrace.host.join.scalejoin.index:ScaleJoinIndex",
}
"""In order of preference."""
ALL_PAIRS = "all_pairs"
_INTERNAL = {ALL_PAIRS: "millrace.host.join.baseline.all_pairs:AllPairsIndex"}
"""Indexes that users cannot name."""


def load_index(name: str) -> type[JoinIndex]:
    """The class of an index."""
    module, _, attribute = (INDEXES.get(name) or _INTERNAL[name]).partition(":")
    index: type[JoinIndex] = getattr(load_module(module), attribute)
    return index


def _one_key(shape: SearchShape) -> bool:
    """One key of each side is searched; the other terms are checked on the pairs."""
    return shape.kind != "residual"


def _two_keys(shape: SearchShape) -> bool:
    """Two order keys of each side are searched together."""
    return all(len(shape.keys[side]) >= 2 and "ranges" not in shape.keys[side][:2] for side in SIDES)


def _any_condition(shape: SearchShape) -> bool:
    return True


SERVES: dict[str, Callable[[SearchShape], bool]] = {"spo": _two_keys, "scan": _any_condition}
"""Which conditions an index can search; those that are not here search one key."""


def serving(shape: SearchShape) -> list[str]:
    """The names of the indexes that can search conditions of a shape."""
    return [name for name in INDEXES if SERVES.get(name, _one_key)(shape)]


def runs_on(name: str, device: Device) -> bool:
    """Whether an index can run on a device; the CPU has all units."""
    if device.kind == "cpu":
        return True
    needs = load_index(name).needs
    return bool(needs) and needs <= device.units
