"""Images: one file `*.mri` with a bitstream, the other files that PYNQ needs, and a manifest that describes them.

An image is a zip file without compression. Its bytes depend only on its contents, so the same input gives the same
file; a file that differs from the output of `pack` is refused. The manifest names board, part, design, build hash, ABI,
parameters, clock and tools, whether millrace built the bitstream or was given it, a version against rollback, and the
SHA-256 of each member and of itself. A signature (Ed25519, over the manifest) proves the origin. Every error is a
`BitstreamError` before anything is sent to a board, and its message has no control characters. Limits: `MAX_BYTES` and
`MAX_BITSTREAM_BYTES` bytes per member, `MAX_MEMBERS` members.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import re
import struct
import zipfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from millrace.host.base.errors import BitstreamError
from millrace.hw import bitstream, signing
from millrace.hw import registers as reg
from millrace.hw.catalog import Board, boards
from millrace.hw.files import read_bounded
from millrace.hw.manifest_check import check_values
from millrace.hw.signing import Signature
from millrace.hw.text import printable

FORMAT = 2
MANIFEST, SIGNATURE = "manifest.json", "signature.json"
MAX_BYTES = {MANIFEST: 1 << 16, SIGNATURE: 1 << 12}
MAX_BITSTREAM_BYTES = 1 << 26
"""Bytes of any other member: four times the bitstream of the largest supported board."""
MAX_MEMBERS = 8
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*(\.[a-z0-9]{1,8})")
ABI = f"{reg.VERSION_VALUE >> 16}.{reg.VERSION_VALUE & 0xFFFF}"
_EPOCH = (1980, 1, 1, 0, 0, 0)
_BUILD = re.compile(r"[0-9a-f]{16}")
_WORDS = re.compile(r"[ -~]{0,200}")
"""Names and versions are printable ASCII: a terminal shows them as they are."""
_ZIP_ERRORS = (zipfile.BadZipFile, EOFError, RuntimeError, ValueError, LookupError, OSError, struct.error)
"""What `zipfile` raises for damaged files; a flag for encryption, for example, is a `RuntimeError`."""


@dataclass(frozen=True)
class Manifest:
    """The description of an image; `members` are names, sizes and hashes of all other files in it."""

    board: str
    part: str
    design: str
    build: str
    abi: str
    parameters: Mapping[str, int]
    clock_hz: int
    tools: Mapping[str, str]
    report: Mapping[str, float] = field(default_factory=dict)
    """The tools' report: the maximum clock in MHz, and the used cells of the part."""
    members: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    origin: str = "built"
    """`built` by millrace from sources with this build hash, or `given`: then the board must name this hash."""
    version: int = 0
    """Grows with each release of whoever signs images; `MILLRACE_IMAGE_MINIMUM` refuses older ones."""
    format: int = FORMAT

    def text(self) -> bytes:
        """The canonical text, its own hash included."""
        fields = asdict(self)
        digest = hashlib.sha256(_canonical(fields)).hexdigest()
        return _canonical({**fields, "digest": digest})


@dataclass(frozen=True)
class Image:
    """A manifest, the members it names, and an optional signature."""

    manifest: Manifest
    members: Mapping[str, bytes]
    signature: Signature | None = None

    def pack(self) -> bytes:
        """The bytes of the image file."""
        made = io.BytesIO()
        files = {MANIFEST: self.manifest.text(), **dict(sorted(self.members.items()))}
        if self.signature is not None:
            files[SIGNATURE] = _canonical(asdict(self.signature))
        with zipfile.ZipFile(made, "w", zipfile.ZIP_STORED) as archive:
            for name, data in files.items():
                info = zipfile.ZipInfo(name, _EPOCH)
                info.create_system, info.external_attr = 3, 0o644 << 16
                archive.writestr(info, data)
        return made.getvalue()

    @property
    def digest(self) -> str:
        """The SHA-256 of the file."""
        return hashlib.sha256(self.pack()).hexdigest()

    @property
    def bitstream(self) -> str:
        """The name of the member that is loaded."""
        return next(name for name in self.members if name.endswith((".bit", ".bin")))

    def signed(self, private_key: bytes) -> Image:
        """A copy with a signature of the manifest."""
        return replace(self, signature=signing.sign(self.manifest.text(), private_key))


