"""The engine's registers: identity, bad commands, the queue, and the engine's state after an error."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from millrace.host.base.errors import DeviceFault
from millrace.hw import registers as reg
from millrace.hw.driver import Engine
from millrace.hw.transfers import IndexAt, RunAt
from millrace.sim import build
from tests.sim.commands import BAD, check_bad_command, good_merge
from tests.sim.engines import Board, check_merge


@pytest.fixture(scope="module")
def board() -> Iterator[Board]:
    made = Board()
    yield made
    made.close()


@pytest.mark.parametrize(("what", "opcode", "spoilt", "code"), BAD, ids=[f"{bad[0]}-{bad[1]}" for bad in BAD])
def test_a_bad_command_says_why_and_leaves_the_engine_usable(
    board: Board, what: str, opcode: int, spoilt: dict[int, int], code: int
) -> None:
    check_bad_command(board, what, opcode, spoilt, code)


def test_commands_queue_and_results_wait_in_order(board: Board) -> None:
    model, depth = board.model, board.engine.shape.queue
    model.write_regs(list(good_merge(board).items()))
    opcodes = [reg.OP_MERGE, 99, reg.OP_INDEX, reg.OP_MERGE][:depth]
    model.write_regs([(reg.REG_COMMAND, opcode) for opcode in opcodes])
    found = []
    for _ in opcodes:
        model.wait()
        result, cycles = model.read_regs([reg.REG_RESULT, reg.REG_RESULT_CYCLES])
        found.append((result >> 8 & 255, result & 255, cycles > 0))
        model.write_regs([(reg.REG_RESULT, 0)])
    assert found == [(opcode, reg.ERR_UNKNOWN_OPCODE if opcode == 99 else reg.ERR_OK, True) for opcode in opcodes]
    assert model.read_regs([reg.REG_STATUS]) == [0]
    board.engine.commands.forget_staged()


def test_a_full_queue_loses_a_command_and_says_so(board: Board) -> None:
    model, depth = board.model, board.engine.shape.queue
    # Nobody reads results: first the result queue fills, then the engine stops, then the command queue fills.
    model.write_regs([(reg.REG_COMMAND, 0)] * (4 * depth))
    assert model.read_regs([reg.REG_ERROR]) == [reg.ERR_QUEUE_FULL]
    assert model.read_regs([reg.REG_STATUS])[0] & 2
    taken = 0
    while model.read_regs([reg.REG_RESULT])[0] >> 31:
        model.write_regs([(reg.REG_RESULT, 0)])
        taken += 1
    assert 2 * depth <= taken < 4 * depth
    rng = np.random.default_rng(2)
    check_merge(board, board.run(rng, 9, 50), board.run(rng, 7, 50, 9))


def test_an_engine_says_what_it_is(board: Board) -> None:
    shape = board.engine.shape
    assert (shape.key_bits, shape.lanes, shape.clusters, shape.pairs) == (64, 4, 2, 2)
    config = build.Config()
    assert shape.build == int(build.digest(config, build.RTL)[:16], 16)
    # Missing registers read as zero and ignore writes.
    board.model.write_regs([(0xFFC, 5), (reg.REG_MAGIC, 5)])
    assert board.model.read_regs([0xFFC, reg.REG_MAGIC]) == [0, reg.MAGIC_VALUE]


class Wrong:
    """A transport to a device that is no engine."""

    def __init__(self, values: dict[int, int]) -> None:
        self.values = values

    def read_regs(self, offsets: list[int]) -> list[int]:
        return [self.values.get(offset, 0) for offset in offsets]


def test_another_device_or_version_is_refused() -> None:
    with pytest.raises(DeviceFault, match="MAGIC reads 0x00000000"):
        Engine(Wrong({}))  # type: ignore[arg-type]
    newer = {reg.REG_MAGIC: reg.MAGIC_VALUE, reg.REG_VERSION: reg.VERSION_VALUE + (1 << 16)}
    with pytest.raises(DeviceFault, match="the engine has ABI 3"):
        Engine(Wrong(newer))  # type: ignore[arg-type]


def test_a_hang_is_a_fault() -> None:
    board = Board(idle=8)  # less than the memory's latency: the engine seems to hang
    run = RunAt(board.marked_array(40, board.word), board.marked_array(40, np.dtype(np.uint32)), 40)
    with pytest.raises(DeviceFault, match="nothing moved for 8 cycles"):
        board.engine.merge(run, run, run)
    board.close()


def test_a_step_that_the_engine_cannot_take_is_a_fault(board: Board) -> None:
    for step in (1, 4, 12):
        with pytest.raises(DeviceFault, match=f"step={step}"):
            board.engine.index(64, 100, IndexAt(64, step))
