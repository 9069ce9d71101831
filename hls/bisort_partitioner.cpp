// Finds each bound's target partition by binary search in the on-chip index, one bound per iteration (PanJoin, III-E and IV).
//
// As hw/rtl/bisort_partitioner.sv. Partition p begins at the word that is sample p. A bound's place lies in the last partition whose sample is
// before the bound: below a lower bound, not above an upper one; if no sample is, there is none. A step of the search decides one bit of
// the partition's number, the highest first, and has a memory of its own, so that as many bounds are on their way as there are steps.
//
// With `load` an index comes first, as W-lane beats; it stays until the next one. Limit: at most 2**INDEX_LOG2 samples.

#include "bisort_partitioner.h"

namespace {

constexpr std::uint32_t DEPTH = 1 << INDEX_LOG2;
const word_t TOP = ~std::uint64_t(0);

template <int LEVEL>
struct step_t {
    static constexpr int BIT = INDEX_LOG2 - 1 - LEVEL;

    // Sample n > 0 belongs to the step that decides its lowest bit. The deepest one has half of all samples, so it is asked first.
    static bool put(levels_t<LEVEL>& levels, ap_uint<32> number, word_t sample) {
#pragma HLS INLINE
        if (step_t<LEVEL + 1>::put(levels.deeper, number, sample)) return true;
        if ((number >> BIT & 1) == 0) return false;
        levels.cells[number >> (BIT + 1)] = sample;
        return true;
    }

    // `found` are the bits that are decided, `reach` is the largest word before the bound.
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

// Behind the last sample the cells hold the largest word, so that a step needs to compare nothing but words.
void take_index(index_t& index, hls::stream<words_t>& samples) {
    ap_uint<32> taken = 0;
    bool last = false;
load:
    while (!last) {
#pragma HLS PIPELINE II=1
        const words_t beat = samples.read();
        last = beat.last;
        for (int i = 0; i < W; i++) {
#pragma HLS UNROLL
            const ap_uint<32> number = taken + i;
            if (i < int(beat.count)) {
                if (number == 0) index.least = beat.lane[i];
                else step_t<0>::put(index.levels, number, beat.lane[i]);
            }
        }
        taken += beat.count;
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
        // No word is before a lower bound of 0, which has no reach.
        found.none = bound.count == 0 || index.samples == 0 || (!upper && bound.lane[0] == 0) || index.least > reach;
        const ap_uint<32> partition = step_t<0>::find(index.levels, reach, 0);
        // Only the largest word reaches beyond the last sample.
        found.partition = partition < index.samples ? partition : ap_uint<32>(index.samples - 1);
        found.keep = bound.count != 0;
        found.last = last = bound.last;
        found.fresh = false;
        located.write(found);
    }
}

// The unit by itself.
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
