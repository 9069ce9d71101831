// Finds each bound's target partition by binary search in the on-chip index, one bound per iteration (PanJoin, III-E and IV).
//
// As hw/rtl/bisort_partitioner.sv. Partition p begins at the word that is sample p. A bound's place lies in the last partition whose sample is
// before the bound: below a lower bound, not above an upper one; if no sample is, there is none. A step of the search decides one bit of
// the partition's number, the highest first, and has a memory of its own, so that as many bounds are on their way as there are steps.
//
// With `load` an index comes first, as W-lane beats; it stays until the next one. Limit: at most 2**INDEX_LOG2 samples.

#include "bisort_partitioner.h"

namespace {

bool precedes(word_t sample, word_t bound, bool upper) {
#pragma HLS INLINE
    return upper ? sample <= bound : sample < bound;
}

// Sample n > 0 belongs to the step that decides its lowest bit. The deepest one has half of all samples, so it is asked first.
template <int LEVEL>
struct step_t {
    static constexpr int BIT = INDEX_LOG2 - 1 - LEVEL;

    static bool put(levels_t<LEVEL>& levels, ap_uint<32> number, word_t sample) {
#pragma HLS INLINE
        if (step_t<LEVEL + 1>::put(levels.deeper, number, sample)) return true;
        if ((number >> BIT & 1) == 0) return false;
        levels.cells[number >> (BIT + 1)] = sample;
        return true;
    }

    static partition_t find(const levels_t<LEVEL>& levels, const index_t& index, word_t bound, bool upper, partition_t found) {
#pragma HLS INLINE
        const partition_t further = found | 1 << BIT;
        const bool before = precedes(levels.cells[found >> (BIT + 1)], bound, upper);
        return step_t<LEVEL + 1>::find(levels.deeper, index, bound, upper, before && further < index.samples ? further : found);
    }
};

template <>
struct step_t<INDEX_LOG2> {
    static bool put(levels_t<INDEX_LOG2>&, ap_uint<32>, word_t) { return false; }
    static partition_t find(const levels_t<INDEX_LOG2>&, const index_t&, word_t, bool, partition_t found) { return found; }
};

void take_index(index_t& index, hls::stream<words_t>& samples) {
    ap_uint<INDEX_LOG2 + 1> taken = 0;
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
    index.samples = taken;
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
        located_t found;
        found.bound = bound.lane[0];
        found.none = bound.count == 0 || index.samples == 0 || !precedes(index.least, bound.lane[0], upper);
        found.partition = step_t<0>::find(index.levels, index, bound.lane[0], upper, 0);
        found.keep = bound.count != 0;
        found.last = last = bound.last;
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
