"""Ed25519 signatures of images, with the package `cryptography` (the extra `board`).

Keys are PEM files, as `openssl genpkey -algorithm ed25519 -out key.pem` and `openssl pkey -in key.pem -pubout` make
them. If the environment variable `MILLRACE_IMAGE_KEY` names a public key, only images signed with it are deployed.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millrace.host.base.errors import BitstreamError, DeviceUnavailable
from millrace.host.base.install import install_command

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

VARIABLE = "MILLRACE_IMAGE_KEY"
ALGORITHM = "ed25519"


@dataclass(frozen=True)
class Signature:
    """The signature of a manifest and the public key, in hexadecimal digits."""

    algorithm: str
    key: str
    signature: str


def configured_key() -> bytes | None:
    """The public key that images must be signed with, if one is configured."""
    path = os.environ.get(VARIABLE)
    return read_key(Path(path)) if path else None


def read_key(path: Path) -> bytes:
    """Read a key file."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise BitstreamError(f"the key {path} cannot be read: {error.strerror}") from error


def sign(text: bytes, private_key: bytes) -> Signature:
    """Sign with a private key (PEM)."""
    key = _private(private_key)
    public = key.public_key().public_bytes_raw()
    return Signature(ALGORITHM, public.hex(), key.sign(text).hex())


def verify(signature: Signature, text: bytes, public_key: bytes) -> None:
    """Raise a `BitstreamError` unless the text was signed with the private half of this public key (PEM)."""
    wanted = _public(public_key)
    if signature.algorithm != ALGORITHM or signature.key != wanted.public_bytes_raw().hex():
        raise BitstreamError("the image is signed with a different key than the configured one: sign it with yours")
    from cryptography.exceptions import InvalidSignature

    try:
        wanted.verify(bytes.fromhex(signature.signature), text)
    except (InvalidSignature, ValueError):
        raise BitstreamError("the image's signature is wrong: it was changed after it was signed") from None


def _private(pem: bytes) -> Ed25519PrivateKey:
    serialization = _serialization()
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    try:
        key = serialization.load_pem_private_key(pem, password=None)
    except (ValueError, TypeError) as error:
        raise BitstreamError(f"not a private key in PEM format: {error}") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise BitstreamError("not an Ed25519 key: make one with `openssl genpkey -algorithm ed25519`")
    return key


def _public(pem: bytes) -> Ed25519PublicKey:
    serialization = _serialization()
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        key = serialization.load_pem_public_key(pem)
    except ValueError as error:
        raise BitstreamError(f"not a public key in PEM format: {error}") from error
    if not isinstance(key, Ed25519PublicKey):
        raise BitstreamError("not an Ed25519 key: make one with `openssl genpkey -algorithm ed25519`")
    return key


def _serialization() -> Any:
    try:
        from cryptography.hazmat.primitives import serialization
    except ImportError as error:
        raise DeviceUnavailable(f"signatures need the package cryptography: {install_command('board')}") from error
    return serialization
