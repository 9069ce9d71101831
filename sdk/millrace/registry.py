"""Lists devices, says why one cannot be used, and opens one by name.

A backend is a module with `probe() -> list[DeviceInfo]` and `open_device(name, threads) -> Device`. `BACKENDS` lists
the known ones; third parties add theirs through the entry-point group `millrace.devices`. A backend is imported only
when it is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Protocol, cast

from millrace.host.base.errors import ArgumentError, DeviceUnavailable
from millrace.host.device.contract import Device, DeviceInfo, devices_html
from millrace.host.join.registry import INDEXES, runs_on
from millrace.host.runtime.critical import check_imports
from millrace.ingest.checks import thread_count
from millrace.ingest.choices import IndexName

if TYPE_CHECKING:  # it needs Numba, which a list of devices does not
    from millrace.host.planner.choice import IndexChoice

BACKENDS: dict[str, str] = {
    "cpu": "millrace.host.device.cpu",
    "opencl": "millrace.gpu.opencl",
    "cuda": "millrace.gpu.cuda",
    "hls": "millrace.sim.hls",
    "rtl": "millrace.sim.rtl",
    "fpga": "millrace.hw.board",
    "null": "millrace.host.device.null",
}
ENTRY_POINTS = "millrace.devices"
REAL_KINDS = frozenset({"cuda", "opencl-gpu", "opencl-accelerator", "fpga"})
"""The device kinds that `auto` may choose besides the CPU: no simulator, loopback board or OpenCL CPU."""


class Backend(Protocol):
    """The functions of a backend module."""

    def probe(self) -> list[DeviceInfo]:
        """The devices of this kind, available or not."""

    def open_device(self, name: str, threads: int | None) -> Device:
        """Open one of them, or raise `DeviceUnavailable`."""


class DeviceList(list[DeviceInfo]):
    """A list of devices that a notebook shows as a table."""

    def _repr_html_(self) -> str:
        return devices_html(self)


def devices() -> DeviceList:
    """All known devices; `detail` says why one cannot be used.

    >>> import millrace as mr
    >>> [d.name for d in mr.devices() if d.available and d.kind == "cpu"]
    ['cpu']
    """
    found = DeviceList()
    for family in (*BACKENDS, *_plugins()):
        found.extend(_probe(family))
    return found


def device(name: str = "auto", *, threads: int | None = None) -> Device:
    """Open a device: `"cpu"`, `"opencl[:i]"`, `"cuda[:i]"`, `"hls"`, `"rtl"`, `"fpga:<board>"` or `"auto"`.

    `"auto"` is the CPU, unless `millrace calibrate` on this machine found another real device faster.

    >>> import millrace as mr
    >>> mr.device("cpu").kind
    'cpu'

    Args:
        name: The device; `mr.devices()` lists the names.
        threads: The most threads of a call, 1 to 1,024; None is one per core.

    Raises:
        ArgumentError: The name is unknown.
        DeviceUnavailable: The device cannot be used here; the message says why, and what can be used.
    """
    check_imports()
    threads = thread_count(threads)
    if isinstance(name, str) and name == "auto":
        return _open_auto(threads, lambda opened: True)
    family = check_name(name)
    backend = _backend(family)
    if backend is None:
        raise DeviceUnavailable(f"device {name!r} cannot be used: {_missing(family)}; {_usable()}")
    for info in backend.probe():
        if info.name == name and not info.available:
            raise DeviceUnavailable(f"device {name!r} cannot be used: {info.detail}; {_usable()}")
    return backend.open_device(name, threads)


def device_for(choice: IndexChoice, name: str, threads: int | None) -> tuple[str, Device]:
    """Open a device that can run one of the indexes, best first; return that index too. `auto`: see `_open_auto`."""
    if name == "auto":
        opened = _open_auto(threads, lambda one: _first(choice, one) is not None)
    else:
        opened = device(name, threads=threads)
    index = _first(choice, opened)
    if index is not None:
        return index, opened
    opened.close()
    raise _cannot_run(choice, name, dict.fromkeys(n for i, n in join_pairs() if i in choice.candidates))


def planned_device(choice: IndexChoice, name: str, threads: int | None) -> tuple[str, str, str]:
    """What `device_for` would choose, without opening it: the index, the device's name, and why that device."""
    from millrace.host.planner.choice import auto_devices

    if name == "auto":
        for one, why in auto_devices(threads).items():
            kind = _real_kind(one, threads)
            index = None if kind is None else choice.first_on(kind)
            if index is not None:
                return index, one, why
        raise DeviceUnavailable(f"no device of this machine can run this; {_usable()} (see `millrace devices`)")
    info = device_info(name)
    index = choice.first_on(info.kind)
    if index is None:
        able = (one.name for one in devices() if one.available and choice.first_on(one.kind))
        raise _cannot_run(choice, name, dict.fromkeys(able))
    return index, info.name, "the device was named"


def device_info(name: str) -> DeviceInfo:
    """The entry of a device; a family's name stands for its first one. Raises `DeviceUnavailable` with the reason."""
    found = _probe(check_name(name))
    for info in found:
        if name in (info.name, info.name.partition(":")[0]) and info.available:
            return info
    detail = next((info.detail for info in found if info.name == name), found[0].detail if found else "there is none")
    raise DeviceUnavailable(f"device {name!r} cannot be used: {detail}; {_usable()}")


