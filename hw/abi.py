"""Generates the register files from `hw/abi.toml`: RTL and HLS headers, Python constants, tables of the documents.

`python -m millrace.hw.abi --write` writes the files; without `--write` it checks whether they are up to date (exit
code 1 if not). Limit: works only in a checkout, because a wheel contains no documents.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "hw" / "abi.toml"
BEGIN, END = "<!-- registers: made by `python -m millrace.hw.abi --write` -->", "<!-- registers: end -->"
ACCESSES = ("ro", "rw", "wo")
REPEATED = ("slot", "cluster", "pair")
MADE = "Made from hw/abi.toml by `python -m millrace.hw.abi --write`; do not edit."


@dataclass(frozen=True)
class Register:
    """A register of 32 or 64 bits. A repeated register exists once per `each` (a slot, …), `stride` bytes apart."""

    name: str
    offset: int
    access: str
    text: str
    bits: int = 32
    each: str = ""
    stride: int = 0


@dataclass(frozen=True)
class Code:
    """A named number: an opcode, an error code or a flag's bit."""

    name: str
    value: int
    text: str


@dataclass(frozen=True)
class Abi:
    """The contents of `abi.toml`."""

    magic: int
    version: tuple[int, int]
    prefix: str
    address_bits: int
    max_length: int
    min_step_log2: int
    opcodes: tuple[Code, ...]
    flags: tuple[Code, ...]
    errors: tuple[Code, ...]
    layouts: Mapping[str, str]
    registers: tuple[Register, ...]


def load(path: Path = SOURCE) -> Abi:
    """Read and check the register map."""
    text = tomllib.loads(path.read_text(encoding="utf-8"))
    head: dict[str, Any] = text["abi"]
    abi = Abi(
        head["magic"],
        (head["version_major"], head["version_minor"]),
        head["prefix"],
        head["address_bits"],
        head["max_length"],
        head["min_step_log2"],
        _codes(text["opcodes"], "value"),
        _codes(text["flags"], "bit"),
        _codes(text["errors"], "value"),
        text["layouts"],
        tuple(Register(**register) for register in text["registers"]),
    )
    _check(abi)
    return abi


def _codes(table: Mapping[str, Any], key: str) -> tuple[Code, ...]:
    return tuple(Code(name, entry[key], entry["text"]) for name, entry in table.items())


