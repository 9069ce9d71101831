"""SIMD intrinsics for kernels that write result columns: sort four numbers, stream cache lines past the cache."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

LINE = 8
"""Words of 64 bits in a cache line."""
_WORD = ir.IntType(64)
_FOUR, _EIGHT = ir.VectorType(_WORD, 4), ir.VectorType(_WORD, LINE)


def _swapped(builder: Any, v: Any, partner: Sequence[int], upper: Sequence[bool]) -> Any:
    """Compare each lane with its partner lane; lanes marked in `upper` keep the larger value, others the smaller."""
    shuffle = ir.Constant(ir.VectorType(ir.IntType(32), 4), list(partner))
    other = builder.shuffle_vector(v, v, shuffle)
    less = builder.icmp_signed("<", v, other)
    low, high = builder.select(less, v, other), builder.select(less, other, v)
    return builder.select(ir.Constant(ir.VectorType(ir.IntType(1), 4), [int(one) for one in upper]), high, low)


def _store_sorted(typing_context: Any, to: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
    """Write four int64 in ascending order, without branches (a sorting network)."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        v: Any = ir.Constant(_FOUR, ir.Undefined)
        for i in range(4):
            v = builder.insert_element(v, arguments[1 + i], ir.IntType(32)(i))
        v = _swapped(builder, v, (1, 0, 3, 2), (False, True, False, True))
        v = _swapped(builder, v, (2, 3, 0, 1), (False, False, True, True))
        v = _swapped(builder, v, (0, 2, 1, 3), (False, False, True, True))
        builder.store(v, builder.inttoptr(arguments[0], _FOUR.as_pointer()), align=8)
        return context.get_dummy_value()

    word = types.int64
    return types.void(word, word, word, word, word), generate


def _stream_line(typing_context: Any, source: Any, to: Any) -> Any:
    """Copy a cache line to an aligned address with a non-temporal store: the target is not loaded into the cache."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        line = builder.load(builder.inttoptr(arguments[0], _EIGHT.as_pointer()), align=8)
        store = builder.store(line, builder.inttoptr(arguments[1], _EIGHT.as_pointer()), align=64)
        store.set_metadata("nontemporal", builder.module.add_metadata([ir.IntType(32)(1)]))
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate


def _fence_streams(typing_context: Any) -> Any:
    """Fence: wait until streamed lines are visible to all threads."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.fence("seq_cst")
        return context.get_dummy_value()

    return types.void(), generate


store_sorted: Callable[[int, int, int, int, int], None] = cast(Any, intrinsic(_store_sorted))
stream_line: Callable[[int, int], None] = cast(Any, intrinsic(_stream_line))
fence_streams: Callable[[], None] = cast(Any, intrinsic(_fence_streams))
