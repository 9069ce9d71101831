"""The files generated from `hw/abi.toml` are up to date, and a map with an error is refused."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from millrace.hw import abi, registers

CHANGES = [
    ('name = "STATUS"\noffset = 0x024', 'name = "STATUS"\noffset = 0x020', "STATUS at 0x20 overlaps COMMAND"),
    ('name = "CYCLES"\noffset = 0x040', 'name = "CYCLES"\noffset = 0x044', "not aligned"),
    ('name = "CYCLES"\noffset = 0x040', 'name = "CYCLES"\noffset = 0x1000', "the end of the map"),
    ("MERGE = { value = 1", "MERGE = { value = 2", "occurs twice among MERGE"),
    ('access = "wo"', 'access = "w"', "has access 'w'"),
    ("stride = 8\n", "stride = 0\n", "needs both"),
]


def test_what_was_made_is_up_to_date() -> None:
    assert [str(path.relative_to(abi.ROOT)) for path in abi.stale()] == [], "run `python -m millrace.hw.abi --write`"


def _copy(folder: Path) -> Path:
    generated = ("hw/registers.py", "hw/rtl/bisort_abi.svh", "hls/bisort_abi.h", "docs/reference/registers.md")
    for part in ("hw/abi.toml", *generated):
        (folder / part).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(abi.ROOT / part, folder / part)
    return folder / "hw" / "abi.toml"


def test_every_made_file_follows_the_map(tmp_path: Path) -> None:
    source = _copy(tmp_path)
    assert abi.stale(tmp_path) == []
    source.write_text(source.read_text().replace("INDEX_CRC", "INDEX_SUM"))
    stale = {str(path.relative_to(tmp_path)) for path in abi.stale(tmp_path)}
    assert stale == {"hw/registers.py", "hw/rtl/bisort_abi.svh", "hls/bisort_abi.h", "docs/reference/registers.md"}


@pytest.mark.parametrize(("before", "after", "why"), CHANGES)
def test_a_map_with_a_mistake_is_refused(tmp_path: Path, before: str, after: str, why: str) -> None:
    source = _copy(tmp_path)
    assert before in source.read_text()
    source.write_text(source.read_text().replace(before, after, 1))
    with pytest.raises(ValueError, match=re.escape(why)):
        abi.load(source)


def test_constants_are_those_of_the_map() -> None:
    made = abi.load()
    assert made.version == (registers.VERSION_VALUE >> 16, registers.VERSION_VALUE & 0xFFFF)
    for register in made.registers:
        assert getattr(registers, f"REG_{register.name}") == register.offset
    assert set(registers.ERRORS) == {code.value for code in made.errors}


def test_the_command_says_what_differs(capsys: pytest.CaptureFixture[str]) -> None:
    assert abi.main([]) == 0
    assert abi.main(["--nonsense"]) == 2
    assert "usage" in capsys.readouterr().err
