"""The server of a loopback board: pynq's remote protocol with a verilated engine. Runs in pynq's environment.

`python pynq_server.py ADDRESS HOME BASE LIBRARIES`: listens on an address of the loopback network (others are
refused), serves the device tree of the folder HOME, keeps the board's clock there, and maps the engine's registers at
BASE. A loaded "bitstream" names a library in the folder LIBRARIES; the name must be a hash. Lines on stdin switch
faults on (`fault hang`) and list the files that were sent (`uploads`) and loaded (`loads`). The services are those of
pynq's generated modules: RemoteDevice, Mmio, RemoteBuffer. The engine executes a command while its register is written,
so a client never sees a busy engine. Limits: one client at a time; clocks and other registers of the processing system
only store values.
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
from millrace.sim.clock import STEP, Clock
from millrace.sim.memory import Memory
from millrace.sim.model import Model, timing

PORT = 7967
FIRMWARE = "/lib/firmware/"
MANAGER = "/sys/class/fpga_manager/fpga0/"
CHUNK = 1 << 21
REGISTERS = 1 << reg.ADDRESS_BITS
DIGEST = re.compile(r"[0-9a-f]{24}")
HANG_SECONDS = 3600


class BoardState:
    """The state of the board: files, registers, memory, and the engine after it was loaded."""

    def __init__(self, home: Path, base: int, libraries: Path) -> None:
        """Powered on, nothing loaded; `home` has the board's device tree and its clock."""
        self.base, self._libraries = base, libraries
        tree = home / "device-tree"
        self.files = {
            "/proc/version": b"Linux version 6.6.0-loopback (aarch64)\n",
            **{
                f"/proc/device-tree/{path.relative_to(tree)}": path.read_bytes()
                for path in tree.rglob("*")
                if path.is_file()
            },
            MANAGER + "state": b"operating\n",
            MANAGER + "flags": b"0\n",
        }
        self.memory = Memory()
        self.engine: Model | None = None
        self.fault = ""
        self.uploads: list[str] = []
        self.loads: list[str] = []
        self._words: dict[int, int] = {}
        self.lock = threading.Lock()
        self._simulating = False
        threading.Thread(target=self._tick, args=(Clock(home / "clock"),), daemon=True).start()

    def _tick(self, clock: Clock) -> None:
        """Advance the board's clock, except while the engine is simulated, which takes no time on a board."""
        while True:
            time.sleep(STEP)
            if self._simulating:
                clock.add(0.0)
            else:
                clock.wait()

    def write_file(self, path: str, data: bytes) -> None:
        """Store a file; a name written to the FPGA manager loads the file of that name."""
        if path.startswith(FIRMWARE):
            self.uploads.append(path[len(FIRMWARE) :])
        self.files[path] = data
        if path == MANAGER + "firmware":
            self._load(data.decode().strip())

    def _load(self, name: str) -> None:
        data = self.files[FIRMWARE + name]
        note = json.loads(data[data.index(b"{") :])
        if DIGEST.fullmatch(note["library"]) is None:
            raise ValueError(f"no library {note['library']!r}")
        if self.engine is not None:
            self.engine.close()
        self.memory = Memory()
        self.engine = Model(self._libraries / note["library"] / "model.so", self.memory, timing("ideal"))
        self.loads.append(name)

    def read(self, address: int) -> int:
        """Read a register of 32 bits."""
        offset = address - self.base
        if not 0 <= offset < REGISTERS:
            return self._words.get(address, 0)
        if self.engine is None:
            return 0
        value = self.engine.read_regs([offset])[0]
        return value ^ 1 if self.fault == "identity" and offset == reg.REG_BUILD_HASH else value

    def write(self, address: int, value: int) -> None:
        """Write a register of 32 bits; a command is executed at once."""
        offset = address - self.base
        if not 0 <= offset < REGISTERS:
            self._words[address] = value
        elif self.engine is not None:
            self.engine.write_regs([(offset, value)])
            if offset == reg.REG_COMMAND:
                self.apply_fault()
                self._simulating = True
                try:
                    self.engine.wait()
                finally:
                    self._simulating = False

    def apply_fault(self) -> None:
        """Drop the connection or stop responding, if that fault is on."""
        if self.fault == "drop":
            os._exit(1)
        if self.fault == "hang":
            time.sleep(HANG_SECONDS)


class Files(remote_device_pb2_grpc.RemoteDeviceServicer):  # type: ignore[misc]
    """The service for files on the board; also loads bitstreams."""

    def __init__(self, state: BoardState) -> None:
        """Of one board."""
        self._state = state

    def existsfile(self, request: Any, context: Any) -> Any:
        """Whether a file exists."""
        return remote_device_pb2.ExistsFileResponse(exists=request.file_path in self._state.files)

    def readfile(self, request: Any, context: Any) -> Iterator[Any]:
        """Send a file, in chunks."""
        data = self._state.files.get(request.file_path)
        if data is None:
            context.abort(grpc.StatusCode.NOT_FOUND, request.file_path)
            return
        yield remote_device_pb2.ReadFileResponse(data=data)

    def writefile(self, request_iterator: Iterable[Any], context: Any) -> Any:
        """Receive a file, in chunks."""
        parts = list(request_iterator)
        with self._state.lock:
            self._state.write_file(parts[0].file_path, b"".join(part.data for part in parts))
        return remote_device_pb2.WriteFileResponse()

    def set_bitstream_attrs(self, request: Any, context: Any) -> Any:
        """Accept the attributes without storing them."""
        return remote_device_pb2.SetBitstreamAttrsResponse(status=True)


