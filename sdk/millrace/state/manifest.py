"""Manifests: a header line with the kind, the format version and the checksum, then JSON.

`mr.WindowJoin.state` and Spark's streaming joins use them. Reading bytes that are not such a manifest, were altered, or
have another version raises a `StateError`.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from millrace.host.base.errors import StateError
from millrace.host.base.faults import fault_data


def seal(kind: str, version: int, content: dict[str, Any]) -> bytes:
    """The bytes of a manifest; equal contents give equal bytes."""
    body = json.dumps(content, separators=(",", ":"), sort_keys=True).encode()
    head = {kind: version, "sha256": hashlib.sha256(body).hexdigest()}
    return fault_data("manifest.write", json.dumps(head).encode() + b"\n" + body)


def unseal(kind: str, version: int, manifest: bytes) -> dict[str, Any]:
    """The content of a manifest, after all checks."""
    manifest = fault_data("manifest.read", manifest)
    try:
        head, _, body = bytes(manifest).partition(b"\n")
        about = json.loads(head)
        found, checksum = about[kind], about["sha256"]
    except (TypeError, ValueError, KeyError, RecursionError) as error:
        raise StateError(f"this is not a manifest of a millrace join: {error}") from error
    if found != version:
        raise StateError(f"the state has format {found}; this version of millrace reads format {version}")
    if hashlib.sha256(body).hexdigest() != checksum:
        raise StateError("the manifest was altered: its checksum does not match. Restore it from a copy")
    content: dict[str, Any] = json.loads(body)
    return content


def check_same(stored: dict[str, str], given: dict[str, str]) -> None:
    """Raise a `StateError` unless a state was made with the same arguments."""
    differ = sorted(name for name in {**given, **stored} if given.get(name) != stored.get(name))
    if differ:
        parts = [f"{name} was {stored.get(name)}, now {given.get(name)}" for name in differ]
        raise StateError(f"the state was made with other arguments: {'; '.join(parts)}")
