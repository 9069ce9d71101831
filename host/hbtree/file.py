"""A file of sections: versioned, checksummed, memory-mapped, and written atomically.

    magic (8 bytes) | version, header's length (uint32 each) | header's SHA-256 | header (JSON) | sections

The header holds the offset, length and SHA-256 of each section. Sections begin at page boundaries, so that mapped
arrays are aligned like allocated ones. A file is written under a temporary name, flushed to disk and renamed.
`read_file` verifies size and checksums, which reads the file once; the pages stay in the page cache. Limits: numbers
are little-endian; a file that is truncated while it is mapped ends the process with SIGBUS at the next access to a lost
page (`write_file` never does that: it replaces the file). (Not in the paper.)
"""

from __future__ import annotations

import hashlib
import io
import json
import mmap
import os
import struct
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from millrace.host.base.errors import ArgumentError, StateError
from millrace.host.base.faults import fault_data, fault_point
from millrace.host.base.types import Array

MAGIC = b"MRINDEX\x00"
VERSION = 2
_PAGE = 1 << 12
_HEAD = struct.Struct("<8sII32s")
_MAX_HEADER = 1 << 24


def write_file(path: Path, about: Mapping[str, Any], sections: Mapping[str, Any]) -> None:
    """Write sections (byte buffers) and their description `about` to `path`, atomically."""
    if not path.name:
        raise ArgumentError(f"cannot save to {path}: it is a folder; choose another path")
    # Not longer than the file's own name may be: that of a file of 255 bytes has no room for more.
    mark = hashlib.sha256(os.fsencode(path.name)).hexdigest()[:16]
    temporary = path.with_name(f".{mark}.{os.getpid()}-{threading.get_ident()}.tmp")
    try:
        with temporary.open("xb") as file:
            _write(file, about, {name: memoryview(data).cast("B") for name, data in sections.items()})
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        _sync_folder(path.parent)
    except OSError as error:
        raise ArgumentError(
            f"cannot save to {path}: {error.strerror}; an existing file is unchanged; choose another path"
        ) from error
    finally:
        with suppress(OSError):  # a path that could not be written cannot be removed either
            temporary.unlink(missing_ok=True)


def pack(about: Mapping[str, Any], sections: Mapping[str, Any]) -> bytes:
    """The bytes that `write_file` would write."""
    made = io.BytesIO()
    _write(made, about, {name: memoryview(data).cast("B") for name, data in sections.items()})
    return made.getvalue()


def _write(file: Any, about: Mapping[str, Any], sections: Mapping[str, memoryview]) -> None:
    entries: dict[str, list[Any]] = {}
    at = 0
    for name, data in sections.items():
        entries[name] = [at, len(data), hashlib.sha256(data).hexdigest()]
        at += -(-len(data) // _PAGE) * _PAGE
    header = json.dumps({"about": dict(about), "sections": entries}, sort_keys=True).encode()
    file.write(_HEAD.pack(MAGIC, VERSION, len(header), hashlib.sha256(header).digest()) + header)
    file.write(bytes(-(_HEAD.size + len(header)) % _PAGE))
    for data in sections.values():
        file.write(fault_data("index.save", data))
        file.write(bytes(-len(data) % _PAGE))


def _sync_folder(folder: Path) -> None:
    """Flush the rename to disk; not every file system can flush a folder."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(handle)
    except OSError:
        return
    finally:
        os.close(handle)


def read_file(path: Path) -> tuple[dict[str, Any], dict[str, Array]]:
    """Return the description and the mapped sections (bytes); a damaged file raises `StateError`."""
    try:
        fault_point("index.open")
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if size else b""
    except OSError as error:
        raise ArgumentError(
            f"cannot open {path}: {error.strerror}; give a file that OrderedIndex.save wrote"
        ) from error
    return unpack(mapped, str(path))


def unpack(mapped: Any, path: str) -> tuple[dict[str, Any], dict[str, Array]]:
    """The description and the sections in the bytes of a file; `path` names it in messages."""
    contents: Array = np.frombuffer(mapped, np.uint8)
    size = len(contents)
    if size < _HEAD.size:
        raise StateError(f"{path} has {size} bytes, too few for a saved index: it was cut off; save the index again")
    about, entries = _header(path, contents)
    begin = -(-(_HEAD.size + _HEAD.unpack(contents[: _HEAD.size].tobytes())[2]) // _PAGE) * _PAGE
    sections = {}
    for name, (at, length, digest) in entries.items():
        data = contents[begin + at : begin + at + length]
        if len(data) < length:
            raise StateError(f"{path} ends before its section {name!r} does: it was cut off; save the index again")
        if hashlib.sha256(data.data).hexdigest() != digest:
            raise StateError(f"{path} was altered: the checksum of its section {name!r} is wrong; save the index again")
        sections[name] = data
    used = max((at + -(-length // _PAGE) * _PAGE for at, length, _ in entries.values()), default=0)
    if size != begin + used:
        raise StateError(f"{path} has {size:,} bytes, its header says {begin + used:,}: it was altered; save it again")
    return about, sections


_Entries = dict[str, tuple[int, int, str]]


def _header(path: str, contents: Array) -> tuple[dict[str, Any], _Entries]:
    """The description, and the offset, length and checksum of each section."""
    magic, version, length, digest = _HEAD.unpack(contents[: _HEAD.size].tobytes())
    if magic != MAGIC:
        raise StateError(f"{path} is no saved index: it begins with {magic!r}, not with {MAGIC!r}")
    if version != VERSION:
        writer = "a newer millrace" if version > VERSION else "an older millrace"
        raise StateError(
            f"{path} has format version {version}, written by {writer}; this one reads version {VERSION}: "
            f"open it with that one, or save the index again"
        )
    text = contents[_HEAD.size : _HEAD.size + length].tobytes()
    if length > _MAX_HEADER or len(text) < length or hashlib.sha256(text).digest() != digest:
        raise StateError(f"{path} was cut off or altered: the checksum of its header is wrong; save the index again")
    try:
        header = json.loads(text)
        about, entries = dict(header["about"]), {name: (*entry,) for name, entry in header["sections"].items()}
        fits = all(_is_valid_entry(*entry) for entry in entries.values())
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise StateError(
            f"{path} has a header that this version cannot read ({error}): save the index again"
        ) from error
    if not fits:
        raise StateError(f"{path} has sections at invalid offsets: save the index again")
    return about, entries


def _is_valid_entry(at: Any, length: Any, digest: Any) -> bool:
    """Whether a section entry is valid: non-negative integers, and an offset at a page boundary."""
    return type(at) is int and type(length) is int and at >= 0 and length >= 0 and at % _PAGE == 0
