"""`millrace board list|deploy|verify|bench|reset|remove`: boards, and cards (boards with a deployed image)."""

from __future__ import annotations

import json
import warnings
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Any

import typer

from millrace.cli.screen import print_table, progress, remark
from millrace.registry import device


def list_boards(as_json: bool) -> None:
    """Print the boards that images can be built for, then the cards."""
    boards, known = import_module("millrace.hw.catalog").boards(), import_module("millrace.hw.cards").cards()
    if as_json:
        rows = [{"name": b.name, "title": b.title, "part": b.part, "link": b.link} for b in boards.values()]
        listed = [{**asdict(card), "unreachable": card.unreachable} for card in known]
        typer.echo(json.dumps({"boards": rows, "cards": listed}, indent=2))
        return
    print_table(
        ("board", "what", "part", "link", "to build it"),
        [(b.name, b.title, b.part, b.link, b.needs) for b in boards.values()],
    )
    typer.echo("")
    if known:
        headings = ("card", "board", "link", "image", "state")
        print_table(headings, [(c.name, c.board, c.link, c.image[:12], _state(c)) for c in known])
    else:
        typer.echo("no cards yet: `millrace board deploy NAME IMAGE.mri --link LINK`")


def deploy_image(name: str, path: Path, link: str | None, board: str | None, flash: bool) -> None:
    """Load an image onto a card."""
    with warnings.catch_warnings(record=True) as warned, progress() as report:
        warnings.simplefilter("always")
        shape = import_module("millrace.hw.deploy").deploy(name, path, link, board, flash, report)
    for warning in warned:
        if issubclass(warning.category, RuntimeWarning):
            remark(f"warning: {warning.message}")
    typer.echo(f"{name}: {'written to flash and ' if flash else ''}loaded; {_described(shape)}")
    typer.echo(f"use it as device='fpga:{name}'")


def remove_card(name: str) -> None:
    """Forget a card."""
    import_module("millrace.hw.cards").remove(name)
    typer.echo(f"{name}: removed; the board keeps running what is loaded")


def reset_board(name: str) -> None:
    """Reset the engine of a card."""
    typer.echo(f"{name}: reset; {_described(import_module('millrace.hw.deploy').reset(name))}")


def verify_board(name: str) -> int:
    """Read the identity back, and check that the engine merges, indexes and probes correctly; exit code 1 if not."""
    exercise = import_module("millrace.hw.exercise")
    opened: Any = device(f"fpga:{name}")
    try:
        found = exercise.verify(opened)
    finally:
        opened.close()
    for what, right in found.items():
        typer.echo(f"{'right' if right else 'WRONG'}  {what}")
    return 0 if all(found.values()) else 1


def bench_board(name: str, rows: int | None, as_json: bool) -> None:
    """Measure how fast rows go to the board, through it, and back."""
    exercise = import_module("millrace.hw.exercise")
    opened: Any = device(f"fpga:{name}")
    try:
        found = exercise.measure(opened, rows)
    finally:
        opened.close()
    if as_json:
        typer.echo(json.dumps([asdict(row) for row in found], indent=2))
        return
    print_table(
        ("stage", "rows", "ms", "rows/s", "engine cycles"),
        [(r.stage, f"{r.rows:,}", f"{r.ms:,.1f}", f"{r.rows_per_second:,.0f}", f"{r.cycles:,}") for r in found],
        right=frozenset({"rows", "ms", "rows/s", "engine cycles"}),
    )


def _state(card: Any) -> str:
    return f"{card.state}; {card.unreachable}" if card.unreachable else str(card.state)


def _described(shape: Any) -> str:
    return (
        f"build {shape.build:016x}, keys of {shape.key_bits} bits, {shape.lanes} lanes, "
        f"{shape.clusters} mergers, {2 * shape.pairs} probers"
    )
