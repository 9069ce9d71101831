"""Intrinsics for kernels that access memory by address: typed loads and stores, prefetch, SIMD compares and atomics.

Words have 32 or 64 bits. A kernel for both is written once and takes an argument `like`, a zero of the word type: its
type selects the width of every `load_as`. Limit: nothing is checked; the caller keeps the arrays alive and in bounds.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, cast

import numpy as np
from llvmlite import ir
from llvmlite.binding import get_host_cpu_features
from numba.core import cgutils, types
from numba.extending import intrinsic

from millrace.host.base.types import Array
from millrace.host.runtime.jit import element, inline, kernel

LANES = 8
"""Words compared at once: a cache line of 64-bit words."""
LINE_BITS = 512
_WORD = ir.IntType(64)
codegen: Any = cgutils  # Numba has no types for type checkers


@kernel
def _address(array: Any) -> int:
    return array.ctypes.data  # type: ignore[no-any-return]


def address(array: Array) -> int:
    """Return the address of a contiguous array's data; a kernel, because NumPy takes five times as long."""
    return _address(array)


def table(*entries: int | Array) -> Array:
    """Pack the arguments of a share (`team.py`): integers by value, arrays by address."""
    return np.array([e if isinstance(e, int) else address(e) for e in entries], np.int64)


def _load_as(typing_context: Any, where: Any, index: Any, like: Any) -> Any:
    """Load the element `where[index]` of an array with the type of `like`."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.load(element(builder, arguments, context.get_value_type(like)))

    return like(types.int64, types.int64, like), generate


def _load_id(typing_context: Any, where: Any, index: Any) -> Any:
    """Load the uint32 at `where[index]`, as an int64."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.zext(builder.load(element(builder, arguments, ir.IntType(32))), _WORD)

    return types.int64(types.int64, types.int64), generate


def _store_as(typing_context: Any, where: Any, index: Any, value: Any) -> Any:
    """Store a value at `where[index]` of an array of its type."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.store(arguments[2], element(builder, arguments, context.get_value_type(value)))
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, value), generate


def _prefetching(nearness: int) -> Any:
    """Make an intrinsic that prefetches the cache line at an address into the L1 (3) or L2 cache (2)."""

    def prefetching(typing_context: Any, where: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            byte = ir.IntType(8).as_pointer()
            number = ir.IntType(32)
            kind = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
            function = builder.module.declare_intrinsic("llvm.prefetch", [byte], kind)
            builder.call(function, [builder.inttoptr(arguments[0], byte), number(0), number(nearness), number(1)])
            return context.get_dummy_value()

        return types.void(types.int64), generate

    return prefetching


def _stack_words(typing_context: Any, count: Any) -> Any:
    """Allocate `count` 64-bit words on the stack of the kernel and return their address; `count` is a literal."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        words = codegen.alloca_once(builder, ir.ArrayType(_WORD, count.literal_value))
        return builder.ptrtoint(words, _WORD)

    return types.int64(count), generate


def _touch(typing_context: Any, where: Any) -> Any:
    """Load the cache line at an address by reading 32 bits: unlike a prefetch, the processor never drops it."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        # The compiler may not remove an atomic load; for the processor it is an ordinary load.
        builder.load_atomic(builder.inttoptr(arguments[0], ir.IntType(32).as_pointer()), "monotonic", 4)
        return context.get_dummy_value()

    return types.void(types.int64), generate


def _copy_ids(typing_context: Any, source: Any, base: Any, to: Any, count: Any) -> Any:
    """Write `count` (at most 4) uint32 as int64, `base` added to each; always reads four."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        number, flags = ir.VectorType(ir.IntType(32), 4), ir.VectorType(ir.IntType(1), 4)
        wide = ir.VectorType(_WORD, 4)
        base, count = (_broadcast(builder, arguments[i], wide) for i in (1, 3))
        ids = builder.load(builder.inttoptr(arguments[0], number.as_pointer()), align=4)
        values = builder.add(builder.zext(ids, wide), base)
        wanted = builder.icmp_signed("<", ir.Constant(wide, [0, 1, 2, 3]), count)
        kind = ir.FunctionType(ir.VoidType(), [wide, wide.as_pointer(), ir.IntType(32), flags])
        store = codegen.get_or_insert_function(builder.module, kind, "llvm.masked.store.v4i64.p0v4i64")
        builder.call(store, [values, builder.inttoptr(arguments[2], wide.as_pointer()), ir.IntType(32)(8), wanted])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64, types.int64), generate


