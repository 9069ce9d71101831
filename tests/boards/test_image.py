"""Images: the same input gives the same bytes, and bad images are refused before anything is sent to a board."""

from __future__ import annotations

import base64
import errno
import hashlib
import io
import json
import os
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from typer.testing import CliRunner

from millrace.cli.app import app
from millrace.host.base.errors import ArgumentError, BitstreamError
from millrace.hw import bitstream, cards, deploy, ecp5, files, signing
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
OTHER_PRIVATE, OTHER_PUBLIC = pem(Ed25519PrivateKey.from_private_bytes(bytes(range(1, 33))))


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


def holding(bitstream: bytes) -> Callable[[Image], bytes]:
    """A sound image with another bitstream."""
    files = {"ulx3s_top.bit": bitstream}
    return lambda image: images.make(board("ulx3s"), files, {}, {}).signed(PRIVATE).pack()


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
    "older ABI": said(abi="2.0"),
    "stale hash": stale,
    "wrong signature": lambda image: replace(image, signature=None).signed(OTHER_PRIVATE).pack(),
    "unsigned where a signature is demanded": lambda image: replace(image, signature=None).pack(),
    "a bitstream for another part": holding(HEAD.replace(b"\x41\x11\x30\x43", b"\x41\x11\x10\x43")),
    "an empty bitstream": holding(b""),
    "no bitstream": holding(bytes(len(HEAD))),
    "half a bitstream": holding(HEAD[:1000]),
    "another design": said(design="other_top"),
    "another memory": said(parameters={**small_image().manifest.parameters, "MEM_LOG2": 16}),
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
        {"parameters": {"W": 0}},
        {"parameters": {"W": 3}},
        {"parameters": {"W": 1 << 40}},
        {"parameters": {"MEM_LOG2": 99}},
        {"parameters": {"LANES": 1}},
        {"parameters": {"KEY_W": None}},
        {"clock_hz": 0},
        {"clock_hz": -5},
        {"clock_hz": 1 << 60},
        {"abi": "2"},
        {"abi": "2.0\n"},
        {"design": "../top"},
        {"design": "\x1b[31mtop"},
        {"board": "\x1b]0;title\x07"},
        {"tools": {"yosys": "\x1b[2J"}},
        {"tools": {"\x1b[2J": "1"}},
        {"report": {"mhz": float("inf")}},
        {"origin": "found"},
        {"version": -1},
        {"\x1b[31mfield": 1},
        {"members": {"\x1b[31m.bit": {}}},
    ],
    ids=str,
)
def test_a_manifest_of_other_types_is_refused_in_our_words(said: dict[str, Any]) -> None:
    """The manifest's own hash is valid, as anyone can compute it."""
    files = unzipped(small_image().pack())
    fields = json.loads(files[MANIFEST])
    del fields["digest"]
    given = said.get("parameters")
    if isinstance(given, dict):  # one parameter is wrong, the others are right
        said = {"parameters": {**fields["parameters"], **given}}
    fields |= said
    files[MANIFEST] = images._canonical({**fields, "digest": hashlib.sha256(images._canonical(fields)).hexdigest()})
    with pytest.raises(BitstreamError) as refusal:
        images.unpack(zipped(files), "an image")
    assert str(refusal.value).isprintable()


@pytest.mark.parametrize("name", ["KEY_W", "W"])
def test_a_manifest_must_say_what_the_engine_will_name(name: str) -> None:
    manifest = small_image().manifest
    others = {key: value for key, value in manifest.parameters.items() if key != name}
    with pytest.raises(BitstreamError, match=f"parameter '{name}'"):
        images.unpack(replace(small_image(), manifest=replace(manifest, parameters=others)).pack(), "an image")


def test_a_manifest_without_end_is_refused() -> None:
    files = unzipped(small_image().pack())
    with pytest.raises(BitstreamError, match="cannot be read"):
        images.unpack(zipped({**files, MANIFEST: b"[" * 60_000}), "an image")


# Files that a user names.


def test_a_file_without_end_is_not_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BitstreamError, match="too many for an image"):
        images.read(Path("/dev/zero"))
    monkeypatch.setenv("MILLRACE_IMAGE_KEY", "/dev/zero")
    with pytest.raises(BitstreamError, match="too many for a key"):
        signing.configured_key()


def test_an_output_that_cannot_be_written_is_found_before_the_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ecp5, "build", touch)
    for out, match in ((tmp_path / "none" / "x.mri", "no folder"), (tmp_path, "is a folder")):
        refused = CliRunner().invoke(app, ["image", "build", "ulx3s", "--out", str(out)])
        assert isinstance(refused.exception, ArgumentError)
        assert match in str(refused.exception)
    begun = CliRunner().invoke(app, ["image", "build", "ulx3s", "--out", str(tmp_path / "x.mri")])
    assert isinstance(begun.exception, Touched)


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, link = tmp_path / "x.mri", tmp_path / "link.mri"
    file.write_bytes(b"before")
    link.symlink_to(file)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", full_disk)
        with pytest.raises(ArgumentError, match="No space left"):
            files.write_whole(link, b"after")
    assert file.read_bytes() == b"before"
    files.write_whole(link, b"after")
    assert link.is_symlink()
    assert file.read_bytes() == b"after"
    assert sorted(tmp_path.iterdir()) == [link, file]
    files.write_whole(Path("/dev/null"), b"after")
    assert Path("/dev/null").is_char_device()


