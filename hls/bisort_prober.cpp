// Scans partitions against bounds and produces each bound's position in the run (PanJoin, III-E and IV, Figure 9).
//
// Equivalent to hw/rtl/bisort_prober.sv, in two processes. One requests each distinct partition once, many ahead; the words arrive in the
// same order as W-lane beats, with `last` at each partition's end. The other scans bounds and words as in a merge: the position of a bound
// is that of the first word that does not precede it, or the partition's end. A bound without a partition has position 0.
//
// An iteration consumes a beat of words or produces a position: a partition costs its beats, and a bound one more (the RTL does both at
// once). All requested words are consumed. Limits: bounds ascend; a partition has at least one word, and its words ascend.

#include "bisort_prober.h"

namespace {

bool precedes(word_t word, word_t bound, bool upper) {
#pragma HLS INLINE
    return upper ? word <= bound : word < bound;
}

count_t preceding(const words_t& words, word_t bound, bool upper) {
#pragma HLS INLINE
    count_t count = 0;
    for (int i = 0; i < W; i++) {
#pragma HLS UNROLL
        count += precedes(words.lane[i], bound, upper) & (i < int(words.count));
    }
    return count;
}

}  // namespace

void bisort_prober_ask(
    hls::stream<located_t>& bounds, hls::stream<located_t>& pending, hls::stream<request_t>& requests, probed_t& counted) {
    partition_t asked = 0;
    bool any = false;
    ap_uint<32> rows = 0, partitions = 0;
    bool last = false;
ask:
    while (!last) {
#pragma HLS PIPELINE II=1
        located_t bound = bounds.read();
        bound.fresh = !bound.none && !(any && bound.partition == asked);
        last = bound.last;
        // First the bound, then its request: a process that waits for words always has the bound they belong to.
        pending.write(bound);
        if (bound.fresh) {
            requests.write({bound.partition, false});
            asked = bound.partition;
            any = true;
        }
        rows += bound.keep;
        partitions += bound.fresh;
    }
    requests.write({0, true});
    counted = {rows, partitions};
}

void bisort_prober_scan(
    bool upper, ap_uint<5> step_log2, hls::stream<located_t>& pending, hls::stream<words_t>& words,
    hls::stream<position_t>& positions) {
    located_t bound = pending.read();
    bool wants = bound.fresh;    // the current beat belongs to a partition before the bound's
    words_t beat = words_t();
#pragma HLS ARRAY_PARTITION variable=beat.lane complete
    beat.last = true;
    ap_uint<32> passed = 0;      // words of the partition before the current beat
    bool more = true;
scan:
    while (more || !beat.last) {
#pragma HLS PIPELINE II=1
        // All beats but the last are full: the last word decides for the beat.
        const bool beyond = !beat.last && !bound.none && precedes(beat.lane[W - 1], bound.bound, upper);
        if (wants || beyond || !more) {
            wants = wants && !beat.last;
            passed = beat.last ? ap_uint<32>(0) : ap_uint<32>(passed + W);
            beat = words.read();
        } else {
            const ap_uint<32> start = ap_uint<32>(bound.partition) << step_log2;
            const ap_uint<32> position = start + passed + preceding(beat, bound.bound, upper);
            position_t found;
            found.lane[0] = bound.none ? ap_uint<32>(0) : position;
            found.count = bound.keep;
            found.last = bound.last;
            positions.write(found);
            more = !bound.last;
            if (more) {
                bound = pending.read();
                wants = bound.fresh;
            }
        }
    }
}

// The unit as a top function.
void bisort_prober(
    bool upper, ap_uint<5> step_log2, hls::stream<located_t>& bounds, hls::stream<request_t>& requests,
    hls::stream<words_t>& words, hls::stream<position_t>& positions, probed_t& counted) {
#pragma HLS INTERFACE s_axilite port=upper
#pragma HLS INTERFACE s_axilite port=step_log2
#pragma HLS INTERFACE axis port=bounds
#pragma HLS INTERFACE axis port=requests
#pragma HLS INTERFACE axis port=words
#pragma HLS INTERFACE axis port=positions
#pragma HLS INTERFACE s_axilite port=counted
#pragma HLS INTERFACE s_axilite port=return
#pragma HLS DATAFLOW
    hls::stream<located_t, FAR> pending;
    DATAFLOW_BEGINS
    PROCESS(bisort_prober_ask(bounds, pending, requests, counted));
    PROCESS(bisort_prober_scan(upper, step_log2, pending, words, positions));
}
