"""Checks of a stored state whose checksums are right: the bytes are as written, but not every writer is ours.

A state with wrong types, numbers out of range or rows of another schema raises a `StateError`.
"""

from __future__ import annotations

import hashlib
from typing import Any

import pyarrow as pa

from millrace.host.base.errors import StateError

FOREIGN = (
    *(LookupError, TypeError, ValueError, AttributeError, ArithmeticError, OSError, RecursionError),
    pa.ArrowException,
)
"""What code raises that reads a state in which something is missing or has another type."""
_MOST = 1 << 62


def no_state(error: BaseException) -> StateError:
    """The error for a state that cannot be read; a `StateError` stays."""
    if isinstance(error, StateError):
        return error
    return StateError(f"the manifest does not hold the state of a join: {type(error).__name__}: {error}")


def check_content(content: dict[str, Any]) -> None:
    """Check types and ranges of a manifest's content; raises a `StateError`, or one of `FOREIGN`."""
    snapshot = content["snapshot"]
    clocks, scale = snapshot["clocks"], snapshot["scale"]
    instants = [*clocks["high"], clocks["flushed"]]
    counts = [*snapshot["seqs"].values(), *snapshot["totals"].values(), clocks["lateness"], clocks["tick"]]
    counts += [scale["unit"], scale["tick"]]
    if set(snapshot["schemas"]) - {"r", "s"} or set(content["waiting"]) != {"r", "s"}:
        raise StateError(f"the manifest has other sides than r and s: {[*snapshot['schemas'], *content['waiting']]}")
    for layout in content["windows"].values():
        counts += [layout["first"], layout["end"], *(start for _, start in layout["runs"])]
    _all(counts, lambda n: type(n) is int and 0 <= n < _MOST, "a count")
    # A clock may lie beyond 64 bits by the lateness; it is compared in Python.
    _all(instants, lambda n: n is None or (type(n) is int and abs(n) <= 1 << 70), "a time")
    _all(snapshot["counters"].values(), lambda n: type(n) is int, "a counter")
    _all([*snapshot["counters"], *snapshot["arguments"].values()], lambda n: isinstance(n, str), "a name")
    _all([snapshot["strategy"], snapshot.get("fallback") or ""], lambda n: isinstance(n, str), "a name")
    _all([scale["domain"]], lambda n: n in (None, "int", "time"), "the kind of times")
    _all([scale["zoned"]], lambda n: n is None or type(n) is bool, "a flag")


def _all(values: Any, fits: Any, what: str) -> None:
    for value in values:
        if not fits(value):
            raise StateError(f"the manifest does not hold the state of a join: {value!r:.80} is not {what}")


def read_run(name: str, data: Any) -> pa.Table:
    """The rows of a run, after a check of its bytes against its name, and Arrow's own checks."""
    if not isinstance(data, bytes | bytearray | memoryview):
        raise StateError(f"the run {name} is a {type(data).__name__}; runs are bytes")
    if hashlib.sha256(data).hexdigest() != name:
        raise StateError(f"the run {name} was altered: its content does not match its name")
    try:
        table = pa.ipc.open_stream(pa.py_buffer(data)).read_all()
        table.validate(full=True)
    except (pa.ArrowException, OSError, ValueError, TypeError, OverflowError) as error:
        raise StateError(f"the run {name} does not hold rows of a join: {error}") from error
    return table


def check_run(name: str, table: pa.Table, schema: pa.Schema) -> None:
    """Check that a run has seq, source and a side's own columns."""
    wanted = pa.schema([pa.field("seq", pa.int64()), pa.field("source", pa.int32()), *schema])
    if not table.schema.equals(wanted) or any(table.column(i).null_count for i in (0, 1)):
        raise StateError(f"the run {name} has other columns than its side: {', '.join(table.column_names)}")
