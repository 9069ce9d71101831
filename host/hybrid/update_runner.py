"""Runs updates of a regular HB+-Tree on the host and, if its inner nodes are on a device, there too.

The modes are the paper's (thesis, appendix A, 5.6); `update_costs.py` chooses between them. One thread or all threads
change the host's tree (`hbtree/editor.py`). The device gets the entire I-segment afterwards, in new memory, or each
changed node during the update, in place. If the device fails, both are rolled back: the host's tree from its journal,
the device's nodes by sending them again. Without a device, an update cannot fail once it has started, and needs no
journal.

Limit: the caller must prevent searches during an update (`runtime/rwlock.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from millrace.host.base.errors import DeviceFault
from millrace.host.base.faults import fault_point
from millrace.host.base.types import Array
from millrace.host.hbtree.editor import Changes, Editor, compile_kernels
from millrace.host.hbtree.journal import Journal
from millrace.host.hbtree.regular import RegularTree
from millrace.host.hbtree.tree import helpers
from millrace.host.hbtree.update_batch import split_largest
from millrace.host.hybrid.lookup_runner import LookupRunner
from millrace.host.hybrid.search_engine import SearchEngine, Segment
from millrace.host.hybrid.update_costs import UpdateCosts
from millrace.host.runtime.clock import WALL, Clock
from millrace.host.runtime.team import Team

SYNC_GROUP = 1 << 10
"""Number of changes after which the changed nodes are queued for the sending thread."""
_PROBES = 5
"""Number of node transfers to measure their cost."""


@dataclass(frozen=True)
class Applied:
    """Result of an update: its mode, rows removed, changes left to one thread, inner nodes changed."""

    mode: str
    gone: int
    left: int
    nodes: int


class DeviceLost(DeviceFault):
    """The device failed and could not be rolled back: its copy is unusable."""


class UpdateRunner:
    """Updates of one tree; `runner` runs its lookups on a device, if there is one."""

    def __init__(
        self,
        tree: RegularTree,
        runner: LookupRunner | None = None,
        clock: Clock = WALL,
        costs: UpdateCosts | None = None,
    ) -> None:
        """`costs`: measured with an earlier tree on the same device."""
        self.tree, self.runner, self._clock = tree, runner, clock
        self.costs = costs or UpdateCosts()
        self._is_measured = costs is not None

    @property
    def crossover(self) -> int | None:
        """The batch size from which `auto` chooses `async`; None if not measured yet or without a device."""
        return self.costs.crossover if self._is_measured else None

    def update(self, changes: Changes, mode: str) -> Applied | None:
        """Apply changes; return None if the pools are full and the tree must be rebuilt.

        With a device the tree is then unchanged; on the CPU only, some of the changes may have been applied.
        """
        tree, split = self.tree, split_largest(changes)
        before, upserts = tree.size, int(np.count_nonzero(changes.upserts))
        runner = self.runner
        fault_point("index.update")
        self.measure()
        # Without a device nothing is sent, so all threads are always at least as fast as one.
        chosen = "async" if runner is None and mode == "auto" else self.costs.choose(mode, len(changes), upserts)
        applied = self._on_host(*split, chosen) if runner is None else self._on_device(runner, *split, chosen)
        if applied is None:
            return None
        left, nodes = applied
        return Applied(chosen, before + upserts - tree.size, left, nodes)

    # Without a device.

    def _on_host(self, changes: Changes, top: Changes, mode: str) -> tuple[int, int] | None:
        tree = self.tree
        with helpers(1 if mode == "sync" else tree.threads, len(changes)) as team:
            editor = Editor(tree, team)
            if not editor.apply(changes):
                return None
            editor.merge()
        self._set_top(top)
        return editor.left, tree.clear_changed()

    def _set_top(self, top: Changes) -> None:
        """Set the rows of the largest word."""
        if len(top):
            self.tree.top = top.values[top.rows[: int(top.upserts[0])]]

    # With a device.

    def _on_device(self, runner: LookupRunner, changes: Changes, top: Changes, mode: str) -> tuple[int, int] | None:
        tree = self.tree
        with helpers(1 if mode == "sync" else tree.threads, len(changes)) as team, Journal.pooled(tree) as journal:
            editor = Editor(tree, team, journal)
            sender = _Sender(runner.engine, runner.segment, self._clock) if mode == "sync" else None
            try:
                if sender is None:
                    done, nodes = self._asynchronous(runner, editor, changes, top)
                else:
                    done, nodes = self._synchronous(runner, editor, changes, top, sender)
            except BaseException:
                self._roll_back(journal, sender, team)
                raise
            if not done:
                self._roll_back(journal, sender, team)
                return None
        return editor.left, nodes

    def _asynchronous(self, runner: LookupRunner, editor: Editor, changes: Changes, top: Changes) -> tuple[bool, int]:
        """Change the tree, then send all inner nodes."""
        begin = self._clock.now()
        if not editor.apply(changes):
            return False, 0
        editor.merge()
        self._set_top(top)
        middle = self._clock.now()
        runner.exchange(runner.engine.load(self.tree))
        nodes = self.tree.clear_changed()
        self._learn(changes, nodes, all=middle - begin)
        self.costs.learn(segment=self._clock.now() - middle)
        return True, nodes

    def _synchronous(
        self, runner: LookupRunner, editor: Editor, changes: Changes, top: Changes, sender: _Sender
    ) -> tuple[bool, int]:
        """Change the tree with one thread while another sends changed nodes."""
        begin, done = self._clock.now(), True
        try:
            for first in range(0, len(changes), SYNC_GROUP):
                done = done and editor.apply(changes.part(first, first + SYNC_GROUP))
                if not done or sender.failed:
                    break
                sender.put(self.tree.changed_pieces())
            if done and not sender.failed:
                editor.merge()
                self._set_top(top)
                sender.put(self.tree.changed_pieces())
            worked = self._clock.now() - begin
        finally:
            sender.finish()
        if not done:
            return False, 0
        sender.check()
        segment = runner.segment
        if sender.outgrown:
            runner.exchange(runner.engine.load(self.tree))
        else:
            scalars = (self.tree.levels, *segment.scalars[1:])
            runner.exchange(replace(segment, scalars=scalars, levels=self.tree.levels))
        self._learn(changes, len(sender.sent), one=worked)
        if sender.sent:
            self.costs.learn(node=sender.spent / max(sender.count, 1))
        return True, len(sender.sent)

    def _learn(self, changes: Changes, nodes: int, **spent: float) -> None:
        """Record nodes per upsert, and times per change if the batch is large enough to hide fixed costs."""
        self.costs.count(nodes, int(np.count_nonzero(changes.upserts)), SYNC_GROUP)
        if len(changes) >= SYNC_GROUP:
            self.costs.learn(**{name: time / len(changes) for name, time in spent.items()})

    def _roll_back(self, journal: Journal, sender: _Sender | None, team: Team) -> None:
        """Restore the tree and the device's copy; raises `DeviceLost` if the copy cannot be restored."""
        journal.undo(team)
        self.tree.clear_changed()
        if sender is not None:
            sender.roll_back()

    def measure(self) -> None:
        """Measure once what it costs to send a node and the entire segment."""
        runner = self.runner
        if runner is None or self._is_measured:
            return
        compile_kernels(self.tree.word)  # so that compilation does not count as cost of the first update
        offset, words = self.tree.node_pieces()[-1]
        node = words[: self.tree.last_bytes // self.tree.word.itemsize]
        times = []
        for _ in range(_PROBES):
            begin = self._clock.now()
            runner.engine.send(runner.segment, offset, node)
            times.append(self._clock.now() - begin)
        self.costs.node = float(np.median(times))
        begin = self._clock.now()
        for offset, words in self.tree.node_pieces():
            runner.engine.send(runner.segment, offset, words)
        self.costs.segment = float(self._clock.now() - begin)
        self._is_measured = True


class _Sender:
    """The synchronizing thread: sends queued nodes; a node queued twice before it is sent is sent once."""

    def __init__(self, engine: SearchEngine, segment: Segment, clock: Clock) -> None:
        """Start the thread."""
        self._engine, self._segment, self._clock = engine, segment, clock
        self._monitor = clock.monitor()
        self._waiting: dict[int, Array] = {}
        self._closed, self._error = False, None
        self.sent: dict[int, Array] = {}
        """By offset: the nodes that were sent, as views of the tree."""
        self.outgrown = False
        """Whether some nodes do not fit into the segment."""
        self.spent = 0
        """Nanoseconds spent on sending."""
        self.count = 0
        self._worker = clock.start(self._work, "millrace-sender")

    _error: BaseException | None

    @property
    def failed(self) -> bool:
        """Whether the device failed."""
        return self._error is not None

    def put(self, pieces: list[tuple[int, Array]]) -> None:
        """Queue changed nodes."""
        capacity = self._segment.buffers[0].size
        with self._monitor:
            for offset, words in pieces:
                if offset + len(words) > capacity:
                    self.outgrown = True
                else:
                    self._waiting[offset] = words
            self._monitor.notify_all()

    def finish(self) -> None:
        """Send the remaining nodes, and stop the thread."""
        with self._monitor:
            self._closed = True
            self._monitor.notify_all()
        self._worker.join()

    def check(self) -> None:
        """Raise the error of the thread, if any."""
        if self._error is not None:
            raise self._error

    def roll_back(self) -> None:
        """Send the nodes again after the tree was restored."""
        try:
            for offset, words in self.sent.items():
                self._engine.send(self._segment, offset, words)
        except DeviceFault as fault:
            raise DeviceLost(f"{fault}; its nodes could not be restored") from fault

    def _work(self) -> None:
        while True:
            with self._monitor:
                self._monitor.wait_for(lambda: bool(self._waiting) or self._closed)
                if not self._waiting:
                    return
                offset, words = self._waiting.popitem()
            begin = self._clock.now()
            self.sent[offset] = words
            try:
                self._engine.send(self._segment, offset, words)
            except BaseException as error:  # raised by the thread that changes the tree
                self._error = error
                return
            self.spent += self._clock.now() - begin
            self.count += 1
