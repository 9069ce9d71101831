"""A small linter over the HLS sources: rules of Vitis HLS that g++ cannot check. Runs before a C simulation is built.

It reads text, not C++: it knows the style of `hls/` alone, and it cannot replace the vendor's compiler. Rules:

- a pipelined loop does not read and write the same memory port (`port_t*`), be it in two statements, in one (`|=`), in
  a part of a beat (`.range(…) =`) or in a function that it calls: the dependence would stop the pipeline;
- a loop writes a memory (`cells`, `put`) once per cycle: not in an unrolled loop, and at one place of a pipelined one;
- local arrays of lanes are partitioned: otherwise they are memories with two ports, and lanes wait for each other;
- the kernel's arguments are scalars or pointers, which XRT can set; pointers are `m_axi` with `offset=slave`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

KERNEL = "bisort_engine"
LANES = {
    r"words_t|rows_t|beat_t<T, LANES>": ("lane",),
    "tuples_t": ("key", "id"),
    "input_t": ("head", "next.key", "next.id", "after.key", "after.id"),
}
"""Types that contain arrays of lanes, and the arrays."""
_POINTER = re.compile(r"\b(?:const )?port_t\* (\w+)")
_LOOP = re.compile(r"^ *(?:for|while) \(.*\) \{\n((?:#pragma.*\n)+)", re.MULTILINE)
_WRITE = re.compile(r"\.cells\[[^\]]*\] *=(?!=)|::put\(")
_KERNEL = re.compile(rf"^void {KERNEL}\(\n?(.*?)\) \{{\n(.*?)^}}", re.DOTALL | re.MULTILINE)


def findings(hls: Path) -> list[str]:
    """What breaks a rule, as `file:line: what`."""
    found: list[str] = []
    for path in sorted([*hls.glob("*.cpp"), *hls.glob("*.h")]):
        text = path.read_text(encoding="utf-8")
        for at, what in [*_loops(text), *_lanes(text), *_kernel(text)]:
            found.append(f"{path.name}:{text.count(chr(10), 0, at) + 1}: {what}")
    return found


def _block(text: str, at: int) -> str:
    """The text from the brace at or after `at` to its match."""
    depth = 0
    start = text.index("{", at)
    for end in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[end], 0)
        if depth == 0:
            return text[start : end + 1]
    return text[start:]


def _loops(text: str) -> Iterator[tuple[int, str]]:
    """Memory ports in pipelined loops, memories in unrolled ones."""
    ports, modifying = set(_POINTER.findall(text)), _modifying(text)
    for loop in _LOOP.finditer(text):
        body = _block(text, loop.start())
        if "HLS PIPELINE" in loop[1]:
            for port in sorted(ports):
                called = any(re.search(rf"\b{name}(?:<\w+>)?\({port}\b", body) for name in modifying)
                if called or _modifies(body, port):
                    yield loop.start(), f"a pipelined loop reads and writes the memory port {port}"
            if len(_WRITE.findall(body)) > 1:
                yield loop.start(), "a pipelined loop writes a memory several times per cycle"
        elif "HLS UNROLL" in loop[1] and _WRITE.search(body):
            yield loop.start(), "an unrolled loop writes a memory several times per cycle"


def _modifies(body: str, port: str) -> bool:
    """Whether it reads and writes beats of a port, or writes a part of one, which does both."""
    index = r"\[(?:[^\[\]]|\[[^\]]*\])*\]"
    after = re.findall(rf"\b{port}{index} *((?:[-+|&^*]|<<|>>)?=(?!=)|\.range\([^;=]*\) *=(?!=))?", body)
    return ("=" in after and "" in after) or any(len(use) > 1 for use in after)


def _modifying(text: str) -> set[str]:
    """The functions of a file that read and write beats of the port that is their first argument."""
    heads = re.finditer(r"^(?:inline )?void (\w+)\(\s*port_t\* (\w+)[^{;]*\{", text, re.MULTILINE)
    return {head[1] for head in heads if _modifies(_block(text, head.end() - 1), head[2])}


def _lanes(text: str) -> Iterator[tuple[int, str]]:
    """Local arrays of lanes without ARRAY_PARTITION in their scope."""
    for types, arrays in LANES.items():
        for declared in re.finditer(rf"^ +(?:const )?(?:{types}) (\w+(?:, \w+)*)(?:;| = )", text, re.MULTILINE):
            if _in_struct(text, declared.start()):
                continue
            for name in declared[1].split(", "):
                for array in arrays:
                    yield from _partitioned(text, declared.start(), f"{name}.{array}")
    for declared in re.finditer(r"^ +\w+ (\w+\[W\](?:, \w+\[W\])*);", text, re.MULTILINE):
        if not _in_struct(text, declared.start()):
            for name in re.findall(r"(\w+)\[W\]", declared[1]):
                yield from _partitioned(text, declared.start(), name)


def _partitioned(text: str, at: int, name: str) -> Iterator[tuple[int, str]]:
    following = text[at : at + 1500]
    if f"#pragma HLS ARRAY_PARTITION variable={name} complete\n" not in following:
        yield at, f"the lanes of {name} are not partitioned"


def _in_struct(text: str, at: int) -> bool:
    """Whether the innermost open brace before `at` is that of a struct."""
    depth = 0
    for index in range(at - 1, -1, -1):
        depth += {"}": 1, "{": -1}.get(text[index], 0)
        if depth < 0:
            line = text[text.rfind("\n", 0, index) + 1 : index]
            return bool(re.match(r"\s*struct ", line))
    return False


def _kernel(text: str) -> Iterator[tuple[int, str]]:
    """Arguments of the kernel that XRT could not set."""
    kernel = _KERNEL.search(text)
    if kernel is None:
        return
    for argument in re.split(r",\s+", kernel[1].strip()):
        name = re.split(r"[ *&]", argument)[-1]
        if "&" in argument or "[" in argument:
            yield kernel.start(), f"the kernel's argument {name} is neither a scalar nor a pointer"
        elif "*" in argument and not re.search(rf"m_axi port={name} .*offset=slave", kernel[2]):
            yield kernel.start(), f"the kernel's pointer {name} has no m_axi interface with offset=slave"
