"""The supported boards (`hw/boards/<name>/board.toml`), and the hash that identifies a build of a board's engine.

A board's folder contains its description, its constraints and its build scripts. The build hash covers all RTL sources
of the engine and its parameters. The bitstream shows it in the register BUILD_HASH, an image in its manifest. Limit:
the hash does not cover tool versions, because two tools may build the same engine; the manifest names the tools.
"""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from millrace.host.base.errors import ArgumentError

HW = Path(__file__).resolve().parent
FOLDER = HW / "boards"
SERIAL, PYNQ = "serial", "pynq"
"""The connection of a host to a board: a serial line, or PYNQ, on the board itself or over the network."""


@dataclass(frozen=True)
class Board:
    """One `board.toml`."""

    name: str
    title: str
    part: str
    idcode: int
    design: str
    link: str
    clock_hz: int
    needs: str
    parameters: Mapping[str, int]
    folder: Path
    line: Mapping[str, int] = field(default_factory=dict)
    """Parameters of the serial line, which do not affect the engine."""
    baud: int = 0
    memory: Mapping[str, int] = field(default_factory=dict)
    """On-chip memory: the first address a host may use, and the number of bytes."""
    loader: Mapping[str, Any] = field(default_factory=dict)
    """Of a serial board: the command that loads a bitstream."""
    pynq: Mapping[str, Any] = field(default_factory=dict)
    """Of a PYNQ board: its name in pynq and in the device tree, and the name of the engine in the block design."""

    @property
    def sources(self) -> list[Path]:
        """The RTL of the engine and, on a serial board, of the logic around it."""
        folders = [HW / "rtl", *([HW / "serial", self.folder] if self.link == SERIAL else [])]
        return [path for folder in folders for path in sorted([*folder.glob("*.sv"), *folder.glob("*.svh")])]

    def build_hash(self) -> str:
        """A hash of sources and parameters: 16 hexadecimal digits."""
        made = hashlib.sha256(repr((self.design, sorted(self.parameters.items()))).encode())
        for path in self.sources:
            made.update(path.name.encode() + b"\0" + path.read_bytes())
        return made.hexdigest()[:16]


@cache
def boards() -> Mapping[str, Board]:
    """All boards, by name."""
    found = [_read(path) for path in sorted(FOLDER.glob("*/board.toml"))]
    return {board.name: board for board in found}


def board(name: str) -> Board:
    """A board by name, or an `ArgumentError` that lists all boards."""
    if name not in boards():
        raise ArgumentError(f"board {name!r} is unknown; known are {', '.join(boards())}")
    return boards()[name]


def _read(path: Path) -> Board:
    return Board(**tomllib.loads(path.read_text(encoding="utf-8")), folder=path.parent)
