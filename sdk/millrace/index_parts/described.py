"""What an ordered index tells of itself: statistics, explanation, representations. None of it changes anything.

`stats` and `repr` wait for no other call: during an update they show the index before it.
"""

from __future__ import annotations

from dataclasses import asdict

import pyarrow as pa

from millrace.host.base.errors import StateError
from millrace.host.base.html import html_table
from millrace.host.base.words import arrow_type
from millrace.host.hbtree import plain
from millrace.host.planner.choice import auto_devices
from millrace.host.planner.explanation import Explanation
from millrace.index_parts.base import IndexBase
from millrace.stats import IndexStats


class DescribedIndex(IndexBase):
    """The part of `OrderedIndex` that describes it."""

    @property
    def key_type(self) -> pa.DataType:
        """The type of the keys."""
        return arrow_type(self._rows.kind)

    @property
    def nbytes(self) -> int:
        """Bytes of keys, values and inner nodes in the host's memory."""
        with self._rwlock.reader():
            self._rwlock.check()
            return self._rows.nbytes

    @property
    def stats(self) -> IndexStats:
        """Rows, shape of the tree, counts of calls, the device in use, and its counters.

        Reading it changes nothing and waits for no other call: during an update it tells the state before.
        """
        self._rwlock.check()
        runner, device, last = self._runner, self._device, self._last_update
        run = None if runner is None else runner.last
        return IndexStats(
            **{**self._kinds, **self._status.current},
            layout=self._layout,
            device=self._device_name if self._fallback_text is None else "cpu",
            fallback=self._fallback_text,
            last_update=None if last is None else asdict(last),
            strategy=plain.REASON if self._layout == "implicit" and plain.is_used(self._status.current["rows"]) else "",
            retuned=0 if runner is None else runner.retuned,
            last_run=None if run is None else run.stats(),
            counters={} if device is None else device.counters(),
        )

    def explain(self) -> Explanation:
        """The shape of the tree, the device in use, which levels it walks, and why."""
        self._rwlock.check()
        stats, runner = self.stats, self._runner
        share = {} if runner is None else {"host levels": runner.plan.D, "host share of the next": runner.plan.R}
        why = (
            "the device was named"
            if self._given_device != "auto"
            else auto_devices(self._given_threads).get(stats.device)
        )
        return Explanation(
            "ordered_index",
            {"keys": f"{stats.rows:,} of type {stats.key_type}", "values": stats.value_type, "levels": stats.levels},
            {"name": f"HB+-Tree, layout {self._layout}", "fanout": stats.fanout, "bytes": stats.nbytes},
            {"name": stats.device, "why": stats.fallback or why, "threads": self._threads, **share},
        )

    def __repr__(self) -> str:
        """Size, types, layout and device; changes nothing and waits for no other call."""
        where = self._device_name if self._fallback_text is None else "cpu (fallen back)"
        try:
            self._rwlock.check()
        except StateError:
            why = "released" if self._released else "half changed when this process was forked"
            return f"<OrderedIndex: {why}>"
        now, kinds = self._status.current, self._kinds
        return (
            f"<OrderedIndex: {now['rows']:,} {kinds['key_type']} keys to {kinds['value_type']}, "
            f"{self._layout}, {now['levels']} levels, on {where}>"
        )

    def _repr_html_(self) -> str:
        return html_table(self.stats.to_dict().items(), caption="OrderedIndex")
