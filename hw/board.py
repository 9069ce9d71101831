"""The backend of the devices `fpga:<card>`: lists the cards and opens one.

A card is a board that an image was deployed to (`millrace board deploy`, `deploy.py`). `fpga` alone works if there is
exactly one card. Opening a card takes its lock, repeats an interrupted deploy, and reads back the engine's identity.
All devices that a process opens on one card share its engine. Limits: one process per card; not tested on real
boards.
"""

from __future__ import annotations

from millrace.host.base.errors import ArgumentError, DeviceUnavailable
from millrace.host.device.contract import DeviceInfo
from millrace.host.runtime.critical import uninterrupted
from millrace.hw import cards, deploy, shared_engine
from millrace.hw.board_device import BoardDevice

FAMILY = "fpga"
NONE = "no card is known: `millrace board deploy NAME IMAGE.mri --link LINK` makes one (docs/howto/deploy.md)"


def probe() -> list[DeviceInfo]:
    """All cards, from their files; does not access a board."""
    found = []
    for card in cards.cards():
        what = f"{card.board} behind {card.link}, image {card.image[:12]}, {card.state}"
        refused = f"`millrace board deploy {card.name} IMAGE.mri`" if card.state == cards.REFUSED else ""
        problem = card.unreachable or refused
        usable, detail = not problem, f"{what}: {problem}" if problem else what
        kind = "loopback" if card.is_loopback else FAMILY
        found.append(DeviceInfo(f"{FAMILY}:{card.name}", kind, usable, detail))
    return found or [DeviceInfo(FAMILY, FAMILY, False, NONE)]


def open_device(name: str, threads: int | None) -> BoardDevice:
    """Open `fpga:<card>`, or `fpga` if there is exactly one card."""
    chosen = _card(name)
    opened: list[BoardDevice] = []
    try:
        uninterrupted(lambda: opened.append(_opened(chosen)))
    except BaseException:
        for device in opened:  # nobody gets it
            device.close()
        raise
    return opened[0]


def _opened(card: str) -> BoardDevice:
    engine = shared_engine.acquire(f"{FAMILY}:{card}", lambda: deploy.open_card(card))
    try:
        return BoardDevice(engine)
    except BaseException:
        shared_engine.release_engine(engine)
        raise


def _card(name: str) -> str:
    _, colon, card = name.partition(":")
    if colon:
        return card
    known = [one.name for one in cards.cards()]
    if not known:
        raise DeviceUnavailable(f"device {name!r} cannot be used: {NONE}")
    if len(known) > 1:
        raise ArgumentError(f"device={name!r}: there are several cards; use {' or '.join(f'fpga:{k}' for k in known)}")
    return known[0]
