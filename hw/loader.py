"""Runs openFPGALoader for serial boards: finds the part, and writes a bitstream to its SRAM or to its flash.

The ID code identifies a part. Its name does not: openFPGALoader 0.10 (Debian 12) prints `idcode 0x1113043` and
`LFE5UM-85` for the chip of a ULX3S 85F, version 1.1 prints `idcode 0x41113043` and `LFE5U-85` (src/jtag.cpp,
detectChain: masked ID codes are searched first or last). If the serial line is on USB, the loader gets the serial
number of the same USB device. The loader inherits the lock of the link: should it outlive this process, the card stays
locked until it has ended. Limit: the loader's own errors are passed on as text.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from millrace.host.base.errors import BitstreamError, DeviceFault, DeviceUnavailable
from millrace.hw import cards, usb
from millrace.hw.catalog import SERIAL, Board
from millrace.hw.program import run
from millrace.hw.text import last_words

VARIABLE = "MILLRACE_OPENFPGALOADER"
"""Environment variable: the program to run instead of openFPGALoader."""
SECONDS = 120
FLASH_SECONDS = 600
VERSION_BITS = 28
"""An ID code has four version bits above these."""
_ID_CODE = re.compile(r"idcode\s+0x([0-9a-fA-F]{1,8})\b")


def detect(board: Board, line: str) -> None:
    """Raise a `BitstreamError` unless the loader finds the board's part."""
    output = _run(board, line, ["--detect"], SECONDS)
    codes = [int(code, 16) for code in _ID_CODE.findall(output)]
    wanted = board.idcode
    if not any(_same_part(code, wanted) for code in codes):
        found = ", ".join(f"ID code {code:#010x}" for code in codes) or last_words(output) or "nothing"
        raise BitstreamError(f"{board.name} has a {board.part} (ID code {wanted:#010x}), but the loader found: {found}")


def load(board: Board, line: str, bitstream: Path, flash: bool = False) -> None:
    """Write a bitstream to the part's SRAM, or to the board's flash, from which the part then loads itself."""
    options = ["--write-flash"] if flash else []
    _run(board, line, [*options, str(bitstream)], FLASH_SECONDS if flash else SECONDS)


def _same_part(code: int, wanted: int) -> bool:
    """Some versions of the loader print an ID code without its version bits."""
    mask = (1 << VERSION_BITS) - 1
    return code & mask == wanted & mask and code >> VERSION_BITS in (0, wanted >> VERSION_BITS)


def _run(board: Board, line: str, arguments: list[str], seconds: int) -> str:
    program, *options = board.loader["command"]
    program = os.environ.get(VARIABLE) or program
    if shutil.which(program) is None:
        raise DeviceUnavailable(f"{program} is not installed: sudo apt-get install openfpgaloader")
    serial = usb.serial_number(line)
    chosen = ["--ftdi-serial", serial] if serial else []
    try:
        done = run([program, *options, *chosen, *arguments], seconds=seconds, pass_fds=cards.locks(f"{SERIAL}:{line}"))
    except subprocess.TimeoutExpired:
        raise DeviceFault(f"{program} did not end in {seconds} s") from None
    except OSError as error:
        raise DeviceUnavailable(f"{program} cannot be started: {error.strerror}") from error
    if done.returncode:
        raise DeviceFault(
            f"{program} failed with exit code {done.returncode}: {last_words(done.stderr or done.stdout)}"
        )
    return done.stdout + done.stderr
