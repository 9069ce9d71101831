"""A loopback PYNQ board: a server with a simulated engine, and an image that it can load.

The server (`pynq_server.py`) runs in pynq's environment and implements pynq's remote protocol, so the unmodified pynq
client deploys to it and drives it. Its bitstream names a verilated engine in the cache. Use `with
LoopbackBoard("kv260") as board:` and `board.link`; `board.python` is an interpreter that behaves as on the board
itself, for the link `pynq`; `board.clock` is the file of its time. `python -m millrace.sim.loopback kv260 [ADDRESS]`
starts one from a shell, and writes the image for it into the current folder. Limit: addresses of the loopback network
only.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from millrace.host.base.errors import ArgumentError, DeviceUnavailable, MillraceError
from millrace.hw import catalog
from millrace.hw import image as images
from millrace.hw.bitstream import SYNC_WORD, WRITE_ID_CODE
from millrace.hw.catalog import Board
from millrace.hw.image import Image
from millrace.hw.link import CLOCK_VARIABLE
from millrace.hw.program import ended_by_signals
from millrace.hw.pynq_link import PYTHON, interpreter
from millrace.sim import build, hwh
from millrace.sim.build import Config

SERVER = Path(__file__).resolve().parent / "pynq_server.py"
BOARD_PYTHON = SERVER.with_name("board_python.py")
ADDRESS = "127.0.0.1"
SIZE = 1 << 18
"""Bytes of a bitstream: the least that passes for one, and a multiple of 4, as the FPGA manager requires."""
FAULTS = ("drop", "hang", "identity", "bit", "short")


def config(board: str) -> Config:
    """The simulation parameters of a board's engine."""
    parameters = catalog.board(board).parameters
    names = {"key_bits": "KEY_W", "lanes": "W", "clusters": "CLUSTERS", "probers": "PROBERS"}
    return Config(**{ours: parameters[theirs] for ours, theirs in names.items()}, index_depth=parameters["INDEX_DEPTH"])


def image(board: str) -> Image:
    """An image for a loopback board of that kind; builds the engine on first use."""
    chosen = catalog.board(board)
    library = build.library(config(board))
    digest = library.parent.name
    files = {f"{chosen.design}.bin": bitstream(chosen, digest), f"{chosen.design}.hwh": hwh.text(chosen)}
    return images.make(chosen, files, {"verilator": build.versions()[0]}, {}, build=digest[:16])


def bitstream(board: Board, library: str) -> bytes:
    """A bitstream for a loopback board: the head of a real one, then JSON with the name of the verilated engine."""
    head = b"\xff" * 64 + SYNC_WORD + bytes(16) + WRITE_ID_CODE + board.idcode.to_bytes(4, "big")
    return (head + json.dumps({"loopback": 1, "library": library}).encode()).ljust(SIZE, b"\n")


def device_tree(board: str) -> dict[str, bytes]:
    """The files of the device tree that say what a board is, as PYNQ's image has them."""
    pynq = catalog.board(board).pynq
    compatible = f"{pynq['compatible']}-revA\0{pynq['compatible']}\0xlnx,zynqmp\0"
    return {"chosen/pynq_board": pynq["name"].encode() + b"\0", "compatible": compatible.encode()}


class LoopbackBoard:
    """A running server process."""

    def __init__(self, board: str, address: str = ADDRESS, tree: Mapping[str, bytes] | None = None) -> None:
        """Start the server and wait until it listens; `tree`: the files of its device tree (default: as PYNQ's)."""
        python = interpreter()
        if python is None:
            raise DeviceUnavailable(f"pynq is not installed here: `make pynq`, and set {PYTHON} to its python")
        chosen = catalog.board(board)
        libraries = build.library(config(board)).parent.parent
        self._home = tempfile.TemporaryDirectory(prefix="millrace-board-")
        home = Path(self._home.name)
        for name, data in (device_tree(board) if tree is None else tree).items():
            (home / "device-tree" / name).parent.mkdir(parents=True, exist_ok=True)
            (home / "device-tree" / name).write_bytes(data)
        self.clock = str(home / "clock")
        self.python = _write_python(home, python, address)
        arguments = [address, str(home), hex(chosen.pynq["base"]), str(libraries)]
        environment = {**os.environ, "PYTHONPATH": str(SERVER.parent.parent / "sdk")}
        self._process = subprocess.Popen(
            [python, str(SERVER), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        self.link = f"pynq:{address}"
        if self._read_line() != "ready":
            _, errors = self._process.communicate()
            raise DeviceUnavailable(f"the loopback board does not start: {errors.strip()[-400:]}")

    def __enter__(self) -> LoopbackBoard:
        """The server runs already."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Stop the server."""
        self.close()

    def break_with(self, fault: str) -> None:
        """Switch a fault on, or off with an empty name."""
        self._command(f"fault {fault}")

    def loads(self) -> list[str]:
        """The names of the firmware files that were loaded, in order."""
        return self._command("loads").split()

    def uploads(self) -> list[str]:
        """The names of the firmware files that were sent, in order."""
        return self._command("uploads").split()

    def close(self) -> None:
        """Stop the server."""
        with suppress(OSError):
            self._process.kill()
        self._process.communicate()
        self._home.cleanup()

    def _command(self, text: str) -> str:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{text}\n")
        self._process.stdin.flush()
        return self._read_line()

    def _read_line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


def _write_python(home: Path, python: str, address: str) -> str:
    """Write a program that takes the place of the board's own Python."""
    path = home / "python"
    path.write_text(f'#!/bin/sh\nexec "{python}" "{BOARD_PYTHON}" {address} "{home / "device-tree"}" "$@"\n')
    path.chmod(0o755)
    return str(path)


def main(arguments: Sequence[str] = sys.argv[1:], write: Callable[[str], object] = sys.stdout.write) -> None:
    """Start a board, print its link, its image and what to export, and run until Ctrl-C or SIGTERM."""
    name, *address = arguments or ["kv260"]
    if catalog.board(name).link != catalog.PYNQ:
        raise ArgumentError(
            f"{name} is not a board with PYNQ: for the ulx3s, run `python -m millrace.sim.serial_board`"
        )
    path = Path(f"{name}-loopback.mri")
    path.write_bytes(image(name).pack())
    with (
        ended_by_signals(),
        suppress(KeyboardInterrupt),
        LoopbackBoard(name, address[0] if address else ADDRESS) as simulated,
    ):
        write(f"link {simulated.link}\nimage {path}\n")
        write(f"export {PYTHON}={interpreter()} {CLOCK_VARIABLE}={simulated.clock}\n")
        sys.stdout.flush()
        while True:
            time.sleep(3600)


if __name__ == "__main__":
    try:
        main()
    except MillraceError as problem:
        sys.exit(f"error: {problem}")
