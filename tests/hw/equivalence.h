// The interface of the equivalence test to an implementation of the units: many cases in one call, with stalls derived from a case's seed.
//
// A case is one stream for each input of a unit. Arrays contain all cases one after the other; `…_n` has the number of values of each case.
// Functions return 0, or -1 with a text in `eq_error` that begins with the case's number. Keys have 64 bits.

#ifndef MILLRACE_EQUIVALENCE_H
#define MILLRACE_EQUIVALENCE_H

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#pragma GCC visibility push(default)
extern "C" {
const char* eq_error();
int eq_merger(
    uint32_t cases, const uint64_t* seeds, const uint32_t* a_n, const uint64_t* a_keys, const uint32_t* a_ids, const uint32_t* b_n,
    const uint64_t* b_keys, const uint32_t* b_ids, uint32_t* out_n, uint64_t* out_keys, uint32_t* out_ids);
int eq_indexer(
    uint32_t cases, const uint64_t* seeds, const uint32_t* n, const uint64_t* keys, const uint32_t* ids, const uint32_t* step_log2,
    const uint32_t* first, uint32_t* out_n, uint64_t* out_keys, uint32_t* out_ids, uint32_t* sample_n, uint64_t* samples);
// `found` is a partition's number, or -1 if there is none.
int eq_partitioner(
    uint32_t cases, const uint64_t* seeds, const uint32_t* upper, const uint32_t* index_n, const uint64_t* index,
    const uint32_t* bound_n, const uint64_t* bounds, uint32_t* found_n, int32_t* found);
int eq_prober(
    uint32_t cases, const uint64_t* seeds, const uint32_t* upper, const uint32_t* step_log2, const uint32_t* run_n,
    const uint64_t* run, const uint32_t* bound_n, const uint64_t* bounds, const int32_t* partitions, uint32_t* position_n,
    uint32_t* positions, uint32_t* asked_n, int32_t* asked);
}
#pragma GCC visibility pop

namespace equivalence {

// splitmix64: the stalls of one stream in one case.
class Stalls {
  public:
    Stalls(uint64_t seed, uint64_t stream) : state_(seed * 0x9E3779B97F4A7C15u + stream * 0xD1B54A32D192ED03u) {
        // Never, sometimes, every second time, nearly always.
        static const uint32_t SHARES[] = {0, 40, 128, 210};
        share_ = SHARES[next() % 4];
    }

    bool now() { return next() % 256 < share_; }

  private:
    uint64_t next() {
        uint64_t z = state_ += 0x9E3779B97F4A7C15u;
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
        z = (z ^ z >> 27) * 0x94D049BB133111EBu;
        return z ^ z >> 31;
    }

    uint64_t state_;
    uint32_t share_;
};

// The start of each case's values in an array of all cases.
inline std::vector<uint64_t> begins(uint32_t cases, const uint32_t* counts) {
    std::vector<uint64_t> begin(cases + 1);
    for (uint32_t i = 0; i < cases; i++) begin[i + 1] = begin[i] + counts[i];
    return begin;
}

// Appends the values of one case to the caller's arrays, which have capacity for `most`.
template <typename T>
class Into {
  public:
    Into(T*& place, uint64_t most, const char* what) : place_(place), most_(most), what_(what) {}

    void put(T value) {
        if (count_ == most_) throw std::runtime_error(std::string("more ") + what_ + " than there can be");
        *place_++ = value;
        count_++;
    }

    uint32_t count() const { return count_; }

  private:
    T*& place_;
    uint64_t most_;
    const char* what_;
    uint32_t count_ = 0;
};

inline std::string& error() {
    static thread_local std::string text;
    return text;
}

// Runs the cases one by one; stops at a case that throws.
template <typename Case>
int each(uint32_t cases, Case work) {
    for (uint32_t i = 0; i < cases; i++) {
        try {
            work(i);
        } catch (const std::exception& reason) {
            error() = std::to_string(i) + ": " + reason.what();
            return -1;
        }
    }
    return 0;
}

}  // namespace equivalence

#endif
