"""The emulation: fibres synchronize at barriers and ballots like CUDA threads, and forbidden uses are detected."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from tests.gpu.emulated import compiler
from tests.gpu.emulated.standin import CUDADriverError, CUDARuntimeError, StandIn


def kernel(body: str) -> compiler.Library:
    """A kernel over an array of numbers and a number."""
    return compiler.library(f'extern "C" __global__ void f(unsigned *x, unsigned n) {{ {body} }}', "f", ())


def run(library: compiler.Library, x: np.ndarray, n: int = 0, blocks: int = 1, threads: int = 64) -> str | None:
    return library.run(blocks, threads, [x.ctypes.data, n])


def test_every_thread_of_every_block_runs_once() -> None:
    library = kernel("x[blockIdx.x * n + threadIdx.x] += blockIdx.x * 1000 + threadIdx.x;")
    assert library.sizes == (8, 4)
    for threads in (32, 128, 64, 1024):
        x = np.zeros(5 * threads, np.uint32)
        assert run(library, x, threads, 5, threads) is None
        assert np.array_equal(x.reshape(5, threads), np.arange(5)[:, None] * 1000 + np.arange(threads))


def test_a_barrier_shows_all_what_all_have_written() -> None:
    library = kernel("""
        __shared__ unsigned s[128];
        for (unsigned i = 0; i < n; i++) {
            s[threadIdx.x] = x[threadIdx.x];
            __syncthreads();
            x[threadIdx.x] = s[(threadIdx.x + 1) % 128] + 1;
            __syncthreads();
        }""")
    x = np.arange(128, dtype=np.uint32)
    assert run(library, x, 300, 1, 128) is None
    assert np.array_equal(x, (np.arange(128) + 300) % 128 + 300)


def test_a_ballot_is_a_bit_of_each_thread_of_the_warp() -> None:
    """Warps are independent: some vote more often than others."""
    library = kernel("""
        unsigned votes = 0, warp = threadIdx.x / 32;
        for (unsigned i = 0; i <= warp; i++) votes = __ballot_sync(0xffffffffu, x[threadIdx.x] > i);
        x[threadIdx.x] = votes;""")
    rng = np.random.default_rng(1)
    x = rng.integers(0, 8, 128).astype(np.uint32)
    above = (x.reshape(4, 32) > np.arange(4)[:, None]) @ (1 << np.arange(32, dtype=np.uint64))
    assert run(library, x, 0, 1, 128) is None
    assert np.array_equal(x, np.repeat(above, 32))


def test_the_first_vote_is_found() -> None:
    library = kernel("x[threadIdx.x] = __ffs(1 << threadIdx.x % 32) + __ffs(0);")
    x = np.zeros(32, np.uint32)
    assert run(library, x, 0, 1, 32) is None
    assert x.tolist() == list(range(1, 33))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("if (threadIdx.x != 5) __syncthreads();", "__syncthreads without the whole block"),
        ("if (threadIdx.x != 5) __ballot_sync(~0u, 1);", "__ballot_sync without the whole warp"),
        ("if (threadIdx.x < 32) __ballot_sync(~0u, 1); else __syncthreads();", "__syncthreads without the whole block"),
        ("if (threadIdx.x < 16) __ballot_sync(~0u, 1); else __syncthreads();", "__ballot_sync without the whole warp"),
    ],
)
def test_a_missing_thread_stops_this_launch_but_not_the_next(body: str, message: str) -> None:
    library = kernel(f"if (n) {{ {body} }} __syncthreads(); x[threadIdx.x] = threadIdx.x;")
    for _ in range(3):
        x = np.zeros(64, np.uint32)
        assert run(library, x, 1) == message
        assert run(library, x, 0) is None
        assert np.array_equal(x, np.arange(64))


@pytest.mark.parametrize("threads", [1, 33, 2048])
def test_block_sizes_must_be_multiples_of_a_warp(threads: int) -> None:
    assert run(kernel("x[0] = n;"), np.zeros(1, np.uint32), 1, 1, threads) == (
        "blocks must be of whole warps, and of 1024 threads at most"
    )


def test_threads_of_the_system_take_turns() -> None:
    library = kernel("__shared__ unsigned s; s = n; __syncthreads(); x[threadIdx.x] += s;")

    def work(number: int) -> bool:
        x = np.zeros(64, np.uint32)
        assert all(run(library, x, number) is None for _ in range(50))
        return bool((x == 50 * number).all())

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(4)))


def test_a_text_that_does_not_compile_says_why() -> None:
    with pytest.raises(compiler.NotCompiled, match="no_such_name"):
        kernel("no_such_name = 1;")


# --- the stand-in's own strictness ---


def test_nothing_happens_before_it_is_waited_for() -> None:
    cupy = StandIn()
    stream, memory = cupy.cuda.Stream(non_blocking=True), cupy.cuda.alloc(8)
    data, back = np.array([7], np.uint64), np.array([1], np.uint64)
    memory.copy_from_host_async(data.ctypes.data, 8, stream)
    memory.copy_to_host_async(back.ctypes.data, 8, stream)
    assert back[0] == 1
    stream.synchronize()
    assert back[0] == 7


def test_memory_is_not_clean_and_knows_its_ends() -> None:
    cupy = StandIn()
    stream, memory = cupy.cuda.Stream(non_blocking=True), cupy.cuda.alloc(8)
    back = np.zeros(2, np.uint64)
    memory.copy_to_host_async(back.ctypes.data, 8, stream)
    stream.synchronize()
    assert back[0] == 0xA5A5A5A5A5A5A5A5
    (memory + 4).copy_to_host_async(back.ctypes.data, 8, stream)
    with pytest.raises(CUDARuntimeError, match="InvalidValue"):
        stream.synchronize()


def test_a_kernel_that_writes_too_far_is_noticed() -> None:
    cupy = StandIn()
    stream, memory = cupy.cuda.Stream(non_blocking=True), cupy.cuda.alloc(4)
    function = cupy.RawModule(code='extern "C" void f(unsigned *x) { x[1] = 1; }', options=()).get_function("f")
    with stream:
        function((1,), (32,), (np.uint64(memory.ptr),))
    stream.synchronize()
    del memory
    assert cupy.memory.broken == 1


def test_wrong_launches_are_refused() -> None:
    cupy = StandIn(cards=2)
    stream, memory = cupy.cuda.Stream(non_blocking=True), cupy.cuda.alloc(4)
    function = cupy.RawModule(code='extern "C" void f(unsigned *x) { x[0] = 1; }', options=()).get_function("f")
    address = np.uint64(memory.ptr)
    with pytest.raises(CUDADriverError, match="outside of every stream"):
        function((1,), (32,), (address,))
    with stream, pytest.raises(CUDADriverError, match="the kernel takes"):
        function((1,), (32,), (np.uint32(1),))
    with stream, cupy.cuda.Device(1), pytest.raises(CUDADriverError, match="INVALID_HANDLE"):
        function((1,), (32,), (address,))
    with cupy.cuda.Device(1):
        other = cupy.cuda.Stream(non_blocking=True)
        with other:
            function((1,), (32,), (address,))
        with pytest.raises(CUDARuntimeError, match="not its card's, or is gone"):
            other.synchronize()


def test_memory_may_be_given_back_while_the_pool_is_searched() -> None:
    """Regression: Python's garbage collector may free memory during a search of the pool."""
    cupy = StandIn(memory=1 << 20)
    held = [cupy.cuda.alloc(64) for _ in range(3)]
    kept = cupy.cuda.alloc(64)

    class Card(int):
        def __eq__(self, other: object) -> bool:
            held.clear()
            return int(self) == other

        __hash__ = int.__hash__

    assert cupy.memory.holds(Card(0), kept.ptr)
    assert cupy.memory.used_bytes() == 64
