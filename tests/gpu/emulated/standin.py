"""A stand-in for the CuPy calls that `gpu/cuda.py` makes: kernels are compiled by g++ and run on the CPU.

It is stricter than a card. Queued commands run only when the program waits for them, so a missing wait shows. Memory is
poisoned at allocation and at free, has guards at both ends, and belongs to one card. A pool hands out freed memory
again at once, to the next request of that size in that stream (as CuPy's does), so memory that is freed too early
shows. A launch must be in a stream of the current card, with arguments of the right sizes and live addresses. Names and
meanings are CuPy's; a test compares the names with the real CuPy.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections import deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

from tests.gpu.emulated import compiler

GUARD = 64
POISON, GUARDED = 0xA5, 0x5A


class CUDARuntimeError(RuntimeError):
    """Raised by runtime calls."""


class CUDADriverError(RuntimeError):
    """Raised by launches."""


class CompileException(Exception):
    """Compile errors of NVRTC."""


class OutOfMemoryError(MemoryError):
    """The card is out of memory."""


class Block:
    """A piece of a card's memory with guards."""

    def __init__(self, memory: CardMemory, card: int, size: int) -> None:
        self.memory, self.card, self.size = memory, card, size
        self.array = np.full(size + 2 * GUARD, POISON, np.uint8)
        self.array[:GUARD] = self.array[-GUARD:] = GUARDED
        self.start = self.array.ctypes.data + GUARD

    def guarded(self) -> bool:
        return bool((self.array[:GUARD] == GUARDED).all() and (self.array[-GUARD:] == GUARDED).all())

    def poison(self) -> None:
        self.array[GUARD:-GUARD] = POISON

    def __del__(self) -> None:
        self.memory.release(self.size)


class Allocation:
    """A block in use; it returns to its pool with the last reference."""

    def __init__(self, pool: MemoryPool, key: tuple[int, int, int], block: Block) -> None:
        self.pool, self.key, self.block = pool, key, block
        self.start, self.size = block.start, block.size

    def __del__(self) -> None:
        self.pool.take_back(self.key, self.block)


class MemoryPointer:
    """An address in an allocation."""

    def __init__(self, mem: Allocation, offset: int) -> None:
        self.mem, self.ptr = mem, mem.start + offset

    def __add__(self, offset: int) -> MemoryPointer:
        return MemoryPointer(self.mem, self.ptr - self.mem.start + offset)

    def copy_from_host_async(self, mem: int, size: int, stream: Any = None) -> None:
        stream.push(lambda: self._move(self.ptr, mem, size))

    def copy_to_host_async(self, mem: int, size: int, stream: Any = None) -> None:
        stream.push(lambda: self._move(mem, self.ptr, size))

    def _move(self, into: int, source: int, size: int) -> None:
        if self.ptr + size > self.mem.start + self.mem.size:
            raise CUDARuntimeError("cudaErrorInvalidValue: invalid argument")
        ctypes.memmove(into, source, size)


class CardMemory:
    """The memory of the stand-in's cards: `limit` bytes, in blocks that are in use or in a pool."""

    def __init__(self, limit: int) -> None:
        self.limit, self.broken, self.reserved = limit, 0, 0
        self.live: dict[int, tuple[int, int]] = {}
        # Python's garbage collector may free memory at any moment: read `live` only as a copy.
        self.lock = threading.RLock()

    def block(self, card: int, size: int) -> Block | None:
        """A new block, or None if it does not fit."""
        with self.lock:
            if self.reserved + size > self.limit:
                return None
            self.reserved += size
            return Block(self, card, size)

    def release(self, size: int) -> None:
        with self.lock:
            self.reserved -= size

    def used_bytes(self) -> int:
        with self.lock:
            return sum(length for _, length in self.live.copy().values())

    def holds(self, card: int, address: int) -> bool:
        with self.lock:
            live = self.live.copy()
            return any(where == card and start <= address < start + length for start, (where, length) in live.items())


class MemoryPool:
    """A pool of freed blocks, by card, stream and size."""

    def __init__(self, standin: StandIn) -> None:
        self._standin, self._memory = standin, standin.memory
        self._free: dict[tuple[int, int, int], list[Block]] = {}

    def malloc(self, size: int) -> MemoryPointer:
        self._standin.check()
        card, streams = self._standin.chosen(), self._standin.here.streams
        key = (card, id(streams[-1]) if streams else 0, size)
        with self._memory.lock:
            freed = self._free.get(key)
            block = freed.pop() if freed else self._memory.block(card, size)
            if block is None:
                self.free_all_blocks()
                block = self._memory.block(card, size)
            if block is None:
                used = self._memory.reserved
                raise OutOfMemoryError(f"Out of memory allocating {size:,} bytes (allocated so far: {used:,} bytes).")
            self._memory.live[block.start] = (card, size)
            return MemoryPointer(Allocation(self, key, block), 0)

    def take_back(self, key: tuple[int, int, int], block: Block) -> None:
        with self._memory.lock:
            self._memory.live.pop(block.start, None)
            sound = block.guarded()
            self._memory.broken += not sound
            block.poison()
            if sound:
                self._free.setdefault(key, []).append(block)

    def free_bytes(self) -> int:
        with self._memory.lock:
            return sum(size * len(blocks) for (_, _, size), blocks in self._free.items())

    def free_all_blocks(self) -> None:
        with self._memory.lock:
            self._free.clear()


