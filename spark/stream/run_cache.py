"""Runs that a Python worker has at hand: read, with their times, and ordered by a probe, from batch to batch.

A cache only: what is held follows from a place's manifest, which comes from Spark's state store with each batch. A
run's name tells its content, so an entry is right whatever batch made it; a task that is run again on a worker
that is ahead, behind, or new finds what the manifest names here, or borrows it from another worker (`run_files.py`), or
reads it from the store. After each batch the place's entries are pruned to its manifest; those of places that this
worker no longer sees leave when `MOST_BYTES` are held. Belongs to the process: nothing is taken over by a fork.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Literal

import pyarrow as pa

from millrace.ingest.arguments import Engine, parse_condition, parse_engine
from millrace.join_parts.table_probe import TableProbe
from millrace.spark.cluster.task import Place
from millrace.spark.stream import run_files
from millrace.spark.stream.plan import Flags, Longs, StreamPlan
from millrace.spark.stream.state import Manifest, Run, unpack_rows

MOST_BYTES = 1 << 30
"""Rows that a worker keeps, in bytes; their order takes about as much again."""


class Held:
    """A run's rows, their times and, once asked, a probe of them."""

    def __init__(self, plan: StreamPlan, run: Run, table: pa.Table, passing: bool = False) -> None:
        """Rows as they were stored: every one has a time and its keys. `passing`: for one question, not to be kept."""
        self.run, self.table, self.passing = run, table, passing
        self.times: Longs = plan.side(run.side).times(table)[0]
        self._plan = plan
        self._probe: tuple[str, TableProbe] | None = None

    def probe(self, place: Place) -> TableProbe:
        """The probe on a device; made when first asked for."""
        if self._probe is None or self._probe[0] != place.device:
            self.close()
            self._probe = place.device, self._open(place)
        return self._probe[1]

    def _open(self, place: Place) -> TableProbe:
        plan, side = self._plan, self.run.side
        own, other = plan.side(side), plan.side("s" if side == "r" else "r")
        held = self.table.select(list(own.used))
        asking = pa.schema([other.schema.field(name) for name in other.used])
        condition, engine = _parsed(plan.on, place.device, place.threads, plan.asked.fallback)
        known: Literal["r", "s"] = "r" if side == "r" else "s"
        schemas: dict[Literal["r", "s"], pa.Schema] = {known: held.schema, "s" if known == "r" else "r": asking}
        return TableProbe(condition, engine, held, schemas, known)

    def close(self) -> None:
        """Give the probe's device back."""
        probe, self._probe = self._probe, None
        if probe is not None:
            probe[1].close()

    def alive(self, watermark: int | None) -> Flags | None:
        """Which rows can still meet any; nothing where all can."""
        reach = self._plan.reach(self.run.side)
        if watermark is None or self.run.low + reach >= watermark:
            return None
        kept: Flags = self.times >= watermark - reach
        return kept


@lru_cache(maxsize=16)
def _parsed(on: str, device: str, threads: int, fallback: str | None) -> tuple[Any, Engine]:
    """A condition and how to run it, read once, not for every run."""
    condition = parse_condition(on)
    return condition, parse_engine(condition, "auto", device, threads, fallback, counting=False)


_kept: OrderedDict[tuple[str, str, str], Held] = OrderedDict()
_process = os.getpid()


def _mine() -> OrderedDict[tuple[str, str, str], Held]:
    """This process's entries."""
    global _process
    if _process != os.getpid():
        _kept.clear()
        _process = os.getpid()
    return _kept


def held(plan: StreamPlan, owner: str, run: Run, read: Callable[[], bytes]) -> Held:
    """A run, from here, from another worker, or from where `read` has it."""
    kept, key = _mine(), (plan.token, owner, run.name)
    if key not in kept:
        kept[key] = Held(plan, run, unpack_rows(_shared(plan, owner, run.name, read)))
    kept.move_to_end(key)
    return kept[key]


def _shared(plan: StreamPlan, owner: str, name: str, read: Callable[[], bytes]) -> pa.Buffer | bytes:
    if plan.empty:  # the yardstick asks nothing, so it is spared the files
        return read()
    place = _folder(plan, owner)
    found = run_files.borrow(place, name)
    if found is None:
        found = read()
        run_files.lend(place, name, found)
    return found


def _folder(plan: StreamPlan, owner: str) -> str:
    return f"{plan.token}-{owner}"


def prune(plan: StreamPlan, manifest: Manifest) -> None:
    """Let go of a place's runs that its manifest does not name, and of the oldest beyond what may be held."""
    kept, names = _mine(), manifest.names()
    for key in [key for key in kept if key[:2] == (plan.token, manifest.owner) and key[2] not in names]:
        kept.pop(key).close()
    total = sum(one.table.nbytes for one in kept.values())
    while total > MOST_BYTES and kept:
        _, oldest = kept.popitem(last=False)
        total -= oldest.table.nbytes
        oldest.close()
    run_files.prune(_folder(plan, manifest.owner), names)


def cached() -> frozenset[str]:
    """Names of the runs that are here, for tests."""
    return frozenset(name for _, _, name in _mine())
