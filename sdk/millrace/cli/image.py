"""`millrace image build|show|verify|sign`: builds, prints, checks and signs images for boards."""

from __future__ import annotations

import json
import tempfile
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Any

import typer

from millrace.cli.screen import progress, remark
from millrace.host.base.errors import ArgumentError


def build_image(
    board: str, out: Path | None, bitstream: Path | None, hwh: Path | None, keep: bool, version: int
) -> None:
    """Build a bitstream and pack it, or pack an existing one."""
    catalog, images = import_module("millrace.hw.catalog"), import_module("millrace.hw.image")
    chosen = catalog.board(board)
    path = out or Path(f"{board}.mri")
    files = import_module("millrace.hw.files")
    files.check_writable(path)  # a build takes minutes
    if bitstream is not None:
        image = images.make(chosen, _given(chosen, bitstream, hwh), {}, {}, origin="given", version=version)
    else:
        image = images.make(chosen, *_built(chosen, path), version=version)
    images.check_contents(image, chosen)
    files.write_whole(path, image.pack())
    if keep:
        records = import_module("millrace.hw.records")
        records.write(chosen, image)
        remark(f"written: {records.path(chosen)} and {records.DOCUMENT}")
    _print(image, path)


def show_image(path: Path, as_json: bool) -> None:
    """Print the manifest of an image."""
    image = import_module("millrace.hw.image").read(path)
    if as_json:
        signature = image.signature and asdict(image.signature)
        typer.echo(json.dumps({**asdict(image.manifest), "digest": image.digest, "signature": signature}, indent=2))
    else:
        _print(image, path)


def verify_image(path: Path, board: str | None, key: Path | None) -> None:
    """Run all checks that a deploy runs before it begins."""
    images, catalog = import_module("millrace.hw.image"), import_module("millrace.hw.catalog")
    signing = import_module("millrace.hw.signing")
    image = images.read(path)
    public = signing.read_key(key) if key else signing.configured_key()
    images.check(image, catalog.board(board) if board else None, public)
    signed = "signature right" if public else "not checked for a signature: no key is configured"
    said = image.manifest
    own = "that" if catalog.board(said.board).build_hash() == said.build else "not that"
    typer.echo(f"{path}: sound, for {said.board}; {signed}")
    typer.echo(f"{_origin(said)}; build {said.build}, {own} of these sources")


def sign_image(path: Path, key: Path, out: Path | None) -> None:
    """Sign an image with a private key."""
    images, signing = import_module("millrace.hw.image"), import_module("millrace.hw.signing")
    signed = images.read(path).signed(signing.read_key(key))
    target = out or path
    import_module("millrace.hw.files").write_whole(target, signed.pack())
    typer.echo(f"{target}: signed with key {signed.signature.key_id}")


def _built(chosen: Any, path: Path) -> tuple[dict[str, bytes], dict[str, str], dict[str, float]]:
    # The tools run for minutes: they must not go on alone when this command is ended.
    with progress() as report, import_module("millrace.hw.program").ended_by_signals():
        if chosen.link == "serial":
            made = import_module("millrace.hw.ecp5").build(chosen, report)
            return {f"{chosen.design}.bit": made.bitstream}, made.tools, made.report
        with tempfile.TemporaryDirectory(prefix="millrace-vivado-") as scratch:
            logs = path.with_suffix(".vivado-logs")
            files, tools = import_module("millrace.hw.vivado").build(chosen, Path(scratch), report, logs)
            return files, tools, {}


def _given(chosen: Any, bitstream: Path, hwh: Path | None) -> dict[str, bytes]:
    if chosen.link == "pynq" and hwh is None:
        raise ArgumentError(f"PYNQ needs the hardware description of {chosen.name} too: give it with --hwh")
    if chosen.link != "pynq" and hwh is not None:
        raise ArgumentError(f"--hwh is for boards behind PYNQ; an image for {chosen.name} contains a bitstream alone")
    if bitstream.suffix not in (".bit", ".bin"):
        raise ArgumentError(f"{bitstream} is no bitstream: allowed are *.bit and *.bin")
    files, limit = import_module("millrace.hw.files"), import_module("millrace.hw.image").MAX_BITSTREAM_BYTES
    given = {f"{chosen.design}{bitstream.suffix}": files.read_bounded(bitstream, limit, "a bitstream")}
    if chosen.link == "pynq":
        given[f"{chosen.design}.hwh"] = files.read_bounded(hwh, limit, "a hardware description")
    return given


def _print(image: Any, path: Path) -> None:
    said = image.manifest
    typer.echo(f"image     {path} (SHA-256 {image.digest[:16]}…)")
    typer.echo(f"board     {said.board}, part {said.part}, {said.clock_hz / 1e6:g} MHz")
    parameters = " ".join(f"{name}={value}" for name, value in said.parameters.items())
    typer.echo(f"design    {said.design}, build {said.build}, ABI {said.abi}: {parameters}")
    typer.echo(f"members   {', '.join(f'{name} ({len(data):,} bytes)' for name, data in image.members.items())}")
    typer.echo(f"tools     {', '.join(f'{name} {version}' for name, version in said.tools.items()) or 'unknown'}")
    if said.report:
        typer.echo(f"report    {', '.join(f'{name} {value:g}' for name, value in said.report.items())}")
    typer.echo(f"origin    {_origin(said)}, version {said.version}")
    typer.echo(f"signed    {f'by key {image.signature.key_id}' if image.signature else 'no'}")


def _origin(manifest: Any) -> str:
    if manifest.origin == "built":
        return "built by millrace"
    return "given as a file, not built by millrace; the board must name this build"
