"""Replaces openFPGALoader for a simulated board: same command line, same checks, same output.

`python -m millrace.sim.loader SOCKET VERSION --board ulx3s [--ftdi-serial N] [--detect | [--write-flash] FILE]`. It
follows openFPGALoader's sources at the tags v0.10.0 (Debian 12) and v1.1.1: `src/main.cpp` and
`src/ftdiJtagBitbang.cpp` (output), `src/jtag.cpp` (which ID code is printed), `src/latticeBitParser.cpp` and
`src/lattice.cpp` (what a bitstream must have: comments that begin with FF 00, a preamble, and the ID code of the chip).
The loader then restarts the board at SOCKET. Limit: of an ECP5 bitstream, only what comes before its frames is read.
"""

from __future__ import annotations

import hashlib
import json
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

CHIP = 0x41113043
"""The ID code of an LFE5U-85F."""
PRINTED = {"0.10.0": (0x01113043, "LFE5UM-85"), "1.1.1": (CHIP, "LFE5U-85")}
"""By version: the ID code and the name that it prints for this chip."""
PREAMBLE = b"\xff\xff\xbd\xb3"
FREQUENCY = "Jtag probe limited to 3MHz\nJtag frequency : requested 6000000Hz -> real 3000000Hz\nret 0\n"
FOUND = "index 0:\n\tidcode 0x{code:x}\n\tmanufacturer lattice\n\tfamily ECP5\n\tmodel  {model}\n\tirlength 8\n"
BYPASS, RESET_CRC, VERIFY_ID = 0xFF, 0x3B, 0xE2


def main(arguments: Sequence[str]) -> int:
    """Run the command; returns the exit code."""
    path, version, *options = arguments
    if options[:2] != ["--board", "ulx3s"]:
        return _fail(f"Error: cannot find board {' '.join(options[1:2])!r}")
    rest = options[4:] if options[2:3] == ["--ftdi-serial"] else options[2:]
    code, model = PRINTED[version]
    sys.stdout.write(FREQUENCY)
    if rest == ["--detect"]:
        sys.stdout.write(FOUND.format(code=code, model=model))
        return 0
    flash = rest[:1] == ["--write-flash"]
    if len(rest) != 1 + flash:
        return _fail("Error: no file to write, or an unknown option")
    return _load(path, Path(rest[-1]), flash)


def _load(path: str, file: Path, flash: bool) -> int:
    sys.stdout.write("write to flash\nOpen file: DONE\n" if flash else "write to ram\nOpen file: DONE\n")
    data = file.read_bytes()
    code = _id_code(data)
    if code is None:
        return _fail("Parse file: FAIL")
    sys.stdout.write("b3bdffff\nParse file: DONE\n")
    if code != CHIP:
        return _fail(
            "mismatch between target's idcode and bitstream idcode\n"
            f"\tbitstream has 0x{code:08X} hardware requires 0x{CHIP:08x}"
        )
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(path)
        with line.makefile("rw") as stream:
            stream.write(json.dumps({"sha256": hashlib.sha256(data).hexdigest(), "flash": flash}) + "\n")
            stream.flush()
            stream.readline()
    steps = "Enable configuration: DONE\nSRAM erase: DONE\n"
    sys.stdout.write(f"{steps}\rLoading: [{50 * '='}] 100.00%\n\nDone\nDisable configuration: DONE\n")
    return 0


def _id_code(data: bytes) -> int | None:
    """The ID code that a bitstream is for, from its commands; None if this is no bitstream."""
    at = data.find(PREAMBLE)
    if data[:2] != b"\xff\x00" or at < 0:
        return None
    at += len(PREAMBLE)
    while at < len(data):
        command = data[at]
        if command == VERIFY_ID:
            return int.from_bytes(data[at + 4 : at + 8], "big")
        if command not in (BYPASS, RESET_CRC):
            return None
        at += 1 if command == BYPASS else 4
    return None


def _fail(message: str) -> int:
    sys.stderr.write(f"{message}\n")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
