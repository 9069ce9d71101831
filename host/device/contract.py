"""The device contract: the interface that every accelerator implements for the host.

A device holds buffers, copies data to and from them, and launches *units* (kernels) by name: a unit has the same name
in every language it is written in. `launch` does not block; `wait` returns the launch's counters or raises
`DeviceFault`. Buffers outlive a launch, so data that was written once stays on the device. Limit: a device is used only
in the process that opened it, so it is opened after a fork.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, Self

import numpy as np

from millrace.host.base.errors import StateError
from millrace.host.base.html import html_table
from millrace.host.base.types import Array

if TYPE_CHECKING:  # its kernels need Numba, which a list of devices does not
    from millrace.host.runtime.team import Team


@dataclass(frozen=True)
class DeviceInfo:
    """One line of `mr.devices()`; `detail` describes the device, or says why it cannot be used and how to fix that."""

    name: str
    kind: str
    available: bool
    detail: str

    def _repr_html_(self) -> str:
        return devices_html([self])


def devices_html(infos: Sequence[DeviceInfo]) -> str:
    """A table of devices for a notebook."""
    rows = [(info.name, info.kind, "yes" if info.available else "no", info.detail) for info in infos]
    return html_table(rows, head=("name", "kind", "available", "detail"))


class Buffer(Protocol):
    """Memory of a device: `size` elements of one dtype."""

    @property
    def size(self) -> int:
        """The number of elements."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the elements."""


class Launch(Protocol):
    """A unit that was launched on a device."""

    @property
    def unit(self) -> str:
        """The name of the unit."""


class Device(ABC):
    """An open device."""

    name: str
    kind: str
    units: frozenset[str]
    most_rows: int | None = None
    """The maximum number of rows in both count windows together; None if memory sets no limit."""
    team: Team | None = None
    """The threads that run the units of a device whose buffers are host memory; None if it has memory of its own."""

    @property
    def shares_host_memory(self) -> bool:
        """Whether buffers are arrays of the host: then `adopt` and `view` copy nothing, and the device has a `team`."""
        return self.team is not None

    @abstractmethod
    def alloc(self, size: int, dtype: np.dtype[Any]) -> Buffer:
        """Allocate an uninitialised buffer of `size` elements."""

    @abstractmethod
    def write(self, buffer: Buffer, offset: int, data: Array) -> None:
        """Copy an array into a buffer, starting at element `offset`."""

    @abstractmethod
    def read(self, buffer: Buffer, offset: int, size: int) -> Array:
        """Return a copy of `size` elements of a buffer, starting at element `offset`."""

    @abstractmethod
    def free(self, buffer: Buffer) -> None:
        """Free a buffer."""

    def adopt(self, data: Array, spare: int = 0) -> Buffer:
        """Turn an array, which the caller must not use any more, into a buffer; no copy if the device uses host memory.

        The buffer has `spare` more elements than the array; the memory behind the array is that much longer too.
        """
        buffer = self.alloc(len(data) + spare, data.dtype)
        self.write(buffer, 0, data)
        return buffer

    def view(self, buffer: Buffer, size: int) -> Array:
        """Return the first `size` elements, valid until the buffer changes; no copy if the device uses host memory."""
        return self.read(buffer, 0, size)

    @abstractmethod
    def launch(self, unit: str, buffers: Sequence[Buffer], scalars: Sequence[int]) -> Launch:
        """Start a unit and return at once. Launches on one device take effect in order."""

    @abstractmethod
    def wait(self, launch: Launch) -> Mapping[str, int]:
        """Block until a launch has ended; return its counters or raise a `DeviceFault`."""

    @abstractmethod
    def counters(self) -> dict[str, int]:
        """Return the totals since the device was opened: bytes moved, nanoseconds and rows per unit."""

    def count(self, unit: str, rows: int) -> None:  # noqa: B027 - only host memory can be processed by host code
        """Count rows of a unit that host code has processed itself, in memory that it shares with the device."""

    def close(self) -> None:  # noqa: B027 - most devices have nothing to free
        """Free all resources; the device must not be used again."""

    def __enter__(self) -> Self:
        """Use the device in a `with` statement, whose end closes it."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the device; later calls raise a `StateError`. Its counters can still be read."""
        self.close()
        for name in ("alloc", "write", "read", "free", "adopt", "view", "launch", "wait"):
            setattr(self, name, self._refuse)
        setattr(self, "close", lambda: None)  # noqa: B010 - a method of this object only

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise StateError(f"device {self.name!r} was released at the end of its with block: open it again")

    def __repr__(self) -> str:
        """Return name, kind and units."""
        return f"<millrace device {self.name!r} ({self.kind}): {', '.join(sorted(self.units)) or 'no units'}>"


class Tally:
    """A set of named counters."""

    def __init__(self) -> None:
        """No counters yet."""
        self._counts: dict[str, int] = {}

    def add(self, **amounts: int) -> None:
        """Add amounts to counters by name."""
        for name, amount in amounts.items():
            self._counts[name] = self._counts.get(name, 0) + int(amount)

    def as_dict(self) -> dict[str, int]:
        """Return all counters, in order of first use."""
        return dict(self._counts)
