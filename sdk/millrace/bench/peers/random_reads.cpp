// The machine's own speed limit for anything that jumps about in memory: random cache lines read per second.
//
// Every thread reads lines at random places, each prefetched as many reads ahead as its ring has places, so that as many
// misses are under way as the core allows. Places come from a multiplicative generator (no memory, few cycles). Lines are
// asked for into the nearest cache or, `far`, the next one, which has room for more misses on some processors.

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
        const std::uint64_t *place = words + ((state >> 32) * lines >> 32) * LINE;
        __builtin_prefetch(place, 0, FAR ? 2 : 3);
        return place;
    };
    for (auto &place : ring) place = next();
    for (std::int64_t i = 0; i < reads; ++i) {
        auto &place = ring[i % AHEAD];
        sum += *place;
        place = next();
    }
    return sum;
}

} // namespace

// Reads `reads` lines in each of `threads` threads; the sum is returned so that no read can be left out.
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
