"""The state of a live join as bytes: that of its window join, the number of rows put, and the pairs not yet polled.

The pairs are one more run, an Arrow IPC stream named by its content. The manifest holds the join's own manifest.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from millrace.host.base.errors import StateError
from millrace.state.join_state import StateDelta, pack_run, unpack_run
from millrace.state.manifest import seal, unseal

KIND, FORMAT = "millrace_live_state", 1


class LiveStateWriter:
    """Writes deltas; knows the run of pairs that the last one has stored."""

    def __init__(self, stored: str | None = None) -> None:
        """`stored`: the run of pairs that is already stored (after a restore)."""
        self._stored = stored
        self._unused: StateDelta | None = None
        """What the window join gave to a call that failed afterwards."""

    def delta(self, join: StateDelta, arrived: int, pairs: pa.Table) -> StateDelta:
        """The delta of a live join, from that of its window join."""
        self._unused = join = join if self._unused is None else self._unused.followed_by(join)
        added, name = dict(join.added), None
        if pairs.num_rows:
            name, data = pack_run(pairs)
            if name != self._stored:
                added[name] = data
        gone = () if self._stored in (None, name) else (str(self._stored),)
        content = {"join": base64.b64encode(join.manifest).decode(), "arrived": arrived, "pairs": name}
        delta = StateDelta(seal(KIND, FORMAT, content), added, tuple(sorted((*join.removed, *gone))))
        self._stored, self._unused = name, None
        return delta


@dataclass(frozen=True)
class StoredLiveState:
    """A live join's state, checked except for the part of its window join."""

    join: bytes
    arrived: int
    pairs: pa.Table | None
    name: str | None


def read_live_state(manifest: bytes, runs: Mapping[str, bytes]) -> StoredLiveState:
    """Check the manifest and the run of pairs."""
    content = unseal(KIND, FORMAT, manifest)
    try:
        join, arrived, name = base64.b64decode(content["join"], validate=True), content["arrived"], content["pairs"]
        fits = type(arrived) is int and 0 <= arrived < 1 << 62 and isinstance(name, str | None)
    except (KeyError, TypeError, ValueError) as error:
        raise StateError(f"the manifest does not hold the state of a live join: {error}") from error
    if not fits:
        raise StateError(f"the manifest does not hold the state of a live join: arrived={arrived!r}, pairs={name!r}")
    if name is None:
        return StoredLiveState(join, arrived, None, None)
    return StoredLiveState(join, arrived, unpack_run(runs, name), name)
