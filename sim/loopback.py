"""A loopback PYNQ board: a server with a simulated engine behind it, and an image that it can load.

The server (`sim/pynq_server.py`) runs in pynq's environment and speaks pynq's remote protocol, so the unmodified pynq
client deploys to it and drives it. Its bitstream is a note that names a verilated engine in the cache.
`with LoopbackBoard("kv260") as board:` gives `board.link`. Limits: addresses of the loopback network alone.
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
    """The engine of a board, for the simulation."""
    parameters = catalog.board(board).parameters
    names = {"key_bits": "KEY_W", "lanes": "W", "clusters": "CLUSTERS", "probers": "PROBERS"}
    return Config(**{ours: parameters[theirs] for ours, theirs in names.items()}, index_depth=parameters["INDEX_DEPTH"])


def image(board: str) -> Image:
    """For a loopback board of that kind; the engine is built if need be."""
    chosen = catalog.board(board)
    library = build.library(config(board))
    digest = library.parent.name
    note = json.dumps({"loopback": 1, "library": digest}).encode() + b"\n"
    # The fpga manager takes whole words.
    note += b"\n" * (-len(note) % 4)
    files = {f"{chosen.design}.bin": note, f"{chosen.design}.hwh": hwh.text(chosen)}
    return images.make(chosen, files, {"verilator": build.versions()[0]}, {}, build=digest[:16])


class LoopbackBoard:
    """A running server; stopped with it."""

    def __init__(self, board: str, address: str = "127.0.0.1") -> None:
        """Started, and listening."""
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
        if self._told() != "ready":
            _, said = self._process.communicate()
            raise DeviceUnavailable(f"the loopback board does not start: {said.strip()[-400:]}")

    def __enter__(self) -> LoopbackBoard:
        """It runs already."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Stop the server."""
        self.close()

    def break_with(self, fault: str) -> None:
        """Switch a fault on, or with an empty name off."""
        self._say(f"fault {fault}")

    def loads(self) -> list[str]:
        """The names of the firmware files that were loaded, in order."""
        return self._say("loads").split()

    def uploads(self) -> list[str]:
        """The names of the firmware files that were sent, in order."""
        return self._say("uploads").split()

    def close(self) -> None:
        """Stop the server."""
        with suppress(OSError):
            self._process.kill()
        self._process.communicate()

    def _say(self, text: str) -> str:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{text}\n")
        self._process.stdin.flush()
        return self._told()

    def _told(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()
