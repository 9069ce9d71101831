"""A window that could never fit in memory is refused when the join is made, with the sum."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import millrace as mr
from millrace.host.base import memory
from millrace.ingest import memory_limits


def test_a_window_larger_than_memory_is_refused_with_the_arithmetic() -> None:
    with pytest.raises(mr.ArgumentError) as caught:
        mr.WindowJoin(on="r.x = s.x", window="1000000000000 rows")
    message = str(caught.value)
    each = f"{memory_limits.BYTES_PER_ROW} bytes"
    for part in ("1000000000000 rows", "1,000,000,000,000 r rows", each, "TiB", "allowed are"):
        assert part in message


def test_both_sides_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_limits, "memory", lambda: 1000 * memory_limits.BYTES_PER_ROW)
    mr.WindowJoin(on="r.x = s.x", window="500 rows")
    mr.WindowJoin(on="r.x = s.x", window=("900 rows", "100 rows"))
    with pytest.raises(mr.ArgumentError, match=r"900 r rows and 101 s rows"):
        mr.WindowJoin(on="r.x = s.x", window=("900 rows", "101 rows"))


def test_a_length_of_time_says_nothing_about_rows() -> None:
    mr.WindowJoin(on="r.x = s.x", window="1000000 days", time="ts")


@pytest.fixture
def groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Stands in for the mount of version 2; the process is in the group `job/step`."""
    (tmp_path / "job" / "step").mkdir(parents=True)
    (tmp_path / "groups").write_text("0::/job/step\n")
    monkeypatch.setattr(memory, "_GROUPS", str(tmp_path / "groups"))
    monkeypatch.setattr(memory, "_ROOTS", (str(tmp_path), str(tmp_path / "absent")))
    memory._limit_files.cache_clear()
    yield tmp_path
    memory._limit_files.cache_clear()


@pytest.mark.parametrize("group", [".", "job", "job/step"])
def test_a_limit_of_the_group_counts(groups: Path, group: str) -> None:
    """Also that of a group inside another, as `systemd-run -p MemoryMax=` and batch systems make it."""
    path = groups / group / "memory.max"
    path.write_text("max\n")
    unlimited = memory.memory()
    path.write_text("12345\n")
    assert memory.memory() == 12345 < unlimited


def test_a_limit_of_version_1_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, groups: Path) -> None:
    (tmp_path / "groups").write_text("4:cpu,memory:/job\n1:cpu:/other\n0::/\n")
    monkeypatch.setattr(memory, "_ROOTS", (str(tmp_path / "absent"), str(tmp_path)))
    (groups / "job" / "memory.limit_in_bytes").write_text("54321\n")
    (groups / "memory.limit_in_bytes").write_text("9223372036854771712\n")
    assert memory.memory() == 54321


def test_what_others_use_is_not_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, groups: Path) -> None:
    """A result is compared with the memory that is free: one of all memory would end the process."""
    for name, text in (
        ("meminfo", "MemTotal: 9000 kB\nMemAvailable: 3000 kB\nSwapFree: 1000 kB\nHugePages_Total: 0\n"),
        ("memory.max", "5000000\n"),
        ("memory.current", "4500000\n"),
        ("memory.stat", "anon 1000000\ninactive_file 2000000\nactive_file 50000\n"),
    ):
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(memory, "_MEMINFO", str(tmp_path / "meminfo"))
    (groups / "memory.max").rename(groups / "later")
    assert memory.free_bytes() == 4000 * 1024
    (groups / "later").rename(groups / "memory.max")
    memory._limit_files.cache_clear()
    assert memory.free_bytes() == 5_000_000 - 4_500_000 + 2_050_000
    monkeypatch.setattr(memory, "_MEMINFO", str(tmp_path / "absent"))
    (tmp_path / "memory.max").write_text("max\n")
    assert memory.free_bytes() == memory.memory()
