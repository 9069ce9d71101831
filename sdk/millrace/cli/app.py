"""The subcommands and their options; what they do stands in a module each."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

# Typer's own boxes and colours are off: help and usage errors read the same in a terminal, a pipe and a log.
app = typer.Typer(
    help="Ordered indexes and stream joins on CPUs, GPUs and FPGAs, with the same output on all of them.",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]


def _version(wanted: bool) -> None:
    if wanted:
        from millrace._version import __version__

        typer.echo(f"millrace {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_version)
    ] = False,
) -> None:
    """Ordered indexes and stream joins on CPUs, GPUs and FPGAs, with the same output on all of them."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help(), err=True)
        raise typer.Exit(2)


@app.command()
def devices(json: Json = False) -> None:
    """List all known devices; those that cannot be used say why."""
    from millrace.cli.devices import show_devices

    show_devices(json)


@app.command()
def doctor(json: Json = False) -> None:
    """Check what is installed, and name the command that mends what is missing."""
    from millrace.cli.doctor import show_health

    raise typer.Exit(show_health(json))


@app.command()
def demo(
    rows: Annotated[int, typer.Option(min=1, help="Rows of each stream.")] = 200_000,
    out: Annotated[Path, typer.Option(help="Folder for demo.parquet and demo.json.")] = Path("out"),
    json: Json = False,
    spark: Annotated[bool, typer.Option("--spark", help="The streaming job in Spark.")] = False,
) -> None:
    """Join two sensor streams with every index on every device here, and check that all agree."""
    from millrace.cli.demo import show_demo, show_spark_demo

    raise typer.Exit((show_spark_demo if spark else show_demo)(rows, out, json))


@app.command()
def calibrate(json: Json = False) -> None:
    """Compile all kernels and measure what index="auto" chooses by, once per machine."""
    from millrace.cli.calibrate import run_calibration

    run_calibration(json)


@app.command()
def bench(
    names: Annotated[list[str] | None, typer.Argument(metavar="NAME", help="Benches (default: all).")] = None,
    json: Json = False,
    quick: Annotated[bool, typer.Option("--quick", help="Small sizes, half a minute.")] = False,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for results (default: benchmarks/results, else millrace-results)."),
    ] = None,
    repeat: Annotated[int | None, typer.Option(min=1, help="Timed repeats of each contender.")] = None,
    case: Annotated[str, typer.Option(help="Only cases whose name contains this.")] = "",
    trace: Annotated[
        Path | None, typer.Option(help="File for a trace of the last case (bench pipeline), as for Perfetto.")
    ] = None,
    listing: Annotated[bool, typer.Option("--list", help="List the benches and stop.")] = False,
) -> None:
    """Measure our work and its peers side by side."""
    from millrace.cli.bench import list_benches, run_benches

    if listing:
        list_benches(json)
    else:
        run_benches(names or [], json, quick, out, repeat, case, trace)


hw = typer.Typer(help="Tools for the hardware design.", rich_markup_mode=None)
app.add_typer(hw, name="hw")


@hw.callback()
def hardware() -> None:
    """Tools for the hardware design."""


@hw.command()
def synth(
    json: Json = False,
    write: Annotated[
        bool, typer.Option("--write", help="Keep the numbers in hw/resources.json and docs/hardware.md.")
    ] = False,
    target: Annotated[list[str] | None, typer.Option(help="xilinx, intel or ecp5 (default: all).")] = None,
    timing: Annotated[bool, typer.Option(help="Place and route mergers to find their clock.")] = True,
) -> None:
    """Map the RTL to three FPGA families: LUTs, registers and block RAM per unit, and the mergers' clock."""
    from millrace.cli.hw import show_synthesis

    raise typer.Exit(show_synthesis(json, write, target or [], timing))
