"""Deploys and builds that are ended by a signal: no loader or tool goes on alone, and the card knows what happened."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import tty
from collections.abc import Iterator
from pathlib import Path

import pytest

from millrace.host.base.errors import DeviceUnavailable
from millrace.hw import cards, loader
from tests.boards.cards import small_image

FINDS = 'case "$*" in *--detect) echo idcode 0x41113043; exit 0;; esac\n'


@pytest.fixture
def line() -> Iterator[str]:
    """A terminal without a board."""
    near, far = os.openpty()
    tty.setraw(far)
    yield f"serial:{os.ttyname(far)}"
    os.close(near)
    os.close(far)


def start(*arguments: str, folder: Path, **variables: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "millrace.cli", *arguments]
    return subprocess.Popen(
        command, cwd=folder, env={**os.environ, **variables}, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


def program(path: Path, does: str) -> str:
    path.write_text(f"#!/bin/sh\n{does}")
    path.chmod(0o755)
    return str(path)


def child_of(parent: subprocess.Popen[str]) -> int:
    """The process that it has started."""
    listed = Path(f"/proc/{parent.pid}/task/{parent.pid}/children")
    while True:
        assert parent.poll() is None, parent.communicate()[1]
        if children := listed.read_text().split():
            return int(children[-1])
        time.sleep(0.01)


def written(path: Path, running: subprocess.Popen[str]) -> int:
    """The number in a file that a program writes when it is at work."""
    while not (path.exists() and path.read_text().strip()):
        assert running.poll() is None, running.communicate()[1]
        time.sleep(0.01)
    return int(path.read_text())


def runs(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT], ids=lambda number: number.name)
def test_a_deploy_that_is_ended_ends_its_loader(number: signal.Signals, line: str, tmp_path: Path) -> None:
    (tmp_path / "small.mri").write_bytes(small_image().pack())
    slow = program(tmp_path / "loader", f"{FINDS}echo $$ > {tmp_path}/at-work; sleep 1000; echo\n")
    deploy = start("board", "deploy", "lab", "small.mri", "--link", line, folder=tmp_path, **{loader.VARIABLE: slow})
    loading = written(tmp_path / "at-work", deploy)
    deploy.send_signal(number)
    deploy.communicate()
    assert deploy.returncode == 128 + number
    assert not runs(loading)
    assert cards.card("lab").state == cards.LOADING  # the next use of the card loads it again
    cards.lock(line)()


def test_a_loader_that_outlives_a_killed_deploy_keeps_the_card_locked(line: str, tmp_path: Path) -> None:
    (tmp_path / "small.mri").write_bytes(small_image().pack())
    slow = program(tmp_path / "loader", f"{FINDS}echo $$ > {tmp_path}/at-work; exec sleep 1000\n")
    deploy = start("board", "deploy", "lab", "small.mri", "--link", line, folder=tmp_path, **{loader.VARIABLE: slow})
    loading = written(tmp_path / "at-work", deploy)
    try:
        deploy.kill()
        deploy.communicate()
        with pytest.raises(DeviceUnavailable, match="in use"):
            cards.lock(line)
    finally:
        os.kill(loading, signal.SIGKILL)
    while runs(loading):
        time.sleep(0.01)
    cards.lock(line)()


@pytest.mark.parametrize("board", ["ulx3s", "kv260"])
def test_a_build_that_is_ended_ends_its_tools_and_leaves_no_folder(board: str, tmp_path: Path) -> None:
    (tmp_path / "scratch").mkdir()
    program(tmp_path / "vivado", f"touch {tmp_path}/vivado-at-work; sleep 1000; echo\n")
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    build = start("image", "build", board, folder=tmp_path, TMPDIR=str(tmp_path / "scratch"), PATH=path)
    tool = child_of(build)
    while not at_work(board, tmp_path):
        assert build.poll() is None, build.communicate()[1]
        time.sleep(0.01)
    build.terminate()
    build.communicate()
    assert build.returncode == 128 + signal.SIGTERM
    assert not runs(tool)
    assert list((tmp_path / "scratch").iterdir()) == []
    assert not (tmp_path / f"{board}.mri").exists()


def at_work(board: str, folder: Path) -> bool:
    """Whether Yosys has begun its log, or Vivado has begun."""
    if board == "kv260":
        return (folder / "vivado-at-work").exists()
    return bool(list((folder / "scratch").glob("millrace-yosys-*/script.log")))


def test_the_process_of_pynq_ends_with_a_parent_that_was_killed(tmp_path: Path) -> None:
    """Also if a call to the board never returns."""
    (tmp_path / "pynq.py").write_text(f"import time\nopen('{tmp_path}/at-work', 'w').close()\ntime.sleep(1000)\n")
    child = "millrace.hw.pynq_link"
    parent = subprocess.Popen(
        [sys.executable, "-c", f"from {child} import PynqLink; PynqLink('127.0.0.1', 1000.0)"],
        env={
            **os.environ,
            "MILLRACE_PYNQ_PYTHON": program(
                tmp_path / "python", f'export PYTHONPATH="{tmp_path}"\nexec "{sys.executable}" "$@"\n'
            ),
        },
        stderr=subprocess.PIPE,
        text=True,
    )
    hanging = child_of(parent)
    while not (tmp_path / "at-work").exists():
        assert parent.poll() is None, parent.communicate()[1]
        time.sleep(0.01)
    parent.kill()
    parent.communicate()
    while runs(hanging):
        time.sleep(0.05)
