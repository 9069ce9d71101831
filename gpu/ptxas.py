"""Resource usage of the compiled CUDA kernels: registers, spills, memory and instructions per kernel, width and card.

`python -m millrace.gpu.ptxas` prints the table, `--write` puts it into docs/internals/gpu.md. NVRTC compiles to
machine code without a card; its ptxas reports spills, and cuobjdump reports registers and memory. Instructions are
counted in the machine code, because disassembling takes ten times as long as compiling. The tools are part of
the extra `dev`. Limit: the numbers belong to one compiler version, which the table names.
"""

from __future__ import annotations

import io
import re
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from millrace.gpu import driver
from millrace.host.base.install import install_command

CARDS = ("sm_80", "sm_90", "sm_100")
"""Ampere, Hopper, Blackwell."""
DOCUMENT = Path(__file__).resolve().parents[1] / "docs" / "internals" / "gpu.md"
BEGIN, END = "<!-- ptxas: begin -->\n", "<!-- ptxas: end -->\n"
_SPILLS = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USAGE = re.compile(r"Function (\w+):\s+REG:(\d+) STACK:(\d+) SHARED:(\d+) LOCAL:(\d+)")
_INSTRUCTION = re.compile(r"^\s+/\*[0-9a-f]{4,}\*/\s+(?!NOP\b)(\S[^;]*)", re.MULTILINE)

_NOP = 0x918


@dataclass(frozen=True)
class Needs:
    """Resources of one kernel on one card; bytes per thread, `shared` per block."""

    kernel: str
    registers: int
    spills: int
    local: int
    shared: int
    instructions: int
    code: bytes = field(repr=False)
    said: str = field(repr=False)
    """The compiler's messages."""


def compile_text(text: str, name: str, card: str, defined: dict[str, int]) -> tuple[bytes, str]:
    """Machine code and the compiler's messages."""
    from cuda.core import Program, ProgramOptions  # type: ignore[import-untyped]

    macros = [(macro, str(value)) for macro, value in defined.items()]
    options = ProgramOptions(name=name, arch=card, std="c++17", define_macro=macros or None, ptxas_options=["-v"])
    said = io.StringIO()
    made = Program(text, "c++", options).compile("cubin", logs=said)
    return bytes(made.code), said.getvalue()


def needs_of(code: bytes, said: str) -> Needs:
    """The resources of the only kernel in a cubin."""
    ((name, registers, stack, shared, local),) = _USAGE.findall(_dump(code, "--dump-resource-usage"))
    ((frame, stores, loads),) = _SPILLS.findall(said)
    memory = max(int(stack), int(frame)) + int(local)
    spills, instructions = int(stores) + int(loads), _instructions(code, name)
    return Needs(name, int(registers), spills, memory, int(shared), instructions, code, said)


def _instructions(code: bytes, kernel: str) -> int:
    """The number of instructions of a kernel without padding; an instruction has 16 bytes since Volta."""
    # Machine code is an ELF file: section headers from e_shoff on, their names in section e_shstrndx.
    (start,) = struct.unpack_from("<Q", code, 0x28)
    size, count, names_at = struct.unpack_from("<3H", code, 0x3A)
    sections = [struct.unpack_from("<I20xQQ", code, start + size * i) for i in range(count)]
    names = sections[names_at][1]
    for name, at, length in sections:
        if code[names + name :].startswith(f".text.{kernel}\0".encode()):
            opcodes = (code[i] | (code[i + 1] & 0xF) << 8 for i in range(at, at + length, 16))
            return sum(opcode != _NOP for opcode in opcodes)
    raise LookupError(f"no kernel {kernel!r} in this code")


def sass(code: bytes) -> list[str]:
    """The instructions of a cubin, without padding."""
    return _INSTRUCTION.findall(_dump(code, "--dump-sass"))


def _dump(code: bytes, what: str) -> str:
    from cuda.pathfinder import find_nvidia_binary_utility  # type: ignore[import-untyped]

    tool = find_nvidia_binary_utility("cuobjdump")
    if tool is None:
        raise FileNotFoundError(f"cuobjdump is missing: {install_command('cuda')}")
    with tempfile.TemporaryDirectory() as folder:
        cubin = Path(folder) / "unit.cubin"
        cubin.write_bytes(code)
        return subprocess.run([tool, what, cubin], capture_output=True, check=True, text=True).stdout


@cache
def measure(unit: str, word_bits: int, barrier: bool, card: str) -> Needs:
    """The resources of a unit; `barrier`: its teams vote through shared memory."""
    defined = driver.defines(driver.UNITS[unit], word_bits, votes=driver.BARRIER if barrier else "")
    return needs_of(*compile_text(driver.source(unit), unit, card, defined))


def variants() -> Iterator[tuple[str, int, bool]]:
    """Every combination of unit, word width and voting method."""
    for unit in driver.UNITS.values():
        for word_bits in (32, 64) if any(slot.words for slot in unit.slots) else (32,):
            for barrier in (False, True) if unit.teams else (False,):
                yield unit.name, word_bits, barrier


def table() -> str:
    """All results as a Markdown table."""
    cards = [f"{card} registers | SASS" for card in CARDS]
    rows = [f"| kernel | word | votes | {' | '.join(cards)} | spills | local | shared |"]
    rows.append("| --- | ---: | --- |" + " ---: |" * (2 * len(CARDS) + 3))
    for unit, word_bits, barrier in variants():
        all_needs = [measure(unit, word_bits, barrier, card) for card in CARDS]
        votes = ("barrier" if barrier else "ballot") if driver.UNITS[unit].teams else "–"
        numbers = [f"{needs.registers} | {needs.instructions}" for needs in all_needs]
        totals = [
            sum(needs.spills for needs in all_needs),
            sum(needs.local for needs in all_needs),
            max(needs.shared for needs in all_needs),
        ]
        rows.append(f"| `{unit}` | {word_bits} | {votes} | {' | '.join([*numbers, *map(str, totals)])} |")
    note = "SASS: instructions, padding left out. Bytes: spills and local (all cards together), shared (largest)."
    return "\n".join([*rows, "", f"NVRTC {_version()}. {note}", ""])


def _version() -> str:
    from importlib.metadata import version

    return version("nvidia-cuda-nvrtc")


def with_table(text: str, made: str) -> str:
    """The document with the new table between its marks."""
    before, begin, tail = text.partition(BEGIN)
    _, end, after = tail.partition(END)
    if not (begin and end):
        raise ValueError(f"the document must have the lines {BEGIN.strip()} and {END.strip()}; add them")
    return before + begin + made + end + after


def main(arguments: Sequence[str]) -> int:
    """Print the table; with `--write`, put it into the document."""
    if list(arguments) not in ([], ["--write"]):
        sys.stderr.write("usage: python -m millrace.gpu.ptxas [--write]\n")
        return 2
    made = table()
    if arguments:
        DOCUMENT.write_text(with_table(DOCUMENT.read_text(encoding="utf-8"), made), encoding="utf-8")
    else:
        sys.stdout.write(made)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
