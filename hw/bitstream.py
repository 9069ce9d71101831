"""Checks the header, part and size of a bitstream before anything is loaded.

ECP5 (`.bit`; Project Trellis, libtrellis/src/Bitstream.cpp): FF 00, comments, a preamble, then commands, of which
VERIFY_ID names the ID code of the part. UltraScale+ (UG570, "Bitstream Composition"): a `.bit` has a header that names
the part, then the same words as a `.bin`: a sync word, and later a write to the register IDCODE. A `.bin` for Linux's
FPGA manager may have the bytes of each word swapped. The part must be the board's. Limit: the frames are not read.
"""

from __future__ import annotations

from dataclasses import dataclass

from millrace.host.base.errors import BitstreamError
from millrace.hw.catalog import SERIAL, Board
from millrace.hw.text import printable

ECP5_COMMENTS, ECP5_PREAMBLE = b"\xff\x00", b"\xff\xff\xbd\xb3"
ECP5_VERIFY_ID = b"\xe2\x00\x00\x00"
SYNC_WORD, WRITE_ID_CODE = b"\xaa\x99\x55\x66", b"\x30\x01\x80\x01"
BIT_HEADER = b"\x00\x09\x0f\xf0\x0f\xf0\x0f\xf0\x0f\xf0\x00\x00\x01a"
HEAD = 4096
"""Bytes at the beginning in which sync word and ID code must be."""
VERSION_MASK = 0x0FFF_FFFF


@dataclass(frozen=True)
class Sizes:
    """Bytes that a bitstream of a part can have: compressed and nearly empty, and complete."""

    least: int
    most: int


SIZES = {"ecp5": Sizes(1 << 14, 1 << 22), "zynqmp": Sizes(1 << 18, 1 << 26)}


def check(data: bytes, name: str, board: Board) -> None:
    """Raise a `BitstreamError` unless this is a bitstream for the board's part."""
    family = "ecp5" if board.link == SERIAL else "zynqmp"
    sizes = SIZES[family]
    if not sizes.least <= len(data) <= sizes.most:
        raise BitstreamError(
            f"{name} has {len(data):,} bytes; a bitstream for {board.part} has {sizes.least:,} to {sizes.most:,}"
        )
    found, wanted = (_ecp5 if family == "ecp5" else _zynqmp)(data, name, board), board.idcode
    if found & VERSION_MASK != wanted & VERSION_MASK:
        raise BitstreamError(f"{name} is for ID code {found:#010x}, {board.name} has {board.part} ({wanted:#010x})")


def check_description(data: bytes, name: str, board: Board) -> None:
    """Raise a `BitstreamError` unless this is a hardware description (`.hwh`) with the engine."""
    text = data.decode(errors="replace")
    if "<EDKSYSTEM" not in text[:HEAD] or f'"{board.pynq["engine"]}"' not in text:
        raise BitstreamError(f"{name} is not a hardware description with {board.pynq['engine']}: take Vivado's *.hwh")


def _ecp5(data: bytes, name: str, board: Board) -> int:
    at = data.find(ECP5_PREAMBLE, 0, HEAD)
    if not data.startswith(ECP5_COMMENTS) or at < 0:
        raise BitstreamError(f"{name} is not an ECP5 bitstream: comments or preamble are missing")
    code = data.find(ECP5_VERIFY_ID, at, HEAD)
    if code < 0:
        raise BitstreamError(f"{name} names no part (no VERIFY_ID)")
    return int.from_bytes(data[code + 4 : code + 8], "big")


def _zynqmp(data: bytes, name: str, board: Board) -> int:
    if name.endswith(".bit"):
        part = _part_of_bit(data)
        if part not in board.part:
            raise BitstreamError(f"{name} is for part {printable(part)!r}, {board.name} has {board.part}")
    head = data[:HEAD]
    for swapped in (False, True):
        words = _swapped(head) if swapped else head
        at = words.find(SYNC_WORD)
        code = words.find(WRITE_ID_CODE, at) if at >= 0 else -1
        if code >= 0:
            return int.from_bytes(words[code + 4 : code + 8], "big")
    raise BitstreamError(f"{name} is not a bitstream for {board.part}: no sync word, or no ID code")


def _part_of_bit(data: bytes) -> str:
    """The part in the header of a `.bit`: fields `a` design, `b` part, each with a length of two bytes."""
    if not data.startswith(BIT_HEADER):
        return "(no header)"
    at = len(BIT_HEADER)
    at += 2 + int.from_bytes(data[at : at + 2], "big")
    if data[at : at + 1] != b"b":
        return "(no part)"
    size = int.from_bytes(data[at + 1 : at + 3], "big")
    return data[at + 3 : at + 3 + size].rstrip(b"\0").decode("ascii", "replace") or "(empty)"


def _swapped(data: bytes) -> bytes:
    """The bytes of each word of 32 bits in the other order."""
    return b"".join(data[i : i + 4][::-1] for i in range(0, len(data) // 4 * 4, 4))
