"""Names the arguments of a kernel once, for the Python code that packs them and the compiled code that reads them.

A share (`jit.py`) takes the address of an array of 64-bit words: integers, or addresses of arrays. A subclass of
`KernelArgs` names these words in order:

    class GatherArgs(KernelArgs):
        ROWS = auto()
        COUNT = auto()

    given = GatherArgs.pack(ROWS=rows, COUNT=len(rows))    # Python
    count = load(given, GatherArgs.COUNT)                  # a kernel

Numba knows enumerations: in a kernel, `GatherArgs.COUNT` is a constant. A kernel's state in memory is named in the same
way. Limits: the packed array holds addresses only, so the caller keeps the arrays alive while a kernel uses them.
"""

from __future__ import annotations

from enum import IntEnum
from functools import cache
from typing import Any

import numpy as np

from millrace.host.base.types import Array
from millrace.host.runtime.intrinsics import address
from millrace.host.runtime.jit import compiled

_MODULUS = 1 << 64
_LINE_WORDS = 8
"""64-bit words of a cache line."""


def pack_words(*entries: int | Array) -> Array:
    """Return 64-bit words: integers by value (also unsigned ones), arrays by address."""
    where = compiled(address)
    words = [one if isinstance(one, int) else where(one) for one in entries]
    try:
        return np.array(words, np.int64)
    except OverflowError:  # an unsigned number
        return np.array([word % _MODULUS for word in words], np.uint64).view(np.int64)


def in_own_lines(words: Array) -> Array:
    """A copy of 64-bit words that shares no cache line with other memory.

    For words that several threads read all the time: if another thread wrote next to them, each read would wait for it.
    """
    memory = np.zeros(len(words) + 2 * _LINE_WORDS, np.int64)
    first = -(address(memory) // 8) % _LINE_WORDS
    own = memory[first : first + len(words)]
    own[:] = words
    return own


class KernelArgs(IntEnum):
    """The names of 64-bit words, numbered from 0."""

    @staticmethod
    def _generate_next_value_(name: str, start: int, count: int, last_values: list[Any]) -> int:
        """Number the fields in order: `auto()` is one more than the field before."""
        return last_values[-1] + 1 if last_values else 0

    @classmethod
    def pack(cls, *rest: int | Array, **given: int | Array) -> Array:
        """Return the words of all fields: integers by value (also unsigned ones), arrays by address.

        With `rest`, the last field stands for a list: these words begin there.
        """
        if list(given) != cls._member_names_:
            given = cls._in_order(given, cls._member_names_[:-1] if rest else cls._member_names_)
        return pack_words(*given.values(), *rest)

    @classmethod
    def _in_order(cls, given: dict[str, int | Array], names: list[str]) -> dict[str, int | Array]:
        missing, unknown = sorted(set(names) - given.keys()), sorted(given.keys() - set(names))
        if missing or unknown:
            raise TypeError(f"{cls.__name__} is packed from {', '.join(names)}; missing: {missing}, unknown: {unknown}")
        return {name: given[name] for name in names}

    @classmethod
    def partly(cls, *rest: int | Array, **given: int | Array) -> Array:
        """Return the words of all fields; those not given are 0."""
        words: list[int | Array] = [0] * (len(cls) - bool(rest))
        numbers = _numbers(cls)
        try:
            for name, value in given.items():
                words[numbers[name]] = value
        except (KeyError, IndexError) as error:
            raise TypeError(
                f"{cls.__name__} is packed from {', '.join(numbers)}; missing: [], unknown: [{name!r}]"
            ) from error
        return pack_words(*words, *rest)


@cache
def _numbers(fields: type[KernelArgs]) -> dict[str, int]:
    """The number of each field: plain integers, faster than members of an enumeration."""
    return {one.name: int(one) for one in fields}
