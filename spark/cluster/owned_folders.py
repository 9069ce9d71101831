"""Folders for files that this process makes for workers, and the removal of those that killed processes left.

A classic session has a folder that Spark removes when the session stops: the files are in there. With Spark Connect
they are in a temporary folder. Each process has a file in `millrace-spark-<user>` of the system's temporary folder that
lists its folders. It holds a lock on that file, which the system releases when the process ends for any reason: a file
without a lock belongs to a process that was killed, and whoever makes the next folder removes what it lists.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import shutil
import stat
import tempfile
import threading
from contextlib import suppress
from pathlib import Path

from millrace.errors import StateError
from millrace.spark.cluster.worker_python import active_context

_lock = threading.Lock()
_folders: dict[tuple[int, str], Path] = {}
"""This process's folder for each Spark application."""
_list: tuple[int, Path, int] | None = None
"""The process, its list of folders and the open file that holds the lock."""


def folder() -> Path:
    """The folder for files of the running application; made on first use, and again if it was removed."""
    context = active_context()
    key = os.getpid(), "" if context is None else str(context.applicationId)
    with _lock:
        found = _folders.get(key)
        if found is None or not found.exists():
            remove_abandoned()
            found = _folders[key] = _new_folder(context is not None)
            with _own_list().open("a") as file:
                file.write(f"{found}\n")
    return found


def _new_folder(classic: bool) -> Path:
    parent: str | None = None
    if classic:
        from pyspark import SparkFiles

        parent = SparkFiles.getRootDirectory()
    return Path(tempfile.mkdtemp(prefix="millrace-spark-", dir=parent))


def lists_folder() -> Path:
    """The folder of the lists, one for each user; refused if another user made it, who could list what we remove."""
    path = Path(tempfile.gettempdir()) / f"millrace-spark-{os.getuid()}"
    path.mkdir(mode=0o700, exist_ok=True)
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise StateError(f"{path} is a link or belongs to another user; remove it, or set TMPDIR to a folder of yours")
    return path


def _own_list() -> Path:
    """This process's list, locked; a forked process begins its own."""
    global _list
    if _list is None or _list[0] != os.getpid():
        while True:
            handle, name = tempfile.mkstemp(dir=lists_folder())
            fcntl.flock(handle, fcntl.LOCK_EX)
            if Path(name).exists():  # else another process saw it before the lock
                break
            os.close(handle)
        _list = os.getpid(), Path(name), handle
        atexit.register(_remove_own, os.getpid())
    return _list[1]


def _remove_own(process: int) -> None:
    """At the end of the process: remove its folders and its list."""
    if _list is None or _list[0] != process or process != os.getpid():
        return
    _remove_listed(_list[1])
    os.close(_list[2])


def remove_abandoned() -> None:
    """Remove the folders of processes that ended without doing so themselves."""
    for path in lists_folder().iterdir():
        if _list is not None and path == _list[1]:
            continue
        with suppress(OSError), path.open("rb") as file:  # another process may remove it first
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # fails if its process lives
            _remove_listed(path)


def _remove_listed(path: Path) -> None:
    for line in path.read_text().splitlines():
        if Path(line).name.startswith("millrace-spark-"):
            shutil.rmtree(line, ignore_errors=True)
    path.unlink(missing_ok=True)
