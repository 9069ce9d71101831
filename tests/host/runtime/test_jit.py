"""The cache of machine code: its name depends on every file that kernels are made of."""

from __future__ import annotations

import re
from pathlib import Path

from millrace.host.runtime import jit


def test_every_file_with_kernels_or_their_constants_is_hashed() -> None:
    hashed = {path.name for path in jit.kernel_files()}
    assert {"jit.py", "intrinsics.py", "kernel_args.py", "team.py"} <= hashed
    for path in Path(jit.__file__).parents[1].rglob("*.py"):
        if re.search(r"^@(kernel|inline|share)$|^class \w+\(KernelArgs\)", path.read_text(), re.MULTILINE):
            assert path.name in hashed, path
