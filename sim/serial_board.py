"""A simulated serial board: its verilated top level behind a pseudo-terminal; the driver runs unchanged.

`with SerialBoard() as board:` provides `board.path`, the terminal, and `board.loader`, a program with openFPGALoader's
command line. As on a real board, nothing responds before an image is loaded, and the line is gone for a moment after
loading (openFPGALoader detaches the serial driver from the USB chip). The clock stops while the line is idle, so an
idle board uses no CPU time; `board.clock` is the file of its time. `python -m millrace.sim.serial_board` starts a board
from a shell. Faults can be switched on. Limits: a bitstream cannot be simulated. The loader only checks that the file
is a bitstream for this part; the simulation then runs the RTL of the current sources, with their build hash.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import select
import socket
import struct
import sys
import tempfile
import threading
import time
import tty
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from millrace.host.base.errors import ArgumentError, DeviceUnavailable, MillraceError
from millrace.hw.catalog import Board, board
from millrace.hw.link import CLOCK_VARIABLE
from millrace.hw.program import ended_by_signals
from millrace.sim import build, tools
from millrace.sim.clock import Clock

SIM = Path(__file__).resolve().parent
NAME = "ulx3s"
DIVISOR, STILL_LOG2 = 4, 12
"""Clocks per bit, and the log2 of the clocks after which the line counts as idle; small values for fast tests."""
PIECE = 4000
"""Cycles between two checks of the terminal."""
IDLE_SECONDS, SOON_SECONDS = 0.05, 0.002
LINE_SECONDS = 0.2
"""How long the line is gone after loading."""
FAULTS = ("drop", "hang", "identity", "bit", "noise", "short")
"""Connection dropped, no responses, wrong build hash, a wrong bit in memory, a wrong bit on the line, bytes lost."""


def library(divisor: int = DIVISOR, still_log2: int = STILL_LOG2) -> Path:
    """The verilated top level; built on first use."""
    chosen = board(NAME)
    parameters = {**chosen.parameters, "DIVISOR": divisor, "STILL_LOG2": still_log2}
    key = hashlib.sha256(repr((sorted(parameters.items()), chosen.build_hash(), build.versions())).encode())
    key.update((SIM / "serial_board.cpp").read_bytes())
    home = tools.cache_dir() / "rtl" / f"{NAME}-{key.hexdigest()[:24]}"
    built = home / "board.so"
    if not built.exists():
        why = build.missing()
        if why is not None:
            raise DeviceUnavailable(f"the board cannot be simulated: {why}")
        tools.build_once(home, lambda work, made: _build(chosen, parameters, work, made / built.name))
    return built


def _build(chosen: Board, parameters: dict[str, int], work: Path, into: Path) -> None:
    report = tools.reporter(NAME)
    report("Verilator")
    options = [f"-G{name}={value}" for name, value in parameters.items()]
    options += [f"-GBUILD_HASH=64'h{chosen.build_hash()}", f"-I{build.RTL}", str(SIM / "model.vlt")]
    files = [str(path) for path in chosen.sources if path.suffix == ".sv"]
    build.verilate(chosen.design, [*options, *files], work)
    report("g++")
    units = [*build.combined_sources(work, chosen.design), SIM / "serial_board.cpp"]
    build.link(units, build.runtime(report), work, into, [f"-DDIVISOR={parameters['DIVISOR']}"])


class SerialBoard:
    """A simulated board; its thread runs the clock while there is work."""

    def __init__(self, divisor: int = DIVISOR, still_log2: int = STILL_LOG2, loader_version: str = "1.1.1") -> None:
        """Powered on, but not loaded; `loader_version`: the openFPGALoader that its loader follows."""
        self._call = _load(library(divisor, still_log2))
        self._idle_cycles = (1 << still_log2) + 2 * PIECE
        self.fault = ""
        self._out = b""
        self._board: int | None = None
        self.loads: list[str] = []
        self.flashed: list[str] = []
        self._near, far = os.openpty()
        tty.setraw(far)
        self._far = far  # stays open, so that the line survives its users
        self._home = tempfile.TemporaryDirectory(prefix="millrace-board-")
        home = Path(self._home.name)
        self.path, self._terminal, self._back_at = str(home / "ttyUSB0"), os.ttyname(far), 0.0
        os.symlink(self._terminal, self.path)
        self.clock = str(home / "clock")
        self._clock = Clock(home / "clock")
        self._hertz = board(NAME).clock_hz
        self.loader = self._write_loader(home, loader_version)
        self._control = socket.socket(socket.AF_UNIX)
        self._control.bind(str(Path(self._home.name) / "jtag"))
        self._control.listen()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="millrace-board", daemon=True)
        self._thread.start()

    def __enter__(self) -> SerialBoard:
        """The board runs already."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Power off."""
        self.close()

    def close(self) -> None:
        """Power off."""
        self._stopped.set()
        self._thread.join()
        self._unload()
        self._control.close()
        for line in (self._near, self._far):
            with suppress(OSError):
                os.close(line)
        self._home.cleanup()

    def break_with(self, fault: str) -> None:
        """Switch a fault on, or off with an empty name."""
        if fault and fault not in FAULTS:
            raise ArgumentError(f"fault {fault!r} is unknown; known are {', '.join(FAULTS)}")
        self.fault = fault

    @property
    def cycles(self) -> int:
        """Cycles since the board was loaded."""
        return int(self._call.sb_cycles(self._board)) if self._board else 0

    def _write_loader(self, home: Path, version: str) -> str:
        """Write a program that replaces openFPGALoader and loads this board."""
        path = home / "openFPGALoader"
        root = SIM.parent / "sdk"
        lines = (
            "#!/bin/sh",
            f'export PYTHONPATH="{root}:$PYTHONPATH"',
            f'exec "{sys.executable}" -m millrace.sim.loader "{home / "jtag"}" {version} "$@"',
        )
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        path.chmod(0o755)
        return str(path)

    # The thread.

    def _serve(self) -> None:
        responded = False
        idle = self._idle_cycles
        while not self._stopped.is_set():
            # A request usually follows a response soon: the simulation can pause until then.
            timeout = IDLE_SECONDS if idle >= self._idle_cycles else SOON_SECONDS if responded else 0.0
            ready, _, _ = select.select([self._near, self._control.fileno()], [], [], timeout)
            self._clock.wait()
            if self._control.fileno() in ready:
                self._take_image()
            self._return_line()
            data = os.read(self._near, 1 << 16) if self._near in ready else b""
            if self._board is None or self.fault == "hang":
                idle = self._idle_cycles
                continue
            if self.fault == "drop":
                self._hang_up()
                return
            if data:
                data = _altered(data, self.fault, to_board=True)
                self._call.sb_send(self._board, data, len(data))
                idle = 0
            responded = False
            if idle < self._idle_cycles:
                before = self.cycles
                idle = int(self._call.sb_run(self._board, PIECE))
                self._clock.add((self.cycles - before) / self._hertz)
                responded = self._forward()

    def _forward(self) -> bool:
        """Forward the board's output to the terminal; returns whether there was any."""
        buffer = ctypes.create_string_buffer(1 << 16)
        count = self._call.sb_receive(self._board, buffer, len(buffer))
        data = buffer.raw[:count]
        if data and self.fault == "short":
            data = data[: max(0, len(data) - 3)]
        if data:
            self._out += data
            framed = self.fault in ("identity", "noise")
            complete, self._out = _complete_responses(self._out) if framed else (self._out, b"")
            if complete:
                os.write(self._near, _altered(complete, self.fault, to_board=False))
        return bool(count)

    def _hang_up(self) -> None:
        """Close the line, as if the cable was pulled."""
        Path(self.path).unlink(missing_ok=True)
        os.close(self._far)
        os.close(self._near)
        self._near = self._far = os.open(os.devnull, os.O_RDWR)

    def _take_image(self) -> None:
        """Handle a request of the loader: a new image restarts the board."""
        line, _ = self._control.accept()
        with suppress(OSError), line, line.makefile("rw") as stream:
            try:
                loaded = json.loads(stream.readline())
            except ValueError:  # the loader was killed
                return
            self.loads.append(loaded["sha256"])
            if loaded["flash"]:
                self.flashed.append(loaded["sha256"])
            Path(self.path).unlink(missing_ok=True)
            self._unload()
            self._board = self._call.sb_create()
            stream.write("done\n")
        self._back_at = time.monotonic() + LINE_SECONDS

    def _return_line(self) -> None:
        """Bring the line back some time after loading."""
        if self._back_at and time.monotonic() > self._back_at:
            os.symlink(self._terminal, self.path)
            self._back_at = 0.0

    def _unload(self) -> None:
        if self._board is not None:
            self._call.sb_destroy(self._board)
            self._board = None


