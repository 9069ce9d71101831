"""Memory by address, for kernels: typed loads and stores, prefetch, and the atomics that threads meet by.

Words are of 32 or 64 bits. A kernel that serves both is written once and takes a `like` argument, a zero of the word
type, whose type picks the width of every `load_as`. The caller keeps the arrays alive and in bounds.
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
"""Words that are compared at once: a cache line of 64-bit words."""
LINE_BITS = 512
_WORD = ir.IntType(64)
helpers: Any = cgutils  # Numba tells no type checker of its types


@kernel
def _address(array: Any) -> int:
    return array.ctypes.data  # type: ignore[no-any-return]


def address(array: Array) -> int:
    """Where a contiguous array's elements are: by a kernel, since NumPy itself takes five times as long to tell."""
    return _address(array)


def table(*entries: int | Array) -> Array:
    """The arguments of a share (`team.py`): numbers as they are, arrays by address."""
    return np.array([e if isinstance(e, int) else address(e) for e in entries], np.int64)


def _load_as(typing_context: Any, where: Any, index: Any, like: Any) -> Any:
    """The element of the type of `like` at `where[index]`."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.load(element(builder, arguments, context.get_value_type(like)))

    return like(types.int64, types.int64, like), generate


def _load_id(typing_context: Any, where: Any, index: Any) -> Any:
    """The 32-bit number at `where[index]`, as an integer."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.zext(builder.load(element(builder, arguments, ir.IntType(32))), _WORD)

    return types.int64(types.int64, types.int64), generate


def _store_as(typing_context: Any, where: Any, index: Any, value: Any) -> Any:
    """Put a value at `where[index]`, an array of its type."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.store(arguments[2], element(builder, arguments, context.get_value_type(value)))
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, value), generate


def _prefetching(nearness: int) -> Any:
    """An intrinsic: ask for the cache line at an address, for the nearest cache (3) or the next (2), and go on."""

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
    """The address of so many words of 64 bits, a number known when compiled, on the stack of the kernel."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        words = helpers.alloca_once(builder, ir.ArrayType(_WORD, count.literal_value))
        return builder.ptrtoint(words, _WORD)

    return types.int64(count), generate


def _touch(typing_context: Any, where: Any) -> Any:
    """Read the 32-bit number at an address for its cache line alone: unlike a prefetch, never left undone."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        # An atomic read is one that the compiler may not leave out; to the processor it is like any other.
        builder.load_atomic(builder.inttoptr(arguments[0], ir.IntType(32).as_pointer()), "monotonic", 4)
        return context.get_dummy_value()

    return types.void(types.int64), generate


def _copy_ids(typing_context: Any, source: Any, base: Any, to: Any, count: Any) -> Any:
    """Write up to four 32-bit numbers, `base` added to each, as int64: four are read, but only `count` written."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        number, flags = ir.VectorType(ir.IntType(32), 4), ir.VectorType(ir.IntType(1), 4)
        wide = ir.VectorType(_WORD, 4)
        base, count = (_same(builder, arguments[i], wide) for i in (1, 3))
        ids = builder.load(builder.inttoptr(arguments[0], number.as_pointer()), align=4)
        values = builder.add(builder.zext(ids, wide), base)
        wanted = builder.icmp_signed("<", ir.Constant(wide, [0, 1, 2, 3]), count)
        kind = ir.FunctionType(ir.VoidType(), [wide, wide.as_pointer(), ir.IntType(32), flags])
        store = helpers.get_or_insert_function(builder.module, kind, "llvm.masked.store.v4i64.p0v4i64")
        builder.call(store, [values, builder.inttoptr(arguments[2], wide.as_pointer()), ir.IntType(32)(8), wanted])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64, types.int64), generate


def _widen_ids(typing_context: Any, source: Any, base: Any, to: Any) -> Any:
    """Write four 32-bit numbers, `base` added to each, as int64."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        number, wide = ir.VectorType(ir.IntType(32), 4), ir.VectorType(_WORD, 4)
        ids = builder.load(builder.inttoptr(arguments[0], number.as_pointer()), align=4)
        values = builder.add(builder.zext(ids, wide), _same(builder, arguments[1], wide))
        builder.store(values, builder.inttoptr(arguments[2], wide.as_pointer()), align=8)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate


def _move_line(typing_context: Any, source: Any, to: Any) -> Any:
    """Copy eight words of 64 bits."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        line = ir.VectorType(_WORD, 8).as_pointer()
        values = builder.load(builder.inttoptr(arguments[0], line), align=8)
        builder.store(values, builder.inttoptr(arguments[1], line), align=8)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate


