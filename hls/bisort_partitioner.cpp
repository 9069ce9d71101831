// Finds each bound's target partition by binary search in the on-chip index, one bound per iteration (PanJoin, III-E and IV).
//
// Equivalent to hw/rtl/bisort_partitioner.sv. Partition p begins at the word that is sample p. The position of a bound is in the last
// partition whose sample precedes the bound: less than a lower bound, not greater than an upper one. If there is none, the bound has no
// partition. Each step of the search decides one bit of the partition's number, the highest first, and has its own memory, so that as many
// bounds are in flight as there are steps.
//
// With `load` an index arrives first, as W-lane beats; it stays until the next one. Limit: at most 2**INDEX_LOG2 samples.

#include "bisort_partitioner.h"

namespace {

constexpr std::uint32_t DEPTH = 1 << INDEX_LOG2;
const word_t TOP = ~std::uint64_t(0);

template <int LEVEL>
struct step_t {
    static constexpr int BIT = INDEX_LOG2 - 1 - LEVEL;

    // Sample n > 0 belongs to the step that decides its lowest set bit. The deepest step has half of all samples, so it is tested first.
    static bool put(levels_t<LEVEL>& levels, ap_uint<32> number, word_t sample) {
#pragma HLS INLINE
        if (step_t<LEVEL + 1>::put(levels.deeper, number, sample)) return true;
        if ((number >> BIT & 1) == 0) return false;
        levels.cells[number >> (BIT + 1)] = sample;
        return true;
    }

    // `found` are the decided bits, `reach` is the largest word before the bound.
    static ap_uint<32> find(const levels_t<LEVEL>& levels, word_t reach, ap_uint<32> found) {
#pragma HLS INLINE
        const bool further = levels.cells[found] <= reach;
        return step_t<LEVEL + 1>::find(levels.deeper, reach, 2 * found + further);
    }
};

template <>
struct step_t<INDEX_LOG2> {
    static bool put(levels_t<INDEX_LOG2>&, ap_uint<32>, word_t) { return false; }
    static ap_uint<32> find(const levels_t<INDEX_LOG2>&, word_t, ap_uint<32> found) { return found; }
};

// Cells behind the last sample contain the largest word, so that a step compares words only. One sample per iteration: a step's memory
// has one port to write.
void take_index(index_t& index, hls::stream<words_t>& samples) {
    ap_uint<32> taken = 0;
    count_t lane = 0;
    bool more = true;
    words_t beat = words_t();
#pragma HLS ARRAY_PARTITION variable=beat.lane complete
load:
    while (more) {
#pragma HLS PIPELINE II=1
        if (lane == 0) beat = samples.read();
        if (beat.count != 0) {
            if (taken == 0) index.least = beat.lane[0];
            else step_t<0>::put(index.levels, taken, beat.lane[lane]);
            taken += 1;
        }
        lane += 1;
        if (lane >= beat.count) {
            lane = 0;
            more = !beat.last;
        }
    }
clear:
    for (ap_uint<32> number = taken == 0 ? ap_uint<32>(1) : taken; number < DEPTH - index.clean; number += 1) {
#pragma HLS PIPELINE II=1
        step_t<0>::put(index.levels, number, TOP);
    }
    index.samples = taken;
    index.clean = DEPTH - taken;
}

}  // namespace

void bisort_partitioner_on(
    index_t& index, bool load, bool upper, hls::stream<words_t>& samples, hls::stream<bound_t>& bounds,
    hls::stream<located_t>& located) {
    if (load) take_index(index, samples);
    bool last = false;
search:
    while (!last) {
#pragma HLS PIPELINE II=1
        const bound_t bound = bounds.read();
        const word_t reach = upper ? bound.lane[0] : word_t(bound.lane[0] - 1);
        located_t found;
        found.bound = bound.lane[0];
        // No word is less than a lower bound of 0: `reach` does not exist.
        found.none = bound.count == 0 || index.samples == 0 || (!upper && bound.lane[0] == 0) || index.least > reach;
        const ap_uint<32> partition = step_t<0>::find(index.levels, reach, 0);
        // Only the largest word can match cells behind the last sample.
        found.partition = partition < index.samples ? partition : ap_uint<32>(index.samples - 1);
        found.keep = bound.count != 0;
        found.last = last = bound.last;
        found.fresh = false;
        located.write(found);
    }
}

// The unit as a top function.
void bisort_partitioner(
    bool load, bool upper, hls::stream<words_t>& samples, hls::stream<bound_t>& bounds, hls::stream<located_t>& located) {
#pragma HLS INTERFACE s_axilite port=load
#pragma HLS INTERFACE s_axilite port=upper
#pragma HLS INTERFACE axis port=samples
#pragma HLS INTERFACE axis port=bounds
#pragma HLS INTERFACE axis port=located
#pragma HLS INTERFACE s_axilite port=return
    static index_t index;
    bisort_partitioner_on(index, load, upper, samples, bounds, located);
}
