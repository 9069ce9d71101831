"""`millrace verify DEVICE`: checks a device, and writes one JSON file and one HTML page that its owner can send back.

Neither contains paths, addresses, user names or serial numbers. A card is called by the kind of its board: its own
name, its link and its line, which its owner chose, are left out.
"""

from __future__ import annotations

import json
import os
import platform
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from html import escape
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import typer

from millrace._version import __version__
from millrace.cli.screen import harmless, print_table, progress
from millrace.errors import ArgumentError
from millrace.host.runtime.processor import cpu_model
from millrace.registry import REAL_KINDS, devices

if TYPE_CHECKING:
    from millrace.cli.verify_checks import Verification

FORMAT = 1
ISSUE = "A device that ran, or did not"
"""The name of the form in .github/ISSUE_TEMPLATE."""
NUMBERS = frozenset({"time", "amount", "ms", "per second"})
"""Columns of numbers."""
SIMULATED = frozenset({"hls", "rtl", "loopback"})
"""Kinds of devices that are simulations: results and recovery are checked in earnest, speeds tell nothing."""
PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>millrace verify: {device}</title>
<style>body{{font:15px sans-serif;max-width:64em;margin:2em auto;padding:0 1em;overflow-wrap:anywhere}}
div{{overflow-x:auto}}table{{border-collapse:collapse;margin:1em 0}}
td,th{{border:1px solid #999;padding:.3em .6em;text-align:left;overflow-wrap:normal}}
.number{{text-align:right;white-space:nowrap}}.no{{background:#fdd}}</style>
<h1>{device}: {result}</h1><p>{described}</p>{tables}<p>{note}</p></html>
"""
NOTE = (
    "Times include the link, the host, and what is compiled on first use. Speeds are of small transfers, no benchmark."
)
_PRIVATE = re.compile(r"(serial|pynq):\S+|(?<![\w.])/[^\s,;:'\"()]+|\b\d{1,3}(\.\d{1,3}){3}\b")


def verify_device(name: str, out: Path, as_json: bool) -> int:
    """Run all checks, print them and write both files; returns the exit code."""
    from millrace.cli.verify_checks import verify

    _make_folder(out)  # the checks take minutes
    with progress() as report:
        found = verify(name, report)
    record = as_record(found)
    stem = "millrace-verify-" + re.sub(r"[^A-Za-z0-9]+", "-", record["device"]["name"])
    text = json.dumps(record, indent=1)
    (out / f"{stem}.json").write_text(text + "\n", encoding="utf-8")
    (out / f"{stem}.html").write_text(as_page(record), encoding="utf-8")
    if as_json:
        typer.echo(text)
    else:
        _print(found)
        typer.echo(f"written: {out / stem}.json and .html")
        if record["device"]["kind"] in REAL_KINDS:
            typer.echo(f'please attach both files to an issue, "{ISSUE}"')
    return 0 if found.passed else 1


def as_record(found: Verification) -> dict[str, Any]:
    """What is written: the results, and what device, machine and versions they are from."""
    private = _words_of_card(found.name)
    info = next((info for info in devices() if info.name == found.name), None)
    kind = info.kind if info else found.kind
    return {
        "format": FORMAT,
        "millrace": __version__,
        "time": datetime.now(UTC).isoformat(timespec="minutes"),
        "device": {
            "name": without_private(found.name, private),
            "kind": kind,
            "simulated": kind in SIMULATED,
            "units": list(found.units),
            "detail": without_private(info.detail if info else kind, private),
        },
        "machine": {
            "cpu": cpu_model(),
            "system": f"{platform.system()} {platform.release()} {platform.machine()}",
            "python": ".".join(map(str, sys.version_info[:3])),
        },
        "passed": found.passed,
        "checks": [{**asdict(check), "detail": without_private(check.detail, private)} for check in found.checks],
        "speeds": [asdict(speed) for speed in found.speeds],
    }


def as_page(record: dict[str, Any]) -> str:
    """The same as an HTML page without scripts and links."""
    device, machine = record["device"], record["machine"]
    checks = [
        (c["group"], c["name"], "passed" if c["passed"] else "FAILED", f"{c['seconds']:.2f} s", c["detail"])
        for c in record["checks"]
    ]
    speeds = [
        (s["stage"], f"{s['amount']:,}", s["unit"], f"{s['ms']:,.3f}", f"{s['per_second']:,.0f}")
        for s in record["speeds"]
    ]
    simulated = "a simulation, so speeds are not those of a board; " if device["simulated"] else ""
    described = (
        f"{device['detail']} ({device['kind']}); {simulated}millrace {record['millrace']}, Python {machine['python']}, "
        f"{machine['system']}, {machine['cpu']}; {record['time']}"
    )
    tables = _html_table(("group", "check", "result", "time", "detail"), checks)
    tables += _html_table(("stage", "amount", "unit", "ms", "per second"), speeds)
    result = "passed" if record["passed"] else "FAILED"
    name = escape(device["name"])
    return PAGE.format(device=name, result=result, described=escape(described), tables=tables, note=NOTE)


def without_private(text: str, words: Mapping[str, str] = MappingProxyType({})) -> str:
    """The text without links, paths, addresses and control characters; `words`: more texts, and what replaces each."""
    text = harmless(text)
    for word, instead in words.items():
        text = re.sub(rf"(?<!\w){re.escape(word)}(?!\w)", instead, text)
    return _PRIVATE.sub("…", text)


def _words_of_card(device: str) -> dict[str, str]:
    """Of a card: its name and its link, which its owner chose; the board takes the place of the name."""
    family, _, name = device.partition(":")
    cards = import_module("millrace.hw.cards")
    known = {card.name: card for card in cards.cards()} if family == "fpga" else {}
    if name not in known:
        return {}
    card = known[name]
    _, endpoint = cards.parse_link(card.link)
    ends = {endpoint, os.path.realpath(endpoint)} - {""}
    return {card.link: "…", **dict.fromkeys(ends, "…"), device: f"{family}:{card.board}", repr(name): repr(card.board)}


def _make_folder(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ArgumentError(f"--out {out}: the folder cannot be made: {error.strerror}; give another one") from error
    if not os.access(out, os.W_OK):
        raise ArgumentError(f"--out {out}: files cannot be written there; give another folder")


def _html_table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [_html_row("th", head, head)]
    lines += [_html_row("td", head, row, ' class="no"' if "FAILED" in row else "") for row in rows]
    return "<div><table>" + "".join(lines) + "</table></div>"


def _html_row(tag: str, head: tuple[str, ...], cells: tuple[str, ...], style: str = "") -> str:
    shown = (
        f"<{tag}{' class=number' if name in NUMBERS else ''}>{escape(cell)}</{tag}>"
        for name, cell in zip(head, cells, strict=True)
    )
    return f"<tr{style}>{''.join(shown)}</tr>"


def _print(found: Verification) -> None:
    rows = [(c.group, c.name, "passed" if c.passed else "FAILED", f"{c.seconds:.2f} s", c.detail) for c in found.checks]
    print_table(("group", "check", "result", "time", "detail"), rows, right=NUMBERS)
    typer.echo("")
    speeds = [(s.stage, f"{s.amount:,}", s.unit, f"{s.ms:,.3f}", f"{s.per_second:,.0f}") for s in found.speeds]
    print_table(("stage", "amount", "unit", "ms", "per second"), speeds, right=NUMBERS)
    failed = sum(not check.passed for check in found.checks)
    typer.echo(
        f"{found.name}: {failed} of {len(found.checks)} checks FAILED" if failed else f"{found.name}: all passed"
    )