def _inside(typing_context: Any, where: Any, low: Any, high: Any) -> Any:
    """Which of the `LANES` words at an address lie in a closed range, as bits."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        word = context.get_value_type(low)
        many = ir.VectorType(word, min(LANES, _vector_bits() // word.width))
        least, most = _same(builder, arguments[1], many), _same(builder, arguments[2], many)
        found = _WORD(0)
        for at in range(0, LANES, many.count):
            place = builder.gep(builder.inttoptr(arguments[0], word.as_pointer()), [_WORD(at)])
            words = builder.load(builder.bitcast(place, many.as_pointer()), align=word.width // 8)
            flags = builder.and_(builder.icmp_unsigned(">=", words, least), builder.icmp_unsigned("<=", words, most))
            bits = builder.zext(builder.bitcast(flags, ir.IntType(many.count)), _WORD)
            found = builder.or_(found, builder.shl(bits, _WORD(at)))
        return found

    return types.int64(types.int64, low, low), generate


def _bits(typing_context: Any, word: Any) -> Any:
    """How many bits of a word are set."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.int64(types.int64), generate


def _lowest_bit(typing_context: Any, word: Any) -> Any:
    """The number of the lowest bit that is set; 64 where none is."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.IntType(1)(0))

    return types.int64(types.int64), generate


def _same(builder: Any, value: Any, many: Any) -> Any:
    """A vector of one value."""
    one = builder.insert_element(ir.Constant(many, ir.Undefined), value, ir.IntType(32)(0))
    return builder.shuffle_vector(one, one, ir.Constant(ir.VectorType(ir.IntType(32), many.count), [0] * many.count))


@cache
def _vector_bits() -> int:
    """The widest comparison that this processor makes in one instruction: pieces beyond that are put together badly."""
    return LINE_BITS if get_host_cpu_features().get("avx512bw") else LINE_BITS // 2


def _move_bytes(typing_context: Any, to: Any, source: Any, size: Any) -> Any:
    """Copy bytes from one address to another; both may overlap."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        byte = ir.IntType(8).as_pointer()
        to_place, from_place = (builder.inttoptr(argument, byte) for argument in arguments[:2])
        helpers.raw_memmove(builder, to_place, from_place, arguments[2], 1)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate


def _fill_bytes(typing_context: Any, to: Any, size: Any) -> Any:
    """Set all bits of so many bytes: the largest word, over and over."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        helpers.memset(builder, builder.inttoptr(arguments[0], ir.IntType(8).as_pointer()), arguments[1], 0xFF)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate


def _leading(comparison: str, fixed: int | None = LANES, parts: int = 1) -> Any:
    """An intrinsic: how many of the first words at an address come before one that is `comparison` a bound.

    It looks at a `fixed` number of words, or at a line of them (8 of 64 bits, 16 of 32) or a part of a line.
    """

    def leading(typing_context: Any, where: Any, bound: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            word = context.get_value_type(bound)
            lanes = fixed or LINE_BITS // word.width // parts
            many = ir.VectorType(word, min(lanes, _vector_bits() // word.width))
            same = _same(builder, arguments[1], many)
            # A bit beyond the lanes stands for the word that would come next.
            wide = _WORD(1 << lanes)
            for at in range(0, lanes, many.count):
                place = builder.gep(builder.inttoptr(arguments[0], word.as_pointer()), [_WORD(at)])
                words = builder.load(builder.bitcast(place, many.as_pointer()), align=word.width // 8)
                bits = builder.bitcast(builder.icmp_unsigned(comparison, words, same), ir.IntType(many.count))
                wide = builder.or_(wide, builder.shl(builder.zext(bits, _WORD), _WORD(at)))
            return builder.cttz(wide, ir.IntType(1)(1))

        return types.int64(types.int64, bound), generate

    return leading


def _atomic_load(typing_context: Any, where: Any) -> Any:
    """An int64 that another thread may be changing, and all that it wrote before."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.load_atomic(builder.inttoptr(arguments[0], _WORD.as_pointer()), "acquire", 8)

    return types.int64(types.int64), generate


def _atomic_store(typing_context: Any, where: Any, value: Any) -> Any:
    """Show an int64, and all that was written before it, to other threads."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.store_atomic(arguments[1], builder.inttoptr(arguments[0], _WORD.as_pointer()), "release", 8)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate


def _atomic_add(typing_context: Any, where: Any, value: Any) -> Any:
    """Add to an int64; what it was before."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = builder.inttoptr(arguments[0], _WORD.as_pointer())
        return builder.atomic_rmw("add", pointer, arguments[1], "acq_rel")

    return types.int64(types.int64, types.int64), generate


def _atomic_swap_if(typing_context: Any, where: Any, expected: Any, value: Any) -> Any:
    """Replace an int64 if it is as expected; whether it was."""

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
    """Call C's `read` by its address: wait until there is something to read."""

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
    """Bytes of a word."""
    return 4 if type(like)(~type(like)(0)) == 0xFFFFFFFF else 8
