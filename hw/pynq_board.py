"""Which board PYNQ runs on: compares what a board says about itself with the board of an image.

`Device.active_device.name` is no answer: on a board it is XRT's name of the device (`edge`; pynq 4.0,
pl_server/xrt_device.py), and only over the network the name of the board. The child therefore reports `$BOARD`, which
PYNQ's images and Kria-PYNQ set in the login shell (sdbuild/packages/pynq/boardname.sh; Kria-PYNQ install.sh), and two
files of the device tree: `chosen/pynq_board`, which PYNQ's images have, and `compatible`, which every Linux has. PYNQ
writes `Unknown` where it does not know.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

from millrace.host.base.errors import BitstreamError
from millrace.hw.catalog import PYNQ, Board, boards
from millrace.hw.text import printable

UNKNOWN = ("", "Unknown")


def check(board: Board, report: Mapping[str, Any], stated: str | None) -> None:
    """Refuse another board than the image's. `stated`: the board that the user named, used if no other source does."""
    name, matches = identity(board, report)
    if name is None and stated is None:
        warnings.warn(
            f"the board does not say what it is; it is taken for a {board.name}, and the engine's identity is read "
            f"after loading. `--board {board.name}` states it",
            RuntimeWarning,
            stacklevel=2,
        )
    elif name is not None and not matches:
        raise BitstreamError(f"the image is for {board.name}, but the connected board is {name!r}")


def identity(board: Board, report: Mapping[str, Any]) -> tuple[str | None, bool]:
    """What the board is called by the first source that knows it, and whether that is this board."""
    for source in ("variable", "name"):
        name = printable(str(report.get(source, "")))
        if name not in UNKNOWN:
            return name, name.upper() == board.pynq["name"].upper()
    listed = report.get("compatible")
    compatible = [printable(str(one)) for one in listed] if isinstance(listed, list) else []
    for known in boards().values():
        if known.link == PYNQ and known.pynq["compatible"] in compatible:
            return known.pynq["name"], known.name == board.name
    return None, False
