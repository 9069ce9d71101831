"""`ms.explain`: what a call would do, and why. It takes the name of the call, and its arguments."""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from typing import Any, Literal, get_args

from millrace.errors import ArgumentError
from millrace.spark.api.join import join, join_request
from millrace.spark.api.lookup import explain_lookup, lookup
from millrace.spark.api.window_join import read_call, window_join
from millrace.spark.plan.strategy import choose

Call = Literal["join", "window_join", "lookup"]
CALLS = get_args(Call)


def explain(call: Call, /, *arguments: Any, **named: Any) -> str:
    """The strategy of `ms.join`, `ms.window_join` or `ms.lookup` with these arguments, and why it is chosen.

    A batch join is sampled, as in the call itself; nothing else runs.
    """
    if not isinstance(call, str) or call not in CALLS:
        given = repr(call) if isinstance(call, str) else f"a {type(call).__name__}"
        raise ArgumentError(
            f"ms.explain: the first argument is {given}; it names the call, {' or '.join(repr(c) for c in CALLS)}, and "
            f'the arguments of that call follow: ms.explain("join", r, s, on="…")'
        )
    if call == "join":
        return _join(**_arguments(call, join, arguments, named))
    if call == "window_join":
        return read_call(**_arguments(call, window_join, arguments, named)).describe()
    found = _arguments(call, lookup, arguments, named)
    return explain_lookup(*(found[name] for name in ("df", "index", "key", "into", "device")))


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


def _join(
    r: Any, s: Any, on: Any, how: Any, splits: Any, device: str, fallback: Any, strategy: Any, metrics: Any
) -> str:
    request = join_request(r, s, on, how, splits, strategy)
    lines = [f"{request.how} join on {request.condition.text} ({request.condition.kind})"]
    for number, part in enumerate(request.parts):
        lines += ["and the rows of s without a partner, by a second join"] if number else []
        lines.append(choose(part).describe())
    return "\n".join([*lines, f"  device: {device}"])
