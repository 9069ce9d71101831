"""Loads an image into a board and verifies that the board runs it.

Before it sends anything, a deploy checks the manifest, hashes, signature (if `MILLRACE_IMAGE_KEY` names a key), board
and part. After loading, it reads back the engine's magic, ABI version, build hash and shape from its registers. A
mismatch raises `BitstreamError`, and the card is not marked as loaded. pynq does not send a file if the board already
has one of the same name, so each file name contains the hash of the bitstream. openFPGALoader loads serial boards.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from millrace.host.base.errors import BitstreamError, DeviceFault, DeviceUnavailable
from millrace.host.base.faults import fault_point
from millrace.hw import cards, catalog, signing
from millrace.hw import image as images
from millrace.hw.cards import Card
from millrace.hw.catalog import PYNQ, SERIAL, Board
from millrace.hw.driver import Engine, Shape
from millrace.hw.image import Image
from millrace.hw.link import Link, timeout
from millrace.hw.pynq_link import PynqLink
from millrace.hw.serial_link import SerialLink

LOADER = "MILLRACE_OPENFPGALOADER"
"""Environment variable: the program to run instead of openFPGALoader."""
LOADER_SECONDS = 120


def deploy(name: str, path: Path, link: str | None = None) -> Shape:
    """Deploy an image to a card, which is created if it is new; returns the engine's shape."""
    image = images.read(path)
    known = {card.name: card for card in cards.cards()}.get(name)
    if link is None:
        link = known.link if known else cards.card(name).link
    kind, _ = cards.parse_link(link)
    board = catalog.board(known.board) if known else catalog.boards().get(image.manifest.board)
    images.check(image, board, signing.configured_key())
    assert board is not None
    if kind != board.link:
        raise BitstreamError(f"the image is for {board.name}, which needs a {board.link} link, not {link!r}")
    release = cards.lock(link)
    try:
        cards.keep_image(image.digest, image.pack())
        return _load(cards.new_card(name, board.name, link, image.digest), image, board)
    finally:
        release()


def open_card(name: str) -> tuple[Link, Callable[[], None]]:
    """A link to a card's engine, after its identity was checked, and the function that releases the card."""
    card = cards.card(name)
    release = cards.lock(card.link)
    try:
        return _connected(card), release
    except BaseException:
        release()
        raise


def reset(name: str) -> Shape:
    """Restart the engine: a serial board is reset, a PYNQ board gets its image loaded again."""
    card = cards.card(name)
    release = cards.lock(card.link)
    try:
        image, board = _kept(card)
        if board.link == PYNQ or card.state != cards.LOADED:
            return _load(card, image, board)
        link = _attach(card, image, board)
        try:
            link.reset()
            return identify(link, image)
        finally:
            link.close()
    finally:
        release()


def identify(link: Link, image: Image) -> Shape:
    """The engine's shape, read from its registers; a `BitstreamError` if it differs from the image's manifest."""
    manifest = image.manifest
    try:
        shape = Engine(link).shape
    except DeviceFault as error:
        raise BitstreamError(f"the board does not run the image: {error}") from error
    wanted = (int(manifest.build, 16), manifest.parameters.get("KEY_W"), manifest.parameters.get("W"))
    if (shape.build, shape.key_bits, shape.lanes) != wanted:
        raise BitstreamError(
            f"the board runs build {shape.build:016x} ({shape.key_bits} bits, {shape.lanes} lanes), the image is build "
            f"{manifest.build} ({wanted[1]} bits, {wanted[2]} lanes): deploy it again"
        )
    return shape


def _connected(card: Card) -> Link:
    """Connect to a card's engine; an interrupted deploy is repeated first."""
    image, board = _kept(card)
    if card.state == cards.LOADING:
        _load(card, image, board)
    elif card.state != cards.LOADED:
        raise BitstreamError(f"card {card.name!r} runs no known image: `millrace board deploy {card.name} IMAGE.mri`")
    link = _attach(card, image, board)
    try:
        identify(link, image)
    except BaseException:
        link.close()
        raise
    return link


