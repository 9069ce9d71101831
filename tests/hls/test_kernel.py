"""The HLS engine as a kernel with buffers of its own for every argument, as XRT calls it; and the linter's rules."""

from __future__ import annotations

import ctypes
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from millrace.host.base.errors import DeviceUnavailable
from millrace.host.base.types import Array
from millrace.hw import registers as reg
from millrace.sim import hls_build, hls_lint
from millrace.sim.hls_build import HLS, UNITS, Shape

HERE = Path(__file__).resolve().parent
PORTS = ("command", "result", "a_words", "a_ids", "b_words", "b_ids", "index_in", "out_words", "out_ids", "index_out")
BUFFER = 1 << 14
MARK = 0xA5


class Kernel:
    """The compiled kernel, and a buffer for each of its ports."""

    def __init__(self) -> None:
        units = [*(HLS / f"{unit}.cpp" for unit in UNITS), HERE / "kernel.cpp"]
        self._call = ctypes.CDLL(str(hls_build.built("kernel", Shape(64, 4, 10), HLS, units))).call_kernel
        raw = [np.full(BUFFER + 64, MARK, np.uint8) for _ in PORTS]
        # A port beat has 64 bytes; XRT's buffers begin at pages.
        self.buffers = {
            name: bytes_[-bytes_.ctypes.data % 64 :][:BUFFER] for name, bytes_ in zip(PORTS, raw, strict=True)
        }

    def put(self, port: str, offset: int, data: Array) -> int:
        self.buffers[port][offset : offset + data.nbytes] = data.view(np.uint8)
        return offset

    def get(self, port: str, offset: int, count: int, dtype: Any) -> Array:
        size = count * np.dtype(dtype).itemsize
        return self.buffers[port][offset : offset + size].copy().view(dtype)

    def run(self, opcode: int, **values: int) -> list[int]:
        """Execute a command; returns the words of the result."""
        command = np.zeros(48, np.uint32)
        command[0] = opcode
        for name, value in values.items():
            at = 1 + (getattr(reg, f"REG_{name}") - reg.REG_A_WORDS) // 4
            command[at] = value
        self.put("command", 0, command)
        pointers = [self.buffers[name].ctypes.data for name in PORTS]
        self._call((ctypes.c_void_p * len(PORTS))(*pointers))
        return [int(word) for word in self.get("result", 0, 9, np.uint32)]


@pytest.fixture(scope="module")
def kernel() -> Kernel:
    return Kernel()


def _run(rng: np.random.Generator, size: int) -> tuple[Array, Array]:
    return np.sort(rng.integers(0, 300, size).astype(np.uint64)), np.arange(size, dtype=np.uint32)