def make(
    board: Board,
    files: Mapping[str, bytes],
    tools: Mapping[str, str],
    report: Mapping[str, float],
    build: str = "",
    origin: str = "built",
    version: int = 0,
) -> Image:
    """An image for a board; `build`: the build hash of an engine that was not built from the board's own folder."""
    members = {
        name: {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()} for name, data in sorted(files.items())
    }
    manifest = Manifest(
        board.name,
        board.part,
        board.design,
        build or board.build_hash(),
        ABI,
        dict(sorted(board.parameters.items())),
        board.clock_hz,
        dict(sorted(tools.items())),
        dict(sorted(report.items())),
        members,
        origin,
        version,
    )
    return unpack(Image(manifest, dict(files)).pack(), "the new image")


def read(path: Path) -> Image:
    """Read an image file and check it for damage."""
    return unpack(read_bounded(path, MAX_BITSTREAM_BYTES * 2, "an image (*.mri)"), str(path))


def unpack(data: bytes, name: str) -> Image:
    """Parse the bytes of an image file and check them for damage; `name` is used in messages."""
    try:
        return _unpack(data, name)
    except BitstreamError as error:
        raise BitstreamError(printable(str(error))) from error  # it may quote what the file contains


def _unpack(data: bytes, name: str) -> Image:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            files = {info.filename: archive.read(info) for info in _checked_members(archive, name)}
    except _ZIP_ERRORS as error:
        raise BitstreamError(f"{name} is not an image, or is damaged ({error}): copy or build it again") from error
    if MANIFEST not in files:
        raise BitstreamError(f"{name} contains no {MANIFEST}; make images with `millrace image build`")
    manifest = _manifest(files.pop(MANIFEST), name)
    signature = _signature(files.pop(SIGNATURE), name) if SIGNATURE in files else None
    _check_members(manifest, files, name)
    image = Image(manifest, files, signature)
    if image.pack() != data:
        raise BitstreamError(f"{name} contains more than its members, or in another order: build it again")
    return image


def check(image: Image, board: Board | None = None, public_key: bytes | None = None) -> None:
    """Refuse an image of another ABI or board, or, if a key is given, one that was not signed with it."""
    manifest = image.manifest
    if not _is_served(manifest.abi):
        raise BitstreamError(f"the image has ABI {manifest.abi}, this version of millrace needs {ABI}: build it again")
    known = board or boards().get(manifest.board)
    if known is None or manifest.board != known.name:
        wanted = board.name if board else f"one of {', '.join(boards())}"
        raise BitstreamError(
            f"the image is for board {manifest.board!r}, not for {wanted}: use the image of your board"
        )
    if manifest.part != known.part:
        raise BitstreamError(
            f"the image is for part {manifest.part!r}, but {known.name} has {known.part!r}: build it again"
        )
    check_contents(image, known)
    minimum = signing.minimum_version()
    if manifest.version < minimum:
        raise BitstreamError(
            f"the image has version {manifest.version}, but {signing.MINIMUM} requires {minimum}: use a newer image"
        )
    if public_key is not None:
        if image.signature is None:
            raise BitstreamError("the image is not signed, and a key is configured: `millrace image sign` it")
        signing.verify(image.signature, manifest.text(), public_key)


def _is_served(abi: str) -> bool:
    """As the driver decides after loading: the same major version, in which registers are only added."""
    (major, minor), (wanted, least) = (map(int, text.split(".")) for text in (abi, ABI))
    return major == wanted and minor >= least


def check_contents(image: Image, board: Board) -> None:
    """Refuse an image whose design, memory, bitstream or hardware description is not for the board."""
    manifest = image.manifest
    if manifest.design != board.design:
        raise BitstreamError(f"the image has design {manifest.design!r}, {board.name} needs {board.design!r}")
    size = board.memory.get("bytes")
    if size is not None and 1 << manifest.parameters.get("MEM_LOG2", 0) != size:
        raise BitstreamError(f"the image's engine has another memory than {board.name} ({size} bytes): build it again")
    for name, data in image.members.items():
        if name == image.bitstream:
            bitstream.check(data, name, board)
        elif name.endswith(".hwh") and board.pynq:
            bitstream.check_description(data, name, board)


# Checks before anything is read.


