"""The backend `cuda-emulated`: all of `gpu/cuda.py` and the kernels' CUDA text, on a stand-in for CuPy. Tests only.

No user meets it: it lies outside of the package, and no table names it but the one that `registered` changes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from millrace import registry
from millrace.gpu import cuda
from millrace.gpu import device as gpu
from millrace.host.device.contract import DeviceInfo
from tests.gpu.emulated.standin import StandIn

FAMILY = "cuda-emulated"


class EmulatedRuntime(cuda.Runtime):
    """CUDA's runtime under a name that says what it is, so that `auto` never takes it either."""

    family = FAMILY


def emulated(barrier: bool = False, standin: StandIn | None = None) -> cuda.CudaDevice:
    """A device on a stand-in of its own; `barrier`: teams vote through shared memory, not by ballots."""
    return cuda.CudaDevice(EmulatedRuntime(standin or StandIn(), barrier), 0)


runtime = gpu.Started("the stand-in", lambda: EmulatedRuntime(StandIn()))


def probe() -> list[DeviceInfo]:
    """The one emulated card."""
    return gpu.probe(FAMILY, runtime)


def open_device(name: str, threads: int | None) -> cuda.CudaDevice:
    """Open it."""
    return cuda.CudaDevice(*gpu.choose(FAMILY, runtime, name))


@contextmanager
def registered() -> Iterator[None]:
    """Make it a device like others, so that the conformance suite finds it."""
    registry.BACKENDS[FAMILY] = __name__
    try:
        yield
    finally:
        del registry.BACKENDS[FAMILY]
