"""cocotb bench of `bisort_engine`: AXI4-Lite registers and AXI4 memory by cocotbext-axi, with idle and back-pressure.

cocotbext-axi drives one AXI port, so the engine has one cluster here. Data are small: volume is the in-process model's.
"""

from __future__ import annotations

import itertools
import os
import random
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import cocotb
import numpy as np
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, RisingEdge, with_timeout
from cocotbext.axi import AxiBus, AxiLiteBus, AxiLiteMaster, AxiRam

from millrace.hw import registers as reg
from millrace.hw.crc import of_beats

KEY_W = int(os.environ["ENGINE_KEY_W"])
PAIRS = int(os.environ["ENGINE_PAIRS"])
WORD: Any = np.uint32 if KEY_W == 32 else np.uint64
MEMORY_BYTES = 1 << 16
AT = {name: number * 0x1000 for number, name in enumerate(("a", "ai", "b", "bi", "out", "outi", "index", "more"), 1)}

Pauses = Callable[[], Iterator[bool]]
PAUSES: dict[str, Pauses | None] = {
    "never": None,
    "random": lambda: iter(lambda: random.random() < 0.5, None),
    "bursts": lambda: itertools.cycle([False] * 19 + [True] * 23),
}
"""When a channel pauses; the matrix of idle and back-pressure patterns combines these."""
MATRIX = os.environ["ENGINE_PAUSES"].split(",")
"""The patterns of this run."""


class TB:
    """The engine between a register master and a memory."""

    def __init__(self, dut: Any, reads: str = "never", writes: str = "never", lite: str = "never") -> None:
        self.dut = dut
        Clock(dut.clk, 4, "ns").start()
        self.registers = AxiLiteMaster(AxiLiteBus.from_prefix(dut, "s_axil"), dut.clk, dut.rst)
        self.memory = AxiRam(AxiBus.from_prefix(dut, "m_axi"), dut.clk, dut.rst, size=MEMORY_BYTES)
        read, write = self.memory.read_if, self.memory.write_if
        for channel in (read.ar_channel, read.r_channel):
            self._pause(channel, reads)
        for channel in (write.aw_channel, write.w_channel, write.b_channel):
            self._pause(channel, writes)
        for channel in (self.registers.write_if.aw_channel, self.registers.write_if.w_channel):
            self._pause(channel, lite)

    @staticmethod
    def _pause(channel: Any, name: str) -> None:
        pauses = PAUSES[name]
        if pauses is not None:
            channel.set_pause_generator(pauses())

    async def start(self) -> None:
        self.dut.rst.value = 1
        await ClockCycles(self.dut.clk, 4)
        self.dut.rst.value = 0
        await ClockCycles(self.dut.clk, 2)
        await self.registers.write_dword(reg.REG_IRQ_ENABLE, 1)

    async def command(self, opcode: int, staged: dict[int, int]) -> int:
        """The error code of a command, after its interrupt."""
        for offset, value in staged.items():
            await self.registers.write_dword(offset, value)
        await self.registers.write_dword(reg.REG_COMMAND, opcode)
        if not self.dut.irq.value:
            await with_timeout(RisingEdge(self.dut.irq), 200, "us")
        result = int(await self.registers.read_dword(reg.REG_RESULT))
        await self.registers.write_dword(reg.REG_RESULT, 0)
        await ClockCycles(self.dut.clk, 3)
        assert not self.dut.irq.value
        return result & 255

    def put(self, name: str, data: Any, offset: int = 0) -> int:
        address = AT[name] + offset * data.itemsize
        self.memory.write(address, data.tobytes())
        return int(address)

    def get(self, address: int, count: int, dtype: Any) -> Any:
        return np.frombuffer(self.memory.read(address, count * np.dtype(dtype).itemsize), dtype)


def _staged(**values: int) -> dict[int, int]:
    return {getattr(reg, f"REG_{name}"): value for name, value in values.items()}


