"""`millrace hw synth`: maps the RTL with Yosys, times mergers with nextpnr, prints and stores the results."""

from __future__ import annotations

import json
from dataclasses import asdict
from importlib import import_module
from typing import Any

import typer

from millrace.cli.screen import print_table, progress, remark
from millrace.host.base.errors import ArgumentError


def show_synthesis(as_json: bool, keep: bool, targets: list[str], timing: bool) -> int:
    """Map and time everything; with `keep` write record and documents. Return exit code 1 if a target is missed."""
    synth, resources = import_module("millrace.hw.synth"), import_module("millrace.hw.resources")
    unknown = sorted(set(targets) - set(synth.TARGETS))
    if unknown:
        raise ArgumentError(f"no target {', '.join(unknown)}; allowed are {', '.join(synth.TARGETS)}")
    with progress() as report:
        found = synth.measure(targets or list(synth.TARGETS), timing, report)
    if keep:
        resources.write(found)
        remark(f"written: {resources.RECORD} and {resources.DOCUMENT}")
    judged = resources.resource_targets(found)
    if as_json:
        typer.echo(json.dumps({**asdict(found), "bars": [asdict(one) for one in judged]}, indent=2))
    else:
        _print(found)
        for one in judged:
            typer.echo(f"{'met   ' if one.met else 'MISSED'}  {one.name}: {one.reached:,.1f}, target {one.limit:,.1f}")
    return 0 if all(one.met for one in judged) else 1


def _print(found: Any) -> None:
    rows = [(c.design, c.target, f"{c.luts:,}", f"{c.registers:,}", f"{c.brams:,.1f}") for c in found.costs]
    numbers = ("LUTs or ALMs", "registers", "block RAM")
    print_table(("design", "target", *numbers), rows, right=frozenset(numbers))
    if found.clocks:
        print_table(
            ("design", "device", "MHz"),
            [(c.design, c.device, f"{c.mhz:.1f}") for c in found.clocks],
            frozenset({"MHz"}),
        )
