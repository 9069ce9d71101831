"""The backend `cuda-emulated`: `gpu/cuda.py` and the kernels' CUDA source on a stand-in for CuPy. Tests only.

It is not visible to users: it is not in the package, and only `registered` adds it to the table of backends.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from millrace import registry
from millrace.gpu import cuda
from millrace.gpu import runtime as api
from millrace.host.device.contract import DeviceInfo
from tests.gpu.emulated.standin import StandIn

FAMILY = "cuda-emulated"


class EmulatedRuntime(cuda.Runtime):
    """CUDA's runtime under its own family name, so that `auto` never chooses it."""

    family = FAMILY


def emulated(votes: str = "", standin: StandIn | None = None) -> cuda.CudaDevice:
    """A device on its own stand-in; `votes`: how teams vote, if not by ballots (`driver.defines`)."""
    return cuda.CudaDevice(EmulatedRuntime(standin or StandIn(), votes), 0)


runtime = api.Started("the stand-in", lambda: EmulatedRuntime(StandIn()))


def probe() -> list[DeviceInfo]:
    """The one emulated card."""
    return api.probe(FAMILY, runtime)


def open_device(name: str, threads: int | None) -> cuda.CudaDevice:
    """Open the emulated card."""
    return cuda.CudaDevice(*api.choose(FAMILY, runtime, name))


@contextmanager
def registered() -> Iterator[None]:
    """Register it as a device, so that the conformance suite finds it."""
    registry.BACKENDS[FAMILY] = __name__
    try:
        yield
    finally:
        del registry.BACKENDS[FAMILY]
