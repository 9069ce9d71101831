"""The side of a PYNQ board that needs pynq: a program that `hw/pynq_link.py` starts in pynq's own interpreter.

pynq pins old versions of what the rest of millrace needs new, so nothing of millrace is imported here: only the
standard library, NumPy and pynq. It reads requests, one JSON object per line, from a socket, does them in order and
answers each with a line; arrays pass through shared memory. `python pynq_child.py SOCKET MEMORY` takes two file
descriptors. Whatever pynq raises becomes an answer with `error`. With PYNQ_REMOTE_DEVICES set it drives a board over
the network, else the board it runs on. Registers are read by 4 bytes, since pynq's 8-byte reads return half of them.
"""

from __future__ import annotations

import json
import mmap
import os
import socket
import sys
import time
from typing import Any

import numpy as np


class Board:
    """What the requests act on; each method that has no underscore is a request."""

    def __init__(self, memory: mmap.mmap) -> None:
        """Nothing is opened yet."""
        self._memory = np.frombuffer(memory, np.uint8)
        self._buffers: dict[int, Any] = {}
        self._next = 1
        self._device: Any = None
        self._overlay: Any = None
        self._registers: Any = None

    def connect(self) -> dict[str, Any]:
        """Find the board: its name, and whether it is this machine."""
        import pynq
        from pynq import Device

        self._device = Device.active_device
        remote = bool(os.environ.get("PYNQ_REMOTE_DEVICES"))
        return {"board": str(self._device.name), "remote": remote, "pynq": pynq.__version__}

    def load(self, bitstream: str, engine: str, download: bool) -> dict[str, Any]:
        """Load an overlay, or only read its description; the engine is found in it by name."""
        from pynq import MMIO, Overlay

        self._overlay = Overlay(bitstream, download=download, device=self._device)
        if engine not in self._overlay.ip_dict:
            raise LookupError(f"there is no {engine} in the overlay; there are {', '.join(self._overlay.ip_dict)}")
        place = self._overlay.ip_dict[engine]
        self._registers = MMIO(place["phys_addr"], place["addr_range"], device=self._device)
        return {}

    def write_regs(self, pairs: list[list[int]]) -> dict[str, Any]:
        """One after the other."""
        for offset, value in pairs:
            self._registers.write(offset, int(value))
        return {}

    def read_regs(self, offsets: list[int]) -> dict[str, Any]:
        """One after the other."""
        return {"values": [int(self._registers.read(offset, 4)) for offset in offsets]}

    def wait(self, offset: int, seconds: float) -> dict[str, Any]:
        """Until the highest bit of a register is set."""
        until = time.monotonic() + seconds
        while not int(self._registers.read(offset, 4)) >> 31:
            if time.monotonic() > until:
                raise TimeoutError(f"the engine gave no result in {seconds:g} s")
        return {}

    def alloc(self, size: int) -> dict[str, Any]:
        """A buffer that the engine can reach: its number and its address."""
        from pynq import allocate

        buffer = allocate(shape=(size,), dtype="u1", target=self._device)
        number, self._next = self._next, self._next + 1
        self._buffers[number] = buffer
        return {"buffer": number, "address": int(buffer.device_address)}

    def free(self, buffer: int) -> dict[str, Any]:
        """Give one back."""
        self._buffers.pop(buffer).freebuffer()
        return {}

    def write(self, buffer: int, at: int, place: int, size: int, last: bool) -> dict[str, Any]:
        """From shared memory into a buffer; the board sees it after the `last` piece."""
        into = self._buffers[buffer]
        into[at : at + size] = self._memory[place : place + size]
        if last:
            into.sync_to_device()
        return {}

    def read(self, buffer: int, at: int, place: int, size: int, first: bool) -> dict[str, Any]:
        """From a buffer into shared memory; what the board wrote is fetched before the `first` piece."""
        source = self._buffers[buffer]
        if first:
            source.sync_from_device()
        self._memory[place : place + size] = source[at : at + size]
        return {}


def _answer(board: Board, line: str) -> dict[str, Any]:
    try:
        request: dict[str, Any] = json.loads(line)
        method = request.pop("do")
        if method.startswith("_"):
            raise LookupError(f"no such request: {method}")
        found: dict[str, Any] = getattr(board, method)(**request)
        return found
    except Exception as error:  # whatever pynq or the network raises is for the other side to judge
        return {"error": f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"}


def main() -> None:
    """Serve until the other side closes."""
    line, memory = socket.socket(fileno=int(sys.argv[1])), mmap.mmap(int(sys.argv[2]), 0)
    board = Board(memory)
    # Two files: one for both directions would lose what it read ahead when it writes.
    with line, line.makefile("r", encoding="utf-8") as requests:
        for request in requests:
            line.sendall(json.dumps(_answer(board, request)).encode() + b"\n")
    # Buffers must not wait for an interpreter that takes itself apart.
    os._exit(0)


if __name__ == "__main__":
    main()
