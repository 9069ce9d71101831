"""Walks through a page as a newcomer does: copies each block of Python, runs it, and compares what it prints.

A block of Python is run; a block of text behind it is what it must print. The blocks of a page share one interpreter,
as in a session.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

BLOCK = re.compile(r"^```(python|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
END = "=== the end of a block ==="


def blocks_of(page: str) -> list[tuple[str, str]]:
    """Each block of Python of a page, with the text that it must print."""
    found: list[tuple[str, str]] = []
    for kind, text in BLOCK.findall(page):
        if kind == "python":
            found.append((text, ""))
        else:
            code, printed = found[-1]
            found[-1] = (code, printed + text)
    return found


def walk(python: Path | str, page: Path, folder: Path) -> list[str]:
    """Run a page's blocks by that Python in that folder; returns what differs."""
    blocks = blocks_of(page.read_text())
    if not blocks:
        return [f"{page.name}: no block of Python"]
    program = f"\nprint({END!r})\n".join(code for code, _ in blocks)
    done = subprocess.run(
        [str(python), "-c", program], cwd=folder, capture_output=True, text=True, timeout=1200, check=False
    )
    if done.returncode:
        return [f"{page.name}: ended with {done.returncode}\n{done.stderr[-3000:]}"]
    printed = done.stdout.split(f"{END}\n")
    return [
        f"{page.name}: the block\n{code}\nprinted\n{got}\ninstead of\n{wanted}"
        for (code, wanted), got in zip(blocks, printed, strict=True)
        if got != wanted
    ]
