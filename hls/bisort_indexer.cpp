// Samples the index of a run while the run passes (PanJoin, III-D and IV): every 2**step_log2-th key, counted from the run's start.
//
// Equivalent to hw/rtl/bisort_indexer.sv. `first` is the position of the stream's first tuple in the complete run; tuples at multiples of
// the step are samples. A sample is held until the next one or the end arrives, so that `last` is set on the last sample; a stream without
// samples produces one empty beat. Limits: the step is at least 8, so a beat has at most one sample; step_log2 is 3 to 31.

#include "bisort_indexer.h"

void bisort_indexer(
    ap_uint<5> step_log2, ap_uint<32> first, hls::stream<tuples_t>& in, hls::stream<tuples_t>& out,
    hls::stream<sample_t>& index, indexed_t& counted) {
#pragma HLS INTERFACE s_axilite port=step_log2
#pragma HLS INTERFACE s_axilite port=first
#pragma HLS INTERFACE axis port=in
#pragma HLS INTERFACE axis port=out
#pragma HLS INTERFACE axis port=index
#pragma HLS INTERFACE s_axilite port=counted
#pragma HLS INTERFACE s_axilite port=return
    const ap_uint<32> step = ap_uint<32>(1) << step_log2;
    ap_uint<32> ahead = (0 - first) & (step - 1);    // tuples from lane 0 of the next beat to the next sample
    sample_t held;
    held.lane[0] = 0;
    held.count = 0;
    held.last = false;
    ap_uint<32> rows = 0, samples = 0;
    bool last = false;
pass:
    while (!last) {
#pragma HLS PIPELINE II=1
        const tuples_t beat = in.read();
#pragma HLS ARRAY_PARTITION variable=beat.key complete
#pragma HLS ARRAY_PARTITION variable=beat.id complete
        out.write(beat);
        last = beat.last;
        rows += beat.count;
        if (ahead < beat.count) {
            if (held.count) index.write(held);
            held.lane[0] = beat.key[ahead];
            held.count = 1;
            samples += 1;
            ahead += step;
        }
        ahead -= W;    // all beats but the last are full
    }
    held.last = true;
    index.write(held);
    counted = {rows, samples};
}
