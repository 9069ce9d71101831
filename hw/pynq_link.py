"""The PYNQ link: registers and buffers of a board through a child process that has pynq.

The child (`hw/pynq_child.py`) runs in the interpreter that `MILLRACE_PYNQ_PYTHON` names, or in this one where it has
pynq. Requests that need no answer are sent ahead, and shared memory has two halves: one is filled while the child
empties the other. A board that hangs or has gone means a child that does not answer in time: it is killed, and that
is a `DeviceFault`. Limits: a buffer goes over the network whole, as pynq's remote buffers do; addresses of 64 bits.
"""

from __future__ import annotations

import io
import json
import mmap
import os
import signal
import socket
import subprocess
import sys
from bisect import bisect_right
from collections.abc import Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from millrace.host.base.errors import DeviceFault, DeviceUnavailable
from millrace.host.base.types import Array
from millrace.hw import registers as reg
from millrace.hw.link import Link

PYTHON = "MILLRACE_PYNQ_PYTHON"
CHILD = Path(__file__).resolve().parent / "pynq_child.py"
HALF = 1 << 22
"""Bytes of a half of the shared memory."""
PATIENCE = 5.0
"""Seconds beyond the time-out that the child has to say so itself; loading may take longer."""
LOADING = 60.0


def interpreter() -> str | None:
    """The Python that has pynq; none where none is named and this one has it not."""
    named = os.environ.get(PYTHON)
    return named or (sys.executable if find_spec("pynq") is not None else None)


