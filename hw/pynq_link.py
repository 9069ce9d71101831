"""The PYNQ link: accesses registers and buffers of a board through a child process that imports pynq.

The child (`pynq_child.py`) runs in the interpreter that `MILLRACE_PYNQ_PYTHON` names, or in this one if it has pynq.
The link does not wait for responses to requests that return nothing. Shared memory has two halves: one is filled while
the child reads the other. If the child does not respond in time (the board hangs or is lost), the link kills it and
raises `DeviceFault` with the end of what the child printed. On the board itself PYNQ needs root, because it maps
/dev/mem. Limits: pynq transfers a remote buffer as a unit; addresses of 64 bits.
"""

from __future__ import annotations

import json
import mmap
import os
import select
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
from millrace.hw.link import SLICE, Link, received, sent
from millrace.hw.text import last_words

PYTHON = "MILLRACE_PYNQ_PYTHON"
CHILD = Path(__file__).resolve().parent / "pynq_child.py"
HALF = 1 << 22
"""Bytes of one half of the shared memory."""
MAX_LINE = 1 << 20
"""Maximum bytes of a response."""
POLL = 0.5
"""Seconds that the child polls the engine for one request."""
LOADING = 60.0
REMOTE_HINT = "check the address, and that PYNQ.remote's server runs there (port 7967)"
LOCAL_HINT = "the link 'pynq' is for the board itself, with its XRT environment (`sudo -E` keeps it)"


def interpreter() -> str | None:
    """The Python that has pynq: the configured one, or this one; None if neither has it."""
    named = os.environ.get(PYTHON)
    return named or (sys.executable if find_spec("pynq") is not None else None)


