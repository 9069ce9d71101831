"""Intrinsics for kernels: memory by address, bits, lines of words (SIMD), atomics, and calls by address.

Kernels access memory by address: an array argument would cost reference counting in each call, and a check for a
negative index in each access. Words have 32 or 64 bits. A kernel for both is written once and takes an argument `like`,
a zero of the word type: its type selects the width of every `load_as`. Each intrinsic is one entry: the function that
emits its machine code with LLVM's builder `b`, then its result and argument types. Limit: nothing is checked; the
caller keeps the arrays alive and the indexes in bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from inspect import Parameter, Signature
from typing import Any, cast

from llvmlite import ir

from millrace.host.base.types import Array
from millrace.host.runtime.jit import Late, LateModule, inline, kernel

LANES = 8
"""Words that most SIMD intrinsics handle: a cache line of 64-bit words."""
WIDE_LANES = 16
"""Words that `within` compares."""
MASK_LANES = 64
"""Words that `mask_within` and `mask_below` compare: the bits of a word."""
COUNTERS = 64
"""Counters that `count_after` changes."""
LINE = 8
"""64-bit words of a cache line."""
LINE_BITS = 512
_BIT, _BYTE, _INT, _WORD = (ir.IntType(bits) for bits in (1, 8, 32, 64))
_NO, _YES = _BIT(0), _BIT(1)
codegen: Any = LateModule("numba.core.cgutils")
binding: Any = LateModule("llvmlite.binding")
_extending, _types = LateModule("numba.extending"), LateModule("numba.core.types")


@kernel
def address(array: Array) -> int:
    """Return the address of a contiguous array's data; a kernel, because NumPy takes ten times as long."""
    return array.ctypes.data


# How an intrinsic is defined.

_W, _U, _D, _NONE, _FLAG = "int64", "uint64", "float64", "void", "boolean"
"""Numba's types of results and arguments: a 64-bit integer or address, a number, no result, true or false."""
_ANY = None
"""The type that the caller gives. All such arguments and the result of an intrinsic have the type of the first."""


def define(emit: Callable[..., Any], result: str | None, *arguments: str | None, literal: bool = False) -> Any:
    """Make an intrinsic that Numba inlines. `literal`: `emit` gets the constants that the caller writes, not values."""
    return Late(emit, partial(_intrinsic, result=result, arguments=arguments, literal=literal))


def _intrinsic(emit: Callable[..., Any], result: str | None, arguments: Sequence[str | None], literal: bool) -> Any:
    def typed(typing_context: Any, *given: Any) -> Any:
        like: Any = next((one for kind, one in zip(arguments, given, strict=True) if kind is _ANY), None)
        kinds = [like if kind is _ANY else getattr(_types, kind) for kind in arguments]

        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            made = emit(builder, *(one.literal_value for one in given)) if literal else emit(builder, *values)
            return context.get_dummy_value() if result == _NONE else made

        return (like if result is _ANY else getattr(_types, result))(*kinds), generate

    # Numba passes arguments by this signature.
    names = ["typing_context", *(f"argument_{i}" for i in range(len(arguments)))]
    cast(Any, typed).__signature__ = Signature([Parameter(n, Parameter.POSITIONAL_OR_KEYWORD) for n in names])
    return _extending.intrinsic(prefer_literal=True)(typed) if literal else _extending.intrinsic(typed)


def _pointer(b: Any, where: Any, kind: Any) -> Any:
    return b.inttoptr(where, kind.as_pointer())


def _element(b: Any, where: Any, index: Any, kind: Any) -> Any:
    """Return a pointer to element `index` of the array of `kind` at an address."""
    return b.gep(_pointer(b, where, kind), [index])


