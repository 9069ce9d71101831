"""Reads and checks the arguments of joins before anything else happens; a bad one raises an `ArgumentError`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from millrace.host.base.errors import ArgumentError
from millrace.host.base.log import log
from millrace.host.base.types import SIDES, Order, Side
from millrace.host.device.contract import Device
from millrace.host.expr.condition import Condition
from millrace.host.expr.plan import check_bands, search_shape
from millrace.host.join.contract import OptionValue
from millrace.host.join.registry import INDEXES, load_index, serving
from millrace.host.planner.choice import IndexChoice, choose_index
from millrace.host.runtime.critical import load_module
from millrace.host.runtime.pool import cores
from millrace.host.runtime.team import Team
from millrace.ingest.checks import choice, integer_at_least, thread_count
from millrace.ingest.choices import FALLBACKS, OUTPUTS, IndexName
from millrace.ingest.durations import Span, WindowSpec, parse_lateness, parse_window
from millrace.ingest.memory_limits import check_memory, check_sources
from millrace.registry import check_name, device_for, join_pairs
from millrace.registry import device as open_device

MAX_PENDING = 16 * 2**20


@dataclass(frozen=True)
class Engine:
    """How a join runs; nothing in it changes the output."""

    choice: IndexChoice
    device: str
    threads: int | None
    fallback: str | None
    options: Mapping[str, OptionValue] = field(default_factory=dict)

    def open(self) -> OpenedEngine:
        """Choose an index, open its device and, if the user allows it, the device to continue on after a fault."""
        index, device = device_for(self.choice, self.device, self.threads)
        log.info("join: index %s on device %s; %s", index, device.name, self.choice.reason)
        spare = None
        if self.fallback is not None and self.fallback != device.name:
            try:
                spare = open_device(self.fallback, threads=self.threads)
            except BaseException:
                device.close()
                raise
        team = device.team or (spare.team if spare is not None else None)
        team = team or Team(self.threads or cores())
        return OpenedEngine(index, device, spare, team, self.options, self.choice.candidates)


@dataclass(frozen=True)
class OpenedEngine:
    """The index and devices that `Engine.open` opened; `spare` is the device to continue on after a fault.

    `team` are the threads for work on the host: those of the CPU device if one is open, so that a join has one team.
    """

    index: str
    device: Device
    spare: Device | None
    team: Team
    options: Mapping[str, OptionValue] = field(default_factory=dict)
    candidates: tuple[str, ...] = ()
    """The indexes that the join may use, best first."""

    def close(self) -> None:
        """Close the devices and the team."""
        for device in (self.device, self.spare):
            if device is not None:
                device.close()
        self.team.close()


@dataclass(frozen=True, kw_only=True)
class GivenStreamArguments:
    """The arguments that all joins of streams have, as the user wrote them; errors quote them."""

    on: Any
    window: Any
    time: Any = None
    lateness: Any = 0
    sources: Any = None
    self_join: Any = False
    device: Any = "auto"
    threads: Any = None
    output: Any = "pairs"
    max_pending: Any = MAX_PENDING
    fallback: Any = None
    options: Any = None


@dataclass(frozen=True, kw_only=True)
class GivenWindowArguments(GivenStreamArguments):
    """The arguments of a `WindowJoin` as the user wrote them."""

    index: Any = "auto"


@dataclass(frozen=True, kw_only=True)
class StreamArguments:
    """The parsed arguments that all joins of streams have, and the arguments as written."""

    window: WindowSpec
    time: dict[Side, str] | None
    lateness: Span
    sources: dict[Side, int]
    self_join: bool
    output: str
    max_pending: int
    given: GivenStreamArguments

    @property
    def several(self) -> bool:
        """Whether some side has more than one source, so that the output has source columns."""
        return max(self.sources.values()) > 1

    @property
    def sides(self) -> tuple[Side, ...]:
        """The sides that are pushed."""
        return ("r",) if self.self_join else SIDES


@dataclass(frozen=True, kw_only=True)
class WindowArguments(StreamArguments):
    """The parsed arguments of a `WindowJoin`."""

    condition: Condition
    engine: Engine
    given: GivenWindowArguments


def parse_condition(on: Any) -> Condition:
    """The `on` argument; recent conditions are cached."""
    return _parsed(on) if isinstance(on, str) else _parsed.__wrapped__(on)


@lru_cache(maxsize=64)
def _parsed(on: Any) -> Condition:
    condition: Condition = load_module("millrace.predicate").parse(on)  # loads sqlglot
    check_bands(condition)
    return condition


def parse_engine(
    condition: Condition, index: Any, device: Any, threads: Any, fallback: Any, counting: bool, options: Any = None
) -> Engine:
    """The arguments that say how a join runs; `auto` becomes the list of suitable indexes."""
    shape = search_shape(condition)
    able = serving(shape)
    choice("index", index, tuple(INDEXES))
    if index not in ("auto", *able):
        raise ArgumentError(
            f"index={index!r} cannot serve this condition (of the kind {shape.kind!r}); "
            f"those that can are {', '.join(able)}"
        )
    if not (isinstance(device, str) and device == "auto"):
        check_name(device)
    threads = thread_count(threads)
    choice("fallback", fallback, FALLBACKS)
    return Engine(choose_index(shape, counting, index), device, threads, fallback, _options(index, options))


def pairs_for(on: str) -> list[tuple[IndexName, str]]:
    """Every (index, device) of this machine that can run a join on a condition."""
    able = serving(search_shape(parse_condition(on)))
    return [(index, device) for index, device in join_pairs() if index in able]


def _options(index: str, given: Any) -> dict[str, OptionValue]:
    """The `options` argument: only names and values that the index declares."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise ArgumentError(f"options={given!r}: must be a mapping from names of options to values")
    declared = load_index(index).options
    for name, value in given.items():
        if name not in declared:
            names = f"its options are {', '.join(declared)}" if declared else "it has no options"
            raise ArgumentError(f"options={given!r}: index {index!r} does not have the option {name!r}; {names}")
        if not declared[name].accepts(value):
            raise ArgumentError(f"options={{{name!r}: {value!r}}}: allowed is {declared[name].allowed()}")
    return dict(given)


