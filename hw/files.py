"""Files that a user names: reads them with a limit on their size, and finds out early whether one can be written."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from millrace.host.base.errors import ArgumentError, BitstreamError


def read_bounded(path: Path, limit: int, kind: str) -> bytes:
    """The bytes of a file that has at most `limit`; `kind`: what it should be. Never reads more, as of a device."""
    try:
        with path.open("rb") as file:
            data = file.read(limit + 1)
    except OSError as error:
        raise BitstreamError(f"{path} cannot be read: {error.strerror}; give the path of {kind}") from error
    if len(data) > limit:
        raise BitstreamError(f"{path} has more than {limit:,} bytes, too many for {kind}")
    return data


def check_writable(path: Path) -> None:
    """Raise an `ArgumentError` unless a file can be written at this path; for what takes minutes to make."""
    folder = path.resolve().parent
    if path.is_dir():
        raise ArgumentError(f"{path} is a folder: give the path of a file")
    if not folder.is_dir():
        raise ArgumentError(f"{path} cannot be written: there is no folder {folder}")
    if not os.access(folder, os.W_OK):
        raise ArgumentError(f"{path} cannot be written: no permission in {folder}")


def write_whole(path: Path, data: bytes) -> None:
    """Write a file that is either complete or as before. A pipe or a device gets the bytes themselves."""
    target = path.resolve()  # what a symbolic link names is replaced, not the link
    scratch = target.with_name(f"{target.name}.{os.getpid()}.new")
    try:
        if target.exists() and not target.is_file():
            target.write_bytes(data)
            return
        scratch.write_bytes(data)
        scratch.replace(target)
    except OSError as error:
        with suppress(OSError):
            scratch.unlink(missing_ok=True)
        raise ArgumentError(f"{path} cannot be written: {error.strerror}") from error
