"""Tells Spark which cards a machine has: `python -m millrace.spark.cluster.discovery gpu|fpga`, run by scripts here.

Spark starts `discover_gpu.sh` or `discover_fpga.sh` on every executor (`spark.executor.resource.gpu.discoveryScript`)
and reads one line of JSON. An address is what stands behind the colon of a device's name: `cuda:1` is address 1,
`fpga:pynq-z2` address `pynq-z2`. CUDA's numbers go first: a card that both CUDA and OpenCL see would count twice.
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
    """The cards of a kind that can be used here, by address."""
    if resource not in _KINDS:
        raise ArgumentError(f"resource {resource!r} is unknown; allowed are {', '.join(_KINDS)}")
    usable = [info for info in devices() if info.available and ":" in info.name]
    for wanted in _KINDS[resource]:
        found = [info.name.partition(":")[2] for info in usable if wanted(info.kind)]
        if found:
            return found
    return []


def main() -> None:
    """Print what Spark reads."""
    resource = sys.argv[1] if len(sys.argv) > 1 else ""
    sys.stdout.write(json.dumps({"name": resource, "addresses": addresses(resource)}) + "\n")


if __name__ == "__main__":
    main()