class Stream:
    """A queue whose commands run only when the program waits for them."""

    def __init__(self, standin: StandIn) -> None:
        standin.check()
        self._standin, self.device_id = standin, standin.chosen()
        self._queue: deque[Callable[[], None]] = deque()
        self._lock = threading.RLock()

    def __enter__(self) -> Stream:
        self._standin.here.streams.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        self._standin.here.streams.pop()

    def push(self, command: Callable[[], None]) -> None:
        self._standin.check()
        if self._standin.chosen() != self.device_id:
            raise CUDADriverError("CUDA_ERROR_INVALID_HANDLE: invalid resource handle")
        self._queue.append(command)

    def synchronize(self) -> None:
        self.run(lambda: False)

    def run(self, enough: Callable[[], bool]) -> None:
        """Run commands until `enough`; after the first error the card accepts no more commands."""
        with self._lock:
            self._standin.check()
            while self._queue and not enough():
                try:
                    self._queue.popleft()()
                except CUDARuntimeError as error:
                    self._standin.broken = str(error)
                    raise


class Event:
    """A position in a stream, and when it was passed."""

    def __init__(self, block: bool = False) -> None:
        self.block, self.passed = block, 0
        self._stream: Stream | None = None

    def record(self, stream: Any = None) -> None:
        self._stream = stream
        stream.push(self._pass)

    def _pass(self) -> None:
        self.passed = time.perf_counter_ns()

    @property
    def done(self) -> bool:
        return self.passed > 0

    def synchronize(self) -> None:
        assert self._stream is not None
        self._stream.run(lambda: self.done)
        self._stream._standin.check()


class RawKernel:
    """A kernel in a library built by g++."""

    def __init__(self, standin: StandIn, library: compiler.Library) -> None:
        self._standin, self._library = standin, library

    def __call__(self, grid: tuple[int, ...], block: tuple[int, ...], args: tuple[Any, ...]) -> None:
        self._standin.check()
        streams = self._standin.here.streams
        if not streams:
            raise CUDADriverError("a launch outside of every stream: the stand-in has no default stream")
        given = [(np.dtype(type(value)).itemsize, int(value)) for value in args]
        if tuple(size for size, _ in given) != self._library.sizes:
            raise CUDADriverError(f"arguments of {given} bytes; the kernel takes {self._library.sizes}")
        stream = streams[-1]
        stream.push(lambda: self._run(stream.device_id, grid, block, given))

    def _run(self, card: int, grid: tuple[int, ...], block: tuple[int, ...], given: list[tuple[int, int]]) -> None:
        if not all(self._standin.memory.holds(card, value) for size, value in given if size == 8):
            raise CUDARuntimeError("cudaErrorIllegalAddress: a launch used memory that is not its card's, or is gone")
        wrong = self._library.run(grid[0], block[0], [value for _, value in given])
        if wrong:
            raise CUDARuntimeError(f"cudaErrorLaunchFailure: {wrong}")


class RawModule:
    """A source that is compiled when a kernel is requested."""

    def __init__(self, standin: StandIn, code: str, options: tuple[str, ...]) -> None:
        self._standin, self.code, self.options = standin, code, options

    def get_function(self, name: str) -> RawKernel:
        defined = tuple(option for option in self.options if option.startswith("-D"))
        try:
            return RawKernel(self._standin, compiler.library(self.code, name, defined))
        except compiler.NotCompiled as error:
            raise CompileException(str(error)) from error


class Device:
    """Selects a card for the calling thread."""

    def __init__(self, standin: StandIn, device: int) -> None:
        self._standin, self.id = standin, device

    def __enter__(self) -> Device:
        self._standin.here.cards.append(self.id)
        return self

    def __exit__(self, *_: object) -> None:
        self._standin.here.cards.pop()


class _Here(threading.local):
    """The card and stream that a thread has selected."""

    def __init__(self) -> None:
        self.cards: list[int] = [0]
        self.streams: list[Stream] = []


class StandIn:
    """Replaces the module `cupy`: number of cards and total bytes of memory."""

    def __init__(self, cards: int = 1, memory: int = 1 << 28, capability: tuple[int, int] = (9, 0)) -> None:
        self._cards, self._memory, self._capability = cards, memory, capability
        self.memory, self.here, self.broken = CardMemory(memory), _Here(), ""
        self.default_pool = MemoryPool(self)
        self.cuda = SimpleNamespace(
            Device=lambda device: Device(self, device),
            Stream=lambda non_blocking: Stream(self),
            Event=Event,
            alloc=self.default_pool.malloc,
            MemoryPool=lambda: MemoryPool(self),
            alloc_pinned_memory=bytearray,
            get_elapsed_time=lambda start, end: (end.passed - start.passed) / 1e6,
            runtime=SimpleNamespace(
                CUDARuntimeError=CUDARuntimeError,
                getDeviceCount=lambda: self._cards,
                getDeviceProperties=self._properties,
                memGetInfo=lambda: (self._memory - self.memory.reserved, self._memory),
            ),
            driver=SimpleNamespace(CUDADriverError=CUDADriverError),
            compiler=SimpleNamespace(CompileException=CompileException),
            memory=SimpleNamespace(OutOfMemoryError=OutOfMemoryError),
        )

    def RawModule(self, *, code: str, options: tuple[str, ...]) -> RawModule:  # noqa: N802 - CuPy's name
        return RawModule(self, code, options)

    def chosen(self) -> int:
        """The card of the calling thread."""
        return self.here.cards[-1]

    def check(self) -> None:
        """Raise the first error again: as on a card, no call works after an error in this process."""
        if self.broken:
            raise CUDARuntimeError(self.broken)

    def _properties(self, number: int) -> dict[str, Any]:
        major, minor = self._capability
        sizes = {"multiProcessorCount": 1, "totalGlobalMem": self._memory}
        return {"name": b"stand-in: fibres on the CPU", "major": major, "minor": minor, **sizes, "id": number}
