"""The server of a loopback board: pynq's remote protocol, a verilated engine behind it. Runs in pynq's environment.

`python pynq_server.py ADDRESS BOARD BASE LIBRARIES`: binds to an address of the loopback network (and to no other),
calls itself BOARD, shows the engine's registers at BASE. What is loaded is a note that names a library in the folder
LIBRARIES; a name that is no hash is refused. Lines on stdin switch faults on (`fault hang`) and ask what was sent and
loaded. The services are those of pynq's generated modules: RemoteDevice, Mmio, RemoteBuffer. A command is worked off
while its register is written, so an engine never seems at work. Limits: one client at a time; clocks and other
registers of the processing system only remember what was written.
"""

from __future__ import annotations

import ipaddress
import json
import os
import re
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import numpy as np
from pynq.remote import (
    buffer_pb2,
    buffer_pb2_grpc,
    mmio_pb2,
    mmio_pb2_grpc,
    remote_device_pb2,
    remote_device_pb2_grpc,
)

from millrace.hw import registers as reg
from millrace.sim.memory import Memory
from millrace.sim.model import Model, timing

PORT = 7967
FIRMWARE = "/lib/firmware/"
MANAGER = "/sys/class/fpga_manager/fpga0/"
CHUNK = 1 << 21
REGISTERS = 1 << reg.ADDRESS_BITS
DIGEST = re.compile(r"[0-9a-f]{24}")
HANG_SECONDS = 3600


class World:
    """What a board has: files, registers, memory, and an engine once one was loaded."""

    def __init__(self, board: str, base: int, libraries: Path) -> None:
        """Powered, nothing loaded."""
        self.base, self._libraries = base, libraries
        self.files = {
            "/proc/version": b"Linux version 6.6.0-loopback (aarch64)\n",
            "/proc/device-tree/chosen/pynq_board": board.encode() + b"\0",
            MANAGER + "state": b"operating\n",
            MANAGER + "flags": b"0\n",
        }
        self.memory = Memory()
        self.engine: Model | None = None
        self.fault = ""
        self.uploads: list[str] = []
        self.loads: list[str] = []
        self._words: dict[int, int] = {}
        self.turn = threading.Lock()

    def write_file(self, path: str, data: bytes) -> None:
        """Files are kept; a name written to the fpga manager loads what has that name."""
        if path.startswith(FIRMWARE):
            self.uploads.append(path[len(FIRMWARE) :])
        self.files[path] = data
        if path == MANAGER + "firmware":
            self._load(data.decode().strip())

    def _load(self, name: str) -> None:
        note = json.loads(self.files[FIRMWARE + name])
        if DIGEST.fullmatch(note["library"]) is None:
            raise ValueError(f"no library {note['library']!r}")
        if self.engine is not None:
            self.engine.close()
        self.memory = Memory()
        self.engine = Model(self._libraries / note["library"] / "model.so", self.memory, timing("ideal"))
        self.loads.append(name)

    def read(self, address: int) -> int:
        """A register of 32 bits."""
        offset = address - self.base
        if not 0 <= offset < REGISTERS:
            return self._words.get(address, 0)
        if self.engine is None:
            return 0
        value = self.engine.read_regs([offset])[0]
        return value ^ 1 if self.fault == "identity" and offset == reg.REG_BUILD_HASH else value

    def write(self, address: int, value: int) -> None:
        """A register of 32 bits; a command is worked off at once."""
        offset = address - self.base
        if not 0 <= offset < REGISTERS:
            self._words[address] = value
        elif self.engine is not None:
            self.engine.write_regs([(offset, value)])
            if offset == reg.REG_COMMAND:
                self.suffer()
                self.engine.wait()

    def suffer(self) -> None:
        """Where a connection is dropped, or nothing is answered any more."""
        if self.fault == "drop":
            os._exit(1)
        if self.fault == "hang":
            time.sleep(HANG_SECONDS)


class Files(remote_device_pb2_grpc.RemoteDeviceServicer):  # type: ignore[misc]
    """Files on the board, by which bitstreams are loaded too."""

    def __init__(self, world: World) -> None:
        """Of one board."""
        self._world = world

    def existsfile(self, request: Any, context: Any) -> Any:
        """Whether a file is there."""
        return remote_device_pb2.ExistsFileResponse(exists=request.file_path in self._world.files)

    def readfile(self, request: Any, context: Any) -> Iterator[Any]:
        """A file, in chunks."""
        data = self._world.files.get(request.file_path)
        if data is None:
            context.abort(grpc.StatusCode.NOT_FOUND, request.file_path)
            return
        yield remote_device_pb2.ReadFileResponse(data=data)

    def writefile(self, request_iterator: Iterable[Any], context: Any) -> Any:
        """A file, in chunks."""
        parts = list(request_iterator)
        with self._world.turn:
            self._world.write_file(parts[0].file_path, b"".join(part.data for part in parts))
        return remote_device_pb2.WriteFileResponse()

    def set_bitstream_attrs(self, request: Any, context: Any) -> Any:
        """Nothing to keep."""
        return remote_device_pb2.SetBitstreamAttrsResponse(status=True)


