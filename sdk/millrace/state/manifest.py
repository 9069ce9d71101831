"""A manifest: JSON behind a line that says what it is, which version of the layout it has, and its checksum.

`mr.WindowJoin.state` and Spark's streaming joins keep theirs so. Whatever is not such a manifest, was altered, or has
another version is a `StateError`.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from millrace.host.base.errors import StateError


def seal(kind: str, version: int, content: dict[str, Any]) -> bytes:
    """The manifest's bytes; equal contents give equal bytes."""
    body = json.dumps(content, separators=(",", ":"), sort_keys=True).encode()
    head = {kind: version, "sha256": hashlib.sha256(body).hexdigest()}
    return json.dumps(head).encode() + b"\n" + body


def unseal(kind: str, version: int, manifest: bytes) -> dict[str, Any]:
    """What was sealed."""
    try:
        head, _, body = bytes(manifest).partition(b"\n")
        about = json.loads(head)
        found, checksum = about[kind], about["sha256"]
    except (TypeError, ValueError, KeyError, RecursionError) as error:
        raise StateError(f"this is not a manifest of a millrace join: {error}") from error
    if found != version:
        raise StateError(f"the state has format {found}; this version of millrace reads format {version}")
    if hashlib.sha256(body).hexdigest() != checksum:
        raise StateError("the manifest was altered: its checksum does not fit. Restore it from a copy")
    content: dict[str, Any] = json.loads(body)
    return content


def check_same(stored: dict[str, str], given: dict[str, str]) -> None:
    """A state goes on with the arguments it was made with, or not at all."""
    differ = sorted(name for name in {**given, **stored} if given.get(name) != stored.get(name))
    if differ:
        parts = [f"{name} was {stored.get(name)}, now {given.get(name)}" for name in differ]
        raise StateError(f"the state was made with other arguments: {'; '.join(parts)}")
