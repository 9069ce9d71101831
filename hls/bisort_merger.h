// See bisort_merger.cpp.

#ifndef MILLRACE_BISORT_MERGER_H
#define MILLRACE_BISORT_MERGER_H

#include "bisort_types.h"

void bisort_merger(hls::stream<tuples_t>& a, hls::stream<tuples_t>& b, hls::stream<tuples_t>& out, ap_uint<32>& rows);

#endif
