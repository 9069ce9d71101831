"""Every join index by name. Modules are imported when an index is first used."""

from __future__ import annotations

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


def serving(shape: SearchShape) -> list[str]:
    """The names of the indexes that can search conditions of a shape."""
    return [name for name in INDEXES if load_index(name).serves(shape)]


def runs_on(name: str, device: Device) -> bool:
    """Whether an index can run on a device."""
    needs = load_index(name).needs
    return device.kind == "cpu" if not needs else needs <= device.units
