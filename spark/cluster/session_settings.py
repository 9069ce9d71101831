"""Settings of a session that a call must change: one line in the log for each, and put back when they are not needed.

A query takes its settings from the session when it starts, and a frame may be started any number of times. So a change
stays as long as the frame that needs it (`lifetimes.py`). Limit: with Spark Connect it stays until the session ends.
"""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

log = logging.getLogger("millrace")
Key = tuple[int, str]
"""A session and the name of one of its settings."""
_frames: Counter[Key] = Counter()
"""How many frames need each setting that was changed."""
_before: dict[Key, Change] = {}


@dataclass(frozen=True)
class Change:
    """A changed setting: what it was (None: not set), and what it is."""

    before: str | None
    now: str


def change(spark: SparkSession, wanted: dict[str, str], call: str) -> tuple[str, ...]:
    """Make sure that settings have these values; return the names of those that a later `put_back` concerns.

    Name every setting that the frame needs, even one that has its value: an earlier call may have set it.
    """
    found = []
    for name, value in wanted.items():
        key = session_number(spark), name
        before = spark.conf.get(name, None)
        if before != value:
            log.warning(
                "%s sets %s to %s in this session, as long as its frame exists; it was %s", call, name, value, before
            )
            spark.conf.set(name, value)
            _before[key] = Change(before, value)
        if key in _before:
            found.append(name)
            _frames[key] += 1
    return tuple(found)


def session_number(spark: SparkSession) -> int:
    """A number for the session, whichever Python object stands for it."""
    jvm_session: Any = getattr(spark, "_jsparkSession", spark)
    return int(jvm_session.hashCode()) if jvm_session is not spark else id(spark)


def put_back(spark: SparkSession, session: int, changed: tuple[str, ...]) -> None:
    """A frame is gone: put back the settings that no other frame needs, if nobody has changed them since."""
    for name in changed:
        key = session, name
        _frames[key] -= 1
        if _frames[key] > 0:
            continue
        one = _before.pop(key)
        try:
            if spark.conf.get(name, None) != one.now:
                continue
            if one.before is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, one.before)
        except Exception:  # pyspark raises various types if the session has stopped: then there is nothing to put back
            log.debug("cannot put back %s", name, exc_info=True)
            continue
        log.info("%s is %s again", name, one.before)
