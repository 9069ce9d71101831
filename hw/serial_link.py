"""The serial link: sends requests to `hw/serial/uart_bridge.sv` over the terminal device of a real or simulated board.

Requests and responses consist of 32-bit words and a CRC-32. Each has a sequence number, so a late response is never
mistaken for another one. Damaged data raise `DeviceFault`; nothing is sent again, because a command must not run twice.
Limits: one request at a time, of at most `WORDS` words; addresses of 32 bits.
"""

from __future__ import annotations

import os
import select
import struct
import termios
import time
import tty
import zlib
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from millrace.host.base.errors import DeviceFault, DeviceUnavailable
from millrace.host.base.types import Array
from millrace.hw.catalog import Board
from millrace.hw.link import SLICE, FreeList, Link, received, sent

WRITE_REGS, READ_REGS, WRITE_MEM, READ_MEM, RESET = 1, 2, 3, 4, 5
WORDS = 256
"""Maximum words of a payload: WORDS_LOG2 of the bridge."""
STATUS = {1: "it received a damaged request (CRC)", 2: "it does not know the operation"}
_WORD = np.dtype("<u4")


class SerialLink(Link):
    """A link to an engine with on-chip memory, over a serial line."""

    streams = True

    def __init__(self, path: str, board: Board, seconds: float) -> None:
        """Open the line; nothing is sent yet."""
        super().__init__(seconds)
        self._path, self._number = path, 0
        self._free_list = FreeList(board.memory["first"], board.memory["bytes"])
        self._line: int | None = _opened(path, board.baud)

    @property
    def alive(self) -> bool:
        """Whether the line is open."""
        return self._line is not None

    @property
    def free_bytes(self) -> int:
        """The free bytes of the on-chip memory."""
        return self._free_list.free_bytes

    def write_regs(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Sends one request per `WORDS` / 2 registers."""
        flat = np.array(pairs, _WORD).ravel()
        for first in range(0, len(flat), WORDS):
            self._request(WRITE_REGS, 0, flat[first : first + WORDS])

    def read_regs(self, offsets: Sequence[int]) -> list[int]:
        """Sends one request per `WORDS` registers."""
        flat, found = np.array(offsets, _WORD), []
        for first in range(0, len(flat), WORDS):
            some = flat[first : first + WORDS]
            found += self._request(READ_REGS, 0, some, len(some)).tolist()
        return found

    def alloc(self, size: int) -> int:
        """Allocate in the on-chip memory."""
        return self._free_list.alloc(size)

    def free(self, address: int) -> None:
        """Free in the on-chip memory."""
        self._free_list.free(address)

    def write_mem(self, address: int, data: Array) -> None:
        """Write an array; elements have 4 or 8 bytes."""
        words = np.ascontiguousarray(data).view(_WORD)
        for first in range(0, len(words), WORDS):
            self._request(WRITE_MEM, address + 4 * first, words[first : first + WORDS])

    def read_mem(self, address: int, count: int, dtype: np.dtype[Any]) -> Array:
        """Read an array; elements have 4 or 8 bytes."""
        size = count * dtype.itemsize // 4
        parts = [
            self._request(READ_MEM, address + 4 * first, None, min(WORDS, size - first))
            for first in range(0, size, WORDS)
        ]
        return (np.concatenate(parts) if parts else np.zeros(0, _WORD)).view(dtype)

    def reset(self) -> None:
        """Reset the engine; the bridge itself keeps its state."""
        self._request(RESET, 0, None)
        self._free_list.clear()

    def close(self) -> None:
        """Close the line."""
        if self._line is not None:
            os.close(self._line)
            self._line = None

    # Requests.

    def _request(self, operation: int, address: int, payload: Array | None, response_words: int = 0) -> Array:
        """Send a request and return the words of its response; closes the link on a failure."""
        try:
            return self._exchange(operation, address, payload, response_words)
        except OSError as error:
            self.close()
            raise DeviceFault(f"the serial line {self._path} is lost: {error.strerror}") from error
        except DeviceFault:
            self.close()
            raise

    def _exchange(self, operation: int, address: int, payload: Array | None, response_words: int) -> Array:
        self._number = self._number + 1 & 0xFF
        count = response_words if payload is None else len(payload)
        body = struct.pack("<BBHI", operation, self._number, count, address)
        if payload is not None:
            body += payload.tobytes()
        until = self.clock() + self.seconds
        self._send(body + struct.pack("<I", zlib.crc32(body)), until)
        response = self._receive(8 + 4 * response_words, until)
        if zlib.crc32(response[:-4]) != struct.unpack("<I", response[-4:])[0]:
            raise DeviceFault(f"the serial line {self._path} delivered a response with a wrong CRC")
        status, number, given = struct.unpack_from("<BBH", response)
        if status or number != self._number or given != response_words:
            wrong = f"response {number} of {given} words to request {self._number} of {response_words}"
            raise DeviceFault(f"a request to the board at {self._path} failed: {STATUS.get(status, wrong)}")
        return np.frombuffer(response, _WORD, response_words, 4)

    def _send(self, data: bytes, until: float) -> None:
        left = memoryview(sent(data))
        while left:
            if not self._ready(until, writing=True):
                raise DeviceFault(f"the serial line {self._path} accepted no data in {self.seconds:g} s")
            left = left[os.write(self._open(), left) :]

    def _receive(self, size: int, until: float) -> bytes:
        """Receive `size` bytes; the response to a bad request is shorter."""
        found = b""
        while len(found) < size:
            if not self._ready(until):
                raise DeviceFault(f"the board at {self._path} sent {len(found)} of {size} bytes in {self.seconds:g} s")
            some = received(os.read(self._open(), size - len(found)))
            if not some:
                raise DeviceFault(f"the serial line {self._path} was closed at the other end")
            found += some
            if len(found) >= 8 and size > 8 and found[0] in STATUS:
                return found[:8]
        return found

    def _ready(self, until: float, writing: bool = False) -> bool:
        """Wait until the line can be read (or written); False after the time-out."""
        while True:
            late = self.clock() > until  # before the look at the line: data that came in time are never lost
            lines = [self._open()]
            if any(select.select([] if writing else lines, lines if writing else [], [], 0.0 if late else SLICE)):
                return True
            if late:
                return False

    def _open(self) -> int:
        if self._line is None:
            raise DeviceFault(f"the serial line {self._path} is closed after a fault: open the device again")
        return self._line


def check_line(path: str, board: Board) -> None:
    """Raise `DeviceUnavailable` unless the path is a serial line that can be opened at the board's speed."""
    os.close(_opened(path, board.baud))


def wait_for_line(path: str, seconds: float) -> None:
    """Wait until a line exists and can be opened: it is gone for a moment while the USB chip is used as a loader."""
    until = time.monotonic() + seconds
    while not os.access(path, os.R_OK | os.W_OK):
        if time.monotonic() > until:
            raise DeviceFault(
                f"the serial line {path} did not come back within {seconds:g} s after loading: plug the board in "
                f"again, and give the line of /dev/serial/by-id as link"
            )
        time.sleep(SLICE)


def _opened(path: str, baud: int) -> int:
    """Open a line in raw mode at that speed, and flush it."""
    rate = getattr(termios, f"B{baud}", None)
    if rate is None:
        raise DeviceUnavailable(f"this system does not support serial lines at {baud} baud")
    if not Path(path).exists():
        raise DeviceUnavailable(f"there is no serial line {path}: plug in the board, and check /dev/serial/by-id")
    try:
        line = os.open(path, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        group = "; your user may need the group dialout" if isinstance(error, PermissionError) else ""
        raise DeviceUnavailable(f"the serial line {path} cannot be opened: {error.strerror}{group}") from error
    try:
        tty.setraw(line)
        settings = termios.tcgetattr(line)
        settings[4] = settings[5] = rate
        termios.tcsetattr(line, termios.TCSANOW, settings)
        termios.tcflush(line, termios.TCIOFLUSH)
    except termios.error as error:
        with suppress(OSError):
            os.close(line)
        raise DeviceUnavailable(f"{path} is not a serial line: {error.args[-1]}") from error
    return line
