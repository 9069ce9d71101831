"""The registers around the HLS engine: identity, bad commands, the queue, the engine after a mistake."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from millrace.host.base.errors import DeviceFault
from millrace.hw import registers as reg
from tests.sim.commands import BAD, check_bad_command, good_merge
from tests.sim.engines import Board

ONE_SLOT = [bad for bad in BAD if reg.REG_SLOT_A + 8 not in bad[2] or reg.REG_SLOT_A in bad[2]]
"""Without those that are wrong in the second slot alone, which this engine does not have."""


@pytest.fixture(scope="module")
def board() -> Iterator[Board]:
    made = Board(kind="hls")
    yield made
    made.close()


@pytest.mark.parametrize(("what", "opcode", "spoilt", "code"), ONE_SLOT, ids=[f"{bad[0]}-{bad[1]}" for bad in ONE_SLOT])
def test_a_bad_command_says_why_and_leaves_the_engine_usable(
    board: Board, what: str, opcode: int, spoilt: dict[int, int], code: int
) -> None:
    check_bad_command(board, what, opcode, spoilt, code)


def test_commands_queue_and_results_wait_in_order(board: Board) -> None:
    model = board.model
    model.write_regs(list(good_merge(board).items()))
    opcodes = [reg.OP_MERGE, 99, reg.OP_INDEX, reg.OP_MERGE]
    model.write_regs([(reg.REG_COMMAND, opcode) for opcode in opcodes])
    found = []
    for _ in opcodes:
        model.wait()
        result = model.read_regs([reg.REG_RESULT])[0]
        found.append((result >> 8 & 255, result & 255))
        model.write_regs([(reg.REG_RESULT, 0)])
    assert found == [(opcode, reg.ERR_UNKNOWN_OPCODE if opcode == 99 else reg.ERR_OK) for opcode in opcodes]
    assert model.read_regs([reg.REG_STATUS]) == [0]
    board.engine.commands.forget_staged()


def test_a_full_queue_loses_a_command_and_says_so(board: Board) -> None:
    model, depth = board.model, board.engine.shape.queue
    model.write_regs([(reg.REG_COMMAND, 0)] * (depth + 1))
    assert model.read_regs([reg.REG_ERROR]) == [reg.ERR_QUEUE_FULL]
    assert model.read_regs([reg.REG_STATUS]) == [depth << 8 | 2]
    for _ in range(depth):
        model.wait()
        model.write_regs([(reg.REG_RESULT, 0)])
    assert model.read_regs([reg.REG_STATUS, reg.REG_RESULT]) == [0, 0]


def test_waiting_for_nothing_is_a_fault(board: Board) -> None:
    with pytest.raises(DeviceFault, match="no command is queued"):
        board.model.wait()


def test_an_engine_says_what_it_is(board: Board) -> None:
    shape = board.engine.shape
    assert (shape.key_bits, shape.lanes, shape.clusters, shape.pairs, shape.index_depth) == (64, 4, 1, 1, 1 << 16)
    assert shape.build != 0
    board.model.write_regs([(0xFFC, 5), (reg.REG_MAGIC, 5)])
    assert board.model.read_regs([0xFFC, reg.REG_MAGIC]) == [0, reg.MAGIC_VALUE]
