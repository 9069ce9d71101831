"""The subcommands and their options; each is implemented in a module of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

# Typer's boxes and colours are off: help and usage errors look the same in a terminal, a pipe and a log.
app = typer.Typer(
    help="Ordered indexes and stream joins on CPUs, GPUs and FPGAs, with the same output on all of them.",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
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
    """List all known devices, and why some cannot be used."""
    from millrace.cli.devices import show_devices

    show_devices(json)


@app.command()
def doctor(json: Json = False) -> None:
    """Check what is installed. Prints a command for what is missing."""
    from millrace.cli.doctor import show_health

    raise typer.Exit(show_health(json))


@app.command()
def demo(
    rows: Annotated[int, typer.Option(min=1, help="Rows of each stream.")] = 200_000,
    out: Annotated[Path, typer.Option(help="The folder for demo.parquet and demo.json.")] = Path("out"),
    json: Json = False,
    spark: Annotated[bool, typer.Option("--spark", help="Run it as a streaming job in Spark.")] = False,
) -> None:
    """Join two sensor streams with every index on every device. Checks that all of them agree."""
    from millrace.cli.demo import show_demo, show_spark_demo

    raise typer.Exit((show_spark_demo if spark else show_demo)(rows, out, json))


@app.command()
def warm(json: Json = False) -> None:
    """Compile all kernels ahead, so that no first call has to. They are kept on disk."""
    from millrace.cli.warm import run_warm

    run_warm(json)


@app.command()
def calibrate(json: Json = False) -> None:
    """Measure which index and device "auto" should choose. Run it once per machine; it compiles the kernels first."""
    from millrace.cli.calibrate import run_calibration

    run_calibration(json)


@app.command()
def bench(
    names: Annotated[list[str] | None, typer.Argument(metavar="NAME", help="Benches, as --list shows them.")] = None,
    json: Json = False,
    quick: Annotated[bool, typer.Option("--quick", help="Small sizes, about half a minute.")] = False,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for results (default: benchmarks/results, else millrace-results)."),
    ] = None,
    repeat: Annotated[int | None, typer.Option(min=1, help="Timed repeats of each contender.")] = None,
    case: Annotated[str, typer.Option(help="Only cases whose name contains this.")] = "",
    trace: Annotated[
        Path | None, typer.Option(help="File for a Perfetto trace of the last case (bench pipeline).")
    ] = None,
    listing: Annotated[bool, typer.Option("--list", help="List the benches and stop.")] = False,
) -> None:
    """Measure Millrace and its peers side by side."""
    from millrace.cli.bench import list_benches, run_benches

    if listing:
        list_benches(json)
    else:
        run_benches(names or [], json, quick, out, repeat, case, trace)


@app.command()
def faults(
    json: Json = False,
    table: Annotated[bool, typer.Option("--table", help="Make each point fail, and print what happens.")] = False,
) -> None:
    """List the fault points, which MILLRACE_FAULTS arms."""
    from millrace.cli.faults import show_points, show_table

    if table:
        show_table()
    else:
        show_points(json)


@app.command()
def soak(
    minutes: Annotated[float, typer.Option(min=0.01, help="How long.")] = 2.0,
    seed: Annotated[int, typer.Option(min=0, help="What is drawn.")] = 0,
    replay: Annotated[str, typer.Option(help="Run one episode again: 'seed=…,episode=…'.")] = "",
) -> None:
    """Run all operators for long, with faults and kills. Checks every output, and that nothing grows."""
    from millrace.cli.soak import run_soak

    raise typer.Exit(run_soak(minutes, seed, replay))


hw = typer.Typer(help="Tools for the hardware design.", rich_markup_mode=None)
app.add_typer(hw, name="hw")


@hw.callback()
def hardware() -> None:
    """Tools for the hardware design."""


@hw.command()
def synth(
    json: Json = False,
    write: Annotated[
        bool, typer.Option("--write", help="Write the numbers to hw/resources.json and its page in docs.")
    ] = False,
    target: Annotated[list[str] | None, typer.Option(help="xilinx, intel or ecp5 (default: all).")] = None,
    timing: Annotated[bool, typer.Option(help="Place and route the mergers to find their clock.")] = True,
) -> None:
    """Map the RTL to three FPGA families. Counts LUTs, registers and block RAM of each unit, and times the mergers."""
    from millrace.cli.hw import show_synthesis

    raise typer.Exit(show_synthesis(json, write, target or [], timing))


@app.command("verify")
def verify_command(
    device: Annotated[str, typer.Argument(metavar="DEVICE", help="A device, as `millrace devices` lists it.")],
    out: Annotated[Path, typer.Option(help="The folder for the JSON file and the HTML page.")] = Path(),
    json: Json = False,
) -> None:
    """Check a device: results, transfers, speeds, fault recovery. Writes a report that can be sent back."""
    from millrace.cli.verify import verify_device

    raise typer.Exit(verify_device(device, out, json))


image = typer.Typer(help="Images: bitstreams with a manifest, for boards.", rich_markup_mode=None)
app.add_typer(image, name="image")
ImageFile = Annotated[Path, typer.Argument(metavar="IMAGE", help="A file *.mri.")]


@image.command("build")
def image_build(
    board: Annotated[str, typer.Argument(metavar="BOARD", help="The board (see `millrace board list`).")],
    out: Annotated[Path | None, typer.Option(help="The image (default: BOARD.mri).")] = None,
    bitstream: Annotated[Path | None, typer.Option(help="Pack this existing bitstream.")] = None,
    hwh: Annotated[Path | None, typer.Option(help="Its hardware description, for PYNQ.")] = None,
    write: Annotated[bool, typer.Option("--write", help="Write clock and use to hw/boards and docs.")] = False,
    version: Annotated[int, typer.Option("--image-version", min=0, help="The image's version, against rollback.")] = 0,
) -> None:
    """Build a bitstream for a board and pack it as an image."""
    from millrace.cli.image import build_image

    build_image(board, out, bitstream, hwh, write, version)


@image.command("show")
def image_show(file: ImageFile, json: Json = False) -> None:
    """Check an image and print its manifest."""
    from millrace.cli.image import show_image

    show_image(file, json)


@image.command("verify")
def image_verify(
    file: ImageFile,
    board: Annotated[str | None, typer.Option(help="The board it must be for.")] = None,
    key: Annotated[Path | None, typer.Option(help="The public key it must be signed with.")] = None,
) -> None:
    """Run all checks that a deploy runs before it begins."""
    from millrace.cli.image import verify_image

    verify_image(file, board, key)


@image.command("sign")
def image_sign(
    file: ImageFile,
    key: Annotated[Path, typer.Option(help="The private key, Ed25519 in PEM.")],
    out: Annotated[Path | None, typer.Option(help="The signed image (default: overwrite IMAGE).")] = None,
) -> None:
    """Sign an image."""
    from millrace.cli.image import sign_image

    sign_image(file, key, out)


board = typer.Typer(help="Boards, and the cards that images were deployed to.", rich_markup_mode=None)
app.add_typer(board, name="board")
CardName = Annotated[str, typer.Argument(metavar="CARD", help="The name of a card.")]


@board.command("list")
def board_list(json: Json = False) -> None:
    """List boards that images can be built for, and cards."""
    from millrace.cli.board import list_boards

    list_boards(json)


@board.command("deploy")
def board_deploy(
    card: CardName,
    file: ImageFile,
    link: Annotated[
        str | None, typer.Option(help="serial:/dev/ttyUSB0, pynq:ADDRESS, or pynq on the board itself.")
    ] = None,
    board: Annotated[str | None, typer.Option(help="The board, for one that does not say what it is.")] = None,
    flash: Annotated[bool, typer.Option("--flash", help="Write to flash, so that the board keeps it.")] = False,
) -> None:
    """Load an image onto a board and name it as a card. Then reads back what runs there."""
    from millrace.cli.board import deploy_image

    deploy_image(card, file, link, board, flash)


@board.command("verify")
def board_verify(card: CardName) -> None:
    """Read a card's identity back, and compare its results with NumPy's."""
    from millrace.cli.board import verify_board

    raise typer.Exit(verify_board(card))


@board.command("bench")
def board_bench(
    card: CardName,
    rows: Annotated[int | None, typer.Option(min=1, help="Rows of each of two runs.")] = None,
    json: Json = False,
) -> None:
    """Time transfers, merges and probes."""
    from millrace.cli.board import bench_board

    bench_board(card, rows, json)


@board.command("remove")
def board_remove(card: CardName) -> None:
    """Forget a card; the board itself is not changed."""
    from millrace.cli.board import remove_card

    remove_card(card)


@board.command("reset")
def board_reset(card: CardName) -> None:
    """Reset the engine of a card."""
    from millrace.cli.board import reset_board

    reset_board(card)
