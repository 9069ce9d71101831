/* The part of CUDA that our kernels use, for g++ on a CPU: a stand-in for tests.
 *
 * The threads of a block are fibres: each has its own stack, and all share one system thread. They run one after the
 * other up to the next __syncthreads or __ballot_sync, where each waits for the others of its block or warp. Blocks run
 * one after the other, so static variables serve as shared memory. Undefined behaviour that a test must detect stops
 * the launch: threads that end while others wait or that wait at different points, and a ballot without the full warp.
 *
 * Fibres are created once by makecontext and switched by _setjmp and _longjmp, which need no system call. Limits: one
 * dimension; block sizes are multiples of a warp, up to 1024 threads; one launch at a time per library.
 */
#pragma once

#include <setjmp.h>
#include <stdint.h>
#include <stdlib.h>
#include <ucontext.h>

#define __global__
#define __device__
#define __shared__ static
#define __forceinline__ inline
#define __launch_bounds__(threads)

struct Index {
    unsigned x;
};
static Index threadIdx, blockIdx;

namespace emulated {

enum State { ready, at_barrier, at_ballot, ended };
constexpr unsigned WARP = 32, MOST = 1024, STACK = 64 * 1024;

struct Fibre {
    jmp_buf at;
    ucontext_t context;
    char *stack;
    State state;
    unsigned vote, votes;
};

static Fibre fibres[MOST];
static unsigned made; /* fibres that have a stack and wait to be resumed */
static jmp_buf scheduler;
static void (*body)(); /* one thread of the kernel, with its arguments */

static __attribute__((noinline)) void yield(State state)
{
    Fibre &me = fibres[threadIdx.x];
    me.state = state;
    if (!_setjmp(me.at))
        _longjmp(scheduler, 1);
}

static __attribute__((noinline)) void resume(unsigned thread)
{
    threadIdx.x = thread;
    if (!_setjmp(scheduler))
        _longjmp(fibres[thread].at, 1);
}

static void live()
{
    for (;;) {
        yield(ended);
        body();
    }
}

static __attribute__((noinline)) void make(unsigned thread)
{
    Fibre &it = fibres[thread];
    if (!it.stack)
        it.stack = static_cast<char *>(malloc(STACK));
    getcontext(&it.context);
    it.context.uc_stack.ss_sp = it.stack;
    it.context.uc_stack.ss_size = STACK;
    it.context.uc_link = nullptr;
    makecontext(&it.context, live, 0);
    threadIdx.x = thread;
    if (!_setjmp(scheduler))
        setcontext(&it.context);
}

/* If all threads of a warp wait at a ballot: collect the votes, resume them, and return true. */
static bool vote(unsigned first)
{
    unsigned votes = 0;
    for (unsigned lane = 0; lane < WARP; lane++) {
        if (fibres[first + lane].state != at_ballot)
            return false;
        votes |= fibres[first + lane].vote << lane;
    }
    for (unsigned lane = 0; lane < WARP; lane++) {
        fibres[first + lane].votes = votes;
        fibres[first + lane].state = ready;
    }
    return true;
}

/* Runs one block; returns the error, or null. */
static const char *run_block(unsigned threads)
{
    for (unsigned thread = 0; thread < threads; thread++)
        fibres[thread].state = ready;
    for (;;) {
        unsigned counts[4] = {};
        for (unsigned thread = 0; thread < threads; thread++) {
            if (fibres[thread].state == ready)
                resume(thread);
            counts[fibres[thread].state]++;
        }
        if (counts[ended] == threads)
            return nullptr;
        bool moved = false;
        if (counts[at_ballot])
            for (unsigned first = 0; first < threads; first += WARP)
                moved |= vote(first);
        if (counts[at_barrier] == threads) {
            moved = true;
            for (unsigned thread = 0; thread < threads; thread++)
                fibres[thread].state = ready;
        }
        if (!moved)
            return counts[at_ballot] ? "__ballot_sync without the whole warp" : "__syncthreads without the whole block";
    }
}

static const char *run(unsigned blocks, unsigned threads)
{
    if (threads % WARP || threads > MOST)
        return "blocks must be of whole warps, and of 1024 threads at most";
    for (; made < threads; made++)
        make(made);
    for (unsigned block = 0; block < blocks; block++) {
        blockIdx.x = block;
        const char *wrong = run_block(threads);
        if (wrong) {
            made = 0; /* the fibres are inside the kernel: create new ones for the next launch */
            return wrong;
        }
    }
    return nullptr;
}

template <class To> To as(uint64_t value)
{
    return (To)value; /* a number, or the address that it is */
}

template <unsigned... Is> struct Indices {
};
template <unsigned N, unsigned... Is> struct Count : Count<N - 1, N - 1, Is...> {
};
template <unsigned... Is> struct Count<0, Is...> {
    typedef Indices<Is...> All;
};

static const uint64_t *arguments;

template <class... As, unsigned... Is> void call(void (*kernel)(As...), Indices<Is...>)
{
    kernel(as<As>(arguments[Is])...);
}
template <class... As> void call(void (*kernel)(As...))
{
    call(kernel, typename Count<sizeof...(As)>::All());
}

/* The bytes of each argument; how many there are. */
template <class... As> unsigned sizes(void (*)(As...), unsigned *into)
{
    const unsigned all[] = {sizeof(As)...};
    for (unsigned i = 0; i < sizeof...(As); i++)
        into[i] = all[i];
    return sizeof...(As);
}

/* Waits; other threads have written to memory meanwhile, which the compiler must not think that it knows. */
static inline void wait(State state)
{
    yield(state);
    __asm__ volatile("" ::: "memory");
}

} // namespace emulated

