"""Memory of the C library for compiled code: buffers that grow without a return to Python.

`free_with` frees buffers after their owner is gone, with the next call: the callback of the weak reference is of C,
since an interrupt in one of Python would be lost. Limits: nothing frees other buffers that an owner forgets; use it for
buffers that rarely grow, the allocator for the rest.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

from llvmlite import ir

from millrace.host.base.types import Array
from millrace.host.runtime.intrinsics import codegen, define
from millrace.host.runtime.jit import kernel

_BYTE, _WORD = ir.IntType(8).as_pointer(), ir.IntType(64)


def _resize(b: Any, where: Any, size: Any) -> Any:
    function = codegen.get_or_insert_function(b.module, ir.FunctionType(_BYTE, [_BYTE, _WORD]), "realloc")
    return b.ptrtoint(b.call(function, [b.inttoptr(where, _BYTE), size]), _WORD)


def _release(b: Any, where: Any) -> None:
    function = codegen.get_or_insert_function(b.module, ir.FunctionType(ir.VoidType(), [_BYTE]), "free")
    b.call(function, [b.inttoptr(where, _BYTE)])


resize_memory: Callable[[int, int], int] = define(_resize, "int64", "int64", "int64")
"""Resize a buffer to so many bytes, `resize_memory(address, size)`; address 0 makes a new one. Returns 0 on failure."""
_free: Callable[[int], None] = define(_release, "void", "int64")


@kernel
def free_memory(where: int) -> None:
    """Free a buffer; 0 is none."""
    _free(where)


class _Owner(weakref.ref[Any]):
    """An owner of buffers, whose addresses are in `words`."""

    __slots__ = ("words",)
    words: Array


_owners: dict[int, _Owner] = {}
_gone: deque[_Owner] = deque()
"""Owners that are gone, and whose buffers are not freed yet."""


def free_with(owner: Any, words: Array) -> None:
    """Free the buffers at the addresses in `words` after the owner is gone."""
    free_gone()
    one = _Owner(owner, _gone.append)
    one.words = words
    _owners[id(one)] = one


def free_gone() -> None:
    """Free the buffers of owners that are gone."""
    while _gone:
        one = _gone.popleft()
        if _owners.pop(id(one), None) is one:
            for where in one.words.tolist():
                free_memory(where)
