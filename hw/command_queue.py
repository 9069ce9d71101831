"""Commands of an engine: staged, queued in the engine, collected in order; recovers an engine that hangs.

Registers keep a command's parameters, so only those that changed are written. Several commands may be in flight, as
many as the engine queues; it executes them in order. With checksums wanted, a command has flag HOLD: the next one is
queued, but begins only when the result was dropped, and checksums are read together with the result.

An engine that gives no result is reset by its RESET register, which lets memory answer first. All commands in flight
then fail with the same `DeviceFault`, and the engine can be used again. If memory never answers, `usable` is False.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Protocol

import numpy as np

from millrace.host.base.errors import DeviceFault
from millrace.host.base.types import Array
from millrace.hw import registers as reg
from millrace.hw.crc import combined, of_beats
from millrace.hw.transfers import Transfer

RESET_POLLS = 2000
"""How often the end of a reset is asked for: more cycles or seconds than a memory takes for the bursts under way."""
RESETTING = 1 << 3
"""STATUS: a reset waits for the memory."""


class Transport(Protocol):
    """Access to an engine's registers and memory."""

    def write_regs(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Write registers, by offset, in this order."""

    def read_regs(self, offsets: Sequence[int]) -> list[int]:
        """Read registers, by offset, in this order."""

    def write_mem(self, address: int, data: Array) -> None:
        """Copy into the engine's memory."""

    def read_mem(self, address: int, count: int, dtype: np.dtype[Any]) -> Array:
        """A copy of `count` elements of the engine's memory."""

    def wait(self) -> None:
        """Return when the interrupt is high, or raise `DeviceFault`."""


class Command:
    """A command in flight, or its result."""

    def __init__(self, opcode: int, transfers: Sequence[Transfer]) -> None:
        """Not ended."""
        self.opcode, self.transfers = opcode, transfers
        self.cycles: int | None = None
        self.error: DeviceFault | None = None
        self.remainders: dict[int, int] | None = None

    @property
    def ended(self) -> bool:
        """Whether there is a result or an error."""
        return self.cycles is not None or self.error is not None


class CommandQueue:
    """The commands of one engine."""

    def __init__(self, transport: Transport, depth: int, beat_bytes: int, sums: bool) -> None:
        """`depth`: commands that the engine takes; `sums`: read the checksums of every command with its result."""
        self._transport, self._depth, self._beat_bytes, self._sums = transport, depth, beat_bytes, sums
        self._staged: dict[int, int] = {}
        self._open: deque[Command] = deque()
        self.usable = True
        transport.write_regs([(reg.REG_IRQ_ENABLE, 1)])

    @property
    def room(self) -> int:
        """How many commands can be posted without a wait."""
        return self._depth - len(self._open)

    def forget_staged(self) -> None:
        """Somebody else wrote parameters: write all of them with the next command."""
        self._staged.clear()

    def post(self, opcode: int, staged: dict[int, int], transfers: Sequence[Transfer]) -> Command:
        """Queue a command; waits for the oldest one if there is no room."""
        if not self.usable:
            raise DeviceFault("the engine hangs and could not be reset: load its image again (`millrace board reset`)")
        while not self.room:
            self._collect()
        if self._sums:
            staged[reg.REG_FLAGS] |= 1 << reg.FLAG_HOLD
        pairs = [(offset, value) for offset, value in staged.items() if self._staged.get(offset) != value]
        self._staged |= staged
        command = Command(opcode, transfers)
        self._transport.write_regs([*pairs, (reg.REG_COMMAND, opcode)])
        self._open.append(command)
        return command

    def finish(self, command: Command) -> int:
        """Wait for a command; returns its cycles or raises its error."""
        while not command.ended:
            self._collect()
        if command.error is not None:
            raise command.error
        assert command.cycles is not None
        return command.cycles

    def sums(self, command: Command) -> dict[str, int]:
        """The CRC-32 of each array that a command moved, computed by the engine, by the array's name.

        If checksums are not read with every result, only those of the last command that began are there.
        """
        if command.remainders is None:
            command.remainders = self._read(_registers(command))
        read = command.remainders
        return {
            transfer.name: combined(
                (of_beats(read[offset], size, -end % self._beat_bytes), size) for offset, size, end in transfer.slices
            )
            for transfer in command.transfers
        }

    def reset(self) -> None:
        """Reset the engine by its register; commands in flight are lost. Sets `usable`."""
        self._open.clear()
        self.usable = False
        self._transport.write_regs([(reg.REG_RESET, 1)])
        for _ in range(RESET_POLLS):
            (status,) = self._transport.read_regs((reg.REG_STATUS,))
            if not status & RESETTING:
                self.usable = True
                return

    def _collect(self) -> None:
        """Take the result of the oldest command."""
        try:
            self._transport.wait()
        except DeviceFault as error:
            self._recover(error)
            return
        command = self._open[0]
        offsets = _registers(command) if self._sums else []
        read = self._read([reg.REG_RESULT, reg.REG_RESULT_CYCLES, *offsets])
        self._transport.write_regs([(reg.REG_RESULT, 0)])
        self._open.popleft()
        if self._sums:
            command.remainders = read
        code = read[reg.REG_RESULT] & 255
        if code:
            why = reg.ERRORS.get(code, f"error {code}")
            command.error = DeviceFault(f"the engine refused opcode {command.opcode}: {why}")
        else:
            command.cycles = read[reg.REG_RESULT_CYCLES]

    def _recover(self, fault: DeviceFault) -> None:
        """Reset the engine after a fault; every command in flight ends with it."""
        lost = list(self._open)
        with suppress(DeviceFault):  # a link that is closed
            self.reset()
        note = "; the engine was reset and can be used again" if self.usable else ""
        for command in lost:
            command.error = DeviceFault(f"{fault}{note}")

    def _read(self, offsets: Sequence[int]) -> dict[int, int]:
        return dict(zip(offsets, self._transport.read_regs(offsets), strict=True))


def _registers(command: Command) -> list[int]:
    """The registers with the checksums of a command's transfers."""
    return [offset for transfer in command.transfers for offset, _, _ in transfer.slices]
