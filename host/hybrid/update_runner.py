"""Runs updates of a regular HB+-Tree, on the host and, where its inner nodes are on a device, there too.

The modes are the paper's (thesis, appendix A, 5.6); `update_costs` chooses between them. All threads or one change the
host's tree (`hbtree_editor`); the device gets the whole I-segment afterwards, in new memory, or every changed node
meanwhile, in place. If the device fails, both are put back as they were: the host's tree from its journal, the device's
nodes by sending them again. Without a device nothing can fail once a change has begun, and no journal is kept.

The caller sees to it that nobody searches meanwhile (`runtime/rwlock.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from millrace.host.base.errors import DeviceFault
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
"""Changes after which the changed nodes are handed to the thread that sends them."""
_PROBES = 5
"""How often a node is sent to find out what that costs."""


@dataclass(frozen=True)
class Applied:
    """What an update did: which way, rows that are gone, changes left to one thread, inner nodes changed."""

    mode: str
    gone: int
    left: int
    nodes: int


class DeviceLost(DeviceFault):
    """The device failed and could not be put back: its copy is of no use."""


class UpdateRunner:
    """Updates of one tree; `runner` is its lookups' runner on a device, if there is one."""

    def __init__(
        self,
        tree: RegularTree,
        runner: LookupRunner | None = None,
        clock: Clock = WALL,
        costs: UpdateCosts | None = None,
    ) -> None:
        """`costs`: what is known of them from a tree before this one on the same device."""
        self.tree, self.runner, self._clock = tree, runner, clock
        self.costs = costs or UpdateCosts()
        self._is_measured = costs is not None

    @property
    def crossover(self) -> int | None:
        """From which batch on `auto` takes `async`; nothing where that is not known, or there is no device."""
        return self.costs.crossover if self._is_measured else None

    def update(self, changes: Changes, mode: str) -> Applied | None:
        """Apply changes; nothing if there is no room for them, and the tree must be built anew.

        On a device the tree is then as it was; on the CPU alone some changes may have been made, as they would be.
        """
        tree, rest = self.tree, split_largest(changes)
        before, upserts = tree.size, int(np.count_nonzero(changes.upserts))
        runner = self.runner
        self.measure()
        # Nothing is sent from the CPU to itself, so all threads are always at least as good as one.
        chosen = "async" if runner is None and mode == "auto" else self.costs.choose(mode, len(changes), upserts)
        applied = self._on_host(*rest, chosen) if runner is None else self._on_device(runner, *rest, chosen)
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
        self._settle(top)
        return editor.left, tree.forget_changed()

    def _settle(self, top: Changes) -> None:
        """The rows of the largest word."""
        if len(top):
            self.tree.top = top.values[top.rows[: int(top.upserts[0])]]

    # With one.

    def _on_device(self, runner: LookupRunner, changes: Changes, top: Changes, mode: str) -> tuple[int, int] | None:
        tree = self.tree
        with helpers(1 if mode == "sync" else tree.threads, len(changes)) as team, Journal.kept(tree) as journal:
            editor = Editor(tree, team, journal)
            sender = _Sender(runner.engine, runner.segment, self._clock) if mode == "sync" else None
            try:
                if sender is None:
                    done, nodes = self._at_once(runner, editor, changes, top)
                else:
                    done, nodes = self._as_it_goes(runner, editor, changes, top, sender)
            except BaseException:
                self._put_back(journal, sender, team)
                raise
            if not done:
                self._put_back(journal, sender, team)
                return None
        return editor.left, nodes

    def _at_once(self, runner: LookupRunner, editor: Editor, changes: Changes, top: Changes) -> tuple[bool, int]:
        """Asynchronous: change, then send everything."""
        begin = self._clock.now()
        if not editor.apply(changes):
            return False, 0
        editor.merge()
        self._settle(top)
        middle = self._clock.now()
        runner.exchange(runner.engine.load(self.tree))
        nodes = self.tree.forget_changed()
        self._learn(changes, nodes, all=middle - begin)
        self.costs.learn(segment=self._clock.now() - middle)
        return True, nodes

    def _as_it_goes(
        self, runner: LookupRunner, editor: Editor, changes: Changes, top: Changes, sender: _Sender
    ) -> tuple[bool, int]:
        """Synchronous: one thread changes, one sends."""
        begin, done = self._clock.now(), True
        try:
            for first in range(0, len(changes), SYNC_GROUP):
                done = done and editor.apply(changes.part(first, first + SYNC_GROUP))
                if not done or sender.failed:
                    break
                sender.put(self.tree.changed_pieces())
            if done and not sender.failed:
                editor.merge()
                self._settle(top)
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
        """Nodes per upsert; times per change, only of batches in which what every update costs does not show."""
        self.costs.count(nodes, int(np.count_nonzero(changes.upserts)), SYNC_GROUP)
        if len(changes) >= SYNC_GROUP:
            self.costs.learn(**{name: time / len(changes) for name, time in spent.items()})

    def _put_back(self, journal: Journal, sender: _Sender | None, team: Team) -> None:
        """The tree is as it was; so is the device's copy, or it is of no use."""
        journal.undo(team)
        self.tree.forget_changed()
        if sender is not None:
            sender.take_back()

    def measure(self) -> None:
        """Find out, once, what a node and the whole segment cost, by sending them as they are."""
        runner = self.runner
        if runner is None or self._is_measured:
            return
        compile_kernels(self.tree.word)  # not to be taken for what the first update costs
        place, words = self.tree.node_pieces()[-1]
        node = words[: self.tree.last_bytes // self.tree.word.itemsize]
        times = []
        for _ in range(_PROBES):
            begin = self._clock.now()
            runner.engine.send(runner.segment, place, node)
            times.append(self._clock.now() - begin)
        self.costs.node = float(np.median(times))
        begin = self._clock.now()
        for place, words in self.tree.node_pieces():
            runner.engine.send(runner.segment, place, words)
        self.costs.segment = float(self._clock.now() - begin)
        self._is_measured = True


class _Sender:
    """The synchronising thread: sends nodes as they come; one that comes again before it is sent is sent once."""

    def __init__(self, engine: SearchEngine, segment: Segment, clock: Clock) -> None:
        """Begins at once."""
        self._engine, self._segment, self._clock = engine, segment, clock
        self._monitor = clock.monitor()
        self._waiting: dict[int, Array] = {}
        self._closed, self._error = False, None
        self.sent: dict[int, Array] = {}
        """By place: what was sent, as it is in the tree now."""
        self.outgrown = False
        """Whether there are nodes that the segment has no room for."""
        self.spent = 0
        """Nanoseconds of sending."""
        self.count = 0
        self._worker = clock.start(self._work, "millrace-sender")

    _error: BaseException | None

    @property
    def failed(self) -> bool:
        """Whether the device did."""
        return self._error is not None

    def put(self, pieces: list[tuple[int, Array]]) -> None:
        """These nodes changed."""
        room = self._segment.buffers[0].size
        with self._monitor:
            for place, words in pieces:
                if place + len(words) > room:
                    self.outgrown = True
                else:
                    self._waiting[place] = words
            self._monitor.notify_all()

    def finish(self) -> None:
        """Send what is left, and end."""
        with self._monitor:
            self._closed = True
            self._monitor.notify_all()
        self._worker.join()

    def check(self) -> None:
        """Raise what went wrong."""
        if self._error is not None:
            raise self._error

    def take_back(self) -> None:
        """Send the nodes again, as they were: the tree has been put back."""
        try:
            for place, words in self.sent.items():
                self._engine.send(self._segment, place, words)
        except DeviceFault as fault:
            raise DeviceLost(f"{fault}; its nodes could not be put back") from fault

    def _work(self) -> None:
        while True:
            with self._monitor:
                self._monitor.wait_for(lambda: bool(self._waiting) or self._closed)
                if not self._waiting:
                    return
                place, words = self._waiting.popitem()
            begin = self._clock.now()
            self.sent[place] = words
            try:
                self._engine.send(self._segment, place, words)
            except BaseException as error:  # told by the thread that changes the tree
                self._error = error
                return
            self.spent += self._clock.now() - begin
            self.count += 1
