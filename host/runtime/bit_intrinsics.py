"""An intrinsic that writes the numbers of a word's set bits, several at once where the processor can compress bytes.

Defined like those of `intrinsics.py`. With AVX-512 VBMI2 eight numbers are written at once; other processors write two,
one after the other: words of bit arrays with few matches seldom have more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir

from millrace.host.runtime.intrinsics import _BYTE, _EIGHT, _INT, _NO, _NONE, _W, _WORD, _broadcast, _element, define
from millrace.host.runtime.intrinsics import binding as _binding
from millrace.host.runtime.intrinsics import codegen as _codegen

_COMPRESSES = bool(_binding.get_host_cpu_features().get("avx512vbmi2"))
SPREAD = 8 if _COMPRESSES else 2
"""Numbers that `spread_bits` writes, even if fewer bits are set: those beyond are meaningless."""


def _compressed(b: Any, word: Any, base: Any, to: Any) -> None:
    """Move the numbers of the set bits, as bytes, to the front of a vector; widen the first eight."""
    line, flags = ir.VectorType(_BYTE, 64), ir.VectorType(ir.IntType(1), 64)
    numbers = ir.Constant(line, list(range(64)))
    kind = ir.FunctionType(line, [line, line, flags])
    compress = _codegen.get_or_insert_function(b.module, kind, "llvm.x86.avx512.mask.compress.v64i8")
    packed = b.call(compress, [numbers, ir.Constant(line, [0] * 64), b.bitcast(word, flags)])
    first = b.shuffle_vector(packed, packed, ir.Constant(ir.VectorType(_INT, 8), list(range(8))))
    b.store(b.add(b.zext(first, _EIGHT), _broadcast(b, base, _EIGHT)), b.inttoptr(to, _EIGHT.as_pointer()), align=8)


def _one_by_one(b: Any, word: Any, base: Any, to: Any) -> None:
    for i in range(SPREAD):
        b.store(b.add(base, b.cttz(word, _NO)), _element(b, to, _WORD(i), _WORD))
        word = b.and_(word, b.sub(word, _WORD(1)))


spread_bits: Callable[[int, int, int], None] = define(_compressed if _COMPRESSES else _one_by_one, _NONE, _W, _W, _W)
"""Write the numbers of the lowest `SPREAD` set bits, `base` added to each: `spread_bits(word, base, to)`."""
