// See bisort_prober.cpp.

#ifndef MILLRACE_BISORT_PROBER_H
#define MILLRACE_BISORT_PROBER_H

#include "bisort_types.h"

// Counters of the processed rows.
struct probed_t {
    ap_uint<32> rows;
    ap_uint<32> partitions;
};

void bisort_prober_ask(
    hls::stream<located_t>& bounds, hls::stream<located_t>& pending, hls::stream<request_t>& requests, probed_t& counted);
void bisort_prober_scan(
    bool upper, ap_uint<5> step_log2, hls::stream<located_t>& pending, hls::stream<words_t>& words,
    hls::stream<position_t>& positions);
void bisort_prober(
    bool upper, ap_uint<5> step_log2, hls::stream<located_t>& bounds, hls::stream<request_t>& requests,
    hls::stream<words_t>& words, hls::stream<position_t>& positions, probed_t& counted);

#endif