static inline void __syncthreads()
{
    emulated::wait(emulated::at_barrier);
}

static inline unsigned __ballot_sync(unsigned mask, int predicate)
{
    if (mask != 0xffffffffu)
        abort(); /* our kernels always ask all of a warp */
    emulated::fibres[threadIdx.x].vote = predicate != 0;
    emulated::wait(emulated::at_ballot);
    return emulated::fibres[threadIdx.x].votes;
}

static inline int __ffs(int word)
{
    return __builtin_ffs(word);
}

/* OpenCL's subgroups: the lanes of a warp in reverse, because OpenCL does not promise any order. */
struct uint4 {
    unsigned x, y, z, w;
};

static inline unsigned get_max_sub_group_size()
{
    return emulated::WARP;
}

static inline unsigned get_sub_group_id()
{
    return threadIdx.x / emulated::WARP;
}

static inline unsigned get_sub_group_local_id()
{
    return emulated::WARP - 1 - threadIdx.x % emulated::WARP;
}

static inline uint4 sub_group_ballot(int predicate)
{
    unsigned votes = __ballot_sync(0xffffffffu, predicate), turned = 0;
    for (unsigned lane = 0; lane < emulated::WARP; lane++)
        turned |= (votes >> lane & 1) << (emulated::WARP - 1 - lane);
    return {turned, 0, 0, 0};
}

static inline unsigned popcount(unsigned word)
{
    return (unsigned)__builtin_popcount(word);
}

/* Put behind the text of a kernel: how the stand-in reaches it. */
#define EMULATED_ENTRY(NAME)                                                                                           \
    extern "C" const char *emulated_launch(unsigned blocks, unsigned threads, const uint64_t *arguments)               \
    {                                                                                                                  \
        emulated::arguments = arguments;                                                                               \
        emulated::body = [] { emulated::call(NAME); };                                                                 \
        return emulated::run(blocks, threads);                                                                         \
    }                                                                                                                  \
    extern "C" unsigned emulated_sizes(unsigned *into)                                                                 \
    {                                                                                                                  \
        return emulated::sizes(NAME, into);                                                                            \
    }