def _kept(card: Card) -> tuple[Image, Board]:
    image = images.read(card.kept)
    if image.digest != card.image:
        raise BitstreamError(f"{card.kept} was changed: deploy the image again")
    board = catalog.board(card.board)
    images.check(image, board, signing.configured_key())
    return image, board


def _load(card: Card, image: Image, board: Board) -> Shape:
    """Load an image and read the identity back; the card is marked as loaded only after both."""
    loaded = _prepare(card, image, board)
    card = card.marked(cards.LOADING)
    fault_point("board.load")
    link = loaded()
    try:
        shape = identify(link, image)
    except BitstreamError:
        card.marked(cards.REFUSED)
        raise
    finally:
        link.close()
    card.marked(cards.LOADED)
    return shape


def _prepare(card: Card, image: Image, board: Board) -> Callable[[], Link]:
    """Check that the right board is connected; returns the function that loads it and connects."""
    _, endpoint = cards.parse_link(card.link)
    bitstream = _extracted(image, board)
    if board.link == SERIAL:
        _detect(board)

        def load_serial() -> Link:
            _loader(board, [str(bitstream)])
            return SerialLink(endpoint, board, timeout())

        return load_serial
    link = _pynq_board(endpoint, board)

    def load_pynq() -> Link:
        try:
            link.load(bitstream, board.pynq["engine"], download=True)
        except BaseException:
            link.close()
            raise
        return link

    return load_pynq


def _attach(card: Card, image: Image, board: Board) -> Link:
    """Connect to a board that already runs the image."""
    _, endpoint = cards.parse_link(card.link)
    if board.link == SERIAL:
        return SerialLink(endpoint, board, timeout())
    link = _pynq_board(endpoint, board)
    try:
        link.load(_extracted(image, board), board.pynq["engine"], download=False)
    except BaseException:
        link.close()
        raise
    return link


def _pynq_board(endpoint: str, board: Board) -> PynqLink:
    link = PynqLink(endpoint, timeout())
    if link.board != board.pynq["name"]:
        link.close()
        raise BitstreamError(f"the image is for {board.name}, but the connected board is {link.board!r}")
    return link


def _extracted(image: Image, board: Board) -> Path:
    """Extract the members to files with the bitstream's hash in their names: a stale file is never used."""
    chosen = image.bitstream
    stem = f"{board.name}-{hashlib.sha256(image.members[chosen]).hexdigest()[:20]}"
    home = cards.folder() / "firmware" / image.digest
    home.mkdir(parents=True, exist_ok=True)
    for name, data in image.members.items():
        path = home / f"{stem}{Path(name).suffix}"
        if not path.exists() or path.read_bytes() != data:
            scratch = path.with_suffix(f".{os.getpid()}.new")
            scratch.write_bytes(data)
            scratch.replace(path)
    return home / f"{stem}{Path(chosen).suffix}"


def _detect(board: Board) -> None:
    """Check that the loader finds the board's part."""
    detected = _loader(board, ["--detect"])
    if board.loader["detects"] not in detected:
        output = " ".join(detected.split())[-200:] or "nothing"
        raise BitstreamError(f"{board.name} has a {board.loader['detects']}, but the loader found: {output}")


def _loader(board: Board, arguments: list[str]) -> str:
    program, *options = board.loader["command"]
    program = os.environ.get(LOADER) or program
    if shutil.which(program) is None:
        raise DeviceUnavailable(f"{program} is not installed: sudo apt-get install openfpgaloader")
    try:
        done = subprocess.run(
            [program, *options, *arguments], capture_output=True, text=True, timeout=LOADER_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise DeviceFault(f"{program} did not end in {LOADER_SECONDS} s") from None
    if done.returncode:
        output = " ".join((done.stderr or done.stdout).split())[-200:]
        raise DeviceFault(f"{program} failed with exit code {done.returncode}: {output}")
    return done.stdout + done.stderr