def _slices(bounds: int) -> dict[int, int]:
    """The slots of a probe: equal parts, one per pair."""
    return {reg.REG_SLOT_A + k * reg.STRIDES["SLOT_A"]: bounds * (k + 1) // PAIRS for k in range(PAIRS)}


def _run(rng: np.random.Generator, size: int, keys: int) -> tuple[Any, Any]:
    words, ids = rng.integers(0, keys, size).astype(WORD), rng.permutation(size).astype(np.uint32)
    order = np.lexsort((ids, words))
    return words[order], ids[order]


async def _merge(tb: TB, rng: np.random.Generator, sizes: tuple[int, int], offset: int) -> None:
    (a, ai), (b, bi) = (_run(rng, size, 60) for size in sizes)
    total, size = sum(sizes), np.dtype(WORD).itemsize
    out, outi, index = AT["out"] + offset * size, AT["outi"] + offset * 4, AT["index"] + offset * size
    mark = b"\xa5" * 0x1000
    for name in ("out", "outi", "index"):
        tb.memory.write(AT[name], mark)
    staged = _staged(
        A_WORDS=tb.put("a", a, offset),
        A_IDS=tb.put("ai", ai, offset),
        B_WORDS=tb.put("b", b),
        B_IDS=tb.put("bi", bi, offset),
    )
    staged |= _staged(OUT_WORDS=out, OUT_IDS=outi, INDEX=index, A_COUNT=sizes[0], B_COUNT=sizes[1], STEP_LOG2=3)
    staged |= _staged(FLAGS=1 << reg.FLAG_INDEX, SLOT_A=sizes[0], SLOT_B=sizes[1])
    assert await tb.command(reg.OP_MERGE, staged) == reg.ERR_OK
    words, ids = np.concatenate([a, b]), np.concatenate([ai, bi])
    order = np.lexsort((ids, words))
    np.testing.assert_array_equal(tb.get(out, total, WORD), words[order])
    np.testing.assert_array_equal(tb.get(outi, total, np.uint32), ids[order])
    np.testing.assert_array_equal(tb.get(index, -(-total // 8), WORD), words[order][::8])
    # Memory around the output is unchanged.
    assert tb.memory.read(out + total * size, 16) == mark[:16]
    assert tb.memory.read(AT["outi"], offset * 4) == mark[: offset * 4]


async def _probe(tb: TB, rng: np.random.Generator, size: int, bounds: int, offset: int) -> None:
    words, _ = _run(rng, size, 200)
    low, high = (np.sort(rng.integers(0, 210, bounds).astype(WORD)) for _ in range(2))
    staged = _staged(A_WORDS=tb.put("a", words), INDEX=tb.put("index", words[::8].copy(), offset), STEP_LOG2=3, FLAGS=0)
    bounds_at = _staged(B_WORDS=tb.put("b", low, offset), B_IDS=tb.put("bi", high, 3 * offset))
    staged |= bounds_at | _staged(A_COUNT=size, B_COUNT=bounds)
    staged |= _staged(OUT_WORDS=AT["out"] + 4 * offset, OUT_IDS=AT["outi"], SLOT_B=0) | _slices(bounds)
    assert await tb.command(reg.OP_PROBE, staged) == reg.ERR_OK
    starts, ends = tb.get(AT["out"] + 4 * offset, bounds, np.uint32), tb.get(AT["outi"], bounds, np.uint32)
    np.testing.assert_array_equal(starts, np.searchsorted(words, low, "left"))
    np.testing.assert_array_equal(ends, np.searchsorted(words, high, "right"))


@cocotb.test()
@cocotb.parametrize(reads=MATRIX, writes=MATRIX)
async def merges_and_probes(dut: Any, reads: str, writes: str) -> None:
    """Every rhythm of the memory's channels; unaligned starts, empty runs."""
    tb = TB(dut, reads, writes, lite=random.choice(MATRIX))
    await tb.start()
    rng = np.random.default_rng(random.getrandbits(32))
    for turn, sizes in enumerate(((70, 45), (0, 9), (3, 0), (6, 5))):
        await _merge(tb, rng, sizes, offset=turn)
    for turn, (size, bounds) in enumerate(((150, 60), (5, 3))):
        await _probe(tb, rng, size, bounds, offset=turn)


@cocotb.test()
async def reports_bad_commands(dut: Any) -> None:
    """Each bad command returns its error code, and a merge in between works."""
    tb = TB(dut)
    await tb.start()
    rng = np.random.default_rng(1)
    assert await tb.registers.read_dword(reg.REG_MAGIC) == reg.MAGIC_VALUE
    for opcode, spoilt, code in (
        (0, {}, reg.ERR_UNKNOWN_OPCODE),
        (reg.OP_MERGE, _staged(A_COUNT=0, B_COUNT=0), reg.ERR_ZERO_LENGTH),
        (reg.OP_MERGE, _staged(A_COUNT=1, OUT_IDS=3), reg.ERR_UNALIGNED),
        (reg.OP_INDEX, _staged(A_COUNT=0x80000001, OUT_IDS=0), reg.ERR_OVER_LIMIT),
        (reg.OP_INDEX, _staged(A_COUNT=8, SLOT_A=9, STEP_LOG2=3), reg.ERR_BAD_SLICE),
    ):
        assert await tb.command(opcode, spoilt) == code
        await _merge(tb, rng, (12, 9), offset=1)


@cocotb.test()
async def indexes_and_probes_bands(dut: Any) -> None:
    """INDEX; a merge without an index; bands computed from keys; an index that stays on the chip."""
    tb = TB(dut)
    await tb.start()
    rng = np.random.default_rng(2)
    words, ids = _run(rng, 90, 300)
    keys = np.sort(rng.integers(0, 310, 25).astype(WORD))
    run = _staged(A_WORDS=tb.put("a", words), A_IDS=tb.put("ai", ids), A_COUNT=90, STEP_LOG2=3, INDEX=AT["index"])
    assert await tb.command(reg.OP_INDEX, {**run, **_staged(SLOT_A=90, SLOT_B=0, FLAGS=0)}) == reg.ERR_OK
    np.testing.assert_array_equal(tb.get(AT["index"], 12, WORD), words[::8])
    more = _staged(B_WORDS=tb.put("b", words[:0]), B_COUNT=0, OUT_WORDS=AT["out"], OUT_IDS=AT["outi"])
    assert await tb.command(reg.OP_MERGE, more) == reg.ERR_OK
    np.testing.assert_array_equal(tb.get(AT["out"], 90, WORD), words)
    bounds = _staged(B_WORDS=tb.put("more", keys), B_COUNT=25, BELOW=7, ABOVE=9, LEAST=3, MOST=290) | _slices(25)
    for flags in (1 << reg.FLAG_BAND, 1 << reg.FLAG_BAND | 1 << reg.FLAG_KEEP):
        assert await tb.command(reg.OP_PROBE, {**bounds, **_staged(FLAGS=flags)}) == reg.ERR_OK
        low, high = np.maximum(keys.astype(np.int64) - 7, 3), np.minimum(keys.astype(np.int64) + 9, 290)
        np.testing.assert_array_equal(
            tb.get(AT["out"], 25, np.uint32), np.searchsorted(words, low.astype(WORD), "left")
        )
        np.testing.assert_array_equal(
            tb.get(AT["outi"], 25, np.uint32), np.searchsorted(words, high.astype(WORD), "right")
        )
    assert await tb.registers.read_dword(reg.REG_INDEX_ROWS) == 12


@cocotb.test()
async def shows_its_registers(dut: Any) -> None:
    """Identity, parameters and counters can be read; missing registers read as zero."""
    tb = TB(dut)
    await tb.start()
    await _merge(tb, np.random.default_rng(3), (30, 20), offset=0)
    shown = {offset: int(await tb.registers.read_dword(offset)) for offset in (*range(0, 0x60, 4), 0xFFC)}
    assert (shown[reg.REG_MAGIC], shown[reg.REG_VERSION], shown[0xFFC]) == (reg.MAGIC_VALUE, reg.VERSION_VALUE, 0)
    assert shown[reg.REG_SHAPE] & 0xFF == KEY_W
    assert (shown[reg.REG_COMMANDS], shown[reg.REG_ERROR], shown[reg.REG_IRQ_ENABLE]) == (1, 0, 1)
    assert await tb.registers.read_dword(reg.REG_A_COUNT) == 30
    assert await tb.registers.read_dword(reg.REG_MERGER_ROWS) == 50
    assert await tb.registers.read_dword(reg.REG_LOW_ROWS) == 0
    for after_the_sums in (reg.REG_OUT_INDEX_CRC + 4, reg.REG_ENDS_CRC + 4):
        assert await tb.registers.read_dword(after_the_sums) == 0


@cocotb.test()
async def sums_what_it_moves(dut: Any) -> None:
    """The checksums of readers and writers, of clusters, pairs and the index, are those of the data in memory."""
    tb = TB(dut)
    await tb.start()
    rng, size = np.random.default_rng(5), np.dtype(WORD).itemsize
    beat = int(await tb.registers.read_dword(reg.REG_PORT)) & 0xFFFF

    async def check(register: int, address: int, length: int) -> None:
        remainder = int(await tb.registers.read_dword(register))
        found = of_beats(remainder, length, after=-(address + length) % beat)
        assert found == zlib.crc32(tb.memory.read(address, length)), f"register {register:#x}"

    await _merge(tb, rng, (30, 20), offset=1)
    await check(reg.REG_A_WORDS_CRC, AT["a"] + size, 30 * size)
    await check(reg.REG_B_IDS_CRC, AT["bi"] + 4, 20 * 4)
    await check(reg.REG_OUT_IDS_CRC, AT["outi"] + 4, 50 * 4)
    await check(reg.REG_OUT_INDEX_CRC, AT["index"] + size, 7 * size)
    for rows, samples in ((190, 24), (150, 19)):
        await _probe(tb, rng, rows, 60, offset=5)
        for pair in range(PAIRS):
            first, count = 60 * pair // PAIRS, 60 // PAIRS
            await check(reg.REG_LOW_CRC + pair * reg.STRIDES["LOW_CRC"], AT["b"] + (5 + first) * size, count * size)
            await check(reg.REG_HIGH_CRC + pair * reg.STRIDES["HIGH_CRC"], AT["bi"] + (15 + first) * size, count * size)
            await check(reg.REG_ENDS_CRC + pair * reg.STRIDES["ENDS_CRC"], AT["outi"] + 4 * first, count * 4)
        await check(reg.REG_INDEX_CRC, AT["index"] + 5 * size, samples * size)


@cocotb.test()
async def refuses_what_does_not_fit(dut: Any) -> None:
    """Bad pointers, steps and indexes; commands beyond the queue; unread results stop the engine."""
    tb = TB(dut)
    await tb.start()
    await _merge(tb, np.random.default_rng(4), (40, 30), offset=0)
    for opcode, spoilt, code in (
        (reg.OP_MERGE, _staged(A_WORDS=AT["a"] + 1), reg.ERR_UNALIGNED),
        (reg.OP_INDEX, _staged(A_WORDS=AT["a"], STEP_LOG2=2), reg.ERR_BAD_STEP),
        (reg.OP_MERGE, {reg.REG_B_IDS + 4: 1 << 8}, reg.ERR_BAD_ADDRESS),
        (reg.OP_INDEX, {reg.REG_B_IDS + 4: 0}, reg.ERR_BAD_STEP),
        (reg.OP_PROBE, _staged(STEP_LOG2=3, A_COUNT=8 * 64 + 1), reg.ERR_INDEX_TOO_LARGE),
    ):
        assert await tb.command(opcode, spoilt) == code
    await tb.registers.write_dword(reg.REG_A_COUNT, 40)
    before = int(await tb.registers.read_dword(reg.REG_COMMANDS))
    for _ in range(12):
        await tb.registers.write_dword(reg.REG_COMMAND, reg.OP_MERGE)
    assert await tb.registers.read_dword(reg.REG_ERROR) == reg.ERR_QUEUE_FULL
    await tb.registers.write_dword(reg.REG_ERROR, 0)
    assert await tb.registers.read_dword(reg.REG_ERROR) == 0
    await ClockCycles(dut.clk, 4000)
    taken = 0
    while int(await tb.registers.read_dword(reg.REG_RESULT)) >> 31:
        await tb.registers.write_dword(reg.REG_RESULT, 0)
        await ClockCycles(dut.clk, 600)
        taken += 1
    assert taken == int(await tb.registers.read_dword(reg.REG_COMMANDS)) - before > 4


@cocotb.test()
@cocotb.parametrize(channel=["ar", "r", "aw", "w", "b"])
async def recovers_by_a_reset(dut: Any, channel: str) -> None:
    """A channel of the memory stalls in a merge: the reset waits for it, then the engine works again."""
    tb = TB(dut)
    await tb.start()
    rng = np.random.default_rng(6)
    await _merge(tb, rng, (30, 20), offset=1)
    memory = tb.memory.read_if if channel in ("ar", "r") else tb.memory.write_if
    stalled = getattr(memory, f"{channel}_channel")
    stalled.pause = True
    await tb.registers.write_dword(reg.REG_COMMAND, reg.OP_MERGE)
    await tb.registers.write_dword(reg.REG_COMMAND, reg.OP_MERGE)
    await ClockCycles(dut.clk, 400)
    assert int(await tb.registers.read_dword(reg.REG_STATUS)) & 0b1101 == 0b0001
    await tb.registers.write_dword(reg.REG_RESET, 1)
    await ClockCycles(dut.clk, 50)
    assert int(await tb.registers.read_dword(reg.REG_STATUS)) & 0b1101 == 0b1001, "it must wait for the memory"
    stalled.pause = False
    await ClockCycles(dut.clk, 400)
    assert int(await tb.registers.read_dword(reg.REG_STATUS)) == 0, "the second command is dropped too"
    assert await tb.registers.read_dword(reg.REG_A_COUNT) == 30
    # All bursts of the first command may have been announced: then it ends, but its result is dropped.
    assert await tb.registers.read_dword(reg.REG_COMMANDS) <= 2
    await _merge(tb, rng, (25, 40), offset=2)
    await _probe(tb, rng, 150, 60, offset=1)


@cocotb.test()
async def holds_the_next_command(dut: Any) -> None:
    """After a command with HOLD the next one begins when the result is dropped; without it at once."""
    tb = TB(dut)
    await tb.start()
    await _merge(tb, np.random.default_rng(7), (30, 20), offset=0)
    done = int(await tb.registers.read_dword(reg.REG_COMMANDS))
    for flags, ended in ((1 << reg.FLAG_HOLD, 1), (0, 2)):
        await tb.registers.write_dword(reg.REG_FLAGS, flags)
        for _ in range(2):
            await tb.registers.write_dword(reg.REG_COMMAND, reg.OP_MERGE)
        await ClockCycles(dut.clk, 1500)
        assert int(await tb.registers.read_dword(reg.REG_COMMANDS)) == done + ended
        for _ in range(2):
            assert int(await tb.registers.read_dword(reg.REG_RESULT)) & 0x800000FF == 0x80000000
            await tb.registers.write_dword(reg.REG_RESULT, 0)
            await ClockCycles(dut.clk, 1500)
        done += 2
    assert await tb.registers.read_dword(reg.REG_COMMANDS) == done
