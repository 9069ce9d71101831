"""The state of an ordered index: its rows, device and locks; applies updates and replaces rows.

`OrderedIndex` (`index.py`) is the public interface; this base class holds what its calls share. An update builds the
implicit layout again, and changes the regular layout in place while readers wait (`runtime/rwlock.py`). A device that
fails is abandoned: from then on the CPU does the lookups. (Thesis, appendix A, 5.6.) Limit: a device belongs to the
process that opened it; a forked child opens it again.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, Literal

from millrace.host.base.errors import DeviceFault, DeviceUnavailable, StateError
from millrace.host.base.log import log
from millrace.host.base.types import Array
from millrace.host.device.contract import Device
from millrace.host.hbtree.layout import LayoutName
from millrace.host.hbtree.tree import Positions
from millrace.host.hybrid.lookup_runner import Finish, LookupRunner
from millrace.host.hybrid.search_engine import UNITS, SearchEngine
from millrace.host.hybrid.update_runner import Applied, DeviceLost, UpdateRunner
from millrace.host.runtime import pool
from millrace.host.runtime.allocator import free
from millrace.host.runtime.critical import Begin, uninterrupted
from millrace.host.runtime.fork import ProcessMark
from millrace.host.runtime.rwlock import ForkSafeLock, ReadWriteLock
from millrace.host.runtime.team import Team
from millrace.index_parts.implicit_rows import ImplicitRows
from millrace.index_parts.regular_rows import RegularRows
from millrace.index_parts.status import IndexStatus
from millrace.index_parts.update_input import Update, UpdateColumns, read_update
from millrace.ingest.checks import choice, thread_count
from millrace.ingest.choices import FALLBACKS
from millrace.registry import check_name, device_with

RELEASED = "the index was released at the end of its with block: open it again, or make a new one"


class IndexBase:
    """Rows of an index, the device that searches them, and the locks between readers and updates."""

    _rows: ImplicitRows | RegularRows

    def _set_up(self, layout: str, duplicates: str, device: Any, threads: Any, fallback: Any) -> None:
        """Check the arguments before any row is read, and open the device."""
        choice("fallback", fallback, FALLBACKS)
        if not (isinstance(device, str) and device == "auto"):
            check_name(device)
        threads = thread_count(threads)
        self._threads = min(threads or pool.cores(), pool.size())
        self._layout: LayoutName = "regular" if layout == "regular" else "implicit"
        self._duplicates, self._fallback = duplicates, fallback
        self._given_threads, self._given_device = threads, device
        self._device: Device | None = self._open(device)
        self._device_name, self._opened_in = self._device.name, ProcessMark()
        self._on_cpu = self._device.shares_host_memory
        self._fallback_text: str | None = None
        self._abandoned: Device | None = None
        self._runner: LookupRunner | None = None
        self._runner_lock, self._rwlock, self._update_lock = ForkSafeLock(), ReadWriteLock(), ForkSafeLock()
        # To read batches of updates: the team keeps the memory for sorting between batches.
        self._team = Team(self._threads)
        self._status = IndexStatus()
        self._kinds: dict[str, Any] = {}
        self._released = False
        self._updater: UpdateRunner | None = None
        self._last_update: Applied | None = None
        self._unconfirmed: list[bool] = []
        """Of an update that has not returned: holds `True` once it is complete."""

    def _open(self, name: str) -> Device:
        return device_with(UNITS[self._layout], f"an index of layout {self._layout!r}", name, self._given_threads)

    def _make_runner(self, rows: ImplicitRows | RegularRows) -> LookupRunner | None:
        """A runner for rows on a device opened in this process; None if the CPU continues alone."""
        try:
            if self._device is None or not self._opened_in.is_here:
                self._device, self._opened_in = self._open(self._device_name), ProcessMark()
            return LookupRunner(SearchEngine(self._device), rows.tree)
        except (DeviceUnavailable, DeviceFault) as error:
            if self._fallback is None:
                raise
            self._abandon_device(error)
            return None

    def _close_device(self) -> None:
        """Close the device, as a writer; the CPU works alone from now on."""
        if self._on_cpu:
            return
        if self._fallback_text is None:
            self._abandon_device(StateError("the index was closed"))
        left, self._abandoned = self._abandoned, None
        if left is not None and self._opened_in.is_here:
            left.close()

    def _release(self, free: bool) -> None:
        """Close the device when running calls have finished; with `free`, drop the rows too."""

        def work() -> None:
            self._close_device()
            if free:
                self._rwlock.refuse(RELEASED)
                self._released = True
                del self._rows

        with self._update_lock.mutex:
            self._rwlock.write(work)

    def _abandon_device(self, error: Exception) -> None:
        """Stop using the device; it stays open, since other threads may still use it."""
        text = f"from {self._device_name} to cpu: {error}"
        self._fallback_text, self._abandoned = text, self._device or self._abandoned
        self._runner, self._device, self._updater = None, None, None
        log.warning("index: fell back %s", text)

    def recover(self) -> Literal[True] | None:
        """Return `True`, once, if an update in which a signal handler has raised is complete; None if it did nothing.

        >>> import millrace as mr
        >>> mr.OrderedIndex([5, 3]).recover() is None
        True
        """
        result: Literal[True] | None = True if self._unconfirmed else None
        self._unconfirmed = []
        return result

    def _update(self, columns: UpdateColumns, mode: str, begin: Begin, done: list[bool]) -> None:
        with self._update_lock.mutex:
            self._rwlock.check()
            rows, team = self._rows, self._team
            team.acquire(len(rows))
            try:
                update = read_update(columns, rows.kind, rows.wanted_type, rows.next_row, team)
            finally:
                team.depth -= 1
            begin()
            self._apply(rows, update, mode)
            done.append(True)
            free(update.batch.words)
            free(update.batch.rows)

    def _apply(self, rows: ImplicitRows | RegularRows, update: Update, mode: str) -> None:
        if isinstance(rows, ImplicitRows) or rows.must_rebuild(update):
            self._swap_rows(rows.rebuilt(update), updates=1, changes=len(update.batch))
            return
        if not rows.tree.is_owned:
            rows = replace(rows, tree=rows.tree.owned())
            self._swap_rows(rows)
        changed = self._rwlock.write(partial(self._in_place, rows, update, mode))
        if changed.is_wasteful:
            # The update is complete, and the device has it: a fault during the rebuild may be ignored.
            with suppress(DeviceFault, DeviceUnavailable):
                self._swap_rows(changed.rebuilt())

    def _in_place(self, rows: RegularRows, update: Update, mode: str) -> RegularRows:
        """Change the tree in place, or rebuild it if its pools are full; abandon a failed device with `fallback`."""
        try:
            applied = self._update_runner(rows).update(rows.changes(update), mode)
        except (DeviceFault, DeviceUnavailable) as error:  # the device failed, or the tree does not fit any more
            if isinstance(error, DeviceLost) or self._fallback is not None:
                self._abandon_device(error)
            if self._fallback is None:
                kind = DeviceUnavailable if isinstance(error, DeviceUnavailable) else DeviceFault
                raise kind(f"{error}; nothing was changed") from error
            applied = self._update_runner(rows).update(rows.changes(update), mode)
        if applied is None:
            # Some changes may have been applied and are applied again; they refer to rows of the new store.
            rows = replace(rows, store=rows.with_update(update).store).rebuilt(update)
            self._install(rows, self._runner_for(rows))
        else:
            self._rows = rows = rows.with_update(update)
            self._last_update = applied
        self._status.set_rows(rows, updates=1, changes=len(update.batch))
        return rows

    def _update_runner(self, rows: RegularRows) -> UpdateRunner:
        """The update runner of this tree and device; a new one takes over the measured costs."""
        runner, old = self._ready(), self._updater
        if old is not None and old.tree is rows.tree and old.runner is runner:
            return old
        costs = old.costs if old is not None and old.runner is not None and runner is not None else None
        self._updater = made = UpdateRunner(rows.tree, runner, costs=costs)
        return made

    def _swap_rows(self, rows: ImplicitRows | RegularRows, **counts: int) -> None:
        """Replace the rows, on the device first, and count; waits until running calls have finished."""
        runner = self._runner_for(rows)

        def swap() -> None:
            self._install(rows, runner)
            self._status.set_rows(rows, **counts)

        self._rwlock.write(swap)

    def _runner_for(self, rows: ImplicitRows | RegularRows) -> LookupRunner | None:
        return None if self._ready() is None else self._make_runner(rows)

    def _install(self, rows: ImplicitRows | RegularRows, runner: LookupRunner | None) -> None:
        old, self._runner, self._rows = self._runner, runner, rows
        if old is not None:
            with suppress(DeviceFault):  # the new runner is in use already
                old.close()

    # On a device.

    def _ready(self) -> LookupRunner | None:
        """The runner of this process, or None if the CPU works alone."""
        if self._on_cpu or self._fallback_text is not None:
            return None
        with self._runner_lock.mutex:
            if self._runner is not None and not self._opened_in.is_here:
                self._runner = self._make_runner(self._rows)
        return self._runner

    def _on_device(
        self, runner: LookupRunner, words: Array, finish: Finish, trace: str | os.PathLike[str] | None = None
    ) -> Positions | None:
        """Positions found with the device; None if it failed and `fallback` allows the CPU to continue."""
        try:
            # The pipeline's threads share locks with their caller, so an interrupt must not end it in the middle.
            return uninterrupted(partial(runner.lookup, words, finish, trace))
        except DeviceFault as error:
            self._handle_fault(error)
            return None

    def _handle_fault(self, error: DeviceFault) -> None:
        """Abandon the device; raise the fault unless `fallback` allows to continue."""
        self._abandon_device(error)
        if self._fallback is None:
            raise DeviceFault(f"{error}; the index is intact and answers on the CPU from now on") from error
