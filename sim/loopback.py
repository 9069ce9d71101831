"""A loopback PYNQ board: a server with a simulated engine, and an image that it can load.

The server (`pynq_server.py`) runs in pynq's environment and implements pynq's remote protocol, so the unmodified pynq
client deploys to it and drives it. Its bitstream is a JSON file that names a verilated engine in the cache. Use `with
LoopbackBoard("kv260") as board:` and `board.link`. Limit: addresses of the loopback network only.
"""

from __future__ import annotations

import json
import os
import subprocess
from contextlib import suppress
from pathlib import Path

from millrace.host.base.errors import DeviceUnavailable
from millrace.hw import catalog
from millrace.hw import image as images
from millrace.hw.image import Image
from millrace.hw.pynq_link import PYTHON, interpreter
from millrace.sim import build, hwh
from millrace.sim.build import Config

SERVER = Path(__file__).resolve().parent / "pynq_server.py"
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
    note = json.dumps({"loopback": 1, "library": digest}).encode() + b"\n"
    # The FPGA manager requires a multiple of 4 bytes.
    note += b"\n" * (-len(note) % 4)
    files = {f"{chosen.design}.bin": note, f"{chosen.design}.hwh": hwh.text(chosen)}
    return images.make(chosen, files, {"verilator": build.versions()[0]}, {}, build=digest[:16])


class LoopbackBoard:
    """A running server process."""

    def __init__(self, board: str, address: str = "127.0.0.1") -> None:
        """Start the server and wait until it listens."""
        python = interpreter()
        if python is None:
            raise DeviceUnavailable(f"pynq is not installed here: `make pynq`, and set {PYTHON} to its python")
        chosen = catalog.board(board)
        libraries = build.library(config(board)).parent.parent
        arguments = [address, chosen.pynq["name"], hex(chosen.pynq["base"]), str(libraries)]
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

    def _command(self, text: str) -> str:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{text}\n")
        self._process.stdin.flush()
        return self._read_line()

    def _read_line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()
