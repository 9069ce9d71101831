"""Board folders: tclsh runs the scripts with stubs of Vivado, errors are found, pins are the published ones."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from millrace.cli.app import app
from millrace.host.base.errors import DeviceUnavailable
from millrace.hw import vivado
from millrace.hw.catalog import FOLDER, board, boards

VIVADO = sorted(name for name, one in boards().items() if one.link == "pynq")
# From the published constraints of the ULX3S: emard/ulx3s, doc/constraints/ulx3s_v20.lpf, commit 0376883a317f.
PUBLISHED = {
    "clk_25mhz": ("G2", "NONE"),
    "ftdi_rxd": ("L4", "UP"),
    "ftdi_txd": ("M1", "UP"),
    "wifi_gpio0": ("L2", "NONE"),
    "btn[0]": ("D6", "UP"),
    **{f"btn[{k}]": (site, "DOWN") for k, site in enumerate(("R1", "T1", "R18", "V1", "U1", "H16"), 1)},
    **{f"led[{k}]": (site, "NONE") for k, site in enumerate(("B2", "C2", "C1", "D2", "D1", "E2", "E1", "H3"))},
}
MISTAKES = {
    "an unknown command": ("block_design.tcl", "save_bd_design", "store_bd_design"),
    "an unknown option": ("block_design.tcl", "create_bd_cell -type ip", "create_bd_cell -kind ip"),
    "an open pin": (
        "block_design.tcl",
        "    connect_bd_net [get_bd_pins ${engine}/irq] [get_bd_pins ${ps}/pl_ps_irq0]\n",
        "",
    ),
    "a pin that is not there": ("block_design.tcl", "reset_0/slowest_sync_clk", "reset_0/clk"),
    "a pin driven twice": ("block_design.tcl", "registers_0/aclk memory_0/aclk", "registers_0/aclk registers_0/aclk"),
    "a wrong reset": ("block_design.tcl", "[get_bd_pins ${engine}/rst]", "[get_bd_pins ${engine}/reset]"),
    "a file that is not there": ("build.tcl", "bisort_engine_bd.v", "bisort_engine.v"),
    "half a command": ("block_design.tcl", "    save_bd_design\n}", "    save_bd_design\n"),
}


@pytest.mark.parametrize("name", VIVADO)
def test_scripts_are_sound_as_far_as_that_shows(name: str) -> None:
    assert vivado.check(board(name)) == []


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_found(mistake: str, tmp_path: Path) -> None:
    file, before, after = MISTAKES[mistake]
    shutil.copytree(FOLDER.parent, tmp_path / "hw")
    path = tmp_path / "hw" / "boards" / "zynqmp" / file
    text = path.read_text(encoding="utf-8")
    assert before in text
    path.write_text(text.replace(before, after), encoding="utf-8")
    found = vivado.run_stub(tmp_path / "hw" / "boards" / "kv260" / "build.tcl", tmp_path, "0" * 16)
    assert isinstance(found, str), found


@pytest.mark.parametrize("fields", [{"part": "xc7z020"}, {"clock_hz": 1}, {"parameters": {"KEY_W": 32}}], ids=str)
def test_a_script_that_differs_from_the_description_is_found(fields: dict) -> None:
    assert vivado.check(replace(board("kv260"), **fields)) != []


def test_pins_are_the_published_ones() -> None:
    text = (FOLDER / "ulx3s" / "ulx3s.lpf").read_text(encoding="utf-8")
    sites = dict(re.findall(r'LOCATE COMP "([^"]+)" SITE "(\w+)";', text))
    kinds = dict(re.findall(r'IOBUF PORT "([^"]+)" PULLMODE=(\w+) IO_TYPE=LVCMOS33', text))
    assert {pin: (sites[pin], kinds[pin]) for pin in sites} == PUBLISHED
    assert 'FREQUENCY PORT "clk_25mhz" 25 MHZ;' in text


def test_every_pin_of_the_top_level_has_a_location() -> None:
    head = (FOLDER / "ulx3s" / "ulx3s_top.sv").read_text(encoding="utf-8").split("\n);", 1)[0]
    ports = re.findall(r"^    (?:input|output) +wire (?:\[(\d+):0\])? *(\w+)", head, re.MULTILINE)
    pins = {f"{name}[{k}]" if high else name for high, name in ports for k in range(int(high or 0) + 1)}
    assert pins == set(PUBLISHED)


def test_every_board_says_what_it_needs() -> None:
    assert set(boards()) == {"kv260", "zcu104", "ulx3s"}
    for one in boards().values():
        assert one.needs
        assert re.fullmatch(r"[0-9a-f]{16}", one.build_hash())


# Follows Vivado v2022.2 in batch mode: its banner, messages as `ERROR: [Synth 8-439] …`, exit code 1, vivado.log and
# vivado.jou in the working folder, runme.log in each run's folder (UG835, UG894).
STAND_IN = """#!/bin/sh
cat <<'END' | tee vivado.log

****** Vivado v2022.2 (64-bit)
  **** SW Build 3671981 on Fri Oct 14 04:59:54 MDT 2022
  **** IP Build 3669848 on Fri Oct 14 08:30:02 MDT 2022
    ** Copyright 1986-2022 Xilinx, Inc. All Rights Reserved.

source build.tcl
ERROR: [Synth 8-439] module 'bisort_engine' not found [bisort_engine_bd.v:90]
ERROR: [Common 17-69] Command failed: Synthesis failed - please see the console or run log file for details
INFO: [Common 17-206] Exiting Vivado at Wed Nov 18 03:00:00 2026...
END
touch vivado.jou
mkdir -p project/millrace.runs/synth_1
echo "ERROR: [Synth 8-439]" > project/millrace.runs/synth_1/runme.log
exit 1
"""


def test_a_failed_build_keeps_its_logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "bin" / "vivado"
    program.parent.mkdir()
    program.write_text(STAND_IN)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    monkeypatch.chdir(tmp_path)
    failed = CliRunner().invoke(app, ["image", "build", "kv260"])
    assert failed.exit_code != 0
    message = str(failed.exception) if isinstance(failed.exception, DeviceUnavailable) else failed.output
    assert "kv260.vivado-logs" in message
    assert "[Synth 8-439] module 'bisort_engine' not found" in message
    kept = {path.name for path in (tmp_path / "kv260.vivado-logs").iterdir()}
    assert kept == {"printed.log", "vivado.log", "vivado.jou", "project-millrace.runs-synth_1-runme.log"}
    assert not (tmp_path / "kv260.mri").exists()
