"""`stats` and the texts of joins, indexes and devices: typed, the same names everywhere, and without locks."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import millrace as mr
from millrace.host.hbtree.editor import Editor
from millrace.host.join.matcher import Matcher
from tests.sdk.test_updates import in_place
from tests.watchdog import WATCHDOG

TABLE = pa.table({"x": [1, 2, 3], "ts": [1, 2, 3]})


def joined(**more: Any) -> mr.WindowJoin:
    j = mr.WindowJoin("r.x = s.x", **{"window": "2 rows", **more})
    j.push("r", TABLE)
    j.push("s", TABLE)
    return j


@contextmanager
def stopped_in(owner: Any, name: str, work: Any) -> Iterator[None]:
    """Another thread is in the middle of a call: inside the method `name`, until the block ends."""
    inside, go_on, method = threading.Event(), threading.Event(), getattr(owner, name)

    def stop(*given: Any, **named: Any) -> Any:
        inside.set()
        assert go_on.wait(WATCHDOG)
        return method(*given, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, stop)
        thread = threading.Thread(target=work)
        thread.start()
        assert inside.wait(WATCHDOG)
        try:
            yield
        finally:
            go_on.set()
            thread.join()


@pytest.mark.parametrize("more", [{}, {"time": "ts"}, {"time": "ts", "window": "1"}], ids=str)
def test_a_push_in_another_thread_blocks_no_report(more: dict[str, Any]) -> None:
    j = joined(**more)
    before, text, html = j.stats, repr(j), j._repr_html_()
    later = pa.table({"x": [3, 4], "ts": [4, 5]})
    matches = "match" if more else "match_few"  # few plain rows in a count window take the short way
    with stopped_in(Matcher, matches, lambda: (j.push("r", later), j.push("s", later))):
        found: dict[str, Any] = {}
        reader = threading.Thread(target=lambda: found.update(stats=j.stats, text=repr(j), html=j._repr_html_()))
        reader.start()
        reader.join(WATCHDOG)
        assert found == {"stats": before, "text": text, "html": html}
    assert j.stats.rows == {"r": 5, "s": 5}


def test_an_update_in_another_thread_blocks_no_report(monkeypatch: pytest.MonkeyPatch) -> None:
    in_place(monkeypatch)
    ix = mr.OrderedIndex(np.arange(0, 90_000, 3), layout="regular", device="cpu")
    before, text = ix.stats, repr(ix)
    with stopped_in(Editor, "in_groups", lambda: ix.update(upsert=np.arange(60_000))):
        found: dict[str, Any] = {}
        reader = threading.Thread(target=lambda: found.update(stats=ix.stats, text=repr(ix)))
        reader.start()
        reader.join(WATCHDOG)
        assert found == {"stats": before, "text": text}
    assert ix.stats["rows"] == len(ix) == 70_000


@pytest.mark.parametrize("more", [{}, {"time": "ts"}, {"time": "ts", "window": "1"}, {"self_join": True}], ids=str)
def test_reading_stats_evicts_nothing(more: dict[str, Any]) -> None:
    j = mr.WindowJoin("r.x = s.x", **{"window": "2 rows", **more})
    for number in range(5):
        j.push("r", pa.table({"x": [number] * 3, "ts": [3 * number] * 3}))
    if "time" in more and "self_join" not in more:
        j.advance("s", 12)
    windows = {side: (window.first, window.end) for side, window in j._engine.windows.items()}
    held = j.stats["held"]
    assert j.stats == j.stats
    assert {side: (window.first, window.end) for side, window in j._engine.windows.items()} == windows
    j.state()  # evicts all that no later tuple can match
    counts = [len(window) for window in j._engine.windows.values()]
    assert held == (max(counts) if j._args.self_join else sum(counts)) == j.stats["held"]


def test_stats_are_typed_mappings() -> None:
    stats = joined().stats
    assert isinstance(stats, mr.JoinStats)
    assert isinstance(stats, Mapping)
    assert (stats.pairs, stats["pairs"], stats.held, stats.fallback) == (2, 2, 4, None)
    names = "rows late null_times null_keys pending held pairs device index"
    assert set(names.split()) <= set(stats)
    assert stats == dict(stats)
    assert json.loads(json.dumps(stats.to_dict())) == stats.to_dict()
    with pytest.raises(KeyError):
        stats["nothing"]
    with pytest.raises(AttributeError):
        stats.pairs = 3  # type: ignore[misc]
    index = mr.OrderedIndex([3, 5], device="cpu").stats
    assert isinstance(index, mr.IndexStats)
    assert (index.rows, index["rows"], index.device, index.fallback) == (2, 2, "cpu", None)
    assert "'rows': 2" in repr(index)


def test_a_closed_join_still_reports() -> None:
    j = joined()
    before = j.stats
    j.close()
    assert j.stats == before
    assert "2 pairs" in repr(j)


def test_notebooks_show_tables() -> None:
    infos = mr.devices()
    for shown in (joined(), mr.OrderedIndex([1]), infos, infos[0], joined().stats):
        html = shown._repr_html_()
        assert html.startswith("<table>")
        assert html.endswith("</table>")
    assert all(info.name in infos._repr_html_() for info in infos)
    j = mr.WindowJoin("r.x < s.x", window="2 rows")
    assert "r.x &lt; s.x" in j._repr_html_()
