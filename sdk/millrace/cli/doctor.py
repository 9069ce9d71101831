"""`millrace doctor`: prints a line per check, with the command that fixes what is missing."""

from __future__ import annotations

import json

import typer

from millrace.cli.health import Check, checks
from millrace.cli.screen import print_table


def show_health(as_json: bool) -> int:
    """Print all checks; return exit code 1 only if something that every use needs is missing."""
    found = list(checks())
    broken = [check for check in found if check.needed and not check.ok]
    if as_json:
        typer.echo(json.dumps([_row(check) for check in found], indent=2))
    else:
        print_table(
            ("check", "state", "fix with", "detail"),
            [(c.name, "ok" if c.ok else "missing", "" if c.ok else c.fix or "-", c.detail) for c in found],
        )
        lacking = sum(not check.ok for check in found)
        typer.echo(_verdict(len(broken), lacking))
    return 1 if broken else 0


def _row(check: Check) -> dict[str, object]:
    return {
        "name": check.name,
        "ok": check.ok,
        "detail": check.detail,
        "mend": None if check.ok else check.fix,
        "needed": check.needed,
    }


def _verdict(broken: int, lacking: int) -> str:
    if broken:
        return f"millrace cannot run: {broken} needed thing(s) missing"
    if lacking:
        return f"millrace runs; {lacking} optional thing(s) missing"
    return "millrace runs, nothing is missing"
