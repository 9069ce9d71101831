"""`@kernel`: Numba compilation with a disk cache that is invalidated by every change that a kernel can see.

Numba's cache checks only the file that defines a function: a kernel that calls a function of another file would keep
the old machine code. So the kernels of a file are cached in a folder that is named by a hash of this file, of all
kernel files that it imports (directly or through others), and of the compiler versions. A change of one file makes
only those kernels compile again that can depend on it. Numba itself is imported when the first kernel is needed: it
takes half a second, and a small first call needs none (`first_use.py`). Limit: kernels must take constants and
functions from kernel files only. `MILLRACE_CACHE_DIR` moves the cache (default: `millrace` in the user's cache folder).
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, NoReturn, TypeVar, cast

from millrace.host.runtime.critical import check_imports, load_module, uninterrupted
from millrace.host.runtime.fork import hold_during_forks

F = TypeVar("F", bound=Callable[..., Any])


class LateModule:
    """A module that is imported when the first of its names is read."""

    def __init__(self, name: str) -> None:
        """Nothing is imported yet."""
        self._name = name

    def __getattr__(self, name: str) -> Any:
        """A name of the module."""
        return getattr(load_module(self._name), name)


numba: Any = LateModule("numba")
config: Any = LateModule("numba.core.config")
NOTICED_SECONDS = 1.0
"""After so long a user is told what takes time."""
_LOCK_MODULE = "numba.core.compiler_lock"
_SHARE = "void(int64, int64, int64)"
_HOST = Path(__file__).parents[1]
_IMPORT = re.compile(r"^\s*from millrace\.host((?:\.\w+)*) import (\([^)]*\)|.*)$", re.MULTILINE)
"""An import of a module of `host/`, or of names from one."""


class Late:
    """What Numba makes of a function, made when it is first needed; `py_func` is the function."""

    compiled: Any

    def __init__(self, function: Any, make: Callable[[Any], Any]) -> None:
        """`make(function)` is called later."""
        self.py_func, self._make = function, make
        self._type: Any = None

    def __getattr__(self, name: str) -> Any:
        """Make `compiled` on first use. Of two threads that do, one drops what it made."""
        if name != "compiled":
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        check_imports()
        return self.__dict__.setdefault("compiled", uninterrupted(partial(self._make, self.py_func)))

    @property
    def _numba_type_(self) -> Any:
        """Asked by Numba where a kernel uses this name."""
        if self._type is None:
            made, context = self.compiled, load_module("numba.core.registry").cpu_target.typing_context
            context.refresh()  # so that it knows an intrinsic that was made just now
            self._type = context.resolve_value_type(made)
        return self._type


class _LateKernel(Late):
    """A kernel; it is called like the function."""

    def __call__(self, *values: Any) -> Any:
        """Call the compiled function."""
        return self.compiled(*values)


def kernel(function: F) -> F:
    """Compile a function on first call, to run without the GIL; the machine code is cached on disk."""
    return cast(F, _LateKernel(function, _kernel))


def compiled(late: F) -> F:
    """The compiled function of a kernel: a call of it is a tenth of a microsecond shorter."""
    return cast(F, cast(Any, late).compiled)


def _kernel(function: Any) -> Any:
    made = _cached(numba.njit(nogil=True, cache=True, boundscheck=False), function)
    # Numba takes locks and fills registries while it compiles or loads: an interrupt there breaks later compilations.
    made._compile_for_args = partial(_compile_uninterrupted, made, made._compile_for_args)
    return made


def _compile_uninterrupted(kernel: Any, compile_for: Callable[..., Any], *values: Any, **named: Any) -> Any:
    """Compile a kernel for the types of values; called by Numba once for each list of types."""
    start, before = time.perf_counter(), kernel.stats.cache_misses.total()
    made = uninterrupted(partial(compile_for, *values, **named))
    if kernel.stats.cache_misses.total() > before:  # otherwise it was loaded from disk
        compile_time.add(time.perf_counter() - start)
    return made


class CompileTime:
    """Adds up the time that this process compiles kernels, and says so on stderr, once, when it is noticeable.

    Not with `MILLRACE_COMPILE=now` (`first_use.py`): then compiling is what was asked for.
    """

    def __init__(self) -> None:
        """Nothing was compiled yet."""
        self._seconds, self._reported = 0.0, False

    def add(self, seconds: float) -> None:
        """A kernel was compiled."""
        self._seconds += seconds
        wanted = os.environ.get("MILLRACE_COMPILE") == "now"
        if self._seconds > NOTICED_SECONDS and not self._reported and not wanted:
            self._reported = True
            sys.stderr.write(
                f"millrace: compiling kernels on first use ({self._seconds:.1f} s so far, kept in {_cache_home()}); "
                f"'millrace warm' does it ahead\n"
            )


compile_time = CompileTime()


def _compiler_lock() -> Any:
    """The compiler's own lock; re-entrant."""
    return load_module(_LOCK_MODULE).global_compiler_lock