def _vector(b: Any, where: Any, kind: Any, at: Any = None) -> Any:
    """Load a vector from an address, which is a multiple of the element size, or from its element `at` on."""
    start = _element(b, where, _WORD(0) if at is None else at, kind.element)
    return b.load(b.bitcast(start, kind.as_pointer()), align=kind.element.width // 8)


def _broadcast(b: Any, value: Any, vector: Any) -> Any:
    """Broadcast a value to all lanes of a vector."""
    one = b.insert_element(ir.Constant(vector, ir.Undefined), value, _INT(0))
    return b.shuffle_vector(one, one, ir.Constant(ir.VectorType(_INT, vector.count), [0] * vector.count))


def _flags(b: Any, flags: Any) -> Any:
    """Return a vector of flags as the bits of a word."""
    return b.zext(b.bitcast(flags, ir.IntType(flags.type.count)), _WORD)


@cache
def _vector_bits() -> int:
    """Return the widest vector that this processor compares in one instruction: LLVM splits wider ones badly."""
    return LINE_BITS if binding.get_host_cpu_features().get("avx512bw") else LINE_BITS // 2


def _lanes(word: Any, lanes: int) -> Any:
    """Return the vector type in which so many words are compared, in several steps if it is shorter."""
    return ir.VectorType(word, min(lanes, _vector_bits() // word.width))


# Loads and stores: `where[index]`, where `where` is an address.


def _store(b: Any, where: Any, index: Any, value: Any) -> None:
    b.store(value, _element(b, where, index, value.type))


load: Callable[[int, int], int] = define(lambda b, where, i: b.load(_element(b, where, i, _WORD)), _W, _W, _W)
"""Load an int64."""
store: Callable[[int, int, int], None] = define(_store, _NONE, _W, _W, _W)
"""Store an int64."""
load_as: Callable[..., Any] = define(
    lambda b, where, i, like: b.load(_element(b, where, i, like.type)), _ANY, _W, _W, _ANY
)
"""Load an element of the type of `like`: `load_as(where, index, like)`."""
store_as: Callable[..., None] = define(_store, _NONE, _W, _W, _ANY)
"""Store a value in an array of its type: `store_as(where, index, value)`."""
load_id: Callable[[int, int], int] = define(
    lambda b, where, i: b.zext(b.load(_element(b, where, i, _INT)), _WORD), _W, _W, _W
)
"""Load a uint32, as an int64."""
load_byte: Callable[[int, int], int] = define(
    lambda b, where, i: b.zext(b.load(_element(b, where, i, _BYTE)), _WORD), _W, _W, _W
)
"""Load a byte, as an int64."""


def _prefetch(b: Any, where: Any, nearness: int) -> None:
    byte = _BYTE.as_pointer()
    kind = ir.FunctionType(ir.VoidType(), [byte, _INT, _INT, _INT])
    function = b.module.declare_intrinsic("llvm.prefetch", [byte], kind)
    b.call(function, [b.inttoptr(where, byte), _INT(0), _INT(nearness), _INT(1)])


def _touch(b: Any, where: Any) -> None:
    # The compiler may not remove an atomic load; for the processor it is an ordinary load.
    b.load_atomic(_pointer(b, where, _INT), "monotonic", 4)


def _move_bytes(b: Any, to: Any, source: Any, size: Any) -> None:
    codegen.raw_memmove(b, _pointer(b, to, _BYTE), _pointer(b, source, _BYTE), size, 1)


def _stack_words(b: Any, count: int) -> Any:
    return b.ptrtoint(codegen.alloca_once(b, ir.ArrayType(_WORD, count)), _WORD)


prefetch: Callable[[int], None] = define(partial(_prefetch, nearness=3), _NONE, _W)
"""Prefetch the cache line at an address into the L1 cache."""
prefetch_far: Callable[[int], None] = define(partial(_prefetch, nearness=2), _NONE, _W)
"""Prefetch the cache line at an address into the L2 cache."""
touch: Callable[[int], None] = define(_touch, _NONE, _W)
"""Load the cache line at an address by reading 32 bits: unlike a prefetch, the processor never drops it."""
move_bytes: Callable[[int, int, int], None] = define(_move_bytes, _NONE, _W, _W, _W)
"""Copy bytes, `move_bytes(to, source, size)`; the ranges may overlap."""
fill_bytes: Callable[[int, int], None] = define(
    lambda b, to, size: codegen.memset(b, _pointer(b, to, _BYTE), size, 0xFF), _NONE, _W, _W
)
"""Set all bits of `size` bytes: fills an array with the largest word."""
stack_words: Callable[[int], int] = define(_stack_words, _W, _ANY, literal=True)
"""Allocate 64-bit words on the stack of the kernel and return their address; the count is a literal."""


# Bits of an int64.

ones: Callable[[int], int] = define(lambda b, word: b.ctpop(word), _W, _W)
"""Count the set bits."""
lowest_bit: Callable[[int], int] = define(lambda b, word: b.cttz(word, _NO), _W, _W)
"""Return the number of the lowest set bit; 64 if none is set."""


# Several words at once.


def _inside(b: Any, where: Any, low: Any, high: Any) -> Any:
    vector, found = _lanes(low.type, LANES), _WORD(0)
    lower, upper = _broadcast(b, low, vector), _broadcast(b, high, vector)
    for at in range(0, LANES, vector.count):
        words = _vector(b, where, vector, _WORD(at))
        flags = b.and_(b.icmp_unsigned(">=", words, lower), b.icmp_unsigned("<=", words, upper))
        found = b.or_(found, b.shl(_flags(b, flags), _WORD(at)))
    return found


def _within(b: Any, where: Any, index: Any, low: Any, span: Any, like: Any) -> Any:
    vector = ir.VectorType(like.type, WIDE_LANES)
    if like.type.width < 64:
        low, span = b.trunc(low, like.type), b.trunc(span, like.type)
    above = b.sub(_vector(b, where, vector, index), _broadcast(b, low, vector))
    return _flags(b, b.icmp_unsigned("<=", above, _broadcast(b, span, vector)))


def _leading(b: Any, where: Any, bound: Any, comparison: str, fixed: int | None = LANES, parts: int = 1) -> Any:
    """Compare a `fixed` number of words, or a cache line (8 words of 64 bits, 16 of 32), or `1 / parts` of it."""
    lanes = fixed or LINE_BITS // bound.type.width // parts
    vector = _lanes(bound.type, lanes)
    bounds = _broadcast(b, bound, vector)
    # A bit beyond the last lane ends the count if no word matches.
    wide = _WORD(1 << lanes)
    for at in range(0, lanes, vector.count):
        words = _vector(b, where, vector, _WORD(at))
        wide = b.or_(wide, b.shl(_flags(b, b.icmp_unsigned(comparison, words, bounds)), _WORD(at)))
    return b.cttz(wide, _YES)


def _before(comparison: str, *which: Any) -> Any:
    """Define an intrinsic that counts the words at an address before the first one that is `comparison` a bound."""

    def emit(b: Any, where: Any, bound: Any) -> Any:
        return _leading(b, where, bound, comparison, *which)

    return define(emit, _W, _W, _ANY)


def _mask_below(b: Any, where: Any, index: Any, bound: Any, like: Any) -> Any:
    vector, found = _lanes(like.type, MASK_LANES), _WORD(0)
    bounds = _broadcast(b, b.trunc(bound, like.type) if like.type.width < 64 else bound, vector)
    for at in range(0, MASK_LANES, vector.count):
        words = _vector(b, where, vector, b.add(index, _WORD(at)))
        found = b.or_(found, b.shl(_flags(b, b.icmp_unsigned("<", words, bounds)), _WORD(at)))
    return found


def _mask_within(b: Any, where: Any, index: Any, low: Any, span: Any, like: Any) -> Any:
    vector, found = _lanes(like.type, MASK_LANES), _WORD(0)
    if like.type.width < 64:
        low, span = b.trunc(low, like.type), b.trunc(span, like.type)
    lows, spans = _broadcast(b, low, vector), _broadcast(b, span, vector)
    for at in range(0, MASK_LANES, vector.count):
        above = b.sub(_vector(b, where, vector, b.add(index, _WORD(at))), lows)
        found = b.or_(found, b.shl(_flags(b, b.icmp_unsigned("<=", above, spans)), _WORD(at)))
    return found


def _count_after(b: Any, where: Any, index: Any, like: Any) -> None:
    vector = ir.VectorType(like.type, COUNTERS)
    numbers = ir.Constant(vector, list(range(COUNTERS)))
    number = b.trunc(index, like.type) if like.type.width < 64 else index
    after = b.sext(b.icmp_unsigned(">", numbers, _broadcast(b, number, vector)), vector)
    pointer = _pointer(b, where, vector)
    align = like.type.width // 8
    b.store(b.sub(b.load(pointer, align=align), after), pointer, align=align)


inside: Callable[[int, Any, Any], int] = define(_inside, _W, _W, _ANY, _ANY)
"""Return a bit mask of which of the `LANES` words at an address are in a closed range."""
within: Callable[[int, int, Any, Any, Any], int] = define(_within, _W, _W, _W, _U, _U, _ANY)
"""The same of the `WIDE_LANES` words from `where[index]` on, for the range `low .. low + span`."""
mask_within: Callable[[int, int, int, int, Any], int] = define(_mask_within, _W, _W, _W, _W, _W, _ANY)
"""The same of the `MASK_LANES` words from `where[index]` on; bit 63 is the sign."""
mask_below: Callable[[int, int, int, Any], int] = define(_mask_below, _W, _W, _W, _W, _ANY)
"""Return a bit mask of which of the `MASK_LANES` words from `where[index]` on are below a bound."""
count_after: Callable[[int, int, Any], None] = define(_count_after, _NONE, _W, _W, _ANY)
"""Add 1 to those of the `COUNTERS` counters at an address whose number is above `index`; `like` is their type."""
leading_below: Callable[[int, Any], int] = _before(">=")
"""Count the leading words of `LANES` that are below a bound; `…_upto`: not above it."""
leading_upto: Callable[[int, Any], int] = _before(">")
lines_below: Callable[[int, Any], int] = _before(">=", 4 * LANES)
"""The same of four times as many words."""
lines_upto: Callable[[int, Any], int] = _before(">", 4 * LANES)
line_below: Callable[[int, Any], int] = _before(">=", None)
"""The same of a cache line."""
line_upto: Callable[[int, Any], int] = _before(">", None)
half_below: Callable[[int, Any], int] = _before(">=", None, 2)
"""The same of half a cache line."""
half_upto: Callable[[int, Any], int] = _before(">", None, 2)

_FOUR_INTS, _FOUR, _EIGHT = ir.VectorType(_INT, 4), ir.VectorType(_WORD, 4), ir.VectorType(_WORD, LINE)


def _ids(b: Any, source: Any, base: Any) -> Any:
    """Load four uint32 as int64, `base` added to each."""
    return b.add(b.zext(_vector(b, source, _FOUR_INTS), _FOUR), _broadcast(b, base, _FOUR))


def _copy_ids(b: Any, source: Any, base: Any, to: Any, count: Any) -> None:
    wanted = b.icmp_signed("<", ir.Constant(_FOUR, [0, 1, 2, 3]), _broadcast(b, count, _FOUR))
    kind = ir.FunctionType(ir.VoidType(), [_FOUR, _FOUR.as_pointer(), _INT, wanted.type])
    store_some = codegen.get_or_insert_function(b.module, kind, "llvm.masked.store.v4i64.p0v4i64")
    b.call(store_some, [_ids(b, source, base), _pointer(b, to, _FOUR), _INT(8), wanted])


def _stream_line(b: Any, source: Any, to: Any) -> None:
    stored = b.store(_vector(b, source, _EIGHT), _pointer(b, to, _EIGHT), align=64)
    stored.set_metadata("nontemporal", b.module.add_metadata([_INT(1)]))


def _swapped(b: Any, v: Any, partner: Sequence[int], upper: Sequence[int]) -> Any:
    """Compare each lane with its partner lane; lanes marked in `upper` keep the larger value, others the smaller."""
    other = b.shuffle_vector(v, v, ir.Constant(_FOUR_INTS, list(partner)))
    less = b.icmp_signed("<", v, other)
    low, high = b.select(less, v, other), b.select(less, other, v)
    return b.select(ir.Constant(ir.VectorType(_BIT, 4), list(upper)), high, low)


def _store_sorted(b: Any, to: Any, *values: Any) -> None:
    v: Any = ir.Constant(_FOUR, ir.Undefined)
    for i, value in enumerate(values):
        v = b.insert_element(v, value, _INT(i))
    v = _swapped(b, v, (1, 0, 3, 2), (0, 1, 0, 1))
    v = _swapped(b, v, (2, 3, 0, 1), (0, 0, 1, 1))
    v = _swapped(b, v, (0, 2, 1, 3), (0, 0, 1, 1))
    b.store(v, _pointer(b, to, _FOUR), align=8)


copy_ids: Callable[[int, int, int, int], None] = define(_copy_ids, _NONE, _W, _W, _W, _W)
"""Write `count` (at most 4) uint32 as int64, `base` added: `copy_ids(source, base, to, count)`; always reads four."""
widen_ids: Callable[[int, int, int], None] = define(
    lambda b, source, base, to: b.store(_ids(b, source, base), _pointer(b, to, _FOUR), align=8), _NONE, _W, _W, _W
)
"""Write four uint32 as int64, `base` added to each: `widen_ids(source, base, to)`."""
move_line: Callable[[int, int], None] = define(
    lambda b, source, to: b.store(_vector(b, source, _EIGHT), _pointer(b, to, _EIGHT), align=8), _NONE, _W, _W
)
"""Copy a cache line: `move_line(source, to)`."""
stream_line: Callable[[int, int], None] = define(_stream_line, _NONE, _W, _W)
"""Copy a cache line to an aligned address with a non-temporal store: the target is not loaded into the cache."""
fence: Callable[[], None] = define(lambda b: b.fence("seq_cst"), _NONE)
"""A sequentially consistent fence: what stands before it is visible to all threads before anything after it is read."""
fence_loads: Callable[[], None] = define(lambda b: b.fence("acquire"), _NONE)
"""Loads before it are done before everything after it; no instruction on x86."""
fence_stores: Callable[[], None] = define(lambda b: b.fence("release"), _NONE)
"""Everything before it is done before stores after it; no instruction on x86."""
fence_streams = fence
"""Wait until streamed lines are visible to all threads."""
store_sorted: Callable[[int, int, int, int, int], None] = define(_store_sorted, _NONE, _W, _W, _W, _W, _W)
"""Write four int64 in ascending order, without branches (a sorting network): `store_sorted(to, a, b, c, d)`."""


# Atomics on aligned int64, and calls. In compiled code only these see what other threads write: the compiler may keep
# the value of an ordinary load in a register. Orderings, on x86 and on ARM alike:
# - acquire load, release store: pass data from one thread to another. What the writer stored before, the reader sees.
#   A later load may still be done before an earlier store of the same thread, on x86 too.
# - `sc_…` and `fence`: sequentially consistent. All of them have one order that all threads agree on. Use them where a
#   thread stores to one word and then decides by another one that a second thread stores to (flags, "look again").
# - `atomic_add`, `atomic_swap_if`: acquire and release in one.


def _swap_if(b: Any, where: Any, expected: Any, value: Any) -> Any:
    return b.extract_value(b.cmpxchg(_pointer(b, where, _WORD), expected, value, "acq_rel", "acquire"), 1)


def _call_share(b: Any, function: Any, *given: Any) -> None:
    b.call(_pointer(b, function, ir.FunctionType(ir.VoidType(), [_WORD] * 3)), given)


def _call_io(b: Any, function: Any, file: Any, where: Any, size: Any) -> Any:
    kind = ir.FunctionType(_WORD, [_INT, _BYTE.as_pointer(), _WORD])
    return b.call(_pointer(b, function, kind), [b.trunc(file, _INT), _pointer(b, where, _BYTE), size])


def _atomic_load(ordering: str) -> Any:
    return define(lambda b, where: b.load_atomic(_pointer(b, where, _WORD), ordering, 8), _W, _W)


def _atomic_store(ordering: str) -> Any:
    return define(lambda b, where, value: b.store_atomic(value, _pointer(b, where, _WORD), ordering, 8), _NONE, _W, _W)


def _atomic_update(operation: str, ordering: str) -> Any:
    return define(
        lambda b, where, value: b.atomic_rmw(operation, _pointer(b, where, _WORD), value, ordering), _W, _W, _W
    )


atomic_load: Callable[[int], int] = _atomic_load("acquire")
"""Load with acquire semantics."""
atomic_store: Callable[[int, int], None] = _atomic_store("release")
"""Store with release semantics."""
atomic_add: Callable[[int, int], int] = _atomic_update("add", "acq_rel")
"""Add; returns the value before."""
atomic_swap_if: Callable[[int, int, int], bool] = define(_swap_if, _FLAG, _W, _W, _W)
"""Compare and swap: `atomic_swap_if(where, expected, value)`; returns whether it had the expected value."""
sc_load: Callable[[int], int] = _atomic_load("seq_cst")
"""Load, sequentially consistent."""
sc_store: Callable[[int, int], None] = _atomic_store("seq_cst")
"""Store, sequentially consistent: no later `sc_load` of this thread is done before it."""
sc_exchange: Callable[[int, int], int] = _atomic_update("xchg", "seq_cst")
"""Store and return the value before, in one step, sequentially consistent."""
call_share: Callable[[int, int, int, int], None] = define(_call_share, _NONE, _W, _W, _W, _W)
"""Call a compiled `share` by its address: `call_share(function, arguments, part, parts)`."""
call_io: Callable[[int, int, int, int], int] = define(_call_io, _W, _W, _W, _W, _W)
"""Call C's `read` or `write` by its address: `call_io(function, file, where, size)`."""


@inline
def size_of(like: Any) -> int:
    """Return the bytes of a word of the type of `like`."""
    return 4 if type(like)(~type(like)(0)) == 0xFFFFFFFF else 8