class Registers(mmio_pb2_grpc.MmioServicer):  # type: ignore[misc]
    """Registers by address; regions are named by where they begin."""

    def __init__(self, world: World) -> None:
        """Of one board."""
        self._world = world

    def get_mmio(self, request: Any, context: Any) -> Any:
        """A region."""
        return mmio_pb2.GetMmioResponse(status=True, mmio_id=str(request.base_addr))

    def read(self, request: Any, context: Any) -> Any:
        """Four bytes."""
        with self._world.turn:
            value = self._world.read(int(request.mmio_id) + request.offset)
        return mmio_pb2.ReadResponse(status=True, data=value)

    def write(self, request: Any, context: Any) -> Any:
        """Words of four bytes."""
        first = int(request.mmio_id) + request.offset
        with self._world.turn:
            for at in range(0, len(request.data), 4):
                self._world.write(first + at, int.from_bytes(request.data[at : at + 4], "little"))
        return mmio_pb2.WriteResponse(status=True)


class Buffers(buffer_pb2_grpc.RemoteBufferServicer):  # type: ignore[misc]
    """Buffers in the memory that the engine reaches, named by their addresses."""

    def __init__(self, world: World) -> None:
        """Of one board."""
        self._world = world
        self._sizes: dict[str, int] = {}

    def allocate(self, request: Any, context: Any) -> Any:
        """A new one."""
        with self._world.turn:
            name = str(self._world.memory.take(request.size))
        self._sizes[name] = request.size
        return buffer_pb2.AllocateResponse(buffer_id=name)

    def write(self, request_iterator: Iterable[Any], context: Any) -> Any:
        """All of a buffer, in chunks."""
        parts = list(request_iterator)
        at, data = int(parts[0].buffer_id), b"".join(part.data for part in parts)
        with self._world.turn:
            cells = self._world.memory.cells
            cells[at : at + len(data)] = np.frombuffer(data, np.uint8)
            if self._world.fault == "bit":
                cells[at] ^= 0x10
        return buffer_pb2.BufferWriteResponse()

    def read(self, request: Any, context: Any) -> Iterator[Any]:
        """All of a buffer, in chunks."""
        at, size = int(request.buffer_id), self._sizes[request.buffer_id]
        with self._world.turn:
            data = self._world.memory.cells[at : at + size].tobytes()
        if self._world.fault == "short":
            data = data[:-8]
        for first in range(0, len(data), CHUNK):
            yield buffer_pb2.BufferReadResponse(data=data[first : first + CHUNK])

    def flush(self, request: Any, context: Any) -> Any:
        """Memory is coherent here."""
        return buffer_pb2.FlushResponse()

    def invalidate(self, request: Any, context: Any) -> Any:
        """Memory is coherent here."""
        return buffer_pb2.InvalidateResponse()

    def physical_address(self, request: Any, context: Any) -> Any:
        """Where the engine finds it."""
        return buffer_pb2.AddressResponse(address=int(request.buffer_id))

    def freebuffer(self, request: Any, context: Any) -> Any:
        """Give it back."""
        with self._world.turn:
            if self._sizes.pop(request.buffer_id, None) is not None:
                self._world.memory.give(int(request.buffer_id))
        return buffer_pb2.FreeBufferResponse()


def serve(address: str, world: World) -> Any:
    """A running server; an address that can be reached from elsewhere is refused."""
    if not ipaddress.ip_address(address).is_loopback:
        raise SystemExit(f"{address} is not an address of the loopback network (127.0.0.0/8, ::1)")
    server = grpc.server(ThreadPoolExecutor(4), options=[("grpc.so_reuseport", 0)])
    remote_device_pb2_grpc.add_RemoteDeviceServicer_to_server(Files(world), server)
    mmio_pb2_grpc.add_MmioServicer_to_server(Registers(world), server)
    buffer_pb2_grpc.add_RemoteBufferServicer_to_server(Buffers(world), server)
    place = f"[{address}]:{PORT}" if ":" in address else f"{address}:{PORT}"
    if server.add_insecure_port(place) != PORT:
        raise SystemExit(f"{place} is taken")
    server.start()
    return server


def main(arguments: list[str]) -> None:
    """Serve until stdin ends."""
    address, board, base, libraries = arguments
    world = World(board, int(base, 16), Path(libraries))
    server = serve(address, world)
    _say("ready")
    for line in sys.stdin:
        word, _, rest = line.strip().partition(" ")
        if word == "fault":
            world.fault = rest
            _say("done")
        elif word in ("loads", "uploads"):
            _say(" ".join(getattr(world, word)))
    server.stop(None)


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
