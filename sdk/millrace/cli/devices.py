"""`millrace devices`: lists all known devices."""

from __future__ import annotations

import json
from dataclasses import asdict

import typer

from millrace.cli.screen import print_table
from millrace.registry import devices


def show_devices(as_json: bool) -> None:
    """Print all known devices, with a description or the reason why one cannot be used."""
    found = devices()
    if as_json:
        typer.echo(json.dumps([asdict(info) for info in found], indent=2))
        return
    rows = [(d.name, d.kind, "yes" if d.available else "no", d.detail) for d in found]
    print_table(("name", "kind", "available", "detail"), rows)
