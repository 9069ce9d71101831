"""Objects that a worker opens once and keeps for later tasks: indexes and probes, each with a device or a mapped file.

A cache keeps the most recently used objects open, up to a limit. `use` lends an object for the time of a `with` block.
An object beyond the limit is closed as soon as no block uses it, in whatever thread. A forked process starts with an
empty cache: what its parent opened belongs to the parent and is dropped without being closed.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar


class Closable(Protocol):
    """Anything that `close` frees."""

    def close(self) -> None:
        """Free what the object holds."""


K = TypeVar("K", bound=Hashable)
V = TypeVar("V", bound=Closable)


@dataclass
class _Entry(Generic[V]):
    """An open object: how many blocks use it, and whether it is still in the cache."""

    opened: V
    users: int = 0
    cached: bool = True


@dataclass
class _Entries(Generic[K, V]):
    """The entries of one process, least recently used first."""

    by_key: OrderedDict[K, _Entry[V]] = field(default_factory=OrderedDict)
    lock: threading.Lock = field(default_factory=threading.Lock)


class OpenCache(Generic[K, V]):
    """Open objects by key. Opening takes the cache's lock, so that two threads never open the same object."""

    def __init__(self, limit: int) -> None:
        """Keep up to `limit` objects open while nobody uses them."""
        self._limit = limit
        self._processes: dict[int, _Entries[K, V]] = {}

    @contextmanager
    def use(self, key: K, open_object: Callable[[], V]) -> Iterator[V]:
        """The object of a key, opened if it is not; it stays open inside the block."""
        entries = self._own()
        with entries.lock:
            entry = entries.by_key.get(key)
            if entry is None:
                entry = entries.by_key[key] = _Entry(open_object())
            entries.by_key.move_to_end(key)
            entry.users += 1
            closing = self._evict(entries)
        for one in closing:
            one.close()
        try:
            yield entry.opened
        finally:
            with entries.lock:
                entry.users -= 1
                unused = not entry.cached and entry.users == 0
            if unused:
                entry.opened.close()

    def _own(self) -> _Entries[K, V]:
        """The entries of this process; those of a parent are dropped."""
        own = self._processes.setdefault(os.getpid(), _Entries())
        for process in [one for one in self._processes if one != os.getpid()]:
            self._processes.pop(process, None)
        return own

    def _evict(self, entries: _Entries[K, V]) -> list[V]:
        """Remove the entries beyond the limit; return the objects that nobody uses."""
        unused = []
        while len(entries.by_key) > self._limit:
            _, entry = entries.by_key.popitem(last=False)
            entry.cached = False
            if not entry.users:
                unused.append(entry.opened)
        return unused

    def close(self) -> None:
        """Close everything that nobody uses, and the rest as soon as it is not used any more."""
        entries = self._own()
        with entries.lock:
            limit, self._limit = self._limit, 0
            closing = self._evict(entries)
            self._limit = limit
        for one in closing:
            one.close()

    def __len__(self) -> int:
        """The number of objects that are kept open in this process."""
        return len(self._own().by_key)
