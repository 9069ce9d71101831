"""Memory of the C library for compiled code: buffers that grow without a return to Python.

Limits: nothing frees a buffer that its owner forgets; use it for buffers that rarely grow, the allocator for the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import types

from millrace.host.runtime.intrinsics import codegen, define
from millrace.host.runtime.jit import kernel

_BYTE, _WORD = ir.IntType(8).as_pointer(), ir.IntType(64)


def _resize(b: Any, where: Any, size: Any) -> Any:
    function = codegen.get_or_insert_function(b.module, ir.FunctionType(_BYTE, [_BYTE, _WORD]), "realloc")
    return b.ptrtoint(b.call(function, [b.inttoptr(where, _BYTE), size]), _WORD)


def _release(b: Any, where: Any) -> None:
    function = codegen.get_or_insert_function(b.module, ir.FunctionType(ir.VoidType(), [_BYTE]), "free")
    b.call(function, [b.inttoptr(where, _BYTE)])


resize_memory: Callable[[int, int], int] = define(_resize, types.int64, types.int64, types.int64)
"""Resize a buffer to so many bytes, `resize_memory(address, size)`; address 0 makes a new one. Returns 0 on failure."""
_free: Callable[[int], None] = define(_release, types.void, types.int64)


@kernel
def free_memory(where: int) -> None:
    """Free a buffer; 0 is none."""
    _free(where)
