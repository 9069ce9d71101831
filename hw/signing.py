"""Ed25519 signatures of images, with the package `cryptography` (the extra `board`).

Keys are PEM files, as `openssl genpkey -algorithm ed25519 -out key.pem` and `openssl pkey -in key.pem -pubout` make
them. If the environment variable `MILLRACE_IMAGE_KEY` names a file of public keys (one, or several one after the
other), only images signed with one of them are deployed. `MILLRACE_IMAGE_MINIMUM` is the lowest version of an image
that is deployed, so that an old one with a valid signature cannot come back. The id of a key is the beginning of its
SHA-256.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millrace.host.base.errors import BitstreamError, DeviceUnavailable
from millrace.host.base.install import install_command
from millrace.hw.files import read_bounded

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

VARIABLE = "MILLRACE_IMAGE_KEY"
MINIMUM = "MILLRACE_IMAGE_MINIMUM"
_PEM = re.compile(rb"-----BEGIN [A-Z ]+-----.*?-----END [A-Z ]+-----", re.DOTALL)
ALGORITHM = "ed25519"
MAX_KEY_BYTES = 1 << 16
NOT_ED25519 = "not an Ed25519 key: make one with `openssl genpkey -algorithm ed25519`"


@dataclass(frozen=True)
class Signature:
    """The signature of a manifest and the public key, in hexadecimal digits."""

    algorithm: str
    key: str
    signature: str

    @property
    def key_id(self) -> str:
        """The id of the key."""
        return key_id(self.key)


def key_id(public_key: str) -> str:
    """The id of a public key, given in hexadecimal digits."""
    return hashlib.sha256(public_key.encode(errors="replace")).hexdigest()[:16]


def minimum_version() -> int:
    """The lowest version of an image that may be deployed."""
    given = os.environ.get(MINIMUM, "0")
    if not re.fullmatch(r"[0-9]{1,10}", given):
        raise BitstreamError(f"{MINIMUM}={given!r}: allowed is a number from 0 on")
    return int(given)


def configured_key() -> bytes | None:
    """The public key that images must be signed with, if one is configured."""
    path = os.environ.get(VARIABLE)
    return read_key(Path(path)) if path else None


def read_key(path: Path) -> bytes:
    """Read a key file."""
    return read_bounded(path, MAX_KEY_BYTES, "a key in PEM format")


def sign(text: bytes, private_key: bytes) -> Signature:
    """Sign with a private key (PEM)."""
    key = _private(private_key)
    public = key.public_key().public_bytes_raw()
    return Signature(ALGORITHM, public.hex(), key.sign(text).hex())


def verify(signature: Signature, text: bytes, public_key: bytes) -> None:
    """Raise a `BitstreamError` unless the text was signed with the private half of one of these public keys (PEM)."""
    keys = {key.public_bytes_raw().hex(): key for key in map(_public, _PEM.findall(public_key) or [public_key])}
    wanted = keys.get(signature.key) if signature.algorithm == ALGORITHM else None
    if wanted is None:
        known = ", ".join(map(key_id, keys))
        raise BitstreamError(
            f"the image is signed with key {signature.key_id}, a different key than the configured one ({known}): "
            f"sign it with yours"
        )
    from cryptography.exceptions import InvalidSignature

    try:
        wanted.verify(bytes.fromhex(signature.signature), text)
    except (InvalidSignature, ValueError):
        raise BitstreamError("the image's signature is wrong: it was changed after it was signed") from None


def _private(pem: bytes) -> Ed25519PrivateKey:
    serialization = _serialization()
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = _loaded(lambda: serialization.load_pem_private_key(pem, password=None), "private")
    if not isinstance(key, Ed25519PrivateKey):
        raise BitstreamError(NOT_ED25519)
    return key


def _public(pem: bytes) -> Ed25519PublicKey:
    serialization = _serialization()
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    key = _loaded(lambda: serialization.load_pem_public_key(pem), "public")
    if not isinstance(key, Ed25519PublicKey):
        raise BitstreamError(NOT_ED25519)
    return key


def _loaded(load: Callable[[], Any], kind: str) -> Any:
    from cryptography.exceptions import UnsupportedAlgorithm

    try:
        return load()
    except (ValueError, TypeError) as error:
        raise BitstreamError(f"not a {kind} key in PEM format: {error}") from error
    except UnsupportedAlgorithm as error:
        raise BitstreamError(NOT_ED25519) from error


def _serialization() -> Any:
    try:
        from cryptography.hazmat.primitives import serialization
    except ImportError as error:
        raise DeviceUnavailable(f"signatures need the package cryptography: {install_command('board')}") from error
    return serialization
