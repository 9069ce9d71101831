"""The boards Millrace knows: `hw/boards/<name>/board.toml`, and the hash that names a build of its engine.

A board's folder holds its description, its constraints and what builds it. The build hash covers all RTL that goes
into the engine and the parameters that shape it; the bitstream shows it in the register BUILD_HASH, an image in its
manifest. Limit: tool versions are no part of it, since two tools may make the same engine; the manifest names them.
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
"""How a host reaches a board: over a serial line, or through PYNQ, on the board itself or over the network."""


@dataclass(frozen=True)
class Board:
    """One `board.toml`."""

    name: str
    title: str
    part: str
    design: str
    link: str
    clock_hz: int
    needs: str
    parameters: Mapping[str, int]
    folder: Path
    line: Mapping[str, int] = field(default_factory=dict)
    """Parameters of the serial line: no part of the engine."""
    baud: int = 0
    memory: Mapping[str, int] = field(default_factory=dict)
    """On-chip memory: the first address a host may use, and the bytes there are."""
    loader: Mapping[str, Any] = field(default_factory=dict)
    """Of a serial board: the command that loads a bitstream, and what it says of the part it finds."""
    pynq: Mapping[str, Any] = field(default_factory=dict)
    """Of a PYNQ board: its name there, and the name of the engine in the block design."""

    @property
    def sources(self) -> list[Path]:
        """The RTL of the engine and, on a serial board, of all around it."""
        folders = [HW / "rtl", *([HW / "serial", self.folder] if self.link == SERIAL else [])]
        return [path for folder in folders for path in sorted([*folder.glob("*.sv"), *folder.glob("*.svh")])]

    def build_hash(self) -> str:
        """Of sources and parameters: 16 hexadecimal digits."""
        made = hashlib.sha256(repr((self.design, sorted(self.parameters.items()))).encode())
        for path in self.sources:
            made.update(path.name.encode() + b"\0" + path.read_bytes())
        return made.hexdigest()[:16]


@cache
def boards() -> Mapping[str, Board]:
    """All of them, by name."""
    found = [_read(path) for path in sorted(FOLDER.glob("*/board.toml"))]
    return {board.name: board for board in found}


def board(name: str) -> Board:
    """One of them, or an `ArgumentError` that names all."""
    if name not in boards():
        raise ArgumentError(f"board {name!r} is unknown; known are {', '.join(boards())}")
    return boards()[name]


def _read(path: Path) -> Board:
    return Board(**tomllib.loads(path.read_text(encoding="utf-8")), folder=path.parent)