class PynqLink(Link):
    """A link to an engine through PYNQ, on this board or at a network address."""

    def __init__(self, address: str, seconds: float) -> None:
        """Start the child and find the board; `address` is empty for the board this runs on."""
        super().__init__(seconds)
        self._where = f"the board at {address}" if address else "this board"
        self._child: subprocess.Popen[bytes] | None = None
        self._line: socket.socket | None = None
        self._received = bytearray()
        self._printed = os.fdopen(os.memfd_create("millrace-pynq"), "w+b")
        self._pending: list[int | None] = []
        self._half = 0
        self._addresses: list[int] = []
        self._buffers: dict[int, int] = {}
        try:
            self._start(address)
        except BaseException:
            self._printed.close()
            raise
        try:
            self.report = self._request({"do": "connect"}, LOADING)
            """What the board says it is (`pynq_board.py`)."""
        except DeviceFault as error:
            self.close()
            raise DeviceFault(f"{error}; {REMOTE_HINT if address else LOCAL_HINT}") from error
        except BaseException:
            self.close()
            raise

    @property
    def alive(self) -> bool:
        """Whether the child is running."""
        return self._child is not None

    def load(self, bitstream: Path, engine: str, download: bool) -> None:
        """Load a bitstream, or only read its description, which is in the same folder."""
        request = {"do": "load", "bitstream": str(bitstream), "engine": engine, "download": download}
        self._request(request, LOADING)

    def write_regs(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Does not wait: a failure is raised with the next response."""
        self._post({"do": "write_regs", "pairs": [list(pair) for pair in pairs]})

    def read_regs(self, offsets: Sequence[int]) -> list[int]:
        """Read after all earlier requests."""
        values = self._request({"do": "read_regs", "offsets": list(offsets)}).get("values")
        if not isinstance(values, list) or len(values) != len(offsets) or not all(map(_is_word, values)):
            raise self._lost(f"sent no values of {len(offsets)} registers: {values!r:.80}")
        return values

    def wait(self) -> None:
        """Send the next data while the engine works; then the child polls it until it is done."""
        self.meanwhile()
        until = self.clock() + self.seconds
        request = {"do": "wait", "offset": reg.REG_RESULT, "seconds": POLL}
        while not self._request(request, self.seconds + POLL).get("done"):
            if self.clock() > until:
                # The link works: the driver resets the engine.
                raise DeviceFault(f"{self._where} gave no result in {self.seconds:g} s: its engine hangs")

    def alloc(self, size: int) -> int:
        """Allocate a buffer with pynq."""
        found = self._request({"do": "alloc", "size": size})
        address, buffer = found.get("address"), found.get("buffer")
        if type(address) is not int or not 0 <= address < 1 << 64 or type(buffer) is not int:
            raise self._lost(f"sent no address of a buffer: {found!r:.80}")
        self._buffers[address] = buffer
        self._addresses.insert(bisect_right(self._addresses, address), address)
        return address

    def free(self, address: int) -> None:
        """Free a buffer."""
        self._addresses.remove(address)
        self._post({"do": "free", "buffer": self._buffers.pop(address)})

    def write_mem(self, address: int, data: Array) -> None:
        """Copy through the two halves of the shared memory in turn."""
        buffer, start = self._buffer(address)
        raw = np.ascontiguousarray(data).view(np.uint8)
        for first in range(0, len(raw), HALF):
            piece = raw[first : first + HALF]
            half = self._free_half()
            self._shared[half * HALF : half * HALF + len(piece)] = self._whole(sent(piece), len(piece))
            piece_at = {"at": start + first, "shared_offset": half * HALF, "size": len(piece)}
            self._post({"do": "write", "buffer": buffer, **piece_at, "last": first + HALF >= len(raw)}, half)

    def read_mem(self, address: int, count: int, dtype: np.dtype[Any]) -> Array:
        """Copy through one half of the shared memory."""
        buffer, start = self._buffer(address)
        size = count * dtype.itemsize
        raw = np.empty(size, np.uint8)
        for first in range(0, size, HALF):
            piece = min(HALF, size - first)
            self._request(
                {
                    "do": "read",
                    "buffer": buffer,
                    "at": start + first,
                    "shared_offset": 0,
                    "size": piece,
                    "first": not first,
                }
            )
            raw[first : first + piece] = self._whole(received(self._shared[:piece]), piece)
        return raw.view(dtype)

    def _whole(self, piece: Array, size: int) -> Array:
        """A piece of a transfer, if all of it is there."""
        if len(piece) < size:
            raise self._lost(f"transferred {len(piece)} of {size} bytes")
        return piece

    def reset(self) -> None:
        """Not possible: a PYNQ board has no reset wire; the image must be loaded again."""
        raise DeviceFault("a PYNQ board's engine is reset by loading its image again")

    def close(self) -> None:
        """Stop the child; kill it if it does not end by itself."""
        child, self._child = self._child, None
        if child is None:
            return
        if self._line is not None:
            with suppress(OSError):
                self._line.close()
        try:
            child.wait(1.0)
        except subprocess.TimeoutExpired:
            _kill(child)
        child.wait()
        self._printed.close()

    # The child.

    def _start(self, address: str) -> None:
        python = interpreter()
        if python is None:
            raise DeviceUnavailable(
                f"pynq is not installed here: make its environment with `make pynq`, and set {PYTHON} to its python"
            )
        if not address and os.geteuid() != 0:
            raise DeviceUnavailable("PYNQ needs root on the board itself: run `sudo -E $(command -v millrace) …`")
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
                stdout=self._printed,
                stderr=self._printed,
                start_new_session=True,
            )
        except OSError as error:
            self._line.close()
            raise DeviceUnavailable(f"{PYTHON}={python!r} cannot be started: {error.strerror}") from error
        finally:
            theirs.close()
            os.close(memory)

    # Requests.

    def _request(self, request: dict[str, Any], seconds: float | None = None) -> dict[str, Any]:
        """Send a request and return its response, after those of all earlier requests."""
        self._post(request)
        return self._receive(0, self.seconds if seconds is None else seconds)

    def _post(self, request: dict[str, Any], half: int | None = None) -> None:
        """Send a request and read its response later. `half`: the half of shared memory that it uses until then."""
        line = self._open()
        try:
            line.settimeout(self.seconds)
            line.sendall(json.dumps(request).encode() + b"\n")
        except OSError as error:
            raise self._lost(f"accepts no request ({error})") from error
        self._pending.append(half)

    def _free_half(self) -> int:
        """Wait for a half of the shared memory that the child no longer uses."""
        half, self._half = self._half, 1 - self._half
        while half in self._pending:
            self._receive(len(self._pending) - 1, self.seconds)
        return half

    def _receive(self, left: int, seconds: float) -> dict[str, Any]:
        """Read responses until only `left` are pending; returns the last one."""
        response: dict[str, Any] = {}
        while len(self._pending) > left:
            response = self._read_response(seconds)
            self._pending.pop(0)
            if "error" in response:
                raise self._lost(str(response["error"]))
        return response

    def _read_response(self, seconds: float) -> dict[str, Any]:
        line, until = self._open(), self.clock() + seconds
        while b"\n" not in self._received and len(self._received) < MAX_LINE:
            late = self.clock() > until  # before the look at the socket: a response that came in time is never lost
            ready, _, _ = select.select([line], [], [], 0.0 if late else SLICE)
            if not ready:
                if late:
                    raise self._lost(f"did not respond in {seconds:g} s; its process was killed")
                continue
            try:
                some = line.recv(1 << 16)
            except OSError:
                some = b""
            if not some:
                raise self._lost("is lost: its process ended")
            self._received += some
        text, _, self._received = self._received.partition(b"\n")
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise self._lost(f"sent a response that cannot be read: {bytes(text[:80])!r}")
        return found

    def _lost(self, why: str) -> DeviceFault:
        """Kill the child and close the link; returns the error to raise."""
        printed = ""
        if self._child is not None:
            _kill(self._child)
            self._child.wait()
            printed = self._output()
        self.close()
        where, why = self._where, last_words(why) or "an error without a message"
        message = f"{where} {why}" if why[0].islower() else f"{where}: {why}"
        return DeviceFault(f"{message} (its process printed: {printed})" if printed else message)

    def _output(self) -> str:
        """The end of what the child printed, on one line."""
        size = self._printed.seek(0, os.SEEK_END)
        self._printed.seek(max(0, size - 4096))
        return last_words(self._printed.read().decode(errors="replace"))

    def _open(self) -> socket.socket:
        if self._child is None or self._line is None:
            raise DeviceFault(f"the link to {self._where} is closed after a fault: open the device again")
        return self._line

    def _buffer(self, address: int) -> tuple[int, int]:
        """The buffer that contains an address, and the offset in it."""
        start = self._addresses[bisect_right(self._addresses, address) - 1]
        return self._buffers[start], address - start


def _is_word(value: Any) -> bool:
    """Whether a response holds the value of a register."""
    return type(value) is int and 0 <= value < 1 << 32


def _kill(child: subprocess.Popen[bytes]) -> None:
    """Kill the child and its own children."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