class Registers(mmio_pb2_grpc.MmioServicer):  # type: ignore[misc]
    """The service for registers; a region is named by its base address."""

    def __init__(self, state: BoardState) -> None:
        """Of one board."""
        self._state = state

    def get_mmio(self, request: Any, context: Any) -> Any:
        """Open a region."""
        return mmio_pb2.GetMmioResponse(status=True, mmio_id=str(request.base_addr))

    def read(self, request: Any, context: Any) -> Any:
        """Read four bytes."""
        with self._state.lock:
            value = self._state.read(int(request.mmio_id) + request.offset)
        return mmio_pb2.ReadResponse(status=True, data=value)

    def write(self, request: Any, context: Any) -> Any:
        """Write words of four bytes."""
        first = int(request.mmio_id) + request.offset
        with self._state.lock:
            for at in range(0, len(request.data), 4):
                self._state.write(first + at, int.from_bytes(request.data[at : at + 4], "little"))
        return mmio_pb2.WriteResponse(status=True)


class Buffers(buffer_pb2_grpc.RemoteBufferServicer):  # type: ignore[misc]
    """The service for buffers in the engine's memory; a buffer is named by its address."""

    def __init__(self, state: BoardState) -> None:
        """Of one board."""
        self._state = state
        self._sizes: dict[str, int] = {}

    def allocate(self, request: Any, context: Any) -> Any:
        """Allocate a buffer."""
        with self._state.lock:
            name = str(self._state.memory.alloc(request.size))
        self._sizes[name] = request.size
        return buffer_pb2.AllocateResponse(buffer_id=name)

    def write(self, request_iterator: Iterable[Any], context: Any) -> Any:
        """Receive all of a buffer, in chunks."""
        parts = list(request_iterator)
        at, data = int(parts[0].buffer_id), b"".join(part.data for part in parts)
        with self._state.lock:
            cells = self._state.memory.cells
            cells[at : at + len(data)] = np.frombuffer(data, np.uint8)
            if self._state.fault == "bit":
                cells[at] ^= 0x10
        return buffer_pb2.BufferWriteResponse()

    def read(self, request: Any, context: Any) -> Iterator[Any]:
        """Send all of a buffer, in chunks."""
        at, size = int(request.buffer_id), self._sizes[request.buffer_id]
        with self._state.lock:
            data = self._state.memory.cells[at : at + size].tobytes()
        if self._state.fault == "short":
            data = data[:-8]
        for first in range(0, len(data), CHUNK):
            yield buffer_pb2.BufferReadResponse(data=data[first : first + CHUNK])

    def flush(self, request: Any, context: Any) -> Any:
        """Nothing to do: the memory is coherent."""
        return buffer_pb2.FlushResponse()

    def invalidate(self, request: Any, context: Any) -> Any:
        """Nothing to do: the memory is coherent."""
        return buffer_pb2.InvalidateResponse()

    def physical_address(self, request: Any, context: Any) -> Any:
        """The address of a buffer in the engine's memory."""
        return buffer_pb2.AddressResponse(address=int(request.buffer_id))

    def freebuffer(self, request: Any, context: Any) -> Any:
        """Free a buffer."""
        with self._state.lock:
            if self._sizes.pop(request.buffer_id, None) is not None:
                self._state.memory.free(int(request.buffer_id))
        return buffer_pb2.FreeBufferResponse()


def serve(address: str, state: BoardState) -> Any:
    """Start the server; refuses an address outside of the loopback network."""
    if not ipaddress.ip_address(address).is_loopback:
        raise SystemExit(f"{address} is not an address of the loopback network (127.0.0.0/8, ::1)")
    server = grpc.server(ThreadPoolExecutor(4), options=[("grpc.so_reuseport", 0)])
    remote_device_pb2_grpc.add_RemoteDeviceServicer_to_server(Files(state), server)
    mmio_pb2_grpc.add_MmioServicer_to_server(Registers(state), server)
    buffer_pb2_grpc.add_RemoteBufferServicer_to_server(Buffers(state), server)
    listen = f"[{address}]:{PORT}" if ":" in address else f"{address}:{PORT}"
    if server.add_insecure_port(listen) != PORT:
        raise SystemExit(f"{listen} is in use")
    server.start()
    return server


def main(arguments: list[str]) -> None:
    """Serve until stdin is closed."""
    address, home, base, libraries = arguments
    state = BoardState(Path(home), int(base, 16), Path(libraries))
    server = serve(address, state)
    _say("ready")
    for line in sys.stdin:
        word, _, argument = line.strip().partition(" ")
        if word == "fault":
            state.fault = argument
            _say("done")
        elif word in ("loads", "uploads"):
            _say(" ".join(getattr(state, word)))
    server.stop(None)


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
