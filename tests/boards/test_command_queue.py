"""The queue of commands over a fake transport: what is in flight, checksums, and recovery of an engine that hangs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from millrace.host.base.errors import DeviceFault
from millrace.host.base.types import Array
from millrace.hw import registers as reg
from millrace.hw.command_queue import RESETTING, CommandQueue
from millrace.hw.transfers import Transfer

DEPTH = 3
SUM = Transfer("A_WORDS", ((reg.REG_A_WORDS_CRC, 8, 8),))


class FakeEngine:
    """Registers only: every command ends at once with 7 cycles. `hangs`: waits fail; `drains`: polls until reset."""

    def __init__(self) -> None:
        self.written: list[tuple[int, int]] = []
        self.reads: list[Sequence[int]] = []
        self.queued = 0
        self.hangs, self.drains, self.code = False, 0, 0

    def write_regs(self, pairs: Sequence[tuple[int, int]]) -> None:
        self.written += pairs
        for offset, _ in pairs:
            self.queued += {reg.REG_COMMAND: 1, reg.REG_RESULT: -1}.get(offset, 0)
            self.queued = 0 if offset == reg.REG_RESET else self.queued

    def read_regs(self, offsets: Sequence[int]) -> list[int]:
        self.reads.append(offsets)
        self.drains -= offsets[0] == reg.REG_STATUS
        known = {reg.REG_STATUS: RESETTING if self.drains > 0 else 0, reg.REG_RESULT: 1 << 31 | self.code}
        return [known.get(offset, 7) for offset in offsets]

    def wait(self) -> None:
        assert self.queued
        if self.hangs:
            raise DeviceFault("no result")

    def write_mem(self, address: int, data: Array) -> None:
        raise AssertionError

    def read_mem(self, address: int, count: int, dtype: np.dtype[Any]) -> Array:
        raise AssertionError


def _post(queue: CommandQueue, count: int = 1) -> Any:
    return queue.post(reg.OP_INDEX, {reg.REG_FLAGS: 0, reg.REG_A_COUNT: count}, [SUM])


def test_as_many_commands_are_in_flight_as_fit() -> None:
    engine = FakeEngine()
    queue = CommandQueue(engine, DEPTH, 8, sums=False)
    commands = [_post(queue, count) for count in range(DEPTH)]
    assert (engine.queued, queue.room) == (DEPTH, 0)
    assert not any(command.ended for command in commands)
    _post(queue)  # waits for the first
    assert [command.ended for command in commands] == [True, False, False]
    assert queue.finish(commands[2]) == 7
    assert commands[1].ended
    assert queue.room == DEPTH - 1


def test_only_changed_parameters_are_written() -> None:
    engine = FakeEngine()
    queue = CommandQueue(engine, DEPTH, 8, sums=False)
    _post(queue, 5)
    del engine.written[:]
    _post(queue, 5)
    assert engine.written == [(reg.REG_COMMAND, reg.OP_INDEX)]


@pytest.mark.parametrize("sums", [False, True])
def test_checksums_come_with_the_result_if_they_are_wanted(sums: bool) -> None:
    engine = FakeEngine()
    queue = CommandQueue(engine, DEPTH, 8, sums)
    command = _post(queue)
    assert ((reg.REG_FLAGS, 1 << reg.FLAG_HOLD) in engine.written) == sums
    queue.finish(command)
    assert (reg.REG_A_WORDS_CRC in engine.reads[0]) == sums
    assert list(queue.sums(command)) == ["A_WORDS"]
    assert len(engine.reads) == 2 - sums


@pytest.mark.parametrize("drains", [0, 50])
def test_an_engine_that_hangs_is_reset_and_goes_on(drains: int) -> None:
    engine = FakeEngine()
    queue = CommandQueue(engine, DEPTH, 8, sums=True)
    lost = [_post(queue) for _ in range(2)]
    engine.hangs, engine.drains = True, drains
    for command in lost:
        with pytest.raises(DeviceFault, match="no result; the engine was reset and can be used again"):
            queue.finish(command)
    assert engine.written.count((reg.REG_RESET, 1)) == 1
    engine.hangs = False
    assert queue.usable
    assert queue.finish(_post(queue)) == 7


def test_an_engine_that_never_comes_back_is_not_usable() -> None:
    engine = FakeEngine()
    queue = CommandQueue(engine, DEPTH, 8, sums=True)
    command = _post(queue)
    engine.hangs, engine.drains = True, 1 << 30
    with pytest.raises(DeviceFault, match=r"^no result$"):
        queue.finish(command)
    assert not queue.usable
    with pytest.raises(DeviceFault, match="load its image again"):
        _post(queue)


def test_a_refused_command_does_not_touch_the_others() -> None:
    engine = FakeEngine()
    queue = CommandQueue(engine, DEPTH, 8, sums=False)
    first, second = _post(queue), _post(queue)
    engine.code = reg.ERR_BAD_STEP
    with pytest.raises(DeviceFault, match="refused opcode 2: BAD_STEP"):
        queue.finish(first)
    engine.code = 0
    assert queue.finish(second) == 7
