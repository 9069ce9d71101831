"""The errors of the public API: `mr.MillraceError` and its subclasses (defined in `base/errors.py`)."""

from millrace.host.base.errors import (
    ArgumentError,
    BitstreamError,
    DeviceFault,
    DeviceUnavailable,
    KeyTypeError,
    MillraceError,
    PredicateError,
    SchemaError,
    StateError,
)

__all__ = [
    "ArgumentError",
    "BitstreamError",
    "DeviceFault",
    "DeviceUnavailable",
    "KeyTypeError",
    "MillraceError",
    "PredicateError",
    "SchemaError",
    "StateError",
]
