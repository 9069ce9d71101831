"""Which devices there are, why one cannot be used, and opening one by name.

A backend is a module with `probe() -> list[DeviceInfo]` and `open_device(name, threads) -> Device`. Known backends
stand in the table below; third parties add theirs through the entry-point group `millrace.devices`. Nothing is
imported, let alone opened, before it is asked for.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec
from typing import Any, Protocol, cast

from millrace.host.device import Device, DeviceInfo
from millrace.host.errors import ArgumentError, DeviceUnavailable
from millrace.host.indexes import INDEXES, runs_on

BACKENDS: dict[str, str] = {
    "cpu": "millrace.host.cpu",
    "opencl": "millrace.gpu.opencl",
    "cuda": "millrace.gpu.cuda",
    "hls": "millrace.sim.hls",
    "rtl": "millrace.sim.rtl",
    "fpga": "millrace.hw.board",
    "null": "millrace.host.null",
}
ENTRY_POINTS = "millrace.devices"
_AUTO_KINDS = ("cuda", "opencl-gpu", "cpu")
"""What `auto` may take, best first; never a simulator, a loopback board or an OpenCL CPU."""


class Backend(Protocol):
    """What a backend module offers."""

    def probe(self) -> list[DeviceInfo]:
        """The devices of this kind, available or not."""

    def open_device(self, name: str, threads: int | None) -> Device:
        """Open one of them, or raise `DeviceUnavailable`."""


def devices() -> list[DeviceInfo]:
    """All known devices; those that cannot be used say why.

    >>> import millrace as mr
    >>> [d.name for d in mr.devices() if d.available and d.kind == "cpu"]
    ['cpu']
    """
    found: list[DeviceInfo] = []
    for family in _families():
        found.extend(_probe(family))
    return found


def device(name: str = "auto", threads: int | None = None) -> Device:
    """Open a device: `"cpu"`, `"opencl[:i]"`, `"cuda[:i]"`, `"hls"`, `"rtl"`, `"fpga:<board>"` or `"auto"`.

    >>> import millrace as mr
    >>> mr.device("cpu").kind
    'cpu'
    """
    if name == "auto":
        return device(_automatic(devices()), threads)
    family = check_name(name)
    backend = _backend(family)
    if backend is None:
        raise DeviceUnavailable(f"device {name!r} cannot be used: {_missing(family)}; {_usable()}")
    for info in backend.probe():
        if info.name == name and not info.available:
            raise DeviceUnavailable(f"device {name!r} cannot be used: {info.detail}; {_usable()}")
    return backend.open_device(name, threads)


def device_for(index: str, name: str, threads: int | None) -> Device:
    """Open a device that can run an index; `auto` picks among those that can."""
    if name != "auto":
        opened = device(name, threads)
        if not runs_on(index, opened):
            can = [n for i, n in join_pairs() if i == index]
            opened.close()
            raise DeviceUnavailable(f"device {name!r} cannot run index {index!r}; it runs on {', '.join(can)}")
        return opened
    able = {n for i, n in join_pairs() if i == index}
    return device(_automatic([d for d in devices() if d.name in able]), threads)


def join_pairs() -> list[tuple[str, str]]:
    """Every (index, device) that can run a join here and now."""
    pairs = []
    for info in devices():
        if info.available and info.kind != "null":
            opened = device(info.name)
            pairs += [(index, info.name) for index in INDEXES if runs_on(index, opened)]
            opened.close()
    return pairs


def check_name(name: Any) -> str:
    """The family of a device name, or an `ArgumentError` that lists those there are."""
    family = name.partition(":")[0] if isinstance(name, str) else ""
    if family not in _families():
        raise ArgumentError(f"device={name!r} is unknown; known are auto, {', '.join(_families())}")
    return family


def _families() -> dict[str, Any]:
    plugins = {entry.name: entry for entry in entry_points(group=ENTRY_POINTS)}
    return {**plugins, **BACKENDS}


def _backend(family: str) -> Backend | None:
    """The module behind a family; nothing where this version of millrace does not have it."""
    target = _families()[family]
    if not isinstance(target, str):
        loaded: Backend = target.load()
        return loaded
    return cast(Backend, import_module(target)) if find_spec(target) is not None else None


def _probe(family: str) -> list[DeviceInfo]:
    try:
        backend = _backend(family)
        return backend.probe() if backend else [DeviceInfo(family, family, False, _missing(family))]
    except Exception as error:  # a third party's fault must not hide the other devices
        return [DeviceInfo(family, family, False, f"its backend failed: {type(error).__name__}: {error}")]


def _missing(family: str) -> str:
    from millrace._version import __version__

    return f"millrace {__version__} has no {family} backend"


def _automatic(candidates: list[DeviceInfo]) -> str:
    for kind in _AUTO_KINDS:
        for info in candidates:
            if info.available and info.kind == kind:
                return info.name
    raise DeviceUnavailable(f"no device here can run this; known are {', '.join(_families())} (see `millrace devices`)")


def _usable() -> str:
    names = ", ".join(info.name for info in devices() if info.available)
    return f"usable here: {names}"
