"""A window that could never fit in memory is refused when the join is made, with the sum."""

from __future__ import annotations

import pytest

import millrace as mr
from millrace import room


def test_a_window_larger_than_memory_is_refused_with_the_arithmetic() -> None:
    with pytest.raises(mr.ArgumentError) as caught:
        mr.WindowJoin(on="r.x = s.x", window="1000000000000 rows")
    message = str(caught.value)
    for part in ("1000000000000 rows", "1,000,000,000,000 r rows", f"{room.BYTES_PER_ROW} bytes", "TiB", "allowed are"):
        assert part in message


def test_both_sides_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "memory", lambda: 1000 * room.BYTES_PER_ROW)
    mr.WindowJoin(on="r.x = s.x", window="500 rows")
    mr.WindowJoin(on="r.x = s.x", window=("900 rows", "100 rows"))
    with pytest.raises(mr.ArgumentError, match=r"900 r rows and 101 s rows"):
        mr.WindowJoin(on="r.x = s.x", window=("900 rows", "101 rows"))


def test_a_length_of_time_says_nothing_about_rows() -> None:
    mr.WindowJoin(on="r.x = s.x", window="1000000 days", time="ts")


def test_a_limit_of_the_group_counts(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "memory.max"  # type: ignore[operator]
    monkeypatch.setattr(room, "_LIMITS", (str(path),))
    whole = room.memory()
    path.write_text("max\n")
    assert room.memory() == whole
    path.write_text("12345\n")
    assert room.memory() == 12345
