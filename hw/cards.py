"""Cards: boards that an image was deployed to, what is known of each, and the lock that keeps processes apart.

A card has a name, a board, a link and the image last deployed. `loading` is written before the first byte goes to the
board and `loaded` after the engine was read back, so a deploy that was interrupted shows, and is repeated when the
card is next used. Files are in `MILLRACE_BOARDS_DIR`, else in the user's state folder, and replaced as a whole. The
lock is a file lock per link: it goes with the process, however it ends. Limit: it keeps apart processes of one
machine.
"""

from __future__ import annotations

import fcntl
import hashlib
import ipaddress
import json
import os
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from millrace.host.base.errors import ArgumentError, BitstreamError, DeviceUnavailable
from millrace.hw.catalog import PYNQ, SERIAL

VARIABLE = "MILLRACE_BOARDS_DIR"
LOADING, LOADED, REFUSED = "loading", "loaded", "refused"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


@dataclass(frozen=True)
class Card:
    """What is known of a card."""

    name: str
    board: str
    link: str
    image: str
    """The SHA-256 of the image's file, which is kept."""
    state: str

    def marked(self, state: str) -> Card:
        """The same in another state, written down."""
        card = replace(self, state=state)
        _write(folder() / f"{self.name}.json", json.dumps(asdict(card), indent=1).encode() + b"\n")
        return card

    @property
    def kept(self) -> Path:
        """The image."""
        return folder() / "images" / f"{self.image}.mri"

    @property
    def is_loopback(self) -> bool:
        """Whether there is no board at the other end."""
        kind, place = parse_link(self.link)
        return is_loopback(place) if kind == PYNQ else place.startswith("/dev/pts/")


def is_loopback(address: str) -> bool:
    """Whether an address never leaves this machine."""
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def folder() -> Path:
    """Where cards are written down."""
    named = os.environ.get(VARIABLE)
    state = os.environ.get("XDG_STATE_HOME") or str(Path("~/.local/state").expanduser())
    return Path(named) if named else Path(state) / "millrace" / "boards"


def cards() -> list[Card]:
    """All of them; what cannot be read is none."""
    found = []
    for path in sorted(folder().glob("*.json")):
        try:
            found.append(Card(**json.loads(path.read_text(encoding="utf-8"))))
        except (OSError, ValueError, TypeError):
            continue
    return found


def card(name: str) -> Card:
    """One of them, or an error that names all."""
    known = {one.name: one for one in cards()}
    if name not in known:
        told = f"there are {', '.join(known)}" if known else "there is none yet"
        raise DeviceUnavailable(
            f"there is no card {name!r}; {told}: `millrace board deploy {name} IMAGE.mri --link LINK` makes one"
        )
    return known[name]


def new_card(name: str, board: str, link: str, image: str) -> Card:
    """A card that is not written down yet."""
    if NAME.fullmatch(name) is None:
        raise ArgumentError(f"card {name!r}: allowed are letters, digits, - and _, 64 at most")
    parse_link(link)
    return Card(name, board, link, image, LOADING)


def keep_image(digest: str, data: bytes) -> None:
    """Keep an image under its hash."""
    path = folder() / "images" / f"{digest}.mri"
    if not path.exists():
        _write(path, data)


def parse_link(link: str) -> tuple[str, str]:
    """The kind of a link and its place: a serial line's path, a board's address, or nothing for this board."""
    kind, _, place = link.partition(":")
    if (kind == SERIAL and place) or (kind == PYNQ and (not place or _is_host(place))):
        return kind, place
    raise ArgumentError(
        f"link {link!r}: allowed are 'serial:/dev/ttyUSB0', 'pynq:192.168.2.99', and 'pynq' on the board itself"
    )


def _is_host(place: str) -> bool:
    return re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9.-]*", place) is not None


def lock(link: str) -> Callable[[], None]:
    """Take a link for this process; what is given back lets it go. A second taker is refused."""
    path = folder() / "locks" / f"{hashlib.sha256(link.encode()).hexdigest()[:32]}.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        holder = os.read(file, 32).decode(errors="replace").strip() or "another process"
        os.close(file)
        raise DeviceUnavailable(
            f"the card behind {link} is in use by process {holder}: close its device there, or wait"
        ) from None
    os.ftruncate(file, 0)
    os.write(file, f"{os.getpid()}\n".encode())
    _held.add(file)

    def release() -> None:
        if file in _held:
            _held.discard(file)
            os.close(file)

    return release


_held: set[int] = set()


def _let_go_in_child() -> None:
    """A forked child holds no card; else its parent's would be taken until the child ends."""
    while _held:
        os.close(_held.pop())


os.register_at_fork(after_in_child=_let_go_in_child)


def _write(path: Path, data: bytes) -> None:
    """Whole or not at all, and there after a power cut."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        scratch = path.with_suffix(f".{os.getpid()}.new")
        with scratch.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        scratch.replace(path)
    except OSError as error:
        raise BitstreamError(
            f"{path} cannot be written: {error.strerror}; set {VARIABLE} to a folder that can"
        ) from error