def _check(abi: Abi) -> None:
    """Registers must not overlap; names and numbers must be unique."""
    taken: dict[int, str] = {}
    for register in abi.registers:
        if register.access not in ACCESSES or register.bits not in (32, 64):
            raise ValueError(f"abi.toml: {register.name} has access {register.access!r} and {register.bits} bits")
        if bool(register.each) != bool(register.stride) or (register.each and register.each not in REPEATED):
            raise ValueError(f"abi.toml: {register.name} needs both `each` ({', '.join(REPEATED)}) and `stride`")
        if register.offset % (register.bits // 8):
            raise ValueError(f"abi.toml: {register.name} at {register.offset:#x} is not aligned")
        for offset in range(register.offset, register.offset + register.bits // 8, 4):
            if offset >> abi.address_bits or offset in taken:
                where = taken.get(offset, "the end of the map")
                raise ValueError(f"abi.toml: {register.name} at {offset:#x} overlaps {where}")
            taken[offset] = register.name
    for codes in (abi.opcodes, abi.flags, abi.errors):
        if len({code.value for code in codes}) != len(codes):
            raise ValueError(f"abi.toml: a number occurs twice among {', '.join(code.name for code in codes)}")


def constants(abi: Abi) -> Iterator[tuple[str, int, str]]:
    """Name, value and comment of every constant, without prefix, in the order of the map."""
    yield "MAGIC_VALUE", abi.magic, "what MAGIC reads"
    yield "VERSION_VALUE", abi.version[0] << 16 | abi.version[1], "what VERSION reads"
    yield "ADDRESS_BITS", abi.address_bits, "of the AXI4-Lite port"
    yield "MAX_LENGTH", abi.max_length, "the most elements of an array"
    yield "MIN_STEP_LOG2", abi.min_step_log2, "a partition has at least 2**this words"
    yield from ((f"OP_{code.name}", code.value, code.text) for code in abi.opcodes)
    yield from ((f"FLAG_{code.name}", code.value, f"bit; {code.text}") for code in abi.flags)
    yield from ((f"ERR_{code.name}", code.value, code.text) for code in abi.errors)
    for register in abi.registers:
        each = f" of {register.each} 0, others {register.stride} bytes apart" if register.each else ""
        yield f"REG_{register.name}", register.offset, f"{register.bits} bits, {register.access}{each}"


def rtl_header(abi: Abi) -> str:
    """The text of `hw/rtl/bisort_abi.svh`: local parameters, to be included inside a module."""
    lines = [
        f"// {MADE}",
        "// Registers, opcodes, flags and error codes of bisort_engine; include it inside a module.",
        "",
    ]
    lines += ["/* verilator lint_off UNUSEDPARAM */"]
    for name, value, text in constants(abi):
        lines.append(f"localparam [31:0] {abi.prefix}_{name} = 32'h{value:08X};  // {text}")
    return "\n".join([*lines, "/* verilator lint_on UNUSEDPARAM */", ""])


def hls_header(abi: Abi) -> str:
    """The text of `hls/bisort_abi.h`: constants for C++."""
    lines = [f"// {MADE}", "// Registers, opcodes, flags and error codes of the bisort engine.", ""]
    lines += ["#ifndef MILLRACE_BISORT_ABI_H", "#define MILLRACE_BISORT_ABI_H", "", "#include <cstdint>", ""]
    lines.append("namespace bisort_abi {")
    for name, value, text in constants(abi):
        lines.append(f"constexpr std::uint32_t {name} = 0x{value:08X};  // {text}")
    return "\n".join([*lines, "}  // namespace bisort_abi", "", "#endif", ""])


def python_module(abi: Abi) -> str:
    """The text of `hw/registers.py`: the same constants for Python."""
    lines = ['"""Registers, opcodes, flags and error codes of `bisort_engine`.', "", MADE, '"""', ""]
    lines += ["from __future__ import annotations", ""]
    for name, value, _ in constants(abi):
        lines.append(f"{name} = 0x{value:X}")
    lines += ["", "STRIDES = {"]
    lines += [f'    "{one.name}": {one.stride},' for one in abi.registers if one.each]
    lines += ["}", '"""Bytes between a repeated register of one slot, cluster or pair and that of the next."""', ""]
    lines += ["ERRORS = {"]
    lines += [f'    {code.value}: "{code.name}: {code.text}",' for code in abi.errors]
    return "\n".join([*lines, "}", '"""What an error code means."""', ""])


def document(abi: Abi) -> str:
    """The tables for `docs/reference/registers.md`."""
    lines = [f"ABI version {abi.version[0]}.{abi.version[1]}.", "", "| offset | register | access | meaning |"]
    lines.append("| --- | --- | --- | --- |")
    for one in abi.registers:
        offset = f"`0x{one.offset:03X}`" + (f" + {one.stride} per {one.each}" if one.each else "")
        lines.append(f"| {offset} | `{one.name}`{' (64)' if one.bits == 64 else ''} | {one.access} | {one.text} |")
    for title, codes in (("opcode", abi.opcodes), ("flag (bit)", abi.flags), ("error", abi.errors)):
        lines += ["", f"| {title} | name | meaning |", "| --- | --- | --- |"]
        lines += [f"| {code.value} | `{code.name}` | {code.text} |" for code in codes]
    lines += ["", "| layout | |", "| --- | --- |"]
    lines += [f"| {name} | {text} |" for name, text in abi.layouts.items()]
    return "\n".join(lines)


def with_tables(text: str, abi: Abi) -> str:
    """Replace the tables between the markers of a document."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"docs/reference/registers.md lacks the markers {BEGIN} and {END}")
    return f"{before}{BEGIN}\n\n{document(abi)}\n\n{END}{after}"


def files(root: Path = ROOT) -> dict[Path, str]:
    """The expected text of each generated file."""
    abi = load(root / "hw" / "abi.toml")
    made: dict[str, Callable[[Abi], str]] = {
        "hw/rtl/bisort_abi.svh": rtl_header,
        "hls/bisort_abi.h": hls_header,
        "hw/registers.py": python_module,
    }
    texts = {root / path: make(abi) for path, make in made.items()}
    manual = root / "docs" / "reference" / "registers.md"
    texts[manual] = with_tables(manual.read_text(encoding="utf-8"), abi)
    return texts


def stale(root: Path = ROOT) -> list[Path]:
    """The generated files that differ from the register map."""
    return [path for path, text in files(root).items() if not path.exists() or path.read_text(encoding="utf-8") != text]


def main(arguments: list[str]) -> int:
    """Write the files, or only report which ones differ."""
    if arguments not in ([], ["--write"]):
        sys.stderr.write("usage: python -m millrace.hw.abi [--write]\n")
        return 2
    for path in stale():
        if arguments:
            path.write_text(files()[path], encoding="utf-8")
        sys.stdout.write(f"{path.relative_to(ROOT)}: {'written' if arguments else 'differs from hw/abi.toml'}\n")
    return 0 if arguments or not stale() else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
