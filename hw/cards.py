"""Cards: boards that an image was deployed to. Stores the state of each card, and locks it for one process.

A card has a name, a board, a link and the image last deployed. A deploy writes the state `loading` before it sends the
first byte to the board, and `loaded` after it has read the engine's identity back. An interrupted deploy therefore
leaves `loading`, and the next use of the card repeats it. A deploy that fails leaves `refused`, with the image of
before. A deploy over another link than the card's changes the card only after it has succeeded. The files are in
`MILLRACE_BOARDS_DIR`, or else in the user's state folder, and are replaced atomically. The lock is a file lock per
link; the system releases it when the process ends. Limit: the lock works between processes of one machine only.
"""

from __future__ import annotations

import fcntl
import hashlib
import ipaddress
import json
import os
import re
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from millrace.host.base.errors import ArgumentError, BitstreamError, DeviceUnavailable
from millrace.host.runtime.fork import reset_in_child
from millrace.hw import usb
from millrace.hw.catalog import PYNQ, SERIAL

VARIABLE = "MILLRACE_BOARDS_DIR"
LOADING, LOADED, REFUSED = "loading", "loaded", "refused"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


@dataclass(frozen=True)
class Card:
    """The stored state of a card."""

    name: str
    board: str
    link: str
    image: str
    """The SHA-256 of the image's file; a copy of the file is stored."""
    state: str

    def marked(self, state: str) -> Card:
        """A copy of the card in another state, saved to its file."""
        card = replace(self, state=state)
        _write(folder() / f"{self.name}.json", json.dumps(asdict(card), indent=1).encode() + b"\n")
        return card

    @property
    def kept(self) -> Path:
        """The stored copy of the image."""
        return folder() / "images" / f"{self.image}.mri"

    @property
    def unreachable(self) -> str:
        """Why the board cannot be there, as far as this machine can see; empty if it may be."""
        kind, endpoint = parse_link(self.link)
        if kind == SERIAL and not Path(endpoint).exists():
            return f"its serial line {endpoint} is gone: plug in the board"
        return ""

    @property
    def is_loopback(self) -> bool:
        """Whether the link leads to a simulation, not to a board."""
        kind, endpoint = parse_link(self.link)
        return is_loopback(endpoint) if kind == PYNQ else str(Path(endpoint).resolve()).startswith("/dev/pts/")


def is_loopback(address: str) -> bool:
    """Whether an address never leaves this machine."""
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def folder() -> Path:
    """The folder of the card files."""
    named = os.environ.get(VARIABLE)
    state = os.environ.get("XDG_STATE_HOME") or str(Path("~/.local/state").expanduser())
    return Path(named) if named else Path(state) / "millrace" / "boards"


def cards() -> list[Card]:
    """All cards; files that cannot be read are skipped."""
    found = []
    for path in sorted(folder().glob("*.json")):
        try:
            found.append(_parsed(path))
        except (OSError, ValueError, TypeError, RecursionError, ArgumentError):
            continue
    return found


def _parsed(path: Path) -> Card:
    fields = json.loads(path.read_text(encoding="utf-8"))
    found = Card(**fields)
    if not all(isinstance(value, str) for value in fields.values()) or NAME.fullmatch(found.name) is None:
        raise TypeError("not the file of a card")
    parse_link(found.link)
    return found


def card(name: str) -> Card:
    """A card by name, or an error that lists all cards."""
    known = {one.name: one for one in cards()}
    if name not in known:
        existing = f"there are {', '.join(known)}" if known else "there is none yet"
        raise DeviceUnavailable(
            f"there is no card {name!r}; {existing}: `millrace board deploy {name} IMAGE.mri --link LINK` makes one"
        )
    return known[name]


def remove(name: str) -> None:
    """Forget a card, and delete its files. The board itself is not changed."""
    removed = card(name)
    release = lock(removed.link)
    try:
        (folder() / f"{name}.json").unlink(missing_ok=True)
        drop_unused({removed.image})
    finally:
        release()


def drop_unused(digests: set[str]) -> None:
    """Delete those of these images that no card uses."""
    for digest in digests - {one.image for one in cards()}:
        (folder() / "images" / f"{digest}.mri").unlink(missing_ok=True)
        shutil.rmtree(folder() / "firmware" / digest, ignore_errors=True)


def lasting(link: str) -> str:
    """The same link by a path that stays valid in other folders, and if the system numbers its serial lines again."""
    kind, endpoint = parse_link(link)
    return f"{SERIAL}:{usb.lasting_path(str(Path(endpoint).absolute()))}" if kind == SERIAL else link


def new_card(name: str, board: str, link: str, image: str) -> Card:
    """A card that is not saved yet."""
    if NAME.fullmatch(name) is None:
        raise ArgumentError(f"card {name!r}: allowed are letters, digits, - and _, 64 at most")
    parse_link(link)
    return Card(name, board, link, image, LOADING)


def keep_image(digest: str, data: bytes) -> None:
    """Store an image under its hash."""
    path = folder() / "images" / f"{digest}.mri"
    if not path.exists():
        _write(path, data)


def parse_link(link: str) -> tuple[str, str]:
    """The kind of a link and its endpoint: the path of a serial line, a board's address, or "" for this board."""
    kind, _, endpoint = link.partition(":")
    if (kind == SERIAL and endpoint) or (kind == PYNQ and (not endpoint or _is_host(endpoint))):
        return kind, endpoint
    raise ArgumentError(
        f"link {link!r}: allowed are 'serial:/dev/ttyUSB0', 'pynq:192.168.2.99', and 'pynq' on the board itself"
    )


def _is_host(endpoint: str) -> bool:
    return re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9.-]*", endpoint) is not None


def others_behind(card: Card) -> list[Card]:
    """Other cards whose link leads to the same board and that have another image: loading this card ends theirs."""
    line = _line(card.link)
    return [one for one in cards() if one.name != card.name and one.image != card.image and _line(one.link) == line]


def _line(link: str) -> str:
    """The same text for all links to one board, as far as this machine can see."""
    kind, endpoint = parse_link(link)
    return f"{kind}:{Path(endpoint).resolve()}" if kind == SERIAL else link  # a line may have several paths


def lock(link: str) -> Callable[[], None]:
    """Lock a link for this process; returns the function that unlocks it. Raises if another process holds the lock."""
    path = folder() / "locks" / f"{hashlib.sha256(_line(link).encode()).hexdigest()[:32]}.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        holder = os.read(file, 32).decode(errors="replace").strip() or "another process"
        os.close(file)
        raise DeviceUnavailable(
            f"the card behind {link} is in use by process {holder}: close the device in that process, or wait"
        ) from None
    os.ftruncate(file, 0)
    os.write(file, f"{os.getpid()}\n".encode())
    _held.files[file] = _line(link)

    def release() -> None:
        if _held.files.pop(file, None) is not None:
            os.close(file)

    return release


def locks(link: str) -> list[int]:
    """The files of the locks on a link that this process holds, for a program that works on the link."""
    return [file for file, line in _held.files.items() if line == _line(link)]


class _HeldLocks:
    """The files of the locks that this process holds."""

    def __init__(self) -> None:
        """No lock is held."""
        self.files: dict[int, str] = {}
        reset_in_child(self)

    def reset_after_fork(self) -> None:
        """A forked child must not hold its parent's locks: they would stay taken until the child ends."""
        while self.files:
            os.close(self.files.popitem()[0])


_held = _HeldLocks()


def _write(path: Path, data: bytes) -> None:
    """Write a file atomically and durably."""
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
            f"{path} cannot be written: {error.strerror}; set {VARIABLE} to a writable folder"
        ) from error