def _widen_ids(typing_context: Any, source: Any, base: Any, to: Any) -> Any:
    """Write four uint32 as int64, `base` added to each."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        number, wide = ir.VectorType(ir.IntType(32), 4), ir.VectorType(_WORD, 4)
        ids = builder.load(builder.inttoptr(arguments[0], number.as_pointer()), align=4)
        values = builder.add(builder.zext(ids, wide), _broadcast(builder, arguments[1], wide))
        builder.store(values, builder.inttoptr(arguments[2], wide.as_pointer()), align=8)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate


def _move_line(typing_context: Any, source: Any, to: Any) -> Any:
    """Copy a cache line: eight 64-bit words."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        line = ir.VectorType(_WORD, 8).as_pointer()
        values = builder.load(builder.inttoptr(arguments[0], line), align=8)
        builder.store(values, builder.inttoptr(arguments[1], line), align=8)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate


def _inside(typing_context: Any, where: Any, low: Any, high: Any) -> Any:
    """Return a bit mask of which of the `LANES` words at an address are in a closed range."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        word = context.get_value_type(low)
        vector = ir.VectorType(word, min(LANES, _vector_bits() // word.width))
        lower, upper = _broadcast(builder, arguments[1], vector), _broadcast(builder, arguments[2], vector)
        found = _WORD(0)
        for at in range(0, LANES, vector.count):
            pointer = builder.gep(builder.inttoptr(arguments[0], word.as_pointer()), [_WORD(at)])
            words = builder.load(builder.bitcast(pointer, vector.as_pointer()), align=word.width // 8)
            flags = builder.and_(builder.icmp_unsigned(">=", words, lower), builder.icmp_unsigned("<=", words, upper))
            bits = builder.zext(builder.bitcast(flags, ir.IntType(vector.count)), _WORD)
            found = builder.or_(found, builder.shl(bits, _WORD(at)))
        return found

    return types.int64(types.int64, low, low), generate


def _bits(typing_context: Any, word: Any) -> Any:
    """Count the set bits of a word."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.int64(types.int64), generate


def _lowest_bit(typing_context: Any, word: Any) -> Any:
    """Return the number of the lowest set bit; 64 if none is set."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.IntType(1)(0))

    return types.int64(types.int64), generate


def _broadcast(builder: Any, value: Any, vector: Any) -> Any:
    """Broadcast a value to all lanes of a vector."""
    one = builder.insert_element(ir.Constant(vector, ir.Undefined), value, ir.IntType(32)(0))
    lanes = ir.Constant(ir.VectorType(ir.IntType(32), vector.count), [0] * vector.count)
    return builder.shuffle_vector(one, one, lanes)


@cache
def _vector_bits() -> int:
    """Return the widest vector that this processor compares in one instruction: LLVM splits wider ones badly."""
    return LINE_BITS if get_host_cpu_features().get("avx512bw") else LINE_BITS // 2


def _move_bytes(typing_context: Any, to: Any, source: Any, size: Any) -> Any:
    """Copy `size` bytes; the ranges may overlap."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        byte = ir.IntType(8).as_pointer()
        target, origin = (builder.inttoptr(argument, byte) for argument in arguments[:2])
        codegen.raw_memmove(builder, target, origin, arguments[2], 1)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate


def _fill_bytes(typing_context: Any, to: Any, size: Any) -> Any:
    """Set all bits of `size` bytes: fills an array with the largest word."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        codegen.memset(builder, builder.inttoptr(arguments[0], ir.IntType(8).as_pointer()), arguments[1], 0xFF)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate


def _leading(comparison: str, fixed: int | None = LANES, parts: int = 1) -> Any:
    """Make an intrinsic that counts the words at an address before the first one that is `comparison` a bound.

    It compares a `fixed` number of words, or a cache line (8 words of 64 bits, 16 of 32 bits), or `1 / parts` of it.
    """

    def leading(typing_context: Any, where: Any, bound: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            word = context.get_value_type(bound)
            lanes = fixed or LINE_BITS // word.width // parts
            vector = ir.VectorType(word, min(lanes, _vector_bits() // word.width))
            bound_lanes = _broadcast(builder, arguments[1], vector)
            # A bit beyond the last lane ends the count if no word matches.
            wide = _WORD(1 << lanes)
            for at in range(0, lanes, vector.count):
                pointer = builder.gep(builder.inttoptr(arguments[0], word.as_pointer()), [_WORD(at)])
                words = builder.load(builder.bitcast(pointer, vector.as_pointer()), align=word.width // 8)
                bits = builder.bitcast(builder.icmp_unsigned(comparison, words, bound_lanes), ir.IntType(vector.count))
                wide = builder.or_(wide, builder.shl(builder.zext(bits, _WORD), _WORD(at)))
            return builder.cttz(wide, ir.IntType(1)(1))

        return types.int64(types.int64, bound), generate

    return leading


def _atomic_load(typing_context: Any, where: Any) -> Any:
    """Load an int64 with acquire semantics."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.load_atomic(builder.inttoptr(arguments[0], _WORD.as_pointer()), "acquire", 8)

    return types.int64(types.int64), generate


