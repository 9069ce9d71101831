"""Images: the same input gives the same bytes, and bad images are refused before anything is sent to a board."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from millrace.host.base.errors import BitstreamError
from millrace.hw import cards, deploy
from millrace.hw import image as images
from millrace.hw.catalog import board
from millrace.hw.image import MANIFEST, SIGNATURE, Image
from tests.boards.cards import HEAD, small_image


def pem(key: Ed25519PrivateKey) -> tuple[bytes, bytes]:
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    return private, public


PRIVATE, PUBLIC = pem(Ed25519PrivateKey.from_private_bytes(bytes(range(32))))
OTHER_PRIVATE, _ = pem(Ed25519PrivateKey.from_private_bytes(bytes(range(1, 33))))


def zipped(files: dict[str, bytes]) -> bytes:
    """A zip with valid checksums, as `Image.pack` writes it."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_STORED) as archive:
        for name, data in files.items():
            info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            info.create_system, info.external_attr = 3, 0o644 << 16
            archive.writestr(info, data)
    return made.getvalue()


def unzipped(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def flipped(member: str) -> Callable[[Image], bytes]:
    """Flip a bit of a member and correct the zip's own checksum."""

    def mutate(image: Image) -> bytes:
        files = unzipped(image.pack())
        data = bytearray(files[member])
        data[len(data) // 2] ^= 1
        return zipped({**files, member: bytes(data)})

    return mutate


def said(**fields: Any) -> Callable[[Image], bytes]:
    """Change fields of the manifest, correct its hash and sign it again."""
    return lambda image: (
        replace(image, manifest=replace(image.manifest, **fields), signature=None).signed(PRIVATE).pack()
    )


def stale(image: Image) -> bytes:
    """Another bitstream with the old hash."""
    return zipped({**unzipped(image.pack()), "ulx3s_top.bit": HEAD + b"\0"})


def traversing(image: Image) -> bytes:
    files = unzipped(image.pack())
    return zipped({**files, "../../etc/passwd": b"root"})


def oversized(image: Image) -> bytes:
    """Says that it is small, and is not: a member beyond the limit."""
    files = unzipped(image.pack())
    return zipped({**files, SIGNATURE: bytes(images.MAX_BYTES[SIGNATURE] + 1)})


MUTATIONS: dict[str, Callable[[Image], bytes]] = {
    "a bit of the bitstream": flipped("ulx3s_top.bit"),
    "a bit of the manifest": flipped(MANIFEST),
    "a bit of the signature": flipped(SIGNATURE),
    "truncated": lambda image: image.pack()[:-40],
    "wrong board": said(board="kv260"),
    "wrong part": said(part="LFE5U-25F-6BG381"),
    "wrong ABI": said(abi="9.0"),
    "stale hash": stale,
    "wrong signature": lambda image: replace(image, signature=None).signed(OTHER_PRIVATE).pack(),
    "unsigned where a signature is demanded": lambda image: replace(image, signature=None).pack(),
    "path traversal": traversing,
    "oversized member": oversized,
}


class Touched(Exception):
    """Raised when the board would be accessed."""


def touch(*given: object) -> None:
    raise Touched


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_mutation_is_refused_before_the_first_byte(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = tmp_path / "key.pem"
    key.write_bytes(PUBLIC)
    monkeypatch.setenv("MILLRACE_IMAGE_KEY", str(key))
    monkeypatch.setattr(deploy, "_prepare", touch)
    path = tmp_path / "image.mri"

    path.write_bytes(small_image().signed(PRIVATE).pack())
    with pytest.raises(Touched):  # a valid image gets as far as the board
        deploy.deploy("lab", path, "serial:/dev/null")

    path.write_bytes(MUTATIONS[name](small_image().signed(PRIVATE)))
    with pytest.raises(BitstreamError):
        deploy.deploy("lab", path, "serial:/dev/null")
    assert cards.cards() == []


def test_the_same_input_gives_the_same_bytes() -> None:
    again = images.make(board("ulx3s"), {"ulx3s_top.bit": HEAD}, {"test": "1"}, {"fmax_mhz": 30.0})
    assert again.pack() == small_image().pack()
    assert again.signed(PRIVATE).pack() == small_image().signed(PRIVATE).pack()
    other = images.make(board("ulx3s"), {"ulx3s_top.bit": HEAD + b"\1"}, {"test": "1"}, {"fmax_mhz": 30.0})
    assert other.digest != again.digest


def test_what_is_packed_is_read(tmp_path: Path) -> None:
    path = tmp_path / "x.mri"
    path.write_bytes(small_image().signed(PRIVATE).pack())
    found = images.read(path)
    assert found == small_image().signed(PRIVATE)
    images.check(found, board("ulx3s"), PUBLIC)
    assert found.manifest.members["ulx3s_top.bit"]["sha256"] == hashlib.sha256(HEAD).hexdigest()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"PK",
        zipped({}),
        zipped({"manifest.json": b"[]"}),
        zipped({"manifest.json": b"\xff"}),
        zipped({"manifest.json": json.dumps({"digest": "", "format": 1}).encode()}),
        small_image().pack() + b"more",
        b"more" + small_image().pack(),
        zipped(dict(reversed(unzipped(small_image().pack()).items()))),
    ],
    ids=range(9),
)
def test_what_is_no_image_is_refused(data: bytes) -> None:
    with pytest.raises(BitstreamError):
        images.unpack(data, "x")


def test_a_changed_parameter_changes_the_build_hash() -> None:
    chosen = board("ulx3s")
    assert replace(chosen, parameters={**chosen.parameters, "QUEUE": 4}).build_hash() != chosen.build_hash()
    assert replace(chosen, line={"DIVISOR": 4}).build_hash() == chosen.build_hash()


@pytest.mark.parametrize(
    "said",
    [
        {"abi": 1},
        {"part": ["x"]},
        {"board": {}},
        {"clock_hz": "fast"},
        {"parameters": 7},
        {"parameters": {"W": "4"}},
        {"tools": None},
        {"report": {"mhz": "many"}},
        {"members": {"ulx3s.bit": 5}},
        {"members": []},
    ],
    ids=str,
)
def test_a_manifest_of_other_types_is_refused_in_our_words(said: dict[str, Any]) -> None:
    """The manifest's own hash is valid, as anyone can compute it."""
    files = unzipped(small_image().pack())
    fields = {**json.loads(files[MANIFEST]), **said}
    del fields["digest"]
    files[MANIFEST] = images._canonical({**fields, "digest": hashlib.sha256(images._canonical(fields)).hexdigest()})
    with pytest.raises(BitstreamError):
        images.unpack(zipped(files), "an image")


def test_a_manifest_without_end_is_refused() -> None:
    files = unzipped(small_image().pack())
    with pytest.raises(BitstreamError, match="cannot be read"):
        images.unpack(zipped({**files, MANIFEST: b"[" * 60_000}), "an image")