class PynqLink(Link):
    """An engine behind PYNQ: on this board, or at an address."""

    def __init__(self, address: str, seconds: float) -> None:
        """Start the child and find the board; `address` is empty for the board this runs on."""
        super().__init__(seconds)
        self._where = address or "this board"
        self._child: subprocess.Popen[bytes] | None = None
        self._line: socket.socket | None = None
        self._answers: io.BufferedReader | None = None
        self._under_way: list[int | None] = []
        self._half = 0
        self._places: list[int] = []
        self._buffers: dict[int, int] = {}
        self._start(address)
        try:
            found = self._ask({"do": "connect"}, LOADING)
        except BaseException:
            self.close()
            raise
        self.board: str = found["board"]

    @property
    def alive(self) -> bool:
        """The child is there."""
        return self._child is not None

    def load(self, bitstream: Path, engine: str, download: bool) -> None:
        """Load a bitstream, or only read its description, which lies beside it."""
        request = {"do": "load", "bitstream": str(bitstream), "engine": engine, "download": download}
        self._ask(request, LOADING)

    def write_regs(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Sent ahead: a failure shows with the next answer."""
        self._post({"do": "write_regs", "pairs": [list(pair) for pair in pairs]})

    def read_regs(self, offsets: Sequence[int]) -> list[int]:
        """After all that was sent ahead."""
        values: list[int] = self._ask({"do": "read_regs", "offsets": list(offsets)})["values"]
        return values

    def wait(self) -> None:
        """More is sent first, while the engine works; then the child asks it until it is done."""
        self.meanwhile()
        self._ask({"do": "wait", "offset": reg.REG_RESULT, "seconds": self.seconds}, self.seconds + PATIENCE)

    def alloc(self, size: int) -> int:
        """A buffer of pynq's."""
        found = self._ask({"do": "alloc", "size": size})
        address: int = found["address"]
        self._buffers[address] = found["buffer"]
        self._places.insert(bisect_right(self._places, address), address)
        return address

    def free(self, address: int) -> None:
        """Give a buffer back."""
        self._places.remove(address)
        self._post({"do": "free", "buffer": self._buffers.pop(address)})

    def write_mem(self, address: int, data: Array) -> None:
        """In halves of the shared memory, in turn."""
        buffer, start = self._buffer(address)
        raw = np.ascontiguousarray(data).view(np.uint8)
        for first in range(0, len(raw), HALF):
            piece = raw[first : first + HALF]
            half = self._free_half()
            self._shared[half * HALF : half * HALF + len(piece)] = piece
            place = {"at": start + first, "place": half * HALF, "size": len(piece)}
            self._post({"do": "write", "buffer": buffer, **place, "last": first + HALF >= len(raw)}, half)

    def read_mem(self, address: int, count: int, dtype: np.dtype[Any]) -> Array:
        """One half after the other."""
        buffer, start = self._buffer(address)
        size = count * dtype.itemsize
        raw = np.empty(size, np.uint8)
        for first in range(0, size, HALF):
            piece = min(HALF, size - first)
            self._ask(
                {"do": "read", "buffer": buffer, "at": start + first, "place": 0, "size": piece, "first": not first}
            )
            raw[first : first + piece] = self._shared[:piece]
        return raw.view(dtype)

    def reset(self) -> None:
        """There is no wire for that on a PYNQ board: the image must be loaded again."""
        raise DeviceFault("a PYNQ board's engine is reset by loading its image again")

    def close(self) -> None:
        """End the child, kindly or not."""
        child, self._child = self._child, None
        if child is None:
            return
        for one in (self._answers, self._line):
            if one is not None:
                with suppress(OSError):
                    one.close()
        try:
            child.wait(1.0)
        except subprocess.TimeoutExpired:
            _kill(child)
        child.wait()

    # The child.

    def _start(self, address: str) -> None:
        python = interpreter()
        if python is None:
            raise DeviceUnavailable(
                f"pynq is not installed here: make its environment with `make pynq`, and set {PYTHON} to its python"
            )
        memory = os.memfd_create("millrace-board")
        os.ftruncate(memory, 2 * HALF)
        self._shared = np.frombuffer(mmap.mmap(memory, 2 * HALF), np.uint8)
        self._line, theirs = socket.socketpair()
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        if address:
            environment["PYNQ_REMOTE_DEVICES"] = address
        command = [python, str(CHILD), str(theirs.fileno()), str(memory)]
        try:
            self._child = subprocess.Popen(
                command,
                env=environment,
                pass_fds=(theirs.fileno(), memory),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError as error:
            self._line.close()
            raise DeviceUnavailable(f"{PYTHON}={python!r} cannot be started: {error.strerror}") from error
        finally:
            theirs.close()
            os.close(memory)
        self._answers = self._line.makefile("rb")

    # Requests.

    def _ask(self, request: dict[str, Any], seconds: float | None = None) -> dict[str, Any]:
        """A request's answer, after those of all that was sent ahead."""
        self._post(request)
        return self._settle(0, self.seconds if seconds is None else seconds)

    def _post(self, request: dict[str, Any], half: int | None = None) -> None:
        """Send a request; its answer is looked at later. `half`: of the shared memory, which it needs until then."""
        line = self._open()
        try:
            line.settimeout(self.seconds)
            line.sendall(json.dumps(request).encode() + b"\n")
        except OSError as error:
            raise self._lost(f"takes no request ({error})") from error
        self._under_way.append(half)

    def _free_half(self) -> int:
        """A half of the shared memory that the child is done with."""
        half, self._half = self._half, 1 - self._half
        while half in self._under_way:
            self._settle(len(self._under_way) - 1, self.seconds)
        return half

    def _settle(self, left: int, seconds: float) -> dict[str, Any]:
        """Take answers until only so many are still to come; the last one taken."""
        answer: dict[str, Any] = {}
        while len(self._under_way) > left:
            answer = self._answer(seconds)
            self._under_way.pop(0)
            if "error" in answer:
                raise self._lost(str(answer["error"]))
        return answer

    def _answer(self, seconds: float) -> dict[str, Any]:
        line = self._open()
        assert self._answers is not None
        try:
            line.settimeout(seconds)
            text = self._answers.readline()
        except OSError:
            raise self._lost(f"did not answer in {seconds:g} s; its process was killed") from None
        if not text:
            raise self._lost("has lost its process")
        found: dict[str, Any] = json.loads(text)
        return found

    def _lost(self, why: str) -> DeviceFault:
        """After this nothing more is asked."""
        if self._child is not None:
            _kill(self._child)
        self.close()
        return DeviceFault(
            f"the board at {self._where} {why}" if why[0].islower() else f"the board at {self._where}: {why}"
        )

    def _open(self) -> socket.socket:
        if self._child is None or self._line is None:
            raise DeviceFault(f"the link to {self._where} is closed after a fault: open the device again")
        return self._line

    def _buffer(self, address: int) -> tuple[int, int]:
        """The buffer that holds an address, and how far in it is."""
        place = self._places[bisect_right(self._places, address) - 1]
        return self._buffers[place], address - place


def _kill(child: subprocess.Popen[bytes]) -> None:
    """The child and whatever it started."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
