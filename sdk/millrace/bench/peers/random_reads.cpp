// The machine's limit for random memory access: random cache lines read per second.
//
// Every thread reads lines at random addresses. Each line is prefetched AHEAD reads early (a ring of addresses), so that
// as many misses are in flight as the core allows. Addresses come from a linear congruential generator (no memory, few
// cycles). Lines are prefetched into the first-level cache or, with `far`, the second-level one, which allows more misses
// in flight on some processors.

#include <cstdint>
#include <thread>
#include <vector>

namespace {

constexpr int AHEAD = 64; // reads in flight per thread
constexpr int LINE = 8;   // 64-bit words in a cache line

template <bool FAR>
std::uint64_t read_lines(const std::uint64_t *words, std::uint64_t lines, std::int64_t reads, std::uint64_t seed) {
    std::uint64_t state = seed * 0x9e3779b97f4a7c15u + 1, sum = 0;
    const std::uint64_t *ring[AHEAD];
    const auto next = [&] {
        state = state * 0x5851f42d4c957f2du + 0x14057b7ef767814fu;
        const std::uint64_t *line = words + ((state >> 32) * lines >> 32) * LINE;
        __builtin_prefetch(line, 0, FAR ? 2 : 3);
        return line;
    };
    for (auto &line : ring) line = next();
    for (std::int64_t i = 0; i < reads; ++i) {
        auto &line = ring[i % AHEAD];
        sum += *line;
        line = next();
    }
    return sum;
}

} // namespace

// Reads `reads` lines in each of `threads` threads; returns the sum so that the compiler cannot drop a read.
extern "C" std::uint64_t random_reads(const std::uint64_t *words, std::uint64_t lines, std::int64_t reads, int threads,
                                      std::uint64_t seed, int far) {
    const auto read = far ? read_lines<true> : read_lines<false>;
    std::vector<std::uint64_t> sums(threads * LINE);
    std::vector<std::thread> team;
    for (int i = 0; i < threads; ++i)
        team.emplace_back([&, i] { sums[i * LINE] = read(words, lines, reads, seed * threads + i); });
    std::uint64_t sum = 0;
    for (int i = 0; i < threads; ++i) {
        team[i].join();
        sum += sums[i * LINE];
    }
    return sum;
}
