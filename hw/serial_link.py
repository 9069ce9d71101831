"""The serial link: commands to `hw/serial/uart_bridge.sv` over a terminal device, be it a board's or a simulated one's.

A request and its answer are words of 32 bits behind a CRC-32 each, and carry a number, so that an answer that came too
late is never taken for another one. What was damaged on the way is a `DeviceFault`: a command must not run twice, so
nothing is sent again. Limits: one request at a time, of at most `WORDS` words; addresses of 32 bits.
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
from millrace.hw.link import Link, Shelf

WRITE_REGS, READ_REGS, WRITE_MEM, READ_MEM, RESET = 1, 2, 3, 4, 5
WORDS = 256
"""Of a payload: WORDS_LOG2 of the bridge."""
STATUS = {1: "a request came damaged (CRC)", 2: "no such operation"}
_WORD = np.dtype("<u4")


class SerialLink(Link):
    """An engine behind a serial line, on memory of its own."""

    streams = True

    def __init__(self, path: str, board: Board, seconds: float) -> None:
        """Open the line; nothing is sent yet."""
        super().__init__(seconds)
        self._path, self._number = path, 0
        self._shelf = Shelf(board.memory["first"], board.memory["bytes"])
        self._line: int | None = _opened(path, board.baud)

    @property
    def alive(self) -> bool:
        """The line is open."""
        return self._line is not None

    @property
    def room(self) -> int:
        """Of the memory on the chip."""
        return self._shelf.room

    def write_regs(self, pairs: Sequence[tuple[int, int]]) -> None:
        """A request for every `WORDS` / 2 of them."""
        flat = np.array(pairs, _WORD).ravel()
        for first in range(0, len(flat), WORDS):
            self._ask(WRITE_REGS, 0, flat[first : first + WORDS])

    def read_regs(self, offsets: Sequence[int]) -> list[int]:
        """A request for every `WORDS` of them."""
        flat, found = np.array(offsets, _WORD), []
        for first in range(0, len(flat), WORDS):
            some = flat[first : first + WORDS]
            found += self._ask(READ_REGS, 0, some, len(some)).tolist()
        return found

    def alloc(self, size: int) -> int:
        """In the memory on the chip."""
        return self._shelf.take(size)

    def free(self, address: int) -> None:
        """In the memory on the chip."""
        self._shelf.give(address)

    def write_mem(self, address: int, data: Array) -> None:
        """Elements have 4 or 8 bytes."""
        words = np.ascontiguousarray(data).view(_WORD)
        for first in range(0, len(words), WORDS):
            self._ask(WRITE_MEM, address + 4 * first, words[first : first + WORDS])

    def read_mem(self, address: int, count: int, dtype: np.dtype[Any]) -> Array:
        """Elements have 4 or 8 bytes."""
        size = count * dtype.itemsize // 4
        parts = [
            self._ask(READ_MEM, address + 4 * first, None, min(WORDS, size - first)) for first in range(0, size, WORDS)
        ]
        return (np.concatenate(parts) if parts else np.zeros(0, _WORD)).view(dtype)

    def reset(self) -> None:
        """By the bridge, which stays as it is."""
        self._ask(RESET, 0, None)
        self._shelf.clear()

    def close(self) -> None:
        """Close the line."""
        if self._line is not None:
            os.close(self._line)
            self._line = None

    # Requests.

    def _ask(self, operation: int, address: int, payload: Array | None, answers: int = 0) -> Array:
        """What a request was answered with."""
        try:
            return self._asked(operation, address, payload, answers)
        except OSError as error:
            self.close()
            raise DeviceFault(f"the serial line {self._path} is gone: {error.strerror}") from error
        except DeviceFault:
            self.close()
            raise

    def _asked(self, operation: int, address: int, payload: Array | None, answers: int) -> Array:
        self._number = self._number + 1 & 0xFF
        count = answers if payload is None else len(payload)
        body = struct.pack("<BBHI", operation, self._number, count, address)
        if payload is not None:
            body += payload.tobytes()
        until = time.monotonic() + self.seconds
        self._send(body + struct.pack("<I", zlib.crc32(body)), until)
        answer = self._receive(8 + 4 * answers, until)
        if zlib.crc32(answer[:-4]) != struct.unpack("<I", answer[-4:])[0]:
            raise DeviceFault(f"the serial line {self._path} brought an answer with a wrong CRC")
        status, number, given = struct.unpack_from("<BBH", answer)
        if status or number != self._number or given != answers:
            told = STATUS.get(status, f"answer {number} of {given} words to request {self._number} of {answers}")
            raise DeviceFault(f"the board behind {self._path} does not follow: {told}")
        return np.frombuffer(answer, _WORD, answers, 4)

    def _send(self, data: bytes, until: float) -> None:
        left = memoryview(data)
        while left:
            _, ready, _ = select.select([], [self._open()], [], max(0.0, until - time.monotonic()))
            if not ready:
                raise DeviceFault(f"the serial line {self._path} took nothing in {self.seconds:g} s")
            left = left[os.write(self._open(), left) :]

    def _receive(self, size: int, until: float) -> bytes:
        """Exactly so many bytes; a short answer to a bad request says so itself."""
        found = b""
        while len(found) < size:
            ready, _, _ = select.select([self._open()], [], [], max(0.0, until - time.monotonic()))
            if not ready:
                raise DeviceFault(
                    f"the board behind {self._path} answered {len(found)} of {size} bytes in {self.seconds:g} s"
                )
            some = os.read(self._open(), size - len(found))
            if not some:
                raise DeviceFault(f"the serial line {self._path} was closed at the other end")
            found += some
            if len(found) >= 8 and size > 8 and found[0] in STATUS:
                return found[:8]
        return found

    def _open(self) -> int:
        if self._line is None:
            raise DeviceFault(f"the serial line {self._path} is closed after a fault: open the device again")
        return self._line


def _opened(path: str, baud: int) -> int:
    """A raw line at that speed, with nothing left in it."""
    rate = getattr(termios, f"B{baud}", None)
    if rate is None:
        raise DeviceUnavailable(f"this system has no serial lines of {baud} baud")
    if not Path(path).exists():
        raise DeviceUnavailable(f"there is no serial line {path}: plug the board in, and look at /dev/serial/by-id")
    try:
        line = os.open(path, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise DeviceUnavailable(
            f"the serial line {path} cannot be opened: {error.strerror}; your user may need the group dialout"
        ) from error
    try:
        tty.setraw(line)
        settings = termios.tcgetattr(line)
        settings[4] = settings[5] = rate
        termios.tcsetattr(line, termios.TCSANOW, settings)
        termios.tcflush(line, termios.TCIOFLUSH)
    except termios.error as error:
        with suppress(OSError):
            os.close(line)
        raise DeviceUnavailable(f"{path} is no serial line: {error}") from error
    return line
