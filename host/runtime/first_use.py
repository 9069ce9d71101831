"""Whether a small call goes on without kernels, and compiling them in another process meanwhile.

A first call with an empty kernel cache would wait for the compiler for seconds, and with a full one for half a second
until Numba is loaded. Operators that can do small inputs without kernels ask `without_kernels` and go on. If the
kernels are not compiled, it starts `python -m millrace.warm`, once, which runs the operator's typical calls and so
fills the disk cache, then marks the operator as ready. Another process, not a thread: the compiler holds the
interpreter's lock most of the time, and neither a fork nor the end of this interpreter disturbs it; if this process
ends first, the other one still finishes. Limits: where no process can be started, and with `MILLRACE_COMPILE=now`, the
operator compiles in its own call, as it does for larger inputs.
"""

from __future__ import annotations

import os
import sys
import time
from contextlib import suppress
from pathlib import Path

from millrace.host.base.log import log
from millrace.host.runtime.jit import cache_dir

MAX_ROWS = 1 << 12
"""Inputs of more rows do not wait: without kernels they would take as long as the compiler."""
STALE_SECONDS = 600.0
"""A start that is older did not come to an end."""
CHECK_SECONDS = 0.05
"""How often the mark is looked for."""
_ready: set[str] = set()
_checked: dict[str, float] = {}
_started: dict[str, int] = {}
LATE_CALLS = 64
"""So many small calls of a process go on without kernels that are ready: together they take less than loading them."""
LATE_PAIRS = 1 << 18
"""Calls that would evaluate more pairs of rows load the kernels at once."""
_calls: dict[str, int] = {}


def _mark(name: str) -> Path:
    return cache_dir() / f"ready-{name}"


def is_ready(name: str) -> bool:
    """Whether the kernels of an operator are in the disk cache; asks the file system a few times a second at most."""
    if name in _ready:
        return True
    now = time.monotonic()
    if now - _checked.get(name, -1.0) < CHECK_SECONDS:
        return False
    _checked[name] = now
    if _mark(name).exists():
        _ready.add(name)
        if name in _started:
            with suppress(OSError):  # collects the ended process, if it is this one's child
                os.waitpid(_started[name], os.WNOHANG)
    return name in _ready


def set_ready(name: str) -> None:
    """Mark an operator's kernels as compiled."""
    with suppress(OSError):
        _mark(name).touch()
    _ready.add(name)


def goes_without(name: str) -> bool:
    """Whether the next small call goes on without an operator's kernels; changes nothing."""
    return not _compiles_itself() and _calls.get(name, 0) < LATE_CALLS if is_ready(name) else name in _started


def without_kernels(name: str, pairs: int = 0) -> bool:
    """Whether a small call, which evaluates so many pairs of rows, goes on without an operator's kernels.

    It does while another process compiles them, which is started if need be, and for the first `LATE_CALLS` calls of a
    process: a script with a few rows never loads the compiler.
    """
    calls = _calls.get(name, 0)
    if calls > LATE_CALLS or _compiles_itself():
        return False
    if is_ready(name):
        _calls[name] = calls + 1
        return calls < LATE_CALLS and pairs <= LATE_PAIRS
    return compile_in_background(name)


def _compiles_itself() -> bool:
    """Whether the user wants calls to compile what they need: `MILLRACE_COMPILE=now`."""
    return os.environ.get("MILLRACE_COMPILE") == "now"


def compile_in_background(name: str) -> bool:
    """Start to compile an operator's kernels in another process; False if none is started or at work."""
    if name in _started:
        return True
    claim = _mark(name).with_name(f"compiling-{name}")
    try:
        if claim.exists() and time.time() - claim.stat().st_mtime < STALE_SECONDS:
            return True
        claim.touch()
        null = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in range(3)]
        arguments = [sys.executable, "-m", "millrace.warm", name]
        _started[name] = os.posix_spawn(sys.executable, arguments, os.environ, file_actions=null, setpgroup=0)
    except (OSError, AttributeError, ValueError) as error:  # no such call, no room for a process, no executable
        log.info("compiling in this process: %s", error)
        return False
    log.info("compiling the kernels of %s in process %s", name, _started[name])
    return True
