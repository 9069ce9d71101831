"""Loads an image into a board and verifies that the board runs it.

Before it sends anything, a deploy checks the manifest, hashes, signature (if `MILLRACE_IMAGE_KEY` names a key), link,
board and part. After loading, it reads back the engine's magic, ABI version, build hash and shape from its registers. A
mismatch raises `BitstreamError`, and the card is not marked as loaded. pynq does not send a file if the board already
has one of the same name, so each file name contains the hash of the bitstream. openFPGALoader loads serial boards; the
USB chip is a loader meanwhile, so the serial line goes and comes back.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

from millrace.host.base.errors import ArgumentError, BitstreamError, DeviceFault
from millrace.host.base.faults import fault_point
from millrace.hw import cards, catalog, loader, pynq_board, signing
from millrace.hw import image as images
from millrace.hw.cards import Card
from millrace.hw.catalog import PYNQ, SERIAL, Board
from millrace.hw.driver import Engine, Shape
from millrace.hw.image import Image
from millrace.hw.link import Link, timeout
from millrace.hw.pynq_link import PynqLink
from millrace.hw.serial_link import SerialLink, check_line, wait_for_line

Report = Callable[[str, float], None]
LINE_SECONDS = 15
"""Seconds in which the serial line must be back after loading."""


def deploy(
    name: str,
    path: Path,
    link: str | None = None,
    stated: str | None = None,
    flash: bool = False,
    report: Report = lambda what, share: None,
) -> Shape:
    """Deploy an image to a card, which is created if it is new; returns the engine's shape.

    `stated`: the board, for one that does not say what it is. `flash`: so that a serial board keeps it without power.
    """
    report("checking the image", 0.0)
    image = images.read(path)
    known = {card.name: card for card in cards.cards()}.get(name)
    link = cards.lasting(link) if link is not None else known.link if known else cards.card(name).link
    kind, _ = cards.parse_link(link)
    same = known is not None and known.link == link
    wanted = stated or (known.board if known is not None and same else image.manifest.board)
    board = catalog.board(wanted) if stated or same else catalog.boards().get(wanted)
    images.check(image, board, signing.configured_key())
    assert board is not None
    if kind != board.link:
        raise BitstreamError(f"the image is for {board.name}, which needs a {board.link} link, not {link!r}")
    if flash and kind != SERIAL:
        raise ArgumentError(f"{board.name} has no flash that millrace can write; PYNQ loads its image at each deploy")
    card = cards.new_card(name, board.name, link, image.digest)
    release = cards.lock(link)
    try:
        cards.keep_image(image.digest, image.pack())
        return _load(card, image, board, known, stated, flash, report)
    finally:
        cards.drop_unused({image.digest} | ({known.image} if known else set()))
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
            return _load(card, image, board, card)
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
        raise BitstreamError(
            f"the board does not run the image: {error}; deploy it again (without power a board forgets it, "
            f"except for images deployed with --flash)"
        ) from error
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
        _load(card, image, board, card)
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


def _load(
    card: Card,
    image: Image,
    board: Board,
    known: Card | None,
    stated: str | None = None,
    flash: bool = False,
    report: Report = lambda what, share: None,
) -> Shape:
    """Load an image and read the identity back; the card is marked as loaded only after both.

    `known`: the card's record so far. If it has another link, it describes another board, and stays as it is.
    """
    report(f"looking for the {board.name}", 0.1)
    load = _prepare(card, image, board, stated, flash)
    recorded = known is None or known.link == card.link
    if recorded:
        card.marked(cards.LOADING)
    for other in cards.others_behind(card):
        other.marked(cards.REFUSED)
    try:
        fault_point("board.load")
        report("writing the flash, which takes minutes" if flash else "loading the FPGA", 0.2)
        link = load()
        report("reading back what runs there", 0.9)
        try:
            shape = identify(link, image)
        finally:
            link.close()
    except Exception:
        if recorded:
            (known or card).marked(cards.REFUSED)
        raise
    card.marked(cards.LOADED)
    return shape


def _prepare(card: Card, image: Image, board: Board, stated: str | None, flash: bool) -> Callable[[], Link]:
    """Check that link and board are the right ones; returns the function that loads the board and connects."""
    _, endpoint = cards.parse_link(card.link)
    bitstream = _extracted(image, board)
    if board.link == SERIAL:
        check_line(endpoint, board)
        loader.detect(board, endpoint)

        def load_serial() -> Link:
            loader.load(board, endpoint, bitstream, flash)
            wait_for_line(endpoint, LINE_SECONDS)
            return SerialLink(endpoint, board, timeout())

        return load_serial
    link = _pynq_board(endpoint, board, stated)

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
    link = _pynq_board(endpoint, board, board.name)  # the deploy has warned already
    try:
        link.load(_extracted(image, board), board.pynq["engine"], download=False)
    except BaseException:
        link.close()
        raise
    return link


def _pynq_board(endpoint: str, board: Board, stated: str | None) -> PynqLink:
    link = PynqLink(endpoint, timeout())
    try:
        pynq_board.check(board, link.report, stated)
    except BaseException:
        link.close()
        raise
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
