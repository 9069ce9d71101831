"""Every error that millrace raises on purpose; users see them as `mr.MillraceError` and its kinds.

A message says what was given, what is allowed and what to do. A call that raises one of these changed no state.
The classes are defined in `host` so that devices can raise them without importing the public operators.
"""

from __future__ import annotations


class MillraceError(Exception):
    """The base of every error that millrace raises on purpose.

    Messages quote what was given. Half characters in it (lone surrogates), which no terminal or log file can take, are
    written as escapes.
    """

    def __init__(self, *args: object) -> None:
        """Like any exception: the message, usually."""
        super().__init__(*(printable(one) if isinstance(one, str) else one for one in args))


def printable(text: str) -> str:
    """The same text with lone surrogates as escapes."""
    return text.encode("utf-8", "backslashreplace").decode()


class PredicateError(MillraceError):
    """The `on` condition cannot be used; the message marks the faulty part of its text."""

    def __init__(self, reason: str, text: str = "", start: int = 0, end: int | None = None) -> None:
        """`start:end` is the faulty part of `text`; without `text` the message is the reason alone."""
        self.reason = reason
        self.text = text
        self.start = start
        self.end = max(start + 1, len(text) if end is None else end)
        super().__init__(self._render())

    def __reduce__(self) -> tuple[type[PredicateError], tuple[str, str, int, int]]:
        """Pickle all four parts, so that nothing is lost between processes."""
        return (type(self), (self.reason, self.text, self.start, self.end))

    def _render(self) -> str:
        if not self.text:
            return self.reason
        line_start = self.text.rfind("\n", 0, self.start) + 1
        line_end = self.text.find("\n", self.start)
        line = self.text[line_start : len(self.text) if line_end < 0 else line_end]
        column = self.start - line_start
        width = max(1, min(self.end, line_start + len(line)) - self.start)
        return f"{self.reason}\n  {line}\n  {' ' * column}{'^' * width}"


class KeyTypeError(MillraceError):
    """A key column has a type that cannot be a key."""


class SchemaError(MillraceError):
    """A table's columns do not fit: unknown, duplicated, changed since the first batch, or clashing in the output."""


class ArgumentError(MillraceError, ValueError):
    """An argument has a value that is not allowed."""


class DeviceUnavailable(MillraceError):
    """The device cannot be used on this machine, or cannot run the request; the message says how to fix it."""


class DeviceFault(MillraceError):
    """A device failed during an operation."""


class BitstreamError(MillraceError):
    """A bitstream image is damaged, for another board, or not the one that is loaded on the board."""


class StateError(MillraceError):
    """The operator is closed, its state cannot be restored, or too many rows are buffered for a silent source."""


for _kind in (MillraceError, *MillraceError.__subclasses__()):
    _kind.__module__ = "millrace"  # the name that users import and see in a traceback
