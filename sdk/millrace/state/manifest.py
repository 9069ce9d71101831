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
    return fault_data("manifest.write", _head(kind, version, body) + b"\n" + body)


def unseal(kind: str, version: int, manifest: bytes) -> dict[str, Any]:
    """The content of a manifest, after all checks."""
    manifest = fault_data("manifest.read", manifest)
    try:
        head, _, body = bytes(manifest).partition(b"\n")
        found = json.loads(head)[kind]
    except (TypeError, ValueError, KeyError, IndexError, RecursionError) as error:
        raise StateError(f"this is not a manifest of a millrace join: {error}") from error
    if type(found) is not int or found != version:
        raise StateError(f"the state has format {found}; this version of millrace reads format {version}")
    if head != _head(kind, version, body):  # every byte counts, also the spaces between the names
        raise StateError("the manifest was altered: its checksum does not match. Restore it from a copy")
    try:
        content = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise StateError(f"the manifest does not hold a state: {error}") from error
    if not isinstance(content, dict):
        raise StateError(f"the manifest holds a {type(content).__name__}, not a state")
    return content


def _head(kind: str, version: int, body: bytes) -> bytes:
    """The header line of a manifest."""
    return json.dumps({kind: version, "sha256": hashlib.sha256(body).hexdigest()}).encode()


def check_same(stored: dict[str, str], given: dict[str, str]) -> None:
    """Raise a `StateError` unless a state was made with the same arguments."""
    differ = sorted(name for name in {**given, **stored} if given.get(name) != stored.get(name))
    if differ:
        parts = [f"{name} was {stored.get(name)}, now {given.get(name)}" for name in differ]
        raise StateError(f"the state was made with other arguments: {'; '.join(parts)}")
