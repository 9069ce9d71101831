"""Helpers for tests of an engine's registers: valid commands, invalid commands, and their error codes."""

from __future__ import annotations

import numpy as np

from millrace.hw import registers as reg
from tests.sim.engines import Board, check_merge, check_probe

FAR = 1 << 36
"""An address beyond the memory."""


def good_merge(board: Board) -> dict[int, int]:
    """The parameters of a valid merge: a of 20 and b of 12 tuples, all in the first cluster."""
    at = [board.memory.alloc(1024) for _ in range(7)]
    names = ("A_WORDS", "A_IDS", "B_WORDS", "B_IDS", "OUT_WORDS", "OUT_IDS", "INDEX")
    staged = {getattr(reg, f"REG_{name}"): address for name, address in zip(names, at, strict=True)}
    staged |= {getattr(reg, f"REG_{name}") + 4: 0 for name in names}
    counts = {reg.REG_A_COUNT: 20, reg.REG_B_COUNT: 12, reg.REG_STEP_LOG2: 3, reg.REG_FLAGS: 1 << reg.FLAG_INDEX}
    slots = {reg.REG_SLOT_A: 20, reg.REG_SLOT_B: 12, reg.REG_SLOT_A + 8: 20, reg.REG_SLOT_B + 8: 12}
    return {**staged, **counts, **slots}


def good_probe(board: Board) -> dict[int, int]:
    """The same for a probe of 12 bounds in 20 words."""
    return {**good_merge(board), reg.REG_FLAGS: 0, reg.REG_SLOT_A: 12, reg.REG_SLOT_A + 8: 12}


def command(board: Board, opcode: int, staged: dict[int, int]) -> int:
    """Run a command and return its error code."""
    model = board.model
    model.write_regs([*staged.items(), (reg.REG_COMMAND, opcode)])
    model.wait()
    result = model.read_regs([reg.REG_RESULT])[0]
    model.write_regs([(reg.REG_RESULT, 0)])
    board.engine.commands.forget_staged()  # the test bypassed the driver
    assert result >> 31
    assert result >> 8 & 255 == opcode
    return result & 255


def check_bad_command(board: Board, what: str, opcode: int, spoilt: dict[int, int], code: int) -> None:
    """A valid command, changed by `spoilt`, returns this error and leaves the engine usable."""
    staged = good_probe(board) if opcode == reg.OP_PROBE else good_merge(board)
    assert command(board, opcode, staged | spoilt) == code, what
    assert board.model.read_regs([reg.REG_ERROR]) == [code]
    board.model.write_regs([(reg.REG_ERROR, 0)])
    assert board.model.read_regs([reg.REG_ERROR]) == [reg.ERR_OK]
    rng = np.random.default_rng(1)
    check_merge(board, board.run(rng, 90, 50), board.run(rng, 70, 50, 90))
    words, _ = board.run(rng, 333, 80)
    check_probe(board, words, words[::5].copy(), words[::5].copy())


BAD: list[tuple[str, int, dict[int, int], int]] = [
    ("no such opcode", 0, {}, reg.ERR_UNKNOWN_OPCODE),
    ("no such opcode", 77, {}, reg.ERR_UNKNOWN_OPCODE),
    ("nothing to merge", reg.OP_MERGE, {reg.REG_A_COUNT: 0, reg.REG_B_COUNT: 0}, reg.ERR_ZERO_LENGTH),
    ("nothing to index", reg.OP_INDEX, {reg.REG_A_COUNT: 0}, reg.ERR_ZERO_LENGTH),
    ("no bounds", reg.OP_PROBE, {reg.REG_B_COUNT: 0}, reg.ERR_ZERO_LENGTH),
    ("no run", reg.OP_PROBE, {reg.REG_A_COUNT: 0}, reg.ERR_ZERO_LENGTH),
    ("words", reg.OP_MERGE, {reg.REG_A_WORDS: 0x1004}, reg.ERR_UNALIGNED),
    ("ids", reg.OP_MERGE, {reg.REG_B_IDS: 0x1002}, reg.ERR_UNALIGNED),
    ("out", reg.OP_MERGE, {reg.REG_OUT_WORDS: 0x1001}, reg.ERR_UNALIGNED),
    ("index", reg.OP_INDEX, {reg.REG_INDEX: 0x1004}, reg.ERR_UNALIGNED),
    ("upper bounds", reg.OP_PROBE, {reg.REG_B_IDS: 0x1004}, reg.ERR_UNALIGNED),
    ("starts", reg.OP_PROBE, {reg.REG_OUT_WORDS: 0x1002}, reg.ERR_UNALIGNED),
    ("one run", reg.OP_MERGE, {reg.REG_A_COUNT: 0x80000001}, reg.ERR_OVER_LIMIT),
    ("both runs", reg.OP_MERGE, {reg.REG_A_COUNT: 0x40000000, reg.REG_B_COUNT: 0x40000001}, reg.ERR_OVER_LIMIT),
    ("sum of 2**32", reg.OP_MERGE, {reg.REG_A_COUNT: 0x80000000, reg.REG_B_COUNT: 0x80000000}, reg.ERR_OVER_LIMIT),
    ("bounds", reg.OP_PROBE, {reg.REG_B_COUNT: 0xFFFFFFFF}, reg.ERR_OVER_LIMIT),
    ("small step", reg.OP_INDEX, {reg.REG_STEP_LOG2: 2}, reg.ERR_BAD_STEP),
    ("large step", reg.OP_PROBE, {reg.REG_STEP_LOG2: 32}, reg.ERR_BAD_STEP),
    ("large index", reg.OP_PROBE, {reg.REG_A_COUNT: (8 << 16) + 1}, reg.ERR_INDEX_TOO_LARGE),
    ("falling", reg.OP_MERGE, {reg.REG_SLOT_A: 21}, reg.ERR_BAD_SLICE),
    ("falling b", reg.OP_MERGE, {reg.REG_SLOT_B: 13}, reg.ERR_BAD_SLICE),
    ("too short", reg.OP_MERGE, {reg.REG_SLOT_A + 8: 19, reg.REG_SLOT_A: 19}, reg.ERR_BAD_SLICE),
    ("too long", reg.OP_INDEX, {reg.REG_SLOT_A + 8: 21}, reg.ERR_BAD_SLICE),
    ("bounds left", reg.OP_PROBE, {reg.REG_SLOT_A: 5, reg.REG_SLOT_A + 8: 6}, reg.ERR_BAD_SLICE),
    ("no memory to read", reg.OP_MERGE, {reg.REG_A_WORDS + 4: FAR >> 32}, reg.ERR_AXI_ERROR),
    ("no memory to write", reg.OP_MERGE, {reg.REG_OUT_IDS + 4: FAR >> 32}, reg.ERR_AXI_ERROR),
    ("no index", reg.OP_PROBE, {reg.REG_INDEX + 4: FAR >> 32}, reg.ERR_AXI_ERROR),
    ("no partitions", reg.OP_PROBE, {reg.REG_A_WORDS + 4: FAR >> 32}, reg.ERR_AXI_ERROR),
    ("no bounds there", reg.OP_PROBE, {reg.REG_B_WORDS + 4: FAR >> 32}, reg.ERR_AXI_ERROR),
]