def _checked_members(archive: zipfile.ZipFile, name: str) -> list[zipfile.ZipInfo]:
    """The members, after their number, names, sizes and compression were checked."""
    found = archive.infolist()
    if len(found) > MAX_MEMBERS:
        raise BitstreamError(f"{name} contains {len(found)} members, at most {MAX_MEMBERS} are allowed")
    for info in found:
        if NAME.fullmatch(info.filename) is None:
            raise BitstreamError(f"{name}: {info.filename!r} is not a plain file name; the image is refused")
        limit = MAX_BYTES.get(info.filename, MAX_BITSTREAM_BYTES)
        if max(info.file_size, info.compress_size) > limit:
            raise BitstreamError(f"{name}: {info.filename} has {info.file_size} bytes, at most {limit} are allowed")
        if info.flag_bits:
            raise BitstreamError(f"{name}: {info.filename} is encrypted or has other zip flags; an image has none")
        if info.compress_type != zipfile.ZIP_STORED or info.file_size != info.compress_size:
            raise BitstreamError(f"{name}: {info.filename} is compressed; members of an image must not be")
    if len({info.filename for info in found}) != len(found):
        raise BitstreamError(f"{name} contains a member twice")
    return found


def _manifest(text: bytes, name: str) -> Manifest:
    try:
        fields = json.loads(text)
        digest = fields.pop("digest")
        if fields.get("format") != FORMAT:
            raise BitstreamError(f"{name}: format {fields.get('format')!r}, this version of millrace reads {FORMAT}")
        manifest = Manifest(**fields)
        _check_types(manifest)
        check_values(manifest)
        sound = hashlib.sha256(_canonical(fields)).hexdigest() == digest and _BUILD.fullmatch(manifest.build)
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
        raise BitstreamError(f"{name}: its manifest cannot be read ({error}): copy or build it again") from error
    if not sound:
        raise BitstreamError(f"{name}: its manifest was changed after it was written: copy or build it again")
    return manifest


def _check_types(manifest: Manifest) -> None:
    """A manifest with a valid hash may still contain anything: wrong types are a `TypeError`."""
    names = (manifest.board, manifest.part, manifest.design, manifest.build, manifest.abi, manifest.origin)
    words = (*names, *manifest.tools.values())
    numbers = (manifest.clock_hz, manifest.version, *manifest.parameters.values())
    if not all(map(_is_text, (*words, *manifest.tools, *manifest.parameters, *manifest.report, *manifest.members))):
        raise TypeError("a name or a version is not a string of printable ASCII")
    if not all(type(number) is int and abs(number) < 1 << 63 for number in (*numbers, manifest.format)):
        raise TypeError("the clock or a parameter is not an integer of 64 bits")
    if not all(type(value) in (int, float) and math.isfinite(value) for value in manifest.report.values()):
        raise TypeError("the report contains values that are not numbers")
    for member in manifest.members.values():
        if not isinstance(member, dict) or set(member) != {"size", "sha256"}:
            raise TypeError("the description of a member is not its size and its hash")
        if type(member["size"]) is not int or not _is_text(member["sha256"]):
            raise TypeError("the size or the hash of a member has another type")


def _is_text(given: Any) -> bool:
    return isinstance(given, str) and _WORDS.fullmatch(given) is not None


def _signature(text: bytes, name: str) -> Signature:
    try:
        signature = Signature(**json.loads(text))
        if not all(map(_is_text, asdict(signature).values())):
            raise TypeError("its parts are not strings of hexadecimal digits")
        return signature
    except (ValueError, TypeError, RecursionError) as error:
        raise BitstreamError(f"{name}: its signature cannot be read ({error}): sign it again") from error


def _check_members(manifest: Manifest, files: Mapping[str, bytes], name: str) -> None:
    if set(files) != set(manifest.members):
        differing = ", ".join(sorted(set(files) ^ set(manifest.members)))
        raise BitstreamError(f"{name}: manifest and members differ in {differing}: build it again")
    for member, data in files.items():
        expected = manifest.members[member]
        if len(data) != expected["size"] or hashlib.sha256(data).hexdigest() != expected["sha256"]:
            raise BitstreamError(f"{name}: {member} does not match the manifest (SHA-256): copy or build it again")
    if sum(member.endswith((".bit", ".bin")) for member in files) != 1:
        raise BitstreamError(f"{name}: an image contains one bitstream (*.bit or *.bin), this one {sorted(files)}")


def _canonical(fields: Mapping[str, Any]) -> bytes:
    return json.dumps(fields, sort_keys=True, indent=1).encode() + b"\n"