def full_disk(path: Path, target: Path) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_description_for_a_board_that_takes_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "top.bit").write_bytes(HEAD)
    given = ["--bitstream", str(tmp_path / "top.bit"), "--hwh", str(tmp_path / "top.hwh")]
    refused = CliRunner().invoke(app, ["image", "build", "ulx3s", "--out", str(tmp_path / "x.mri"), *given])
    assert isinstance(refused.exception, ArgumentError)
    assert not (tmp_path / "x.mri").exists()


# Origin, keys and versions.


def test_a_bitstream_that_was_given_is_not_called_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "top.bit").write_bytes(HEAD)
    (tmp_path / "empty.bit").write_bytes(b"")
    run = CliRunner().invoke
    made = run(app, ["image", "build", "ulx3s", "--bitstream", "top.bit"])
    assert made.exit_code == 0, made.output
    assert images.read(tmp_path / "ulx3s.mri").manifest.origin == "given"
    assert "given as a file" in run(app, ["image", "verify", "ulx3s.mri"]).stdout
    (tmp_path / "ulx3s.mri").unlink()
    refused = run(app, ["image", "build", "ulx3s", "--bitstream", "empty.bit"])
    assert refused.exit_code != 0
    assert isinstance(refused.exception, BitstreamError) or "0 bytes" in refused.output
    assert not (tmp_path / "ulx3s.mri").exists()


def test_one_of_several_keys_is_enough(tmp_path: Path) -> None:
    image = small_image().signed(OTHER_PRIVATE)
    with pytest.raises(BitstreamError, match=image.signature.key_id if image.signature else ""):
        images.check(image, board("ulx3s"), PUBLIC)
    images.check(image, board("ulx3s"), PUBLIC + OTHER_PUBLIC)


@pytest.mark.parametrize("kind", ["PUBLIC", "PRIVATE"])
def test_a_key_of_an_algorithm_that_nobody_knows_is_refused(kind: str) -> None:
    """Its package raises an error of its own kind for these."""
    codes = {"PUBLIC": "302a300506032b650b032100", "PRIVATE": "302e020100300506032b650b04220420"}
    text = base64.encodebytes(bytes.fromhex(codes[kind]) + bytes(32))
    key = f"-----BEGIN {kind} KEY-----\n".encode() + text + f"-----END {kind} KEY-----\n".encode()
    signed = small_image().signed(PRIVATE)
    use = (lambda: images.check(signed, board("ulx3s"), key)) if kind == "PUBLIC" else (lambda: signed.signed(key))
    with pytest.raises(BitstreamError, match="not an Ed25519 key"):
        use()


def test_an_older_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = (
        images.make(board("ulx3s"), {"ulx3s_top.bit": HEAD}, {}, {}, version=version).signed(PRIVATE)
        for version in (3, 4)
    )
    monkeypatch.setenv("MILLRACE_IMAGE_MINIMUM", "4")
    images.check(new, board("ulx3s"), PUBLIC)
    with pytest.raises(BitstreamError, match="version 3"):
        images.check(old, board("ulx3s"), PUBLIC)
    monkeypatch.setenv("MILLRACE_IMAGE_MINIMUM", "four")
    with pytest.raises(BitstreamError, match="MILLRACE_IMAGE_MINIMUM"):
        images.check(new, board("ulx3s"), PUBLIC)


def xilinx(part: bytes, code: bytes) -> bytes:
    """The head of a Vivado bitstream for a Zynq UltraScale+, and zeros."""
    fields = b"".join(
        letter + len(text).to_bytes(2, "big") + text
        for letter, text in (
            (b"a", b"millrace\0"),
            (b"b", part + b"\0"),
            (b"c", b"2026/11/18\0"),
            (b"d", b"00:00:00\0"),
        )
    )
    words = b"\xff" * 32 + b"\xaa\x99\x55\x66" + bytes(8) + b"\x30\x01\x80\x01" + code
    data = words + bytes(1 << 18)
    return bytes.fromhex("00090ff00ff00ff00ff0000001") + fields + b"e" + len(data).to_bytes(4, "big") + data


def test_a_bitstream_of_vivado_is_read() -> None:
    kv260 = board("kv260")
    sound = xilinx(b"xck26-sfvc784-2LV-c", bytes.fromhex("04724093"))
    bitstream.check(sound, "x.bit", kv260)
    plain = sound[sound.index(b"\xff" * 32) :]
    plain = plain[: len(plain) // 4 * 4]
    bitstream.check(plain, "x.bin", kv260)
    bitstream.check(bitstream._swapped(plain), "x.bin", kv260)
    for wrong, name, match in (
        (xilinx(b"xczu7ev-ffvc1156-2-e", bytes.fromhex("04730093")), "x.bit", "xczu7ev"),
        (xilinx(b"xck26-sfvc784-2LV-c", bytes.fromhex("04730093")), "x.bit", "ID code 0x04730093"),
        (plain, "x.bit", "no header"),
        (bytes(1 << 19), "x.bin", "no sync word"),
        (b"", "x.bin", "0 bytes"),
    ):
        with pytest.raises(BitstreamError, match=match):
            bitstream.check(wrong, name, kv260)
