"""Lists a machine's cards for Spark: `python -m millrace.spark.cluster.discovery gpu|fpga`, run by the scripts here.

Spark starts `discover_gpu.sh` or `discover_fpga.sh` on every executor (`spark.executor.resource.gpu.discoveryScript`)
and reads one line of JSON. An address is the part of a device's name after the colon: `cuda:1` has address 1,
`fpga:pynq-z2` has address `pynq-z2`. OpenCL's cards are listed only if CUDA has none: a card that
both APIs see would count twice.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable

from millrace.errors import ArgumentError
from millrace.registry import devices

_KINDS: dict[str, tuple[Callable[[str], bool], ...]] = {
    "gpu": (lambda kind: kind == "cuda", lambda kind: kind == "opencl-gpu"),
    "fpga": (lambda kind: kind.startswith("fpga"),),
}


def addresses(resource: str) -> list[str]:
    """The addresses of the usable cards of a kind."""
    if resource not in _KINDS:
        raise ArgumentError(f"resource {resource!r} is unknown; allowed are {', '.join(_KINDS)}")
    usable = [info for info in devices() if info.available and ":" in info.name]
    for wanted in _KINDS[resource]:
        found = [info.name.partition(":")[2] for info in usable if wanted(info.kind)]
        if found:
            return found
    return []


def main() -> None:
    """Print the line of JSON that Spark reads."""
    resource = sys.argv[1] if len(sys.argv) > 1 else ""
    sys.stdout.write(json.dumps({"name": resource, "addresses": addresses(resource)}) + "\n")


if __name__ == "__main__":
    main()
