"""The backend of `fpga:<card>`: the cards there are, and opening one.

A card is a board that an image was deployed to (`millrace board deploy`, `hw/deploy.py`); `fpga` alone means the only
one there is. Opening takes the card's lock, repeats a deploy that was interrupted, and reads the engine's identity
back. Devices that one process opens on one card share its engine. Limits: one process per card; nothing here has met
a real board yet.
"""

from __future__ import annotations

from millrace.host.base.errors import ArgumentError, DeviceUnavailable
from millrace.host.device.contract import DeviceInfo
from millrace.hw import cards, deploy, station
from millrace.hw.board_device import BoardDevice

FAMILY = "fpga"
NONE = "no card is known: `millrace board deploy NAME IMAGE.mri --link LINK` makes one (docs/deploy.md)"


def probe() -> list[DeviceInfo]:
    """All cards; a card is asked nothing before it is opened."""
    found = []
    for card in cards.cards():
        what = f"{card.board} behind {card.link}, image {card.image[:12]}, {card.state}"
        usable = card.state != cards.REFUSED
        detail = what if usable else f"{what}: `millrace board deploy {card.name} IMAGE.mri`"
        kind = "loopback" if card.is_loopback else FAMILY
        found.append(DeviceInfo(f"{FAMILY}:{card.name}", kind, usable, detail))
    return found or [DeviceInfo(FAMILY, FAMILY, False, NONE)]


def open_device(name: str, threads: int | None) -> BoardDevice:
    """Open `fpga:<card>`, or `fpga` where there is one card."""
    chosen = _card(name)
    return BoardDevice(station.shared(f"{FAMILY}:{chosen}", lambda: deploy.opened(chosen)))


def _card(name: str) -> str:
    _, colon, card = name.partition(":")
    if colon:
        return card
    known = [one.name for one in cards.cards()]
    if not known:
        raise DeviceUnavailable(f"device {name!r} cannot be used: {NONE}")
    if len(known) > 1:
        raise ArgumentError(f"device={name!r}: there are several cards; say {' or '.join(f'fpga:{k}' for k in known)}")
    return known[0]
