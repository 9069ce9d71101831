"""The program that uses pynq; `pynq_link.py` starts it as a child process in pynq's own interpreter.

pynq pins old versions of packages that millrace needs in newer versions. This file therefore imports nothing of
millrace: only the standard library, NumPy and pynq. It reads requests from a socket, one JSON object per line, executes
them in order and writes one line of JSON as the response to each. Arrays pass through shared memory. `python
pynq_child.py SOCKET MEMORY` takes two file descriptors. An exception of pynq becomes a response with `error`. If
PYNQ_REMOTE_DEVICES is set, it drives a board over the network, otherwise the board it runs on. Registers are read in
units of 4 bytes, because pynq's 8-byte reads return only half of them. Runs on Python 3.10 too.
"""

from __future__ import annotations

import json
import mmap
import os
import select
import socket
import sys
import threading
import time
from typing import Any

import numpy as np

DEVICE_TREE = "/proc/device-tree/"
LAST_REQUESTS = 2.0
"""Seconds for the requests that are left when the parent has closed the line."""


class Board:
    """The state of the board; each method without a leading underscore is a request."""

    def __init__(self, memory: mmap.mmap) -> None:
        """Not connected yet."""
        self._memory = np.frombuffer(memory, np.uint8)
        self._buffers: dict[int, Any] = {}
        self._next = 1
        self._device: Any = None
        self._overlay: Any = None
        self._registers: Any = None

    def connect(self) -> dict[str, Any]:
        """Find the board; returns what its environment and its device tree say it is, and the version of pynq."""
        import pynq
        from pynq import Device

        self._device = Device.active_device
        remote = bool(os.environ.get("PYNQ_REMOTE_DEVICES"))
        read = self._read_remote if remote else _read_local
        return {
            "variable": "" if remote else os.environ.get("BOARD", ""),
            "name": read(DEVICE_TREE + "chosen/pynq_board").strip("\0\n "),
            "compatible": [name for name in read(DEVICE_TREE + "compatible").split("\0") if name],
            "pynq": pynq.__version__,
        }

    def _read_remote(self, path: str) -> str:
        """A text file of the board at the other end; empty if there is none."""
        if not self._device.exists_file(path).exists:
            return ""
        return bytes(self._device.read_file(path)).decode("utf-8", "replace")

    def load(self, bitstream: str, engine: str, download: bool) -> dict[str, Any]:
        """Load an overlay, or only read its description, and find the engine in it by name."""
        from pynq import MMIO, Overlay

        self._overlay = Overlay(bitstream, download=download, device=self._device)
        if engine not in self._overlay.ip_dict:
            raise LookupError(f"the overlay has no {engine}; it has {', '.join(self._overlay.ip_dict)}")
        entry = self._overlay.ip_dict[engine]
        self._registers = MMIO(entry["phys_addr"], entry["addr_range"], device=self._device)
        return {}

    def write_regs(self, pairs: list[list[int]]) -> dict[str, Any]:
        """Write registers in this order."""
        for offset, value in pairs:
            self._registers.write(offset, int(value))
        return {}

    def read_regs(self, offsets: list[int]) -> dict[str, Any]:
        """Read registers in this order."""
        return {"values": [int(self._registers.read(offset, 4)) for offset in offsets]}

    def wait(self, offset: int, seconds: float) -> dict[str, Any]:
        """Wait until the highest bit of a register is set, or for some time; returns whether it is set."""
        until = time.monotonic() + seconds
        while not int(self._registers.read(offset, 4)) >> 31:
            if time.monotonic() > until:
                return {"done": False}
        return {"done": True}

    def alloc(self, size: int) -> dict[str, Any]:
        """Allocate a buffer that the engine can access; returns its number and its address."""
        from pynq import allocate

        buffer = allocate(shape=(size,), dtype="u1", target=self._device)
        number, self._next = self._next, self._next + 1
        self._buffers[number] = buffer
        return {"buffer": number, "address": int(buffer.device_address)}

    def free(self, buffer: int) -> dict[str, Any]:
        """Free a buffer."""
        self._buffers.pop(buffer).freebuffer()
        return {}

    def write(self, buffer: int, at: int, shared_offset: int, size: int, last: bool) -> dict[str, Any]:
        """Copy from shared memory into a buffer; synchronises with the board after the `last` piece."""
        into = self._buffers[buffer]
        into[at : at + size] = self._memory[shared_offset : shared_offset + size]
        if last:
            into.sync_to_device()
        return {}

    def read(self, buffer: int, at: int, shared_offset: int, size: int, first: bool) -> dict[str, Any]:
        """Copy from a buffer into shared memory; synchronises with the board before the `first` piece."""
        source = self._buffers[buffer]
        if first:
            source.sync_from_device()
        self._memory[shared_offset : shared_offset + size] = source[at : at + size]
        return {}


def _read_local(path: str) -> str:
    """A text file of this board; empty if there is none."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def _respond(board: Board, line: str) -> dict[str, Any]:
    try:
        request: dict[str, Any] = json.loads(line)
        method = request.pop("do")
        if method.startswith("_"):
            raise LookupError(f"no such request: {method}")
        found: dict[str, Any] = getattr(board, method)(**request)
        return found
    except Exception as error:  # the parent process handles all errors of pynq and the network
        return {"error": f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"}


def _end_with_parent(line: socket.socket) -> None:
    """End this process after the parent's end, also if it is in a call to a board that hangs."""
    ended = select.poll()
    ended.register(line, select.POLLRDHUP)
    ended.poll()
    time.sleep(LAST_REQUESTS)
    os._exit(1)


def main() -> None:
    """Serve requests until the parent closes the socket."""
    line, memory = socket.socket(fileno=int(sys.argv[1])), mmap.mmap(int(sys.argv[2]), 0)
    board = Board(memory)
    threading.Thread(target=_end_with_parent, args=(line,), daemon=True).start()
    # Reads through a file, writes through the socket: one file for both would lose its read-ahead when it writes.
    with line, line.makefile("r", encoding="utf-8") as requests:
        for request in requests:
            line.sendall(json.dumps(_respond(board, request)).encode() + b"\n")
    # Skip the interpreter's shutdown, which could block on buffers.
    os._exit(0)


if __name__ == "__main__":
    main()
