"""The cache of machine code: its folders depend on every file that a kernel is made of, and on no other."""

from __future__ import annotations

import ast
import importlib.util
import re
import signal
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from millrace.host.runtime import jit
from tests.host.runtime.test_pool import in_child
from tests.watchdog import WATCHDOG

HOST = Path(jit.__file__).parents[1]


def test_every_file_with_kernels_or_their_constants_is_hashed() -> None:
    hashed = {path.name for path in jit.kernel_files()}
    assert {"jit.py", "intrinsics.py", "kernel_args.py", "team.py"} <= hashed
    for path in HOST.rglob("*.py"):
        if re.search(r"^@(kernel|inline|share)$|^class \w+\(KernelArgs\)", path.read_text(), re.MULTILINE):
            assert path.name in hashed, path


def test_a_file_is_hashed_with_all_kernel_files_that_it_imports() -> None:
    """Compare with the imports that Python's own parser and import system find, followed to the end."""
    direct = {path: _imported(path) & set(jit.kernel_files()) for path in jit.kernel_files()}
    for path in jit.kernel_files():
        wanted, waiting = {path}, [path]
        while waiting:
            new = direct[waiting.pop()] - wanted
            wanted |= new
            waiting += new
        assert set(jit._closure(path)) == wanted, path


def test_a_change_moves_the_kernels_that_can_see_it_and_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    search, sorter = HOST / "hbtree" / "search.py", HOST / "kernels" / "word_sorter.py"
    intrinsics = HOST / "runtime" / "intrinsics.py"
    before = {path: jit._kernel_dir(path) for path in (search, sorter, intrinsics)}
    read = Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda path: read(path) + (b"# changed" if path == sorter else b""))
    jit._hash_of.cache_clear()
    try:
        assert jit._kernel_dir(search) == before[search]
        assert jit._kernel_dir(intrinsics) == before[intrinsics]
        assert jit._kernel_dir(sorter) != before[sorter]
    finally:
        jit._hash_of.cache_clear()


def test_an_inlined_function_works_in_kernels_and_refuses_calls_from_python() -> None:
    @jit.inline
    def one_more(x: int) -> int:
        return x + 1

    @jit.kernel
    def two_more(x: int) -> int:
        return one_more(one_more(x))

    assert two_more(3) == 5
    with pytest.raises(TypeError, match="one_more is inlined into kernels"):
        one_more(3)
    assert one_more.py_func(3) == 4  # type: ignore[attr-defined]


def _imported(path: Path) -> set[Path]:
    """The files of all `from … import …` of a file; a name may itself be a module."""
    found: set[Path] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        assert not isinstance(node, ast.Import) or "millrace" not in ast.unparse(node), f"{path}: use from … import"
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("millrace.host"):
            modules = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
            found.update(file for module in modules if (file := _file_of(str(module))) is not None)
    return found


def _file_of(module: str) -> Path | None:
    try:
        spec = importlib.util.find_spec(module)
    except ModuleNotFoundError:  # a name in a module that is not a package
        return None
    return Path(spec.origin) if spec is not None and spec.origin is not None else None


def test_a_fork_while_a_kernel_is_compiled_does_not_lock_the_child(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fork waits for the compiler's lock: another thread that holds it would not exist in the child."""
    compiling = threading.Event()

    def compile_slowly(decorate: Any, function: Any) -> Any:
        with jit._compiler_lock():
            compiling.set()
            time.sleep(0.3)
        return SimpleNamespace(address=7, cache_hits=1)

    monkeypatch.setattr(jit, "_cached", compile_slowly)
    share = jit.Share(lambda arguments, part, parts: None)
    thread = threading.Thread(target=lambda: share.address)
    thread.start()
    assert compiling.wait(WATCHDOG)

    def in_time() -> bool:
        signal.alarm(WATCHDOG)  # ends a child that waits for ever
        with jit._compiler_lock():
            return share.address == 7

    assert in_child(in_time) == 0
    thread.join()