@pytest.mark.parametrize("offset", [0, 1, 7, 16])
def test_buffers_are_relative_and_their_neighbours_stay(kernel: Kernel, offset: int) -> None:
    rng = np.random.default_rng(offset)
    (a, ai), (b, bi) = _run(rng, 100 + offset), _run(rng, 37)
    size, words, ids = len(a) + len(b), 8 * offset, 4 * offset
    for port in ("out_words", "out_ids", "index_out"):
        kernel.buffers[port][:] = MARK
    given = {"A_WORDS": kernel.put("a_words", words, a), "A_IDS": kernel.put("a_ids", ids, ai)}
    given |= {"B_WORDS": kernel.put("b_words", 0, b), "B_IDS": kernel.put("b_ids", ids, bi)}
    counts = {"A_COUNT": len(a), "B_COUNT": len(b), "SLOT_A": len(a), "SLOT_B": len(b)}
    outs = {"OUT_WORDS": words, "OUT_IDS": ids, "INDEX": words, "STEP_LOG2": 3, "FLAGS": 1 << reg.FLAG_INDEX}
    done = kernel.run(reg.OP_MERGE, **given, **counts, **outs)
    assert done[:4] == [reg.ERR_OK, size, size, -(-size // 8)]
    merged, order = np.concatenate([a, b]), np.lexsort((np.concatenate([ai, bi]), np.concatenate([a, b])))
    np.testing.assert_array_equal(kernel.get("out_words", words, size, np.uint64), merged[order])
    np.testing.assert_array_equal(kernel.get("index_out", words, done[3], np.uint64), merged[order][::8])
    for port, begin, end in (("out_words", words, words + 8 * size), ("out_ids", ids, ids + 4 * size)):
        assert (kernel.buffers[port][:begin] == MARK).all()
        assert (kernel.buffers[port][end:] == MARK).all()


def test_a_probe_reads_its_run_through_two_ports(kernel: Kernel) -> None:
    rng = np.random.default_rng(9)
    words, bounds = (
        np.sort(rng.integers(0, 500, 400).astype(np.uint64)),
        np.sort(rng.integers(0, 510, 60).astype(np.uint64)),
    )
    for port, data in (("a_words", words), ("a_ids", words), ("b_words", bounds), ("b_ids", bounds)):
        kernel.put(port, 0, data)
    kernel.put("index_in", 64, words[::8].copy())
    done = kernel.run(reg.OP_PROBE, A_COUNT=400, B_COUNT=60, SLOT_A=60, INDEX=64, STEP_LOG2=3, OUT_WORDS=4)
    assert (done[0], done[4], done[5], done[8]) == (reg.ERR_OK, 60, 60, 50)
    np.testing.assert_array_equal(kernel.get("out_words", 4, 60, np.uint32), np.searchsorted(words, bounds, "left"))
    np.testing.assert_array_equal(kernel.get("out_ids", 0, 60, np.uint32), np.searchsorted(words, bounds, "right"))


def test_a_bad_command_gives_its_code(kernel: Kernel) -> None:
    assert kernel.run(99) == [reg.ERR_UNKNOWN_OPCODE, *[0] * 8]


def test_the_sources_keep_the_rules() -> None:
    assert hls_lint.findings(HLS) == []


BROKEN = [
    (
        "bisort_memory.h",
        "        memory[from + head + i] = chunks.read().data;\n",
        "        memory[from + i] = memory[from + i];\n",
        "a pipelined loop reads and writes the memory port memory",
    ),
    (
        "bisort_memory.h",
        "        memory[from + head + i] = chunks.read().data;\n",
        "        memory[from + head + i] |= chunks.read().data;\n",
        "a pipelined loop reads and writes the memory port memory",
    ),
    (
        "bisort_memory.h",
        "        memory[from + head + i] = chunks.read().data;\n",
        "        memory[from + head + i].range(31, 0) = chunks.read().data.range(31, 0);\n",
        "a pipelined loop reads and writes the memory port memory",
    ),
    (
        "bisort_memory.h",
        "        memory[from + head + i] = chunks.read().data;\n",
        "        store_part<T>(memory, from + head + i, chunks.read());\n",
        "a pipelined loop reads and writes the memory port memory",
    ),
    (
        "bisort_partitioner.cpp",
        "        step_t<0>::put(index.levels, number, TOP);\n",
        "        step_t<0>::put(index.levels, number, TOP);\n        step_t<0>::put(index.levels, number + 1, TOP);\n",
        "a pipelined loop writes a memory several times per cycle",
    ),
    (
        "bisort_prober.cpp",
        "#pragma HLS ARRAY_PARTITION variable=beat.lane complete\n",
        "",
        "the lanes of beat.lane are not partitioned",
    ),
    (
        "bisort_merger.cpp",
        "#pragma HLS ARRAY_PARTITION variable=a_wins complete\n",
        "",
        "the lanes of a_wins are not partitioned",
    ),
    (
        "bisort_partitioner.cpp",
        "#pragma HLS PIPELINE II=1\n        if (lane == 0)",
        "#pragma HLS UNROLL\n        if (lane == 0)",
        "an unrolled loop writes a memory several times per cycle",
    ),
    (
        "bisort_engine.cpp",
        "port_t* index_out) {\n#pragma",
        "done_t& index_out) {\n#pragma",
        "neither a scalar nor a pointer",
    ),
    (
        "bisort_engine.cpp",
        "m_axi port=result bundle=command offset=slave",
        "m_axi port=result bundle=command offset=off",
        "the kernel's pointer result has no m_axi interface with offset=slave",
    ),
]


@pytest.mark.parametrize(("file", "before", "after", "what"), BROKEN, ids=range(len(BROKEN)))
def test_the_linter_finds_what_vitis_would_not_take(
    file: str, before: str, after: str, what: str, tmp_path: Path
) -> None:
    folder = tmp_path / "hls"
    shutil.copytree(HLS, folder)
    text = (folder / file).read_text(encoding="utf-8")
    assert text.count(before) == 1
    (folder / file).write_text(text.replace(before, after), encoding="utf-8")
    found = hls_lint.findings(folder)
    assert len(found) == 1
    assert what in found[0]
    units = [folder / f"{unit}.cpp" for unit in UNITS]
    with pytest.raises(DeviceUnavailable, match="breaks rules of HLS"):
        hls_build.built("broken", Shape(), folder, units)