def parse_window_arguments(given: GivenWindowArguments) -> WindowArguments:
    """All arguments of `WindowJoin`."""
    condition = parse_condition(given.on)
    shared = parse_stream_arguments(given, parse_window(given.window), OUTPUTS)
    counting = shared["output"] == "count"
    engine = parse_engine(condition, given.index, given.device, given.threads, given.fallback, counting, given.options)
    return WindowArguments(condition=condition, engine=engine, **shared)


def parse_stream_arguments(given: GivenStreamArguments, window: WindowSpec, outputs: tuple[str, ...]) -> dict[str, Any]:
    """The fields of `StreamArguments`."""
    check_memory(window, given.window)
    self_join = choice("self_join", given.self_join, (False, True))
    time = _time(given.time, self_join)
    lateness = parse_lateness(given.lateness)
    sources = _sources(given.sources, self_join)
    if time is None:
        if not window.counts:
            raise ArgumentError(f"window={given.window!r} is a length of time: name the time column with time='ts'")
        if lateness.length:
            raise ArgumentError(f"lateness={given.lateness!r} needs time=: without it rows are in order of arrival")
        if max(sources.values()) > 1:
            raise ArgumentError(f"sources={given.sources!r} needs time=: several sources are ordered by time")
    elif not window.counts and lateness.length and window.r.measure != lateness.measure:
        raise ArgumentError(
            f"window={given.window!r} and lateness={given.lateness!r} differ in kind: both need a unit, or none"
        )
    return {
        "window": window,
        "time": time,
        "lateness": lateness,
        "sources": sources,
        "self_join": self_join,
        "output": choice("output", given.output, outputs),
        "max_pending": integer_at_least("max_pending", given.max_pending, 1),
        "given": given,
    }


def _time(given: Any, self_join: bool) -> dict[Side, str] | None:
    if given is None:
        return None
    names = (given, given) if isinstance(given, str) else given
    if not isinstance(names, tuple | list) or len(names) != 2 or not all(isinstance(n, str) for n in names):
        raise ArgumentError(f"time={given!r}: allowed are a column name, or a pair (r's column, s's column)")
    if self_join and names[0] != names[1]:
        raise ArgumentError(f"time={given!r}: a self-join has one stream and so one time column")
    return {"r": names[0], "s": names[1]}


def _sources(given: Any, self_join: bool) -> dict[Side, int]:
    if given is None:
        return {"r": 1} if self_join else {"r": 1, "s": 1}
    sides: tuple[Side, ...] = ("r",) if self_join else SIDES
    if not isinstance(given, Mapping) or not set(given) <= set(sides):
        raise ArgumentError(f"sources={given!r}: allowed is a mapping such as {{'r': 3}} over {', '.join(sides)}")
    counts = {side: integer_at_least(f"sources[{side!r}]", given.get(side, 1), 1) for side in sides}
    check_sources(sum(counts.values()), dict(given))
    return counts


def describe_arguments(args: StreamArguments, schemas: dict[Side, Any]) -> dict[str, str]:
    """The arguments that decide the output, as text, to compare with those of a stored state."""
    return {
        "on": repr(args.given.on),
        "window": f"{args.window.r.exact}, {args.window.s.exact}",
        "time": repr(args.time),
        "lateness": args.lateness.exact,
        "sources": repr(args.sources),
        "self_join": repr(args.self_join),
        "output": repr(args.output),
        "max_pending": repr(args.max_pending),
        "schemas": repr({side: str(schema) for side, schema in schemas.items()}),
    }


def parse_arrival(given: Any, r_rows: int, s_rows: int) -> Order:
    """The `arrival` argument: one 0 for each r row and one 1 for each s row."""
    try:
        order = np.asarray(given)
    except (TypeError, ValueError) as error:
        raise ArgumentError(f"arrival cannot be read as an array: {error}") from error
    numeric = order.ndim == 1 and (order.dtype.kind in "iub" or len(order) == 0)
    if not numeric or not ((order == 0) | (order == 1)).all():
        raise ArgumentError("arrival must be a one-dimensional array of 0 (next r row) and 1 (next s row)")
    ones = int((order == 1).sum())
    if (len(order) - ones, ones) != (r_rows, s_rows):
        raise ArgumentError(
            f"arrival has {len(order) - ones} zeros and {ones} ones, but there are {r_rows} r rows and {s_rows} s rows"
        )
    return order.astype(np.uint8)
