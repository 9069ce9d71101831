"""The links to boards with mutated responses: a socket pair takes the place of the line, and no process is started."""

from __future__ import annotations

import json
import mmap
import os
import socket
import struct
import time
import zlib
from contextlib import suppress
from random import Random
from types import SimpleNamespace
from typing import Any

import numpy as np

from millrace.hw import pynq_child, pynq_link
from millrace.hw.catalog import board
from millrace.hw.link import FreeList
from millrace.hw.pynq_link import PynqLink
from millrace.hw.serial_link import SerialLink
from tests.fuzz import mutate


def _serial_response(number: int, words: list[int]) -> bytes:
    body = struct.pack("<BBH", 0, number, len(words)) + np.array(words, "<u4").tobytes()
    return body + struct.pack("<I", zlib.crc32(body))


def serial_responses(rng: Random) -> bytes:
    """The responses to two registers, to a write and to a read of memory; some with the right CRC after a change."""
    parts = [_serial_response(1, [5, 6]), _serial_response(2, []), _serial_response(3, [1, 2, 3, 4])]
    if rng.random() < 0.4:
        return mutate.bytes_of(rng, b"".join(parts))
    chosen = rng.randrange(3)
    body = mutate.bytes_of(rng, parts[chosen][:-4])
    parts[chosen] = body + struct.pack("<I", zlib.crc32(body))
    return b"".join(parts)


def fuzz_serial_link(data: bytes) -> None:
    """Three requests; the line delivers `data` and ends."""
    ours, theirs = socket.socketpair()
    link = SerialLink.__new__(SerialLink)
    link.seconds, link.clock, link._path, link._number = 1.0, time.monotonic, "the line", 0
    link._free_list = FreeList(board("ulx3s").memory["first"], board("ulx3s").memory["bytes"])
    link._line = os.dup(ours.fileno())
    try:
        theirs.sendall(data)
        theirs.shutdown(socket.SHUT_WR)
        assert all(0 <= value < 1 << 32 for value in link.read_regs((0, 4)))
        link.write_mem(0, np.arange(3, dtype=np.uint32))
        assert len(link.read_mem(0, 2, np.dtype(np.uint64))) == 2
    finally:
        link.close()
        ours.close()
        theirs.close()


_SHARED = np.zeros(2 * pynq_link.HALF, np.uint8)
"""The memory that links share with their child; made once, since its 8 MB took most of the time of a try."""


class _Answered(PynqLink):
    """A link whose child has already answered everything."""

    def __init__(self, line: socket.socket) -> None:
        self._given = line
        super().__init__("", 1.0)

    def _start(self, address: str) -> None:
        self._line = self._given
        self._child = SimpleNamespace(pid=0, wait=lambda seconds=None: 0)  # type: ignore[assignment]
        self._shared = _SHARED


_RESPONSES: list[dict[str, Any]] = [
    {"variable": "", "name": "KV260", "compatible": ["xlnx,zynqmp"], "pynq": "4"},
    {"values": [1, 2]},
    {"buffer": 1, "address": 4096},
    {},
    {},
]


def pynq_responses(rng: Random) -> bytes:
    """A response per line, some with other values or types."""
    responses: list[Any] = list(_RESPONSES)
    if rng.random() < 0.6:
        chosen = rng.randrange(len(responses))
        responses[chosen] = mutate.json_of(rng, responses[chosen])
        return b"".join(json.dumps(one).encode() + b"\n" for one in responses)
    return mutate.bytes_of(rng, b"".join(json.dumps(one).encode() + b"\n" for one in responses))


def fuzz_pynq_link(data: bytes) -> None:
    """Registers, a buffer, a write and a read, with these responses."""
    killed, pynq_link._kill = pynq_link._kill, lambda child: None
    ours, theirs = socket.socketpair()
    try:
        theirs.sendall(data)
        theirs.shutdown(socket.SHUT_WR)
        link = _Answered(ours)
        assert all(0 <= value < 1 << 32 for value in link.read_regs((0, 4)))
        address = link.alloc(64)
        link.write_mem(address, np.arange(3, dtype=np.uint32))
        assert len(link.read_mem(address, 2, np.dtype(np.uint64))) == 2
        link.close()
    finally:
        pynq_link._kill = killed
        ours.close()
        theirs.close()


REQUESTS: tuple[dict[str, Any], ...] = (
    {"do": "write_regs", "pairs": [[0, 1]]},
    {"do": "read_regs", "offsets": [0, 4]},
    {"do": "write", "buffer": 1, "at": 0, "shared_offset": 0, "size": 8, "last": True},
    {"do": "read", "buffer": 1, "at": 0, "shared_offset": 0, "size": 8, "first": True},
    {"do": "free", "buffer": 1},
)


def fuzz_pynq_child(data: bytes) -> None:
    """The other end: whatever a request holds, the response is one line of JSON."""
    memory = mmap.mmap(-1, 4096)
    child = pynq_child.Board(memory)
    child._registers = SimpleNamespace(read=lambda offset, size: 0, write=lambda offset, value: None)
    child._buffers = {1: np.zeros(64, np.uint8).view(_Buffer)}
    with suppress(UnicodeDecodeError):
        json.dumps(pynq_child._respond(child, data.decode()))


class _Buffer(np.ndarray[Any, Any]):
    """A buffer of pynq without a board."""

    def sync_to_device(self) -> None:
        """Nothing to send."""

    def sync_from_device(self) -> None:
        """Nothing to fetch."""

    def freebuffer(self) -> None:
        """Nothing to free."""