def _atomic_store(typing_context: Any, where: Any, value: Any) -> Any:
    """Store an int64 with release semantics."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.store_atomic(arguments[1], builder.inttoptr(arguments[0], _WORD.as_pointer()), "release", 8)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate


def _atomic_add(typing_context: Any, where: Any, value: Any) -> Any:
    """Add to an int64 atomically; returns its value before."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = builder.inttoptr(arguments[0], _WORD.as_pointer())
        return builder.atomic_rmw("add", pointer, arguments[1], "acq_rel")

    return types.int64(types.int64, types.int64), generate


def _atomic_swap_if(typing_context: Any, where: Any, expected: Any, value: Any) -> Any:
    """Compare and swap an int64; returns whether it had the expected value."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = builder.inttoptr(arguments[0], _WORD.as_pointer())
        return builder.extract_value(builder.cmpxchg(pointer, arguments[1], arguments[2], "acq_rel", "acquire"), 1)

    return types.boolean(types.int64, types.int64, types.int64), generate


def _call_share(typing_context: Any, function: Any, arguments: Any, part: Any, parts: Any) -> Any:
    """Call a compiled `share` by its address."""

    def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        kind = ir.FunctionType(ir.VoidType(), [_WORD, _WORD, _WORD])
        builder.call(builder.inttoptr(given[0], kind.as_pointer()), given[1:])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64, types.int64), generate


def _call_read(typing_context: Any, function: Any, file: Any, where: Any, size: Any) -> Any:
    """Call C's `read` by its address: blocks until there is something to read."""

    def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        number, byte = ir.IntType(32), ir.IntType(8).as_pointer()
        kind = ir.FunctionType(_WORD, [number, byte, _WORD])
        arguments = [builder.trunc(given[1], number), builder.inttoptr(given[2], byte), given[3]]
        return builder.call(builder.inttoptr(given[0], kind.as_pointer()), arguments)

    return types.int64(types.int64, types.int64, types.int64, types.int64), generate


load_as: Callable[..., Any] = cast(Any, intrinsic(_load_as))
load_id: Callable[[int, int], int] = cast(Any, intrinsic(_load_id))
store_as: Callable[..., None] = cast(Any, intrinsic(_store_as))
touch: Callable[[int], None] = cast(Any, intrinsic(_touch))
widen_ids: Callable[[int, int, int], None] = cast(Any, intrinsic(_widen_ids))
move_line: Callable[[int, int], None] = cast(Any, intrinsic(_move_line))
inside: Callable[[int, Any, Any], int] = cast(Any, intrinsic(_inside))
bits: Callable[[int], int] = cast(Any, intrinsic(_bits))
lowest_bit: Callable[[int], int] = cast(Any, intrinsic(_lowest_bit))
copy_ids: Callable[[int, int, int, int], None] = cast(Any, intrinsic(_copy_ids))
prefetch: Callable[[int], None] = cast(Any, intrinsic(_prefetching(3)))
prefetch_far: Callable[[int], None] = cast(Any, intrinsic(_prefetching(2)))
stack_words: Callable[[int], int] = cast(Any, intrinsic(prefer_literal=True)(_stack_words))
move_bytes: Callable[[int, int, int], None] = cast(Any, intrinsic(_move_bytes))
fill_bytes: Callable[[int, int], None] = cast(Any, intrinsic(_fill_bytes))
leading_below: Callable[[int, Any], int] = cast(Any, intrinsic(_leading(">=")))
leading_upto: Callable[[int, Any], int] = cast(Any, intrinsic(_leading(">")))
lines_below: Callable[[int, Any], int] = cast(Any, intrinsic(_leading(">=", 4 * LANES)))
lines_upto: Callable[[int, Any], int] = cast(Any, intrinsic(_leading(">", 4 * LANES)))
line_below: Callable[[int, Any], int] = cast(Any, intrinsic(_leading(">=", None)))
half_below: Callable[[int, Any], int] = cast(Any, intrinsic(_leading(">=", None, 2)))
half_upto: Callable[[int, Any], int] = cast(Any, intrinsic(_leading(">", None, 2)))
line_upto: Callable[[int, Any], int] = cast(Any, intrinsic(_leading(">", None)))
atomic_load: Callable[[int], int] = cast(Any, intrinsic(_atomic_load))
atomic_store: Callable[[int, int], None] = cast(Any, intrinsic(_atomic_store))
atomic_add: Callable[[int, int], int] = cast(Any, intrinsic(_atomic_add))
atomic_swap_if: Callable[[int, int, int], bool] = cast(Any, intrinsic(_atomic_swap_if))
call_share: Callable[[int, int, int, int], None] = cast(Any, intrinsic(_call_share))
call_read: Callable[[int, int, int, int], int] = cast(Any, intrinsic(_call_read))


@inline
def size_of(like: Any) -> int:
    """Return the bytes of a word of the type of `like`."""
    return 4 if type(like)(~type(like)(0)) == 0xFFFFFFFF else 8
