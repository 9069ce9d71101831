"""Replaces openFPGALoader for a simulated board: takes the same command line and prints the same part description.

`python -m millrace.sim.loader SOCKET --board ulx3s [--detect | FILE]`. FILE must be a bitstream for the board's part:
an ECP5 bitstream names its part in its header and has a preamble. The loader then restarts the board at SOCKET.
"""

from __future__ import annotations

import hashlib
import json
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

from millrace.hw.catalog import board

PREAMBLE = b"\xff\xff\xbd\xb3"
"""Lattice's preamble before the first command."""
FOUND = "index 0:\n\tidcode 0x1113043\n\tmanufacturer lattice\n\tfamily ECP5\n\tmodel  {model}\n\tirlength 8\n"


def main(arguments: Sequence[str]) -> int:
    """Run the command; returns the exit code."""
    socket_path, option, name, *rest = arguments
    if option != "--board" or name != "ulx3s" or len(rest) != 1:
        sys.stderr.write(f"Error: options {' '.join(arguments[1:])} are not understood\n")
        return 1
    chosen = board(name)
    if rest == ["--detect"]:
        sys.stdout.write(FOUND.format(model=chosen.loader["detects"]))
        return 0
    data = Path(rest[0]).read_bytes()
    head = data[:512]
    if chosen.loader["detects"].encode() not in head or PREAMBLE not in head:
        sys.stderr.write("Error: this is not a bitstream for the part\n")
        return 1
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(socket_path)
        with line.makefile("rw") as stream:
            stream.write(json.dumps({"sha256": hashlib.sha256(data).hexdigest()}) + "\n")
            stream.flush()
            stream.readline()
    sys.stdout.write("Loading: [====] 100.00%\nDone\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
