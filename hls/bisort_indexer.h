// See bisort_indexer.cpp.

#ifndef MILLRACE_BISORT_INDEXER_H
#define MILLRACE_BISORT_INDEXER_H

#include "bisort_types.h"

// Counters of the processed rows.
struct indexed_t {
    ap_uint<32> rows;
    ap_uint<32> samples;
};

void bisort_indexer(
    ap_uint<5> step_log2, ap_uint<32> first, hls::stream<tuples_t>& in, hls::stream<tuples_t>& out,
    hls::stream<sample_t>& index, indexed_t& counted);

#endif