# Faults are injected into complete requests and responses, in the frames of `hw/serial/uart_bridge.sv`.


def _altered(data: bytes, fault: str, to_board: bool) -> bytes:
    if fault == "bit" and to_board and data[:1] == b"\x03" and len(data) > 12:
        # A wrong bit in memory, which the line's checksum cannot detect: the frame is valid, its contents are not.
        body = bytearray(data[:-4])
        body[8] ^= 0x10
        return bytes(body) + struct.pack("<I", zlib.crc32(bytes(body)))
    if fault == "noise" and not to_board:
        return data[:-5] + bytes([data[-5] ^ 0x10]) + data[-4:]
    if fault == "identity" and not to_board and len(data) == 8 + 4 * 7:
        # The response to the seven identity registers; the third is the build hash.
        body = bytearray(data[:-4])
        body[12] ^= 0x10
        return bytes(body) + struct.pack("<I", zlib.crc32(bytes(body)))
    return data


def _complete_responses(data: bytes) -> tuple[bytes, bytes]:
    """Split off the first complete response."""
    if len(data) < 4:
        return b"", data
    size = 8 + 4 * struct.unpack_from("<H", data, 2)[0]
    return (data[:size], data[size:]) if len(data) >= size else (b"", data)


def _load(path: Path) -> Any:
    call: Any = ctypes.CDLL(str(path))
    handle, size = ctypes.c_void_p, ctypes.c_uint32
    signatures: dict[str, tuple[Any, tuple[Any, ...]]] = {
        "sb_create": (handle, ()),
        "sb_destroy": (None, (handle,)),
        "sb_send": (None, (handle, ctypes.c_char_p, size)),
        "sb_run": (ctypes.c_uint64, (handle, ctypes.c_uint64)),
        "sb_receive": (size, (handle, ctypes.c_char_p, size)),
        "sb_cycles": (ctypes.c_uint64, (handle,)),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(call, name)
        function.restype, function.argtypes = result, arguments
    return call


def main(write: Callable[[str], object] = sys.stdout.write) -> None:
    """Start a board, print its link and loader, and run until Ctrl-C or SIGTERM."""
    with ended_by_signals(), suppress(KeyboardInterrupt), SerialBoard() as simulated:
        write(f"link serial:{simulated.path}\n")
        write(f"export PATH={Path(simulated.loader).parent}:$PATH {CLOCK_VARIABLE}={simulated.clock}\n")
        sys.stdout.flush()
        while True:
            time.sleep(3600)


if __name__ == "__main__":
    try:
        main()
    except MillraceError as problem:
        sys.exit(f"error: {problem}")
