"""Lets PoCL 3.0 compile on processors that its LLVM 14 does not know: `python tools/name_pocl_cpu.py`; set-up does it.

LLVM calls such a processor `generic`, a name that its own x86 compiler refuses ("unknown target CPU 'generic'"): no
kernel can be built. This writes another name of the same length into the library of this environment: `haswell` (AVX2)
or `nehalem`, whichever the processor can run. Nothing happens where kernels can be built. PyPI has no newer PoCL.
Environments of users are not touched: there, `mr.devices()` says why the device is not available.
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

UNKNOWN = "unknown target CPU 'generic'"
BEFORE, NAME = b" __generic\0 ", b"generic\0"
"""The name in PoCL 3.0's library, and what the linker has put before it: it is the end of a longer string."""
PROBE = """
import pyopencl as cl
device = cl.get_platforms()[0].get_devices()[0]
cl.Program(cl.Context([device]), "__kernel void nothing(__global int *a) { a[0] = 1; }").build(cache_dir=False)
"""


def main() -> None:
    """Try a kernel; rename the processor if that is what it takes, and try again."""
    found = _try_kernel()
    if UNKNOWN not in found:
        return
    spec = find_spec("pyopencl")
    folder = Path(spec.origin if spec and spec.origin else ".").parent / ".libs"
    for library in folder.glob("libpocl*.so*"):
        _rename(library)
    left = _try_kernel()
    if UNKNOWN in left:
        sys.exit(f"PoCL does not know this processor, and renaming it did not help: {left}")
    sys.stdout.write("PoCL 3.0 does not know this processor: it compiles for an older one\n")


def _try_kernel() -> str:
    """What a build of a kernel in a fresh process says on its error output."""
    return subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True, check=False).stderr


def _rename(library: Path) -> None:
    """Replace the library by a copy with another name for unknown processors."""
    has_avx2 = " avx2 " in Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace").replace("\n", " ")
    data, name = library.read_bytes(), b"haswell\0" if has_avx2 else b"nehalem\0"
    if data.count(BEFORE + NAME) != 1:
        return
    changed = library.with_name(library.name + ".new")
    changed.write_bytes(data.replace(BEFORE + NAME, BEFORE + name))
    changed.chmod(library.stat().st_mode)
    os.replace(changed, library)


if __name__ == "__main__":
    main()