# A child that is forked while another thread compiles or loads a kernel would wait for that thread for ever.
hold_during_forks(lambda: getattr(sys.modules.get(_LOCK_MODULE), "global_compiler_lock", None))


def _cached(decorate: Callable[[Any], Any], function: Any) -> Any:
    """Apply a Numba decorator with the cache in our own folder."""
    settings: Any = load_module("numba.core.config")
    # A decorator may compile, and compiling may bring us here again (`Late`).
    with _compiler_lock():
        before = settings.CACHE_DIR
        # Numba reads the cache folder when it decorates a function; the old value is restored at once for other users.
        settings.CACHE_DIR = str(_kernel_dir(Path(function.__code__.co_filename)))
        try:
            return decorate(function)
        finally:
            settings.CACHE_DIR = before


class Share:
    """A kernel `(arguments, part, parts)` that a team of threads runs by address (`team.py`).

    A call does part number `part` of `parts` and raises nothing. It is compiled on the first use of `address`.
    """

    def __init__(self, function: Callable[[int, int, int], None]) -> None:
        """Wrap a function; nothing is compiled yet."""
        self._function = function
        self._compiled: Any = None

    @property
    def address(self) -> int:
        """The address of the machine code."""
        if self._compiled is None:
            uninterrupted(self._compile)
        where: int = self._compiled.address
        return where

    def _compile(self) -> None:
        with _compiler_lock():  # of two threads, one compiles
            if self._compiled is None:
                start = time.perf_counter()
                made = _cached(numba.cfunc(_SHARE, cache=True), self._function)
                if not made.cache_hits:
                    compile_time.add(time.perf_counter() - start)
                self._compiled = made


def share(function: Callable[[int, int, int], None]) -> Share:
    """Decorate a function as a `Share`."""
    return Share(function)


class _LateInlined(Late):
    """A function for kernels alone. It has no wrapper for Python, so a call from there would crash the process."""

    def __call__(self, *_: object, **__: object) -> NoReturn:
        """Refuse a call from Python."""
        raise TypeError(f"{self.py_func.__qualname__} is inlined into kernels: call a kernel, or its py_func")


def inline(function: F) -> F:
    """Decorate a function that is inlined into the kernels that call it; Python cannot call it.

    Without the wrappers for calls from Python and C, kernels compile in about three quarters of the time.
    """
    return cast(F, _LateInlined(function, _inlined))


def _inlined(function: Any) -> Any:
    options: Any = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    return numba.njit(nogil=True, forceinline=True, boundscheck=False, **options)(function)


@cache
def _cache_home() -> Path:
    """Return the folder of all caches; a temporary folder if it cannot be written to."""
    base = os.environ.get("MILLRACE_CACHE_DIR")
    home = os.environ.get("XDG_CACHE_HOME") or str(Path("~/.cache").expanduser())
    path = Path(base) if base else Path(home) / "millrace"
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            return path
    except OSError:
        return Path(tempfile.mkdtemp(prefix="millrace-numba-"))


@cache
def cache_dir() -> Path:
    """Return the folder for what belongs to this version of all kernels, such as a calibration."""
    path = _cache_home() / f"numba-{source_hash()}"
    path.mkdir(exist_ok=True)
    return path


def _kernel_dir(path: Path) -> Path:
    """Return the folder for the machine code of the kernels of a file."""
    return _cache_home() / "kernels" / f"{path.stem}-{_hash_of(_closure(path))}"


@cache
def kernel_files() -> tuple[Path, ...]:
    """Return every file below `host/` that the machine code of kernels depends on."""
    own = Path(__file__)
    always = (own, own.with_name("kernel_args.py"))
    paths = sorted(_HOST.rglob("*.py"))
    return tuple(
        path for path in paths if path in always or b"from millrace.host.runtime.jit import" in path.read_bytes()
    )


def _closure(path: Path) -> tuple[Path, ...]:
    """Return a file and the kernel files that it imports, directly or through others, in order of their names."""
    found = {path}
    waiting = [path]
    while waiting:
        new = _imports(waiting.pop()) - found
        found |= new
        waiting += new
    return tuple(sorted(found))


@cache
def _imports(path: Path) -> frozenset[Path]:
    """Return the kernel files that a file imports."""
    known = set(kernel_files())
    found: set[Path] = set()
    for module, names in _IMPORT.findall(path.read_text(encoding="utf-8")):
        home = _HOST.joinpath(*module.split("."))
        found.add(home.with_suffix(".py"))
        found.update(home / f"{name}.py" for name in re.findall(r"\w+", names))
    return frozenset(found & known)


@cache
def source_hash() -> str:
    """Return a hash of all `kernel_files` and of the compiler versions."""
    return _hash_of(kernel_files())


@cache
def _hash_of(paths: tuple[Path, ...]) -> str:
    digest = hashlib.sha256(f"{version('numba')} {version('llvmlite')}".encode())
    for path in paths:
        digest.update(str(path.relative_to(_HOST) if path.is_relative_to(_HOST) else path.name).encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]
