"""`ms.explain`: what a call would do, and why. It takes the name of the call, and its arguments."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from inspect import signature
from typing import Any, Literal, get_args

from pyspark.sql import DataFrame

import millrace as mr
from millrace.errors import ArgumentError, DeviceUnavailable
from millrace.join_parts.routes import BoundCondition
from millrace.spark.api.join import join, join_request
from millrace.spark.api.knn_join import explain_knn_join, knn_join, knn_request
from millrace.spark.api.lookup import explain_lookup, lookup
from millrace.spark.api.window_join import read_call, window_join
from millrace.spark.cluster.resources import read_device_request
from millrace.spark.cluster.task import DeviceRequest
from millrace.spark.plan import columns as cl
from millrace.spark.plan.estimates import estimates
from millrace.spark.plan.strategy import choose

Call = Literal["join", "window_join", "knn_join", "lookup"]
CALLS = get_args(Call)


def explain(call: Call, /, *arguments: Any, **named: Any) -> mr.Explanation:
    """What `ms.join`, `ms.window_join`, `ms.knn_join` or `ms.lookup` would do with these arguments, and why.

    The result prints as text, and `to_dict()` gives plain values. A batch join is sampled in one job; nothing else
    runs. Sizes of rows with text and the like come from that sample. The call itself measures them where they decide,
    so close to the limit of a broadcast it may use another strategy. `index` is what tasks search with if their
    machines are like the driver's.

    Args:
        call: `"join"`, `"window_join"`, `"knn_join"` or `"lookup"`.
        *arguments (Any): The positional arguments of that call.
        **named (Any): Its named arguments; those left out have the call's defaults.

    Raises:
        ArgumentError: There is no such call, or it does not take these arguments; and every error that the call itself
            raises.
    """
    if not isinstance(call, str) or call not in CALLS:
        given = repr(call) if isinstance(call, str) else f"a {type(call).__name__}"
        raise ArgumentError(
            f"ms.explain: the first argument is {given}; it names the call, {' or '.join(repr(c) for c in CALLS)}, and "
            f'the arguments of that call follow: ms.explain("join", r, s, on="…")'
        )
    return _EXPLAIN[call](arguments, named)


def _arguments(
    call: str, function: Callable[..., Any], arguments: tuple[Any, ...], named: dict[str, Any]
) -> dict[str, Any]:
    """The arguments of a call by name, with its defaults."""
    try:
        bound = signature(function).bind(*arguments, **named)
    except TypeError as error:
        raise ArgumentError(f"ms.explain({call!r}, …): {error}; it takes the arguments of ms.{call}") from error
    bound.apply_defaults()
    return bound.arguments


def _join(arguments: tuple[Any, ...], named: dict[str, Any]) -> mr.Explanation:
    given = _arguments("join", join, arguments, named)
    device = read_device_request(
        cl.check_frame(given["r"], "r").sparkSession, given["device"], given["fallback"]
    ).device
    names = ("r", "s", "on", "how", "splits", "strategy", "columns", "output", "shards")
    counting = given["metrics"] is not None
    request = join_request(**{name: given[name] for name in names}, device=device, counting=counting)
    request = replace(request, one_pass=True)
    chosen = [(part, choose(part)) for part in request.parts]
    parts = [one.describe() for _, one in chosen]
    entries = {"how": request.how, **parts[0]}
    if not request.streaming:
        entries |= estimates(*chosen[0])
    if len(parts) > 1:
        entries["s rows without a partner"] = parts[1]
    found = _condition("join", request.frames, request.condition, entries, given)
    if all(one.buckets is None for _, one in chosen):
        return found
    index = {"name": "none", "why": "Spark's own join, in the JVM, compares the pairs"}
    return mr.Explanation("join", found.plan, index, found.device)


def _window_join(arguments: tuple[Any, ...], named: dict[str, Any]) -> mr.Explanation:
    given = _arguments("window_join", window_join, arguments, named)
    call = read_call(**given)
    return _condition("window_join", call.frames, call.condition, call.describe(), given)


def _knn_join(arguments: tuple[Any, ...], named: dict[str, Any]) -> mr.Explanation:
    given = _arguments("knn_join", knn_join, arguments, named)
    given.pop("metrics")
    found = explain_knn_join(knn_request(**given))
    device_request = read_device_request(given["r"].sparkSession, given["device"], given["fallback"])
    return mr.Explanation("knn_join", found.plan, found.index, {**found.device, "fallback": device_request.fallback})


def _lookup(arguments: tuple[Any, ...], named: dict[str, Any]) -> mr.Explanation:
    given = _arguments("lookup", lookup, arguments, named)
    plan, index = explain_lookup(*(given[name] for name in ("df", "index", "key", "into")))
    device_request = read_device_request(given["df"].sparkSession, given["device"], given["fallback"])
    return mr.Explanation("lookup", plan, index, _device(device_request))


def _condition(
    call: Call, frames: dict[str, DataFrame], condition: BoundCondition, entries: dict[str, Any], given: dict[str, Any]
) -> mr.Explanation:
    """A join: the plan of its condition and the index as `mr.explain` gives them, and how Spark runs it."""
    device_request = read_device_request(frames["r"].sparkSession, given["device"], given["fallback"])
    schemas = [cl.arrow_schema(frames[side].schema, side) for side in ("r", "s")]
    try:
        local = mr.explain("join", *schemas, on=condition.text, device=device_request.device)
    except DeviceUnavailable:  # tasks may have it
        local = mr.explain("join", *schemas, on=condition.text, device="cpu")
    plan = {name: value for name, value in local.plan.items() if name not in ("how", "output")}
    return mr.Explanation(call, plan | entries, local.index, _device(device_request))


def _device(request: DeviceRequest) -> dict[str, Any]:
    why = "each task chooses on its machine" if request.device == "auto" else "the device was named"
    return {"name": request.device, "why": why, "fallback": request.fallback}


_EXPLAIN = {"join": _join, "window_join": _window_join, "knn_join": _knn_join, "lookup": _lookup}