def _cannot_run(choice: IndexChoice, name: str, capable: Iterable[str]) -> DeviceUnavailable:
    indexes = choice.candidates
    which = f"index {indexes[0]!r}" if len(indexes) == 1 else f"any of the indexes {', '.join(indexes)}"
    return DeviceUnavailable(f"device {name!r} cannot run {which}; it runs on {', '.join(capable)}")


def device_with(unit: str, what: str, name: str, threads: int | None) -> Device:
    """Open a device that has the unit that `what` needs; `auto`: see `_open_auto`."""
    if name == "auto":
        return _open_auto(threads, lambda one: unit in one.units)
    opened = device(name, threads=threads)
    if unit in opened.units:
        return opened
    opened.close()
    capable = ", ".join(info.name for info in devices() if info.available and _offers(info.name, unit))
    raise DeviceUnavailable(f"device {name!r} cannot run {what} (it has no unit {unit}); those that can are {capable}")


def _offers(name: str, unit: str) -> bool:
    """Whether a device has a unit; a device that does not open has none."""
    try:
        opened = device(name)
    except Exception:  # `devices()` reports the reason
        return False
    opened.close()
    return unit in opened.units


def _first(choice: IndexChoice, opened: Device) -> str | None:
    """The best index that a device can run."""
    return choice.first(lambda index: runs_on(index, opened))


def _open_auto(threads: int | None, suits: Callable[[Device], bool]) -> Device:
    """Open the device that won `millrace calibrate` on this machine, if it is available and suits; else the CPU."""
    check_imports()  # the import below would fail
    from millrace.host.planner.choice import auto_devices

    for name in auto_devices(threads):
        opened = _open_real(name, threads)
        if opened is not None:
            if suits(opened):
                return opened
            opened.close()
    raise DeviceUnavailable(f"no device of this machine can run this; {_usable()} (see `millrace devices`)")


def _open_real(name: str, threads: int | None) -> Device | None:
    """Open one of our devices if it is available now, and neither a simulation nor another kind of CPU."""
    if _real_kind(name, threads) is None:
        return None
    try:
        return device(name, threads=threads)
    except DeviceUnavailable:
        return None


def _real_kind(name: str, threads: int | None) -> str | None:
    """The kind of one of our devices; None if it is not available, not the one that was calibrated, or a simulation."""
    from millrace.host.planner.calibration import calibration

    family, measured = name.partition(":")[0], calibration(threads)
    infos = _probe(family) if family in BACKENDS else []
    if name == measured.device and measured.described:
        infos = [info for info in infos if info.detail == measured.described]
    kinds = (info.kind for info in infos if info.name == name and info.available)
    return next((kind for kind in kinds if kind in {"cpu", *REAL_KINDS}), None)


def real_devices() -> list[str]:
    """The available devices besides the CPU that `millrace calibrate` compares with it."""
    built_in = (info for family in BACKENDS for info in _probe(family))
    return [info.name for info in built_in if info.available and info.kind in REAL_KINDS]


def join_pairs() -> list[tuple[IndexName, str]]:
    """Every (index, device) that can run a join on this machine."""
    pairs: list[tuple[IndexName, str]] = []
    for info in devices():
        if info.available and info.kind != "null":
            pairs += [(index, info.name) for index in _indexes_on(info.name)]
    return pairs


def _indexes_on(name: str) -> list[IndexName]:
    try:
        opened = device(name)
    except Exception:  # a device that does not open runs nothing; `devices()` reports the reason
        return []
    able = [cast(IndexName, index) for index in INDEXES if runs_on(index, opened)]
    opened.close()
    return able


def check_name(name: Any) -> str:
    """The family of a device name; raises an `ArgumentError` that lists the known ones."""
    family = name.partition(":")[0] if isinstance(name, str) else ""
    if family not in BACKENDS and family not in _plugins():
        raise ArgumentError(f"device={name!r} is unknown; known are auto, {', '.join([*BACKENDS, *_plugins()])}")
    return family


def _plugins() -> dict[str, EntryPoint]:
    """Third parties' backends, by name; a built-in backend wins if names clash."""
    return {entry.name: entry for entry in entry_points(group=ENTRY_POINTS) if entry.name not in BACKENDS}


def _backend(family: str) -> Backend | None:
    """The module of a family; None if this version of millrace does not have it."""
    if family not in BACKENDS:
        try:
            return cast(Backend, _plugins()[family].load())
        except Exception as error:  # a third party's module may raise anything
            raise DeviceUnavailable(
                f"the backend of device {family!r} cannot be loaded: {type(error).__name__}: {error}; reinstall the "
                f"package that brings it"
            ) from error
    module = BACKENDS[family]
    return cast(Backend, import_module(module)) if find_spec(module) is not None else None


def _probe(family: str) -> list[DeviceInfo]:
    try:
        backend = _backend(family)
        return backend.probe() if backend else [DeviceInfo(family, family, False, _missing(family))]
    except DeviceUnavailable as error:
        return [DeviceInfo(family, family, False, str(error))]
    except Exception as error:  # a third party's error must not hide the other devices
        return [DeviceInfo(family, family, False, f"its backend failed: {type(error).__name__}: {error}")]


def _missing(family: str) -> str:
    from millrace._version import __version__

    return f"millrace {__version__} has no {family} backend"


def _usable() -> str:
    names = ", ".join(info.name for info in devices() if info.available and info.kind != "null")
    return f"usable here: {names}"
