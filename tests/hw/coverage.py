"""Reads Verilator's coverage files: which blocks of lines were executed, and which control signals rose and fell.

A point is a block of lines or a branch (kind `line`), or the rise or fall of one bit (kind `toggle`). Instances of a
module, and its variants in parameters, count together: a point is covered if one of them covers it. Control signals are
all signals of one bit, and vectors with a bit per lane, port or unit, or with a state (`FLAGS`). All others are data:
words, ids, addresses, counts, positions, checksums; the tests against NumPy cover their bits.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

FLAGS = re.compile(
    r"(valid|ready|keep|last|none|nones|lasts|space|start|busy|error|state|chosen|request|after|pool|mine|now|precedes|over"
    r"|valids|slot_cluster|slot_pair)(_reg)?$"
)
ADDRESSES = re.compile(r"(words|ids|cmd|read|low|high|index)_last(_reg)?$")
"""The position of a transfer's last element: data, although the name looks like that of a flag."""
CODES = {("bisort_prober.sv", "start_reg"), ("bisort_registers.sv", "error_reg"), ("round_robin.sv", "last")}
"""Numbers whose names look like flags: a position, an error code, a port's number."""
_POINT = re.compile(r"^C '(.*)' (\d+)$", re.DOTALL)
_TOGGLE = re.compile(r"^(?P<signal>[\w.]+)(?P<bits>\[.*\])?(?P<way>:.*)?$")


class Point(NamedTuple):
    """A coverage point: `what` is a branch's kind, or a signal's bit and its direction."""

    file: str
    line: int
    kind: str
    what: str

    @property
    def signal(self) -> str:
        """The signal's name of a toggle."""
        found = _TOGGLE.match(self.what)
        assert found is not None, self.what
        return found["signal"]

    @property
    def control(self) -> bool:
        """Whether it is a toggle of a control signal."""
        found = _TOGGLE.match(self.what)
        if self.kind != "toggle" or found is None or (self.file, found["signal"]) in CODES:
            return False
        flags = FLAGS.search(found["signal"]) and not ADDRESSES.search(found["signal"])
        return not found["bits"] or bool(flags)


def read(paths: Iterable[Path]) -> Counter[Point]:
    """How often each point was covered, over all files; points of generated top modules are ignored."""
    met: Counter[Point] = Counter()
    for path in paths:
        for line in path.read_text(encoding="latin-1").splitlines():
            found = _POINT.match(line)
            if found is None:
                continue
            fields = dict(part.split("\x02", 1) for part in found[1].split("\x01") if part)
            if Path(fields["f"]).parent.name == "rtl":
                kind = "toggle" if fields["page"].startswith("v_toggle") else "line"
                what = fields["o"] if kind == "toggle" else f"{fields['o']} {fields.get('S', '')}".strip()
                met[Point(Path(fields["f"]).name, int(fields["l"]), kind, what)] += int(found[2])
    return met
